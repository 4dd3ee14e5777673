// few for the formats with blocks of 256, with 512-bit registers. Included once, inside the region of AVX-512 VNNI.
#pragma once

// Both halves rotated left by 32-bit words, each by its own number: bits stay in their byte where they are picked out afterwards.
LD_INLINE __m512i ld_rotated(__m512i v, const int low, const int high) {
    return _mm512_rolv_epi32(v, _mm512_inserti64x4(_mm512_set1_epi32(low), _mm256_set1_epi32(high), 1));
}

// q | (bits & mask)
LD_INLINE __m512i ld_join_bits(__m512i q, __m512i bits, const int mask) {
    return _mm512_ternarylogic_epi64(q, bits, _mm512_set1_epi8((char)mask), 0xf8);
}

// 64 bytes hold groups 0 and 2 in their low and 1 and 3 in their high nibbles. The sums of four products (at most 4 * 31 * 127)
// fit int16: packed, groups side by side, they meet their scales in one vpdpwssd.
LD_INLINE void ld_rows_wide_groups(LD_ROWS_ARGS, const int bytes, const int has_fifth) {
    const __m512i low4 = _mm512_set1_epi8(15), zero = _mm512_setzero_si512();
    // int16 scale i of a quarter register is bytes 2i, 2i + 1; packing puts four sums of an even group before four of the odd one
    const __m512i order = _mm512_broadcast_i64x2(_mm_setr_epi8(0, 1, 0, 1, 0, 1, 0, 1, 2, 3, 2, 3, 2, 3, 2, 3));
    const __m512i order0 = _mm512_add_epi8(order, _mm512_setr_epi64(0, 0, 0, 0, 0x0404040404040404, 0x0404040404040404,
                                                                    0x0404040404040404, 0x0404040404040404));
    const __m512i order1 = _mm512_add_epi8(order0, _mm512_set1_epi8(8));
    const size_t d_at = ld_act_scales_at(k), b_at = ld_act_sums_at(LD_ACT_Q8_256, k);
    const uint8_t *next = w + LD_FAR_AHEAD;
    __m512 acc[4][4];
    __m128 acc_min[4][4];
    LD_UNROLL for (int a = 0; a < n_act; a++)
        LD_UNROLL for (int r = 0; r < n_rows; r++) acc[a][r] = _mm512_setzero_ps(), acc_min[a][r] = _mm_setzero_ps();
    for (int64_t b = 0; b < k / 256; b++) {
        __m512i x[4][4]; // groups 0 and 2, 1 and 3, 4 and 6, 5 and 7
        __m128i sums[4];
        LD_UNROLL for (int a = 0; a < n_act; a++) {
            const uint8_t *row = act + a * act_stride;
            LD_UNROLL for (int h = 0; h < 2; h++) {
                const __m512i x0 = _mm512_load_si512(row + 256 * b + 128 * h);
                const __m512i x1 = _mm512_load_si512(row + 256 * b + 128 * h + 64);
                x[a][2 * h] = _mm512_shuffle_i64x2(x0, x1, 0x44);
                x[a][2 * h + 1] = _mm512_shuffle_i64x2(x0, x1, 0xee);
            }
            const __m128i *b16 = (const __m128i *)((const int16_t *)(row + b_at) + 16 * b);
            sums[a] = _mm_hadd_epi16(b16[0], b16[1]);
        }
        next = ld_prefetch_far(next, n_rows * bytes);
        LD_UNROLL for (int r = 0; r < n_rows; r++) {
            const ld_block_q4_k *block = (const ld_block_q4_k *)(w + r * w_stride + b * bytes);
            uint32_t scales[2], mins[2];
            ld_q4_k_scales(block->scales, scales, mins);
            const __m512i scale8 = _mm512_broadcast_i64x2(
                _mm_cvtepu8_epi16(_mm_cvtsi64_si128((int64_t)(scales[0] | (uint64_t)scales[1] << 32))));
            const __m128i min8 = _mm_cvtepu8_epi16(_mm_cvtsi64_si128((int64_t)(mins[0] | (uint64_t)mins[1] << 32)));
            const __m128 d_dmin = _mm_cvtph_ps(_mm_cvtsi32_si128(*(const ld_packed32 *)&block->d));
            const __m512i scales0 = _mm512_shuffle_epi8(scale8, order0), scales1 = _mm512_shuffle_epi8(scale8, order1);
            const uint8_t *packed = block->q + (has_fifth ? 32 : 0);
            const __m512i z0 = _mm512_loadu_si512(packed), z1 = _mm512_loadu_si512(packed + 64);
            __m512i q0 = _mm512_and_si512(z0, low4), q1 = _mm512_and_si512(_mm512_srli_epi16(z0, 4), low4);
            __m512i q2 = _mm512_and_si512(z1, low4), q3 = _mm512_and_si512(_mm512_srli_epi16(z1, 4), low4);
            if (has_fifth) { // bit i of a byte belongs to group i: rotated to bit 4, it joins the nibble
                const __m512i high = _mm512_broadcast_i64x4(ld_load256(block->q));
                q0 = ld_join_bits(q0, ld_rotated(high, 4, 2), 16), q1 = ld_join_bits(q1, ld_rotated(high, 3, 1), 16);
                q2 = ld_join_bits(q2, ld_rotated(high, 0, 30), 16), q3 = ld_join_bits(q3, ld_rotated(high, 31, 29), 16);
            }
            LD_UNROLL for (int a = 0; a < n_act; a++) {
                const __m512i p0 = _mm512_packs_epi32(_mm512_dpbusd_epi32(zero, q0, x[a][0]),
                                                      _mm512_dpbusd_epi32(zero, q1, x[a][1]));
                const __m512i p1 = _mm512_packs_epi32(_mm512_dpbusd_epi32(zero, q2, x[a][2]),
                                                      _mm512_dpbusd_epi32(zero, q3, x[a][3]));
                const __m512i sum = _mm512_dpwssd_epi32(_mm512_dpwssd_epi32(zero, p0, scales0), p1, scales1);
                const __m128 both = _mm_mul_ps(d_dmin, _mm_set1_ps(((const float *)(act + a * act_stride + d_at))[b]));
                acc[a][r] = _mm512_fmadd_ps(_mm512_broadcastss_ps(both), _mm512_cvtepi32_ps(sum), acc[a][r]);
                acc_min[a][r] = _mm_fnmadd_ps(_mm_shuffle_ps(both, both, 0x55),
                                              _mm_cvtepi32_ps(_mm_madd_epi16(min8, sums[a])), acc_min[a][r]);
            }
        }
    }
    LD_UNROLL for (int a = 0; a < n_act; a++) {
        __m256 sum[4];
        LD_UNROLL for (int r = 0; r < n_rows; r++)
            sum[r] = _mm256_add_ps(ld_fold16(acc[a][r]), _mm256_set_m128(_mm_setzero_ps(), acc_min[a][r]));
        ld_store_sums(sum, y + a * y_stride, n_rows);
    }
}
LD_INLINE void ld_rows_q4_k_avx512vnni(LD_ROWS_ARGS) {
    ld_rows_wide_groups(w, w_stride, act, act_stride, y, y_stride, k, n_rows, n_act, sizeof(ld_block_q4_k), 0);
}
LD_INLINE void ld_rows_q5_k_avx512vnni(LD_ROWS_ARGS) {
    ld_rows_wide_groups(w, w_stride, act, act_stride, y, y_stride, k, n_rows, n_act, sizeof(ld_block_q5_k), 1);
}
LD_DEFINE_FAR(ld_few_q4_k_avx512vnni, ld_rows_q4_k_avx512vnni, 4, LD_MAX_SUMS)
LD_DEFINE_FAR(ld_few_q5_k_avx512vnni, ld_rows_q5_k_avx512vnni, 4, LD_MAX_SUMS)


