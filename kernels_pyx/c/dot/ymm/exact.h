// The exact path with 256-bit registers: a block to f32, then products of f32. Included once, inside the AVX2 target region.
#pragma once

// y = W x, a block of a row at a time; eight sums for each activation stay in the L1 cache.
LD_INLINE void ld_exact_dot(LD_FEW_ARGS, const int block, const int bytes, ld_exact_fn exact) {
    float values[256] __attribute__((aligned(32)));
    const uint8_t *next = w + LD_AHEAD;
    for (int64_t row = 0; row < n; row++) {
        __m256 acc[LD_FEW_MAX][2];
        for (int64_t a = 0; a < n_act; a++) acc[a][0] = acc[a][1] = _mm256_setzero_ps();
        for (int64_t b = 0; b < k / block; b++) {
            next = ld_prefetch(next, bytes, 2);
            exact(w + row * w_stride + b * bytes, values);
            for (int64_t a = 0; a < n_act; a++) {
                const float *x = (const float *)(act + a * act_stride) + b * block;
                __m256 even = acc[a][0], odd = acc[a][1];
                for (int i = 0; i < block; i += 16) {
                    even = _mm256_fmadd_ps(_mm256_load_ps(values + i), _mm256_load_ps(x + i), even);
                    odd = _mm256_fmadd_ps(_mm256_load_ps(values + i + 8), _mm256_load_ps(x + i + 8), odd);
                }
                acc[a][0] = even, acc[a][1] = odd;
            }
        }
        for (int64_t a = 0; a < n_act; a++) y[a * y_stride + row] = ld_sum8(_mm256_add_ps(acc[a][0], acc[a][1]));
    }
}

#define LD_EXACT_YMM(name, block) \
    static __attribute__((noinline)) void ld_exact_##name##_avx2(const uint8_t *w, float *y) { ld_exact_##name(w, y); } \
    static void ld_few_##name##_avx2(LD_FEW_ARGS) { \
        ld_exact_dot(LD_FEW_PASS, block, sizeof(ld_block_##name), ld_exact_##name##_avx2); \
    } \
    static void ld_to_f32_##name##_avx2(const uint8_t *w, float *y, int64_t k) { \
        for (int64_t b = 0; b < k / block; b++) ld_exact_##name##_avx2(w + b * sizeof(ld_block_##name), y + b * block); \
    }
LD_EXACT_YMM(iq2_xxs, 256)
LD_EXACT_YMM(iq2_xs, 256)
LD_EXACT_YMM(iq2_s, 256)
LD_EXACT_YMM(iq3_xxs, 256)
LD_EXACT_YMM(iq3_s, 256)
LD_EXACT_YMM(iq1_s, 256)
LD_EXACT_YMM(iq1_m, 256)
LD_EXACT_YMM(tq1_0, 256)
LD_EXACT_YMM(tq2_0, 256)
LD_EXACT_YMM(nvfp4, 64)
LD_EXACT_YMM(q1_0, 128)
