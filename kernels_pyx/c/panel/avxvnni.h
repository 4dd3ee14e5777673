// The integer panel for AVX-VNNI: the 256-bit tiles with VEX-coded vpdpbusd.
#pragma once
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,avxvnni")

#define LD_NAME(name) name##_avxvnni

LD_INLINE void ld_group_sums_avxvnni(const uint8_t *q, const uint8_t *x, size_t act_stride, const int n_act,
                                     const int n_steps, const int kind, __m256i sum[4][2]) {
    (void)kind; // int32 sums hold any kind
    LD_UNROLL for (int a = 0; a < n_act; a++) sum[a][0] = sum[a][1] = _mm256_setzero_si256();
    LD_UNROLL for (int step = 0; step < n_steps; step++) {
        const __m256i w0 = *(const __m256i *)(q + 128 * step), w1 = *(const __m256i *)(q + 128 * step + 32);
        LD_UNROLL for (int a = 0; a < n_act; a++) {
            const __m256i four = _mm256_set1_epi32(*(const int32_t *)(x + a * act_stride + 4 * step));
            __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum[a][0]) : "x"(w0), "x"(four));
            __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum[a][1]) : "x"(w1), "x"(four));
        }
    }
}

LD_INLINE __m256i ld_add_products_avxvnni(__m256i sum, __m256i pairs, __m256i x) {
    return _mm256_dpwssd_avx_epi32(sum, pairs, x);
}

LD_INLINE void ld_add_scaled_avxvnni(const uint8_t *q, const uint8_t *x, size_t act_stride, const int n_act, const int n_steps,
                                     const int kind, const int32_t *scale, __m256i total[4][2]) {
    __m256i sum[4][2];
    ld_group_sums_avxvnni(q, x, act_stride, n_act, n_steps, kind, sum);
    LD_UNROLL for (int a = 0; a < n_act; a++)
        LD_UNROLL for (int h = 0; h < 2; h++)
            total[a][h] = _mm256_add_epi32(total[a][h], _mm256_mullo_epi32(sum[a][h], *(const __m256i *)(scale + 8 * h)));
}

#define LD_UNPACK_BLOCKS(name) ld_unpack_##name
#include "ymm.h"
#undef LD_UNPACK_BLOCKS
#undef LD_NAME

#pragma GCC pop_options