// The scales of IQ4_XS blocks of up to four rows times their d: 16 floats a register, those of rows 0 and 1, of rows 2 and 3. The
// heads of all rows are taken apart at once, a quarter of a register each.
LD_INLINE void ld_iq4_xs_scales_of_rows(const uint8_t *w, size_t w_stride, const int n_rows, __m512 scales[2]) {
    int64_t heads[4] = {0, 0, 0, 0};
    LD_UNROLL for (int r = 0; r < n_rows; r++) heads[r] = (int64_t)*(const ld_packed64 *)(w + r * w_stride);
    const __m256i head = _mm256_setr_epi64x(heads[0], heads[1], heads[2], heads[3]);
    const __m512i twice = _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 0, 1, 1, 2, 2, 3, 3), _mm512_castsi256_si512(head));
    const __m512i low = _mm512_srlv_epi16(
        _mm512_shuffle_epi8(twice, _mm512_broadcast_i32x4(_mm_setr_epi8(4, -1, 4, -1, 5, -1, 5, -1, 6, -1, 6, -1, 7, -1, 7, -1))),
        _mm512_set1_epi32(4 << 16));
    const __m512i high = _mm512_srlv_epi16(
        _mm512_shuffle_epi8(twice, _mm512_set1_epi16(3 << 8 | 2)),
        _mm512_broadcast_i32x4(_mm_setr_epi16(0, 2, 4, 6, 8, 10, 12, 14)));
    const __m512i six = _mm512_or_si512(_mm512_and_si512(low, _mm512_set1_epi16(15)),
                                        _mm512_slli_epi16(_mm512_and_si512(high, _mm512_set1_epi16(3)), 4));
    const __m512i scale = _mm512_sub_epi16(six, _mm512_set1_epi16(32));
    const __m256i words = _mm256_permutexvar_epi16(_mm256_setr_epi16(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), head);
    const __m512 d = _mm512_castps128_ps512(_mm_cvtph_ps(_mm256_castsi256_si128(words)));
    const __m512i two = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
    scales[0] = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi16_epi32(_mm512_castsi512_si256(scale))),
                              _mm512_permutexvar_ps(two, d));
    if (n_rows > 2)
        scales[1] = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi16_epi32(_mm512_extracti64x4_epi64(scale, 1))),
                                  _mm512_permutexvar_ps(_mm512_add_epi32(two, _mm512_set1_epi32(2)), d));
    else scales[1] = scales[0];
}

