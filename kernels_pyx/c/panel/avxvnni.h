// The integer panel for AVX-VNNI: the 256-bit tiles with VEX-coded vpdpbusd.
#pragma once
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,avxvnni")

#define LD_NAME(name) name##_avxvnni
#define LD_INT8_BIAS 128
#define LD_UNPACK_INT8(name) ld_unpack_##name

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

#include "ymm.h"
#undef LD_NAME
#undef LD_INT8_BIAS
#undef LD_UNPACK_INT8

#pragma GCC pop_options
