// few for the formats with blocks of 256 (Q4_K, Q6_K) and Q8_256 activations. Included once for each instruction set, inside its
// target region, with LD_NAME(x) giving x its suffix and these steps defined for it:
//   LD_NAME(ld_dot_scaled_groups)(acc, q0, x0, q1, x1, scale8, j)  acc + scale[j] * sum(q0 * x0) + scale[j + 1] * sum(q1 * x1),
//     spread over eight int32; scale8 holds eight int16 scales in each half; q at most 15.
//   LD_NAME(ld_dot_scaled_halves)(acc, q0, x0, q1, x1, scale8, j)  the same with an int8 scale for each half of 16 values:
//     scale[j] and scale[j + 1] for q0, scale[j + 2] and scale[j + 3] for q1; q at most 63.
// Everything inside a block is integer and exact: |sum| <= 256 * 63 * 127 * 128 < 2^29.

#ifndef LD_OWN_Q4
LD_INLINE void LD_NAME(ld_rows_q4_k)(LD_ROWS_ARGS) {
    const __m256i low4 = _mm256_set1_epi8(15);
    const uint8_t *next = ld_prefetch_from(w, w_stride, n_rows);
    const size_t d_at = ld_act_scales_at(k), b_at = ld_act_sums_at(LD_ACT_Q8_256, k);
    __m256 acc[4][4];
    __m128 acc_min[4][4];
    LD_UNROLL for (int a = 0; a < n_act; a++)
        LD_UNROLL for (int r = 0; r < n_rows; r++) acc[a][r] = _mm256_setzero_ps(), acc_min[a][r] = _mm_setzero_ps();
    for (int64_t b = 0; b < k / 256; b++)
        LD_UNROLL for (int r = 0; r < n_rows; r++) {
            const ld_block_q4_k *block = (const ld_block_q4_k *)(w + r * w_stride) + b;
            next = ld_prefetch(next, sizeof *block);
            uint32_t scales[2], mins[2];
            ld_q4_k_scales(block->scales, scales, mins);
            const __m256i scale8 = _mm256_broadcastsi128_si256(
                _mm_cvtepu8_epi16(_mm_cvtsi64_si128((int64_t)(scales[0] | (uint64_t)scales[1] << 32))));
            const __m128i min8 = _mm_cvtepu8_epi16(_mm_cvtsi64_si128((int64_t)(mins[0] | (uint64_t)mins[1] << 32)));
            const float d = ld_half(block->d), dmin = ld_half(block->dmin);
            __m256i sum[4];
            LD_UNROLL for (int a = 0; a < n_act; a++) sum[a] = _mm256_setzero_si256();
            LD_UNROLL for (int j = 0; j < 4; j++) {
                const __m256i packed = ld_load256(block->q + 32 * j);
                const __m256i lo = _mm256_and_si256(packed, low4), hi = _mm256_and_si256(_mm256_srli_epi16(packed, 4), low4);
                LD_UNROLL for (int a = 0; a < n_act; a++) {
                    const __m256i *x = (const __m256i *)(act + a * act_stride + 256 * b + 64 * j);
                    sum[a] = LD_NAME(ld_dot_scaled_groups)(sum[a], lo, x[0], hi, x[1], scale8, 2 * j);
                }
            }
            LD_UNROLL for (int a = 0; a < n_act; a++) {
                const uint8_t *x = act + a * act_stride;
                const float dx = ((const float *)(x + d_at))[b];
                const __m128i *b16 = (const __m128i *)((const int16_t *)(x + b_at) + 16 * b);
                const __m128i min_dot = _mm_madd_epi16(min8, _mm_hadd_epi16(b16[0], b16[1]));
                acc[a][r] = _mm256_fmadd_ps(_mm256_set1_ps(d * dx), _mm256_cvtepi32_ps(sum[a]), acc[a][r]);
                acc_min[a][r] = _mm_fmadd_ps(_mm_set1_ps(-dmin * dx), _mm_cvtepi32_ps(min_dot), acc_min[a][r]);
            }
        }
    LD_UNROLL for (int a = 0; a < n_act; a++) {
        LD_UNROLL for (int r = 0; r < n_rows; r++)
            acc[a][r] = _mm256_add_ps(acc[a][r], _mm256_set_m128(_mm_setzero_ps(), acc_min[a][r]));
        ld_store_sums(acc[a], y + a * y_stride, n_rows);
    }
}