// IQ4_XS: a quarter of a register is half of a group, 64 bytes the low and high nibbles of four. Values are biased by 128: what that
// adds depends on the activations alone, and is taken away where the sums begin. The sums of eight products are exact as floats.
LD_INLINE void ld_rows_iq4_xs_avx512vnni(LD_ROWS_ARGS) {
    const __m512i low4 = _mm512_set1_epi8(15), zero = _mm512_setzero_si512(), bias = _mm512_set1_epi8((char)0x80);
    const __m512i table = _mm512_xor_si512(_mm512_broadcast_i32x4(_mm_load_si128((const __m128i *)ld_iq4_values)), bias);
    const __m512i quarters = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    const size_t d_at = ld_act_scales_at(k);
    const uint8_t *next = w + LD_FAR_AHEAD;
    __m512 acc[4][4];
    LD_UNROLL for (int a = 0; a < n_act; a++)
        LD_UNROLL for (int r = 0; r < n_rows; r++) acc[a][r] = _mm512_setzero_ps();
    for (int64_t b = 0; b < k / 256; b++) {
        __m512i x[4][4]; // the first and second halves of groups 0 to 3, of groups 4 to 7
        __m512i start[4][2];
        float d[4];
        LD_UNROLL for (int a = 0; a < n_act; a++) {
            const uint8_t *row = act + a * act_stride;
            LD_UNROLL for (int h = 0; h < 2; h++) {
                const __m512i x0 = _mm512_load_si512(row + 256 * b + 128 * h);
                const __m512i x1 = _mm512_load_si512(row + 256 * b + 128 * h + 64);
                x[a][2 * h] = _mm512_shuffle_i64x2(x0, x1, 0x88);
                x[a][2 * h + 1] = _mm512_shuffle_i64x2(x0, x1, 0xdd);
                start[a][h] = _mm512_sub_epi32(
                    zero, _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(zero, bias, x[a][2 * h]), bias, x[a][2 * h + 1]));
            }
            d[a] = ((const float *)(row + d_at))[b];
        }
        next = ld_prefetch_far(next, n_rows * (int)sizeof(ld_block_iq4_xs));
        __m512 scales[2];
        ld_iq4_xs_scales_of_rows(w + b * (int64_t)sizeof(ld_block_iq4_xs), w_stride, n_rows, scales);
        if (n_act == 1) {
            LD_UNROLL for (int h = 0; h < 2; h++) scales[h] = _mm512_mul_ps(scales[h], _mm512_set1_ps(d[0]));
        }
        LD_UNROLL for (int r = 0; r < n_rows; r++) {
            const ld_block_iq4_xs *block = (const ld_block_iq4_xs *)(w + r * w_stride) + b;
            const __m512i first4 = _mm512_add_epi32(quarters, _mm512_set1_epi32(8 * (r % 2)));
            const __m512 scales0 = _mm512_permutexvar_ps(first4, scales[r / 2]);
            const __m512 scales1 = _mm512_permutexvar_ps(_mm512_add_epi32(first4, _mm512_set1_epi32(4)), scales[r / 2]);
            const __m512i z0 = _mm512_loadu_si512(block->q), z1 = _mm512_loadu_si512(block->q + 64);
            const __m512i q0 = _mm512_shuffle_epi8(table, _mm512_and_si512(z0, low4));
            const __m512i q1 = _mm512_shuffle_epi8(table, _mm512_and_si512(_mm512_srli_epi16(z0, 4), low4));
            const __m512i q2 = _mm512_shuffle_epi8(table, _mm512_and_si512(z1, low4));
            const __m512i q3 = _mm512_shuffle_epi8(table, _mm512_and_si512(_mm512_srli_epi16(z1, 4), low4));
            LD_UNROLL for (int a = 0; a < n_act; a++) {
                const __m512i dot0 = _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(start[a][0], q0, x[a][0]), q1, x[a][1]);
                const __m512i dot1 = _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(start[a][1], q2, x[a][2]), q3, x[a][3]);
                const __m512 f0 = _mm512_cvtepi32_ps(dot0), f1 = _mm512_cvtepi32_ps(dot1);
                if (n_act == 1) {
                    acc[a][r] = _mm512_fmadd_ps(scales1, f1, _mm512_fmadd_ps(scales0, f0, acc[a][r]));
                } else {
                    const __m512 sum = _mm512_fmadd_ps(scales1, f1, _mm512_mul_ps(scales0, f0));
                    acc[a][r] = _mm512_fmadd_ps(_mm512_set1_ps(d[a]), sum, acc[a][r]);
                }
            }
        }
    }
    LD_UNROLL for (int a = 0; a < n_act; a++) {
        __m256 sum[4];
        LD_UNROLL for (int r = 0; r < n_rows; r++) sum[r] = ld_fold16(acc[a][r]);
        ld_store_sums(sum, y + a * y_stride, n_rows);
    }
}
LD_DEFINE_FAR(ld_few_iq4_xs_avx512vnni, ld_rows_iq4_xs_avx512vnni, 4, LD_MAX_SUMS)

