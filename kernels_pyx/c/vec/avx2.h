// Vector operations for AVX2. Tails go through masked loads and stores, so a value is computed alike wherever it stands.
#pragma once
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")

// All ones in the first n of eight lanes; n at most 8.
LD_INLINE __m256i ld_mask8(int64_t n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

LD_INLINE float ld_max8(__m256 v) {
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}

#include "exp256.h"

LD_INLINE __m256 ld_silu8(__m256 g) {
    const __m256 one = _mm256_set1_ps(1.0f), e = ld_exp8(_mm256_sub_ps(_mm256_setzero_ps(), g));
    return _mm256_div_ps(g, _mm256_add_ps(one, e));
}

// 0.5 g (1 + tanh u) = g * sigmoid(2 u)
LD_INLINE __m256 ld_gelu_tanh8(__m256 g) {
    const __m256 cube = _mm256_mul_ps(_mm256_mul_ps(_mm256_mul_ps(_mm256_set1_ps(0.044715f), g), g), g);
    const __m256 u2 = _mm256_mul_ps(_mm256_set1_ps(2 * 0.7978845608f), _mm256_add_ps(g, cube));
    const __m256 e = ld_exp8(_mm256_sub_ps(_mm256_setzero_ps(), u2));
    return _mm256_div_ps(g, _mm256_add_ps(_mm256_set1_ps(1.0f), e));
}

static float ld_sum_squares_avx2(const float *x, int64_t n) {
    __m256 sum[4] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps()};
    int64_t i = 0;
    for (; i + 32 <= n; i += 32)
        LD_UNROLL for (int j = 0; j < 4; j++) {
            const __m256 v = _mm256_loadu_ps(x + i + 8 * j);
            sum[j] = _mm256_fmadd_ps(v, v, sum[j]);
        }
    for (; i < n; i += 8) {
        const __m256 v = _mm256_maskload_ps(x + i, ld_mask8(n - i < 8 ? n - i : 8));
        sum[0] = _mm256_fmadd_ps(v, v, sum[0]);
    }
    return ld_sum8(_mm256_add_ps(_mm256_add_ps(sum[0], sum[1]), _mm256_add_ps(sum[2], sum[3])));
}

// Runs `body`, which uses i and mask, for each eight values.
#define LD_EACH8(body) \
    for (int64_t i = 0; i < n; i += 8) { \
        const __m256i mask = ld_mask8(n - i < 8 ? n - i : 8); \
        body \
    }
#define LD_LOAD8(x) _mm256_maskload_ps((x) + i, mask)
#define LD_STORE8(y, v) _mm256_maskstore_ps((y) + i, mask, v)

static void ld_norm_avx2(const float *x, const float *w, float scale, float *y, int64_t n) {
    const __m256 s = _mm256_set1_ps(scale);
    if (w) LD_EACH8(LD_STORE8(y, _mm256_mul_ps(_mm256_mul_ps(LD_LOAD8(x), s), LD_LOAD8(w)));)
    else LD_EACH8(LD_STORE8(y, _mm256_mul_ps(LD_LOAD8(x), s));)
}

static void ld_silu_mul_avx2(const float *gate, const float *up, float *y, int64_t n) {
    LD_EACH8(LD_STORE8(y, _mm256_mul_ps(ld_silu8(LD_LOAD8(gate)), LD_LOAD8(up)));)
}

static void ld_gelu_tanh_mul_avx2(const float *gate, const float *up, float *y, int64_t n) {
    LD_EACH8(LD_STORE8(y, _mm256_mul_ps(ld_gelu_tanh8(LD_LOAD8(gate)), LD_LOAD8(up)));)
}

// min and max give their second operand when one is not a number, so a NaN goes through.
static void ld_swiglu_clamped_avx2(const float *gate, const float *up, float *y, int64_t n, float alpha, float limit) {
    const __m256 top = _mm256_set1_ps(limit), bottom = _mm256_set1_ps(-limit), one = _mm256_set1_ps(1.0f), steep = _mm256_set1_ps(-alpha);
    LD_EACH8({
        const __m256 g = _mm256_min_ps(top, LD_LOAD8(gate));
        const __m256 u = _mm256_max_ps(bottom, _mm256_min_ps(top, LD_LOAD8(up)));
        const __m256 swish = _mm256_div_ps(g, _mm256_add_ps(one, ld_exp8(_mm256_mul_ps(steep, g))));
        LD_STORE8(y, _mm256_mul_ps(swish, _mm256_add_ps(u, one)));
    })
}

static void ld_add_avx2(float *x, const float *y, int64_t n) { LD_EACH8(LD_STORE8(x, _mm256_add_ps(LD_LOAD8(x), LD_LOAD8(y)));) }

static void ld_f32_to_f16_avx2(const float *x, uint16_t *y, int64_t n) {
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((__m128i *)(y + i), _mm256_cvtps_ph(_mm256_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT));
    for (; i < n; i++) y[i] = _cvtss_sh(x[i], _MM_FROUND_TO_NEAREST_INT);
}

static void ld_f16_to_f32_avx2(const uint16_t *x, float *y, int64_t n) {
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) _mm256_storeu_ps(y + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(x + i))));
    for (; i < n; i++) y[i] = _cvtsh_ss(x[i]);
}

static float ld_max_avx2(const float *x, int64_t n) {
    const __m256 lowest = _mm256_set1_ps(-__builtin_inff());
    __m256 max = lowest;
    LD_EACH8(max = _mm256_max_ps(max, _mm256_blendv_ps(lowest, LD_LOAD8(x), _mm256_castsi256_ps(mask)));)
    return ld_max8(max);
}

static float ld_exp_sum_avx2(float *x, float max, int64_t n) {
    const __m256 top = _mm256_set1_ps(max);
    __m256 sum = _mm256_setzero_ps();
    LD_EACH8({
        const __m256 e = _mm256_and_ps(ld_exp8(_mm256_sub_ps(LD_LOAD8(x), top)), _mm256_castsi256_ps(mask));
        LD_STORE8(x, e);
        sum = _mm256_add_ps(sum, e);
    })
    return ld_sum8(sum);
}

static int ld_all_finite_avx2(const float *x, int64_t n) {
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff), largest = _mm256_set1_epi32(0x7f7fffff);
    __m256i bad = _mm256_setzero_si256();
    LD_EACH8(bad = _mm256_or_si256(bad, _mm256_cmpgt_epi32(_mm256_and_si256(magnitude, _mm256_castps_si256(LD_LOAD8(x))),
                                                           largest));)
    return _mm256_testz_si256(bad, bad);
}

static void ld_sigmoid_mul_avx2(float *x, const float *gate, int64_t n) {
    const __m256 one = _mm256_set1_ps(1.0f);
    LD_EACH8({
        const __m256 e = ld_exp8(_mm256_sub_ps(_mm256_setzero_ps(), LD_LOAD8(gate)));
        LD_STORE8(x, _mm256_div_ps(LD_LOAD8(x), _mm256_add_ps(one, e)));
    })
}

static const ld_vec_kernels ld_vec_avx2 = LD_VEC(LD_ISA_AVX2, avx2);
#undef LD_EACH8
#undef LD_LOAD8
#undef LD_STORE8

#pragma GCC pop_options