LD_DEFINE_FEW(LD_NAME(ld_few_q4_k), LD_NAME(ld_rows_q4_k), 2, LD_MAX_SUMS)
#endif

LD_INLINE void LD_NAME(ld_rows_q6_k)(LD_ROWS_ARGS) {
    const __m256i low4 = _mm256_set1_epi8(15), top2 = _mm256_set1_epi8(0x30);
    const uint8_t *next = ld_prefetch_from(w, w_stride, n_rows);
    const size_t d_at = ld_act_scales_at(k), b_at = ld_act_sums_at(LD_ACT_Q8_256, k);
    __m256 acc[4][4];
    LD_UNROLL for (int a = 0; a < n_act; a++)
        LD_UNROLL for (int r = 0; r < n_rows; r++) acc[a][r] = _mm256_setzero_ps();
    for (int64_t b = 0; b < k / 256; b++)
        LD_UNROLL for (int r = 0; r < n_rows; r++) {
            const ld_block_q6_k *block = (const ld_block_q6_k *)(w + r * w_stride) + b;
            next = ld_prefetch(next, sizeof *block);
            const __m128i scale8 = _mm_loadu_si128((const __m128i *)block->scales);
            const __m256i scale16 = _mm256_cvtepi8_epi16(scale8);
            const float d = ld_half(block->d);
            __m256i sum[4];
            LD_UNROLL for (int a = 0; a < n_act; a++) sum[a] = _mm256_setzero_si256();
            LD_UNROLL for (int half = 0; half < 2; half++) {
                const __m256i ql0 = ld_load256(block->ql + 64 * half), ql1 = ld_load256(block->ql + 64 * half + 32);
                const __m256i qh = ld_load256(block->qh + 32 * half);
                const __m256i q0 = _mm256_or_si256(_mm256_and_si256(ql0, low4), _mm256_and_si256(_mm256_slli_epi16(qh, 4), top2));
                const __m256i q1 = _mm256_or_si256(_mm256_and_si256(ql1, low4), _mm256_and_si256(_mm256_slli_epi16(qh, 2), top2));
                const __m256i q2 = _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(ql0, 4), low4), _mm256_and_si256(qh, top2));
                const __m256i q3 = _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(ql1, 4), low4),
                                                   _mm256_and_si256(_mm256_srli_epi16(qh, 2), top2));
                LD_UNROLL for (int a = 0; a < n_act; a++) {
                    const __m256i *x = (const __m256i *)(act + a * act_stride + 256 * b + 128 * half);
                    sum[a] = LD_NAME(ld_dot_scaled_halves)(sum[a], q0, x[0], q1, x[1], scale8, 8 * half);
                    sum[a] = LD_NAME(ld_dot_scaled_halves)(sum[a], q2, x[2], q3, x[3], scale8, 8 * half + 4);
                }
            }
            LD_UNROLL for (int a = 0; a < n_act; a++) {
                const uint8_t *x = act + a * act_stride;
                // sum of scale * x, for q - 32
                const __m256i offset = _mm256_madd_epi16(scale16, *((const __m256i *)(x + b_at) + b));
                const __m256i exact = _mm256_sub_epi32(sum[a], _mm256_slli_epi32(offset, 5));
                acc[a][r] = _mm256_fmadd_ps(_mm256_set1_ps(d * ((const float *)(x + d_at))[b]), _mm256_cvtepi32_ps(exact),
                                            acc[a][r]);
            }
        }
    LD_UNROLL for (int a = 0; a < n_act; a++) ld_store_sums(acc[a], y + a * y_stride, n_rows);
}

// With 32 registers single rows are at least as fast, and much faster at 4096 values (30 GB/s against 22 on Zen 4).
LD_DEFINE_FEW(LD_NAME(ld_few_q6_k), LD_NAME(ld_rows_q6_k), LD_MAX_SUMS == 8 ? 1 : 2, LD_MAX_SUMS)