// 64 integers each; of Q6_K in the order of the row, of Q2_K and Q3_K 32 values of the first half beside those of the second.
typedef struct { __m512i q[4]; } ld_wide_block;
typedef ld_wide_block (*ld_wide_block_fn)(const uint8_t *w);

LD_INLINE ld_wide_block ld_wide_q6_k(const uint8_t *w) {
    const ld_block_q6_k *block = (const ld_block_q6_k *)w;
    const __m512i low4 = _mm512_set1_epi8(15);
    ld_wide_block wide;
    LD_UNROLL for (int h = 0; h < 2; h++) {
        const __m512i low = _mm512_loadu_si512(block->ql + 64 * h);
        const __m512i high = _mm512_broadcast_i64x4(ld_load256(block->qh + 32 * h));
        wide.q[2 * h] = ld_join_bits(_mm512_and_si512(low, low4), ld_rotated(high, 4, 2), 0x30);
        wide.q[2 * h + 1] = ld_join_bits(_mm512_and_si512(_mm512_srli_epi16(low, 4), low4), ld_rotated(high, 0, 30), 0x30);
    }
    return wide;
}

LD_INLINE ld_wide_block ld_wide_q2_k(const uint8_t *w) {
    const __m512i packed = _mm512_loadu_si512(((const ld_block_q2_k *)w)->q), low2 = _mm512_set1_epi8(3);
    return (ld_wide_block){{_mm512_and_si512(packed, low2), _mm512_and_si512(_mm512_srli_epi16(packed, 2), low2),
                            _mm512_and_si512(_mm512_srli_epi16(packed, 4), low2),
                            _mm512_and_si512(_mm512_srli_epi16(packed, 6), low2)}};
}

