// few for the formats with blocks of 256 and Q8_256 activations. Included once for each instruction set, inside its target region,
// with LD_NAME(x) giving x its suffix and these steps defined for it:
//   LD_NAME(ld_dot_scaled)(acc, q0, x0, q1, x1, scales, i, j)  acc + scale[i] * sum(q0 * x0) + scale[j] * sum(q1 * x1), spread over
//     eight int32; scales holds eight int16 for the lower halves of registers and eight for the upper ones; q at most 63.
//   LD_NAME(ld_dot_scaled_int8)(acc, w0, x0, w1, x1, scale)    acc + scale * (sum(w0 * x0) + sum(w1 * x1)) with sixteen int16 scales;
//     w is signed, -127 .. 127.
// Everything inside a block is integer and exact: |sum| <= 256 * 63 * 127 * 128 < 2^29.

// Groups of 32 (Q4_K, Q5_K).
LD_INLINE void LD_NAME(ld_rows_of_groups)(LD_ROWS_ARGS, const int bytes, ld_quants_fn quants) {
    const uint8_t *next = ld_prefetch_from(w, w_stride, n_rows);
    const size_t d_at = ld_act_scales_at(k), b_at = ld_act_sums_at(LD_ACT_Q8_256, k);
    __m256 acc[4][4];
    __m128 acc_min[4][4];
    LD_UNROLL for (int a = 0; a < n_act; a++)
        LD_UNROLL for (int r = 0; r < n_rows; r++) acc[a][r] = _mm256_setzero_ps(), acc_min[a][r] = _mm_setzero_ps();
    for (int64_t b = 0; b < k / 256; b++)
        LD_UNROLL for (int r = 0; r < n_rows; r++) {
            const uint8_t *block = w + r * w_stride + b * bytes;
            next = ld_prefetch(next, bytes, n_rows);
            const ld_group_scales head = ld_group_scales_k(block);
            const __m256i scales = _mm256_broadcastsi128_si256(head.scale8);
            __m256i sum[4];
            LD_UNROLL for (int a = 0; a < n_act; a++) sum[a] = _mm256_setzero_si256();
            LD_UNROLL for (int j = 0; j < 8; j += 2) {
                const __m256i q0 = quants(block, j), q1 = quants(block, j + 1);
                LD_UNROLL for (int a = 0; a < n_act; a++) {
                    const __m256i *x = (const __m256i *)(act + a * act_stride + 256 * b + 32 * j);
                    sum[a] = LD_NAME(ld_dot_scaled)(sum[a], q0, x[0], q1, x[1], scales, j, j + 1);
                }
            }
            LD_UNROLL for (int a = 0; a < n_act; a++) {
                const uint8_t *x = act + a * act_stride;
                const float dx = ((const float *)(x + d_at))[b];
                acc[a][r] = _mm256_fmadd_ps(_mm256_set1_ps(head.d * dx), _mm256_cvtepi32_ps(sum[a]), acc[a][r]);
                const __m128i *b16 = (const __m128i *)((const int16_t *)(x + b_at) + 16 * b);
                const __m128i min_dot = _mm_madd_epi16(head.min8, _mm_hadd_epi16(b16[0], b16[1]));
                acc_min[a][r] = _mm_fmadd_ps(_mm_set1_ps(-head.dmin * dx), _mm_cvtepi32_ps(min_dot), acc_min[a][r]);
            }
        }
    LD_UNROLL for (int a = 0; a < n_act; a++) {
        LD_UNROLL for (int r = 0; r < n_rows; r++)
            acc[a][r] = _mm256_add_ps(acc[a][r], _mm256_set_m128(_mm_setzero_ps(), acc_min[a][r]));
        ld_store_sums(acc[a], y + a * y_stride, n_rows);
    }
}

