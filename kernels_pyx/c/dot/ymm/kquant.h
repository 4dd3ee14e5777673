// few for the formats with blocks of 256 and Q8_256 activations. Included once for each instruction set, inside its target region,
// with LD_NAME(x) giving x its suffix and these steps defined for it:
//   LD_NAME(ld_dot_scaled_groups)(acc, q0, x0, q1, x1, scale8, j)  acc + scale[j] * sum(q0 * x0) + scale[j + 1] * sum(q1 * x1),
//     spread over eight int32; scale8 holds eight int16 scales in each half; q at most 31.
//   LD_NAME(ld_dot_scaled_int8)(acc, w, x, scale8, j)              acc + scale[j] * sum(w * x); w is signed, -127 .. 127.
//   LD_NAME(ld_dot_scaled_halves)(acc, q0, x0, q1, x1, scale8, j)  the first with an int8 scale for each half of 16 values:
//     scale[j] and scale[j + 1] for q0, scale[j + 2] and scale[j + 3] for q1; q at most 63.
// Everything inside a block is integer and exact: |sum| <= 256 * 63 * 127 * 128 < 2^29.

// Groups of 32 (Q4_K, Q5_K, IQ4_XS). is_signed: quants are int8, scales as IQ4_XS has them, and there are no mins.
LD_INLINE void LD_NAME(ld_rows_of_groups)(LD_ROWS_ARGS, const int bytes, ld_quants_fn quants, const int is_signed) {
    const uint8_t *next = ld_prefetch_from(w, w_stride, n_rows);
    const size_t d_at = ld_act_scales_at(k), b_at = ld_act_sums_at(LD_ACT_Q8_256, k);
    __m256 acc[4][4];
    __m128 acc_min[4][4];
    LD_UNROLL for (int a = 0; a < n_act; a++)
        LD_UNROLL for (int r = 0; r < n_rows; r++) acc[a][r] = _mm256_setzero_ps(), acc_min[a][r] = _mm_setzero_ps();
    for (int64_t b = 0; b < k / 256; b++)
        LD_UNROLL for (int r = 0; r < n_rows; r++) {
            const uint8_t *block = w + r * w_stride + b * bytes;
            next = ld_prefetch(next, bytes);
            const ld_group_scales head = is_signed ? ld_group_scales_iq4_xs(block) : ld_group_scales_k(block);
            const __m256i scale8 = _mm256_broadcastsi128_si256(head.scale8);
            __m256i sum[4];
            LD_UNROLL for (int a = 0; a < n_act; a++) sum[a] = _mm256_setzero_si256();
            LD_UNROLL for (int j = 0; j < 8; j += 2) {
                const __m256i q0 = quants(block, j), q1 = quants(block, j + 1);
                LD_UNROLL for (int a = 0; a < n_act; a++) {
                    const __m256i *x = (const __m256i *)(act + a * act_stride + 256 * b + 32 * j);
                    if (is_signed) {
                        sum[a] = LD_NAME(ld_dot_scaled_int8)(sum[a], q0, x[0], scale8, j);
                        sum[a] = LD_NAME(ld_dot_scaled_int8)(sum[a], q1, x[1], scale8, j + 1);
                    } else {
                        sum[a] = LD_NAME(ld_dot_scaled_groups)(sum[a], q0, x[0], q1, x[1], scale8, j);
                    }
                }
            }
            LD_UNROLL for (int a = 0; a < n_act; a++) {
                const uint8_t *x = act + a * act_stride;
                const float dx = ((const float *)(x + d_at))[b];
                acc[a][r] = _mm256_fmadd_ps(_mm256_set1_ps(head.d * dx), _mm256_cvtepi32_ps(sum[a]), acc[a][r]);
                if (is_signed) continue;
                const __m128i *b16 = (const __m128i *)((const int16_t *)(x + b_at) + 16 * b);
                const __m128i min_dot = _mm_madd_epi16(head.min8, _mm_hadd_epi16(b16[0], b16[1]));
                acc_min[a][r] = _mm_fmadd_ps(_mm_set1_ps(-head.dmin * dx), _mm_cvtepi32_ps(min_dot), acc_min[a][r]);
            }
        }
    LD_UNROLL for (int a = 0; a < n_act; a++) {
        if (!is_signed)
            LD_UNROLL for (int r = 0; r < n_rows; r++)
                acc[a][r] = _mm256_add_ps(acc[a][r], _mm256_set_m128(_mm_setzero_ps(), acc_min[a][r]));
        ld_store_sums(acc[a], y + a * y_stride, n_rows);
    }
}