LD_INLINE ld_wide_block ld_wide_q3_k(const uint8_t *w) {
    const ld_block_q3_k *block = (const ld_block_q3_k *)w;
    const __m512i packed = _mm512_loadu_si512(block->q), low2 = _mm512_set1_epi8(3);
    const __m512i high = _mm512_broadcast_i64x4(ld_load256(block->high));
    return (ld_wide_block){
        {ld_join_bits(_mm512_and_si512(packed, low2), ld_rotated(high, 2, 30), 4),
         ld_join_bits(_mm512_and_si512(_mm512_srli_epi16(packed, 2), low2), ld_rotated(high, 1, 29), 4),
         ld_join_bits(_mm512_and_si512(_mm512_srli_epi16(packed, 4), low2), ld_rotated(high, 0, 28), 4),
         ld_join_bits(_mm512_and_si512(_mm512_srli_epi16(packed, 6), low2), ld_rotated(high, 31, 27), 4)}};
}

// Int16 scale i is four times at the sums of its quarter; packing puts four sums of the even register before four of the odd one.
LD_INLINE __m512i ld_spread_scales(const int a, const int b, const int c, const int d, const int step) {
#define LD_FOUR(i) 0x0001000100010001 * (i)
    return _mm512_setr_epi64(LD_FOUR(a), LD_FOUR(a + step), LD_FOUR(b), LD_FOUR(b + step), LD_FOUR(c), LD_FOUR(c + step),
                             LD_FOUR(d), LD_FOUR(d + step));
#undef LD_FOUR
}