// IQ4_XS: 32 bytes hold a group in either half, its first 16 values in the low nibbles, so that both share a register of scales.
LD_INLINE void LD_NAME(ld_rows_iq4_xs)(LD_ROWS_ARGS) {
    const __m256i low4 = _mm256_set1_epi8(15);
    const __m256i table = _mm256_broadcastsi128_si256(_mm_load_si128((const __m128i *)ld_iq4_values));
    const uint8_t *next = ld_prefetch_from(w, w_stride, n_rows);
    const size_t d_at = ld_act_scales_at(k);
    __m256 acc[4][4];
    LD_UNROLL for (int a = 0; a < n_act; a++)
        LD_UNROLL for (int r = 0; r < n_rows; r++) acc[a][r] = _mm256_setzero_ps();
    for (int64_t b = 0; b < k / 256; b++) {
        __m256i scales[4], sum[4][4];
        LD_UNROLL for (int r = 0; r < n_rows; r++) {
            next = ld_prefetch(next, sizeof(ld_block_iq4_xs), n_rows);
            scales[r] = _mm256_broadcastsi128_si256(ld_iq4_xs_scales((const ld_block_iq4_xs *)(w + r * w_stride) + b));
            LD_UNROLL for (int a = 0; a < n_act; a++) sum[a][r] = _mm256_setzero_si256();
        }
        LD_UNROLL for (int j = 0; j < 8; j += 2) {
            const short even = (short)(0x100 * (2 * j + 1) + 2 * j), odd = (short)(even + 0x202);
            const __m256i order = _mm256_set_m128i(_mm_set1_epi16(odd), _mm_set1_epi16(even));
            __m256i x_lo[4], x_hi[4];
            LD_UNROLL for (int a = 0; a < n_act; a++) {
                const __m256i *x = (const __m256i *)(act + a * act_stride + 256 * b + 32 * j);
                x_lo[a] = _mm256_permute2x128_si256(x[0], x[1], 0x20);
                x_hi[a] = _mm256_permute2x128_si256(x[0], x[1], 0x31);
            }
            LD_UNROLL for (int r = 0; r < n_rows; r++) {
                const __m256i packed = ld_load256(((const ld_block_iq4_xs *)(w + r * w_stride))[b].q + 16 * j);
                const __m256i lo = _mm256_shuffle_epi8(table, _mm256_and_si256(packed, low4));
                const __m256i hi = _mm256_shuffle_epi8(table, _mm256_and_si256(_mm256_srli_epi16(packed, 4), low4));
                const __m256i scale = _mm256_shuffle_epi8(scales[r], order);
                LD_UNROLL for (int a = 0; a < n_act; a++)
                    sum[a][r] = LD_NAME(ld_dot_scaled_int8)(sum[a][r], lo, x_lo[a], hi, x_hi[a], scale);
            }
        }
        LD_UNROLL for (int r = 0; r < n_rows; r++) {
            const float d = ld_half(((const ld_block_iq4_xs *)(w + r * w_stride))[b].d);
            LD_UNROLL for (int a = 0; a < n_act; a++)
                acc[a][r] = _mm256_fmadd_ps(_mm256_set1_ps(d * ((const float *)(act + a * act_stride + d_at))[b]),
                                            _mm256_cvtepi32_ps(sum[a][r]), acc[a][r]);
        }
    }
    LD_UNROLL for (int a = 0; a < n_act; a++) ld_store_sums(acc[a], y + a * y_stride, n_rows);
}