// Groups of 16 (Q2_K, Q3_K, Q6_K): x = d * scale * (q - 2^bias_shift), or, where has_min, d * scale * q - dmin * min.
LD_INLINE void LD_NAME(ld_rows_of_halves)(LD_ROWS_ARGS, const int bytes, ld_quants_fn quants, ld_half_scales_fn half_scales,
                                          const int bias_shift, const int has_min) {
    const uint8_t *next = ld_prefetch_from(w, w_stride, n_rows);
    const size_t d_at = ld_act_scales_at(k), b_at = ld_act_sums_at(LD_ACT_Q8_256, k);
    __m256 acc[4][4];
    LD_UNROLL for (int a = 0; a < n_act; a++)
        LD_UNROLL for (int r = 0; r < n_rows; r++) acc[a][r] = _mm256_setzero_ps();
    for (int64_t b = 0; b < k / 256; b++)
        LD_UNROLL for (int r = 0; r < n_rows; r++) {
            const uint8_t *block = w + r * w_stride + b * bytes;
            next = ld_prefetch(next, bytes);
            const ld_half_scales head = half_scales(block);
            const __m256i factors = _mm256_cvtepi8_epi16(has_min ? head.min16 : head.scale16);
            __m256i sum[4];
            LD_UNROLL for (int a = 0; a < n_act; a++) sum[a] = _mm256_setzero_si256();
            LD_UNROLL for (int g = 0; g < 8; g += 2) {
                const __m256i q0 = quants(block, g), q1 = quants(block, g + 1);
                LD_UNROLL for (int a = 0; a < n_act; a++) {
                    const __m256i *x = (const __m256i *)(act + a * act_stride + 256 * b + 32 * g);
                    sum[a] = LD_NAME(ld_dot_scaled_halves)(sum[a], q0, x[0], q1, x[1], head.scale16, 2 * g);
                }
            }
            LD_UNROLL for (int a = 0; a < n_act; a++) {
                const uint8_t *x = act + a * act_stride;
                const float dx = ((const float *)(x + d_at))[b];
                const __m256i offset = _mm256_madd_epi16(factors, *((const __m256i *)(x + b_at) + b)); // sum of scale or min * x
                if (has_min) {
                    acc[a][r] = _mm256_fmadd_ps(_mm256_set1_ps(-head.dmin * dx), _mm256_cvtepi32_ps(offset), acc[a][r]);
                } else {
                    sum[a] = _mm256_sub_epi32(sum[a], _mm256_slli_epi32(offset, bias_shift));
                }
                acc[a][r] = _mm256_fmadd_ps(_mm256_set1_ps(head.d * dx), _mm256_cvtepi32_ps(sum[a]), acc[a][r]);
            }
        }
    LD_UNROLL for (int a = 0; a < n_act; a++) ld_store_sums(acc[a], y + a * y_stride, n_rows);
}

#define LD_ROWS_OF_GROUPS(name, rows_fn, few_fn, groups_fn, is_signed) \
    LD_INLINE void rows_fn(LD_ROWS_ARGS) { \
        groups_fn(w, w_stride, act, act_stride, y, y_stride, k, n_rows, n_act, sizeof(ld_block_##name), ld_quants_##name, \
                  is_signed); \
    } \
    LD_DEFINE_FEW(few_fn, rows_fn, 2, LD_MAX_SUMS)
#ifndef LD_OWN_Q4
LD_ROWS_OF_GROUPS(q4_k, LD_NAME(ld_rows_q4_k), LD_NAME(ld_few_q4_k), LD_NAME(ld_rows_of_groups), 0)
#endif
LD_ROWS_OF_GROUPS(q5_k, LD_NAME(ld_rows_q5_k), LD_NAME(ld_few_q5_k), LD_NAME(ld_rows_of_groups), 0)
LD_ROWS_OF_GROUPS(iq4_xs, LD_NAME(ld_rows_iq4_xs), LD_NAME(ld_few_iq4_xs), LD_NAME(ld_rows_of_groups), 1)
#undef LD_ROWS_OF_GROUPS

// With 32 registers single rows are at least as fast, and much faster at 4096 values (Q6_K: 30 GB/s against 22 on Zen 4).
#define LD_ROWS_OF_HALVES(name, rows_fn, few_fn, halves_fn, bias_shift, has_min) \
    LD_INLINE void rows_fn(LD_ROWS_ARGS) { \
        halves_fn(w, w_stride, act, act_stride, y, y_stride, k, n_rows, n_act, sizeof(ld_block_##name), ld_quants_##name, \
                  ld_half_scales_##name, bias_shift, has_min); \
    } \
    LD_DEFINE_FEW(few_fn, rows_fn, LD_MAX_SUMS == 8 ? 1 : 2, LD_MAX_SUMS)
LD_ROWS_OF_HALVES(q2_k, LD_NAME(ld_rows_q2_k), LD_NAME(ld_few_q2_k), LD_NAME(ld_rows_of_halves), 0, 1)
LD_ROWS_OF_HALVES(q3_k, LD_NAME(ld_rows_q3_k), LD_NAME(ld_few_q3_k), LD_NAME(ld_rows_of_halves), 2, 0)
LD_ROWS_OF_HALVES(q6_k, LD_NAME(ld_rows_q6_k), LD_NAME(ld_few_q6_k), LD_NAME(ld_rows_of_halves), 5, 0)
#undef LD_ROWS_OF_HALVES
