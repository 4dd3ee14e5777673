// few for the formats with blocks of 32 (Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, IQ4_NL, MXFP4) and Q8_32 activations. Included once for
// each instruction set, inside its target region, with LD_NAME(x) giving x its suffix and these steps defined for it:
//   LD_NAME(ld_dot_nibbles)(lo, x_lo, hi, x_hi)  eight int32 sums of four lo * x_lo and four hi * x_hi; lo, hi at most 63, or at
//                                                most 255 where LD_INT8_BIAS is 128
//   LD_NAME(ld_dot_int8)(w, x)                   eight int32 sums of four (w + LD_INT8_BIAS) * x; w any int8
// Four blocks are taken at a time: their scales are converted together, and a pair of blocks fills a register with its low
// nibbles and another with its high nibbles, so that half a register belongs to one block.

#ifndef LD_OWN_WIDE // an instruction set may bring its own
// x = d * (q - bias) + m; m_factor is 1, or -bias where the format has no m, or 0. is_signed: `values` are taken as int8, without
// a bias.
LD_INLINE void LD_NAME(ld_rows_nibbles)(LD_ROWS_ARGS, const int bytes, ld_quants_fn quants, ld_scales_of_fn scales,
                                        ld_four_scales_fn four_scales, const int kind, const int8_t *values, const int is_signed,
                                        const float m_factor) {
    const int q_at = bytes - 16; // a block ends with its nibbles, and before them fifth bits
    const __m256i low4 = _mm256_set1_epi8(15);
    const __m256i pair[2] = {_mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1), _mm256_setr_epi32(2, 2, 2, 2, 3, 3, 3, 3)};
    __m256i table = low4;
    if (kind == LD_CHOSEN) {
        table = _mm256_broadcastsi128_si256(_mm_load_si128((const __m128i *)values));
        if (!is_signed) table = _mm256_add_epi8(table, _mm256_set1_epi8((char)-(int)m_factor));
    }
    const int64_t n_blocks = k / 32;
    const uint8_t *next = ld_prefetch_from(w, w_stride, n_rows);
    const size_t d_at = ld_act_scales_at(k), s_at = ld_act_sums_at(LD_ACT_Q8_32, k);
    __m256 acc[4][4];
    __m128 acc_min[4][4];
    LD_UNROLL for (int a = 0; a < n_act; a++)
        LD_UNROLL for (int r = 0; r < n_rows; r++) acc[a][r] = _mm256_setzero_ps(), acc_min[a][r] = _mm_setzero_ps();
    int64_t b = 0;
    for (; b + 4 <= n_blocks; b += 4) {
        __m256i x_lo[4][2], x_hi[4][2];
        LD_UNROLL for (int a = 0; a < n_act; a++)
            LD_UNROLL for (int p = 0; p < 2; p++) {
                const __m256i *x = (const __m256i *)(act + a * act_stride + 32 * (b + 2 * p));
                x_lo[a][p] = _mm256_permute2x128_si256(x[0], x[1], 0x20);
                x_hi[a][p] = _mm256_permute2x128_si256(x[0], x[1], 0x31);
            }
        LD_UNROLL for (int r = 0; r < n_rows; r++) {
            const uint8_t *block = w + r * w_stride + b * bytes;
            next = ld_prefetch(next, 4 * bytes, n_rows);
            const ld_four_scales d_m = four_scales(block);
            LD_UNROLL for (int p = 0; p < 2; p++) {
                const uint8_t *q = block + 2 * p * bytes + q_at;
                const __m256i packed = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)q)),
                                                               _mm_loadu_si128((const __m128i *)(q + bytes)), 1);
                __m256i lo = _mm256_and_si256(packed, low4), hi = _mm256_and_si256(_mm256_srli_epi16(packed, 4), low4);
                if (kind == LD_CHOSEN) lo = _mm256_shuffle_epi8(table, lo), hi = _mm256_shuffle_epi8(table, hi);
                if (kind == LD_FIFTH) {
                    const __m128i first = _mm_set1_epi32((int32_t)*(const ld_packed32 *)(q - 4));
                    const __m128i second = _mm_set1_epi32((int32_t)*(const ld_packed32 *)(q + bytes - 4));
                    const __m256i bits = _mm256_set_m128i(second, first);
                    lo = _mm256_or_si256(lo, ld_spread_bits(bits, 0)), hi = _mm256_or_si256(hi, ld_spread_bits(bits, 2));
                }
                LD_UNROLL for (int a = 0; a < n_act; a++) {
                    const __m128 scale = _mm_mul_ps(d_m.d, _mm_load_ps((const float *)(act + a * act_stride + d_at) + b));
                    const __m256i dot = is_signed ? _mm256_add_epi32(LD_NAME(ld_dot_int8)(lo, x_lo[a][p]),
                                                                     LD_NAME(ld_dot_int8)(hi, x_hi[a][p]))
                                                  : LD_NAME(ld_dot_nibbles)(lo, x_lo[a][p], hi, x_hi[a][p]);
                    acc[a][r] = _mm256_fmadd_ps(_mm256_permutevar8x32_ps(_mm256_castps128_ps256(scale), pair[p]),
                                                _mm256_cvtepi32_ps(dot), acc[a][r]);
                }
            }
            if (m_factor == 0) continue;
            LD_UNROLL for (int a = 0; a < n_act; a++)
                acc_min[a][r] = _mm_fmadd_ps(d_m.m, _mm_load_ps((const float *)(act + a * act_stride + s_at) + b), acc_min[a][r]);
        }
    }
    for (; b < n_blocks; b++)
        LD_UNROLL for (int r = 0; r < n_rows; r++) {
            const ld_scales d_m = scales(w + r * w_stride, b);
            const __m256i q = quants(w + r * w_stride, b), zero = _mm256_setzero_si256();
            LD_UNROLL for (int a = 0; a < n_act; a++) {
                const uint8_t *x = act + a * act_stride;
                const __m256i xq = *(const __m256i *)(x + 32 * b);
                const int is_int8 = kind == LD_CHOSEN && values == ld_iq4_values;
                const __m256i dot = is_int8 ? LD_NAME(ld_dot_int8)(q, xq) : LD_NAME(ld_dot_nibbles)(q, xq, zero, zero);
                acc[a][r] = _mm256_fmadd_ps(_mm256_set1_ps(d_m.d * ((const float *)(x + d_at))[b]), _mm256_cvtepi32_ps(dot),
                                            acc[a][r]);
                if (m_factor != 0)
                    acc_min[a][r] = _mm_fmadd_ps(_mm_set_ss(d_m.m), _mm_set_ss(((const float *)(x + s_at))[b]), acc_min[a][r]);
            }
        }
    LD_UNROLL for (int a = 0; a < n_act; a++) {
        if (m_factor != 0)
            LD_UNROLL for (int r = 0; r < n_rows; r++)
                acc[a][r] = _mm256_fmadd_ps(_mm256_set1_ps(m_factor), _mm256_set_m128(_mm_setzero_ps(), acc_min[a][r]), acc[a][r]);
        ld_store_sums(acc[a], y + a * y_stride, n_rows);
    }
}