// See ld_rows_of_halves. by_halves: the order of Q2_K and Q3_K.
LD_INLINE void ld_rows_wide_halves(LD_ROWS_ARGS, const int bytes, ld_wide_block_fn wide_block, ld_half_scales_fn half_scales,
                                   const int bias_shift, const int has_min, const int by_halves) {
    const __m512i zero = _mm512_setzero_si512();
    const __m512i order0 = by_halves ? ld_spread_scales(0, 1, 8, 9, 2) : ld_spread_scales(0, 1, 2, 3, 4);
    const __m512i order1 = _mm512_add_epi16(order0, _mm512_set1_epi16(by_halves ? 4 : 8));
    const uint8_t *next = w + LD_FAR_AHEAD;
    const size_t d_at = ld_act_scales_at(k), b_at = ld_act_sums_at(LD_ACT_Q8_256, k);
    __m512 acc[4][4];
    LD_UNROLL for (int a = 0; a < n_act; a++)
        LD_UNROLL for (int r = 0; r < n_rows; r++) acc[a][r] = _mm512_setzero_ps();
    for (int64_t b = 0; b < k / 256; b++) {
        __m512i x[4][4];
        LD_UNROLL for (int a = 0; a < n_act; a++)
            LD_UNROLL for (int i = 0; i < 4; i++) {
                const uint8_t *row = act + a * act_stride + 256 * b;
                if (by_halves)
                    x[a][i] = _mm512_inserti64x4(_mm512_castsi256_si512(ld_load256(row + 32 * i)), ld_load256(row + 128 + 32 * i), 1);
                else x[a][i] = _mm512_load_si512(row + 64 * i);
            }
        next = ld_prefetch_far(next, n_rows * bytes);
        LD_UNROLL for (int r = 0; r < n_rows; r++) {
            const uint8_t *block = w + r * w_stride + b * bytes;
            const ld_half_scales head = half_scales(block);
            const __m256i scale16 = _mm256_cvtepi8_epi16(head.scale16);
            const __m256i factors = has_min ? _mm256_cvtepi8_epi16(head.min16) : scale16;
            const __m512i scales0 = _mm512_permutexvar_epi16(order0, _mm512_castsi256_si512(scale16));
            const __m512i scales1 = _mm512_permutexvar_epi16(order1, _mm512_castsi256_si512(scale16));
            const ld_wide_block wide = wide_block(block);
            LD_UNROLL for (int a = 0; a < n_act; a++) {
                const uint8_t *row = act + a * act_stride;
                const __m512i p0 = _mm512_packs_epi32(_mm512_dpbusd_epi32(zero, wide.q[0], x[a][0]),
                                                      _mm512_dpbusd_epi32(zero, wide.q[1], x[a][1]));
                const __m512i p1 = _mm512_packs_epi32(_mm512_dpbusd_epi32(zero, wide.q[2], x[a][2]),
                                                      _mm512_dpbusd_epi32(zero, wide.q[3], x[a][3]));
                __m512i sum = _mm512_dpwssd_epi32(_mm512_dpwssd_epi32(zero, p0, scales0), p1, scales1);
                const __m256i offset = _mm256_madd_epi16(factors, *((const __m256i *)(row + b_at) + b));
                const float dx = ((const float *)(row + d_at))[b];
                if (has_min)
                    acc[a][r] = _mm512_fmadd_ps(_mm512_set1_ps(-head.dmin * dx),
                                                _mm512_cvtepi32_ps(_mm512_zextsi256_si512(offset)), acc[a][r]);
                else sum = _mm512_sub_epi32(sum, _mm512_zextsi256_si512(_mm256_slli_epi32(offset, bias_shift)));
                acc[a][r] = _mm512_fmadd_ps(_mm512_set1_ps(head.d * dx), _mm512_cvtepi32_ps(sum), acc[a][r]);
            }
        }
    }
    LD_UNROLL for (int a = 0; a < n_act; a++) {
        __m256 sum[4];
        LD_UNROLL for (int r = 0; r < n_rows; r++) sum[r] = ld_fold16(acc[a][r]);
        ld_store_sums(sum, y + a * y_stride, n_rows);
    }
}

#define LD_ROWS_OF_WIDE_HALVES(name, bias_shift, has_min, by_halves) \
    LD_INLINE void ld_rows_##name##_avx512vnni(LD_ROWS_ARGS) { \
        ld_rows_wide_halves(w, w_stride, act, act_stride, y, y_stride, k, n_rows, n_act, sizeof(ld_block_##name), \
                            ld_wide_##name, ld_half_scales_##name, bias_shift, has_min, by_halves); \
    } \
    LD_DEFINE_FAR(ld_few_##name##_avx512vnni, ld_rows_##name##_avx512vnni, 4, LD_MAX_SUMS)
LD_ROWS_OF_WIDE_HALVES(q2_k, 0, 1, 1)
LD_ROWS_OF_WIDE_HALVES(q3_k, 2, 0, 1)
LD_ROWS_OF_WIDE_HALVES(q6_k, 5, 0, 0)
#undef LD_ROWS_OF_WIDE_HALVES