// Groups of 16 (Q2_K, Q3_K, Q6_K): x = d * scale * (q - 2^bias_shift), or, where has_min, d * scale * q - dmin * min. The integers
// of odd groups of 32 come 2^odd_shift times as large, which spares shifts of the weights.
LD_INLINE void LD_NAME(ld_rows_of_halves)(LD_ROWS_ARGS, const int bytes, ld_quants_fn quants, ld_half_scales_fn half_scales,
                                          const int bias_shift, const int has_min, const int odd_shift) {
    const __m128i split = _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
    const uint8_t *next = ld_prefetch_from(w, w_stride, n_rows);
    const size_t d_at = ld_act_scales_at(k), b_at = ld_act_sums_at(LD_ACT_Q8_256, k);
    __m256 acc[4][4];
    LD_UNROLL for (int a = 0; a < n_act; a++)
        LD_UNROLL for (int r = 0; r < n_rows; r++) acc[a][r] = _mm256_setzero_ps();
    for (int64_t b = 0; b < k / 256; b++)
        LD_UNROLL for (int r = 0; r < n_rows; r++) {
            const uint8_t *block = w + r * w_stride + b * bytes;
            next = ld_prefetch(next, bytes, n_rows);
            const ld_half_scales head = half_scales(block);
            const __m256i scales = _mm256_cvtepi8_epi16(_mm_shuffle_epi8(head.scale16, split));
            const __m256i factors = _mm256_cvtepi8_epi16(has_min ? head.min16 : head.scale16);
            __m256i sum[4][2];
            LD_UNROLL for (int a = 0; a < n_act; a++) sum[a][0] = sum[a][1] = _mm256_setzero_si256();
            LD_UNROLL for (int i = 0; i < 4; i++) {
                const int g = 4 * (i / 2) + i % 2; // and g + 2: both even or both odd
                const __m256i q0 = quants(block, g), q1 = quants(block, g + 2);
                LD_UNROLL for (int a = 0; a < n_act; a++) {
                    const __m256i *x = (const __m256i *)(act + a * act_stride + 256 * b + 32 * g);
                    sum[a][i % 2] = LD_NAME(ld_dot_scaled)(sum[a][i % 2], q0, x[0], q1, x[2], scales, g, g + 2);
                }
            }
            LD_UNROLL for (int a = 0; a < n_act; a++) {
                const uint8_t *x = act + a * act_stride;
                const float dx = ((const float *)(x + d_at))[b];
                const __m256i offset = _mm256_madd_epi16(factors, *((const __m256i *)(x + b_at) + b)); // sum of scale or min * x
                __m256i total = _mm256_add_epi32(sum[a][0], _mm256_srai_epi32(sum[a][1], odd_shift));
                if (has_min) {
                    acc[a][r] = _mm256_fmadd_ps(_mm256_set1_ps(-head.dmin * dx), _mm256_cvtepi32_ps(offset), acc[a][r]);
                } else {
                    total = _mm256_sub_epi32(total, _mm256_slli_epi32(offset, bias_shift));
                }
                acc[a][r] = _mm256_fmadd_ps(_mm256_set1_ps(head.d * dx), _mm256_cvtepi32_ps(total), acc[a][r]);
            }
        }
    LD_UNROLL for (int a = 0; a < n_act; a++) ld_store_sums(acc[a], y + a * y_stride, n_rows);
}

#define LD_ROWS_OF_GROUPS(name, rows_fn, few_fn, groups_fn, has_fifth) \
    LD_INLINE void rows_fn(LD_ROWS_ARGS) { \
        if (LD_ABREAST && n_rows == 2 && n_act == 1) \
            ld_groups_abreast(w, w_stride, act, y, k, sizeof(ld_block_##name), has_fifth); \
        else \
            groups_fn(w, w_stride, act, act_stride, y, y_stride, k, n_rows, n_act, sizeof(ld_block_##name), ld_quants_##name); \
    } \
    LD_DEFINE_ABREAST(few_fn, rows_fn, LD_MAX_SUMS, LD_ABREAST)
LD_ROWS_OF_GROUPS(q4_k, LD_NAME(ld_rows_q4_k), LD_NAME(ld_few_q4_k), LD_NAME(ld_rows_of_groups), 0)
LD_ROWS_OF_GROUPS(q5_k, LD_NAME(ld_rows_q5_k), LD_NAME(ld_few_q5_k), LD_NAME(ld_rows_of_groups), 1)
#undef LD_ROWS_OF_GROUPS
LD_DEFINE_FEW(LD_NAME(ld_few_iq4_xs), LD_NAME(ld_rows_iq4_xs), 2, LD_MAX_SUMS)

#define LD_ROWS_OF_HALVES(name, rows_fn, few_fn, halves_fn, quants, bias_shift, has_min, odd_shift) \
    LD_INLINE void rows_fn(LD_ROWS_ARGS) { \
        halves_fn(w, w_stride, act, act_stride, y, y_stride, k, n_rows, n_act, sizeof(ld_block_##name), quants, \
                  ld_half_scales_##name, bias_shift, has_min, odd_shift); \
    } \
    LD_DEFINE_FEW(few_fn, rows_fn, 2, LD_MAX_SUMS)
LD_ROWS_OF_HALVES(q2_k, LD_NAME(ld_rows_q2_k), LD_NAME(ld_few_q2_k), LD_NAME(ld_rows_of_halves), ld_quants_q2_k_odd4, 0, 1, 2)
LD_ROWS_OF_HALVES(q3_k, LD_NAME(ld_rows_q3_k), LD_NAME(ld_few_q3_k), LD_NAME(ld_rows_of_halves), ld_quants_q3_k_odd4, 2, 0, 2)
LD_ROWS_OF_HALVES(q6_k, LD_NAME(ld_rows_q6_k), LD_NAME(ld_few_q6_k), LD_NAME(ld_rows_of_halves), ld_quants_q6_k, 5, 0, 0)
#undef LD_ROWS_OF_HALVES