#define LD_ROWS_OF_NIBBLES(name, rows_fn, few_fn, nibbles_fn, kind, values, is_signed, m_factor) \
    LD_INLINE void rows_fn(LD_ROWS_ARGS) { \
        if (LD_ABREAST && (kind) != LD_CHOSEN && n_rows == 2 && n_act == 1) \
            ld_blocks_abreast(w, w_stride, act, y, k, sizeof(ld_block_##name), (kind) == LD_FIFTH, m_factor); \
        else \
            nibbles_fn(w, w_stride, act, act_stride, y, y_stride, k, n_rows, n_act, sizeof(ld_block_##name), ld_quants_##name, \
                       ld_scales_##name, ld_four_scales_##name, kind, values, is_signed, m_factor); \
    } \
    LD_DEFINE_ABREAST(few_fn, rows_fn, LD_MAX_SUMS, LD_ABREAST && (kind) != LD_CHOSEN)
LD_ROWS_OF_NIBBLES(q4_0, LD_NAME(ld_rows_q4_0), LD_NAME(ld_few_q4_0), LD_NAME(ld_rows_nibbles), LD_PLAIN, NULL, 0, -8)
LD_ROWS_OF_NIBBLES(q4_1, LD_NAME(ld_rows_q4_1), LD_NAME(ld_few_q4_1), LD_NAME(ld_rows_nibbles), LD_PLAIN, NULL, 0, 1)
LD_ROWS_OF_NIBBLES(q5_0, LD_NAME(ld_rows_q5_0), LD_NAME(ld_few_q5_0), LD_NAME(ld_rows_nibbles), LD_FIFTH, NULL, 0, -16)
LD_ROWS_OF_NIBBLES(q5_1, LD_NAME(ld_rows_q5_1), LD_NAME(ld_few_q5_1), LD_NAME(ld_rows_nibbles), LD_FIFTH, NULL, 0, 1)
LD_ROWS_OF_NIBBLES(iq4_nl, LD_NAME(ld_rows_iq4_nl), LD_NAME(ld_few_iq4_nl), LD_NAME(ld_rows_nibbles), LD_CHOSEN, ld_iq4_values,
                   LD_INT8_BIAS == 0, -LD_INT8_BIAS)
LD_ROWS_OF_NIBBLES(mxfp4, LD_NAME(ld_rows_mxfp4), LD_NAME(ld_few_mxfp4), LD_NAME(ld_rows_nibbles), LD_CHOSEN, ld_fp4_values, 0, -12)
#undef LD_ROWS_OF_NIBBLES
#endif

// Q8_0, a block in a register.
LD_INLINE void LD_NAME(ld_rows_q8_0)(LD_ROWS_ARGS) {
    const int64_t n_blocks = k / 32;
    const uint8_t *next = ld_prefetch_from(w, w_stride, n_rows);
    const size_t d_at = ld_act_scales_at(k), s_at = ld_act_sums_at(LD_ACT_Q8_32, k);
    __m256 acc[4][4], odd[4][4];
    __m128 acc_m[4][4];
    LD_UNROLL for (int a = 0; a < n_act; a++)
        LD_UNROLL for (int r = 0; r < n_rows; r++) acc[a][r] = odd[a][r] = _mm256_setzero_ps(), acc_m[a][r] = _mm_setzero_ps();
    int64_t b = 0;
    for (; b + 4 <= n_blocks; b += 4)
        LD_UNROLL for (int r = 0; r < n_rows; r++) {
            const uint8_t *block = w + r * w_stride + b * sizeof(ld_block_q8_0);
            next = ld_prefetch(next, 4 * sizeof(ld_block_q8_0), n_rows);
            const __m128 d = ld_four_scales_q8_0(block).d;
            LD_UNROLL for (int a = 0; a < n_act; a++) {
                const uint8_t *x = act + a * act_stride;
                const __m128 scale = _mm_mul_ps(d, _mm_load_ps((const float *)(x + d_at) + b));
                LD_UNROLL for (int i = 0; i < 4; i++) {
                    const __m256i dot = LD_NAME(ld_dot_int8)(ld_quants_q8_0(block, i), *(const __m256i *)(x + 32 * (b + i)));
                    const __m256 wide = _mm256_permutevar8x32_ps(_mm256_castps128_ps256(scale), _mm256_set1_epi32(i));
                    if (i % 2 && n_rows == 1) odd[a][r] = _mm256_fmadd_ps(wide, _mm256_cvtepi32_ps(dot), odd[a][r]);
                    else acc[a][r] = _mm256_fmadd_ps(wide, _mm256_cvtepi32_ps(dot), acc[a][r]);
                }
                if (LD_INT8_BIAS) acc_m[a][r] = _mm_fmadd_ps(d, _mm_load_ps((const float *)(x + s_at) + b), acc_m[a][r]);
            }
        }
    for (; b < n_blocks; b++)
        LD_UNROLL for (int r = 0; r < n_rows; r++) {
            const __m256i q = ld_quants_q8_0(w + r * w_stride, b);
            const float d = ld_scales_q8_0(w + r * w_stride, b).d;
            LD_UNROLL for (int a = 0; a < n_act; a++) {
                const uint8_t *x = act + a * act_stride;
                const __m256i dot = LD_NAME(ld_dot_int8)(q, *(const __m256i *)(x + 32 * b));
                acc[a][r] = _mm256_fmadd_ps(_mm256_set1_ps(d * ((const float *)(x + d_at))[b]), _mm256_cvtepi32_ps(dot), acc[a][r]);
                if (LD_INT8_BIAS)
                    acc_m[a][r] = _mm_fmadd_ps(_mm_set_ss(d), _mm_set_ss(((const float *)(x + s_at))[b]), acc_m[a][r]);
            }
        }
    LD_UNROLL for (int a = 0; a < n_act; a++) {
        if (n_rows == 1) acc[a][0] = _mm256_add_ps(acc[a][0], odd[a][0]);
        if (LD_INT8_BIAS)
            LD_UNROLL for (int r = 0; r < n_rows; r++)
                acc[a][r] = _mm256_fmadd_ps(_mm256_set1_ps(-LD_INT8_BIAS), _mm256_set_m128(_mm_setzero_ps(), acc_m[a][r]), acc[a][r]);
        ld_store_sums(acc[a], y + a * y_stride, n_rows);
    }
}
LD_DEFINE_FEW(LD_NAME(ld_few_q8_0), LD_NAME(ld_rows_q8_0), 2, LD_MAX_SUMS)
