// Vector operations for AVX-512. Tails go through masks, so a value is computed alike wherever it stands.
#pragma once
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")

#include "exp512.h"

LD_INLINE __m512 ld_silu16(__m512 g) {
    const __m512 e = ld_exp16(_mm512_sub_ps(_mm512_setzero_ps(), g));
    return _mm512_div_ps(g, _mm512_add_ps(_mm512_set1_ps(1.0f), e));
}

// 0.5 g (1 + tanh u) = g * sigmoid(2 u)
LD_INLINE __m512 ld_gelu_tanh16(__m512 g) {
    const __m512 cube = _mm512_mul_ps(_mm512_mul_ps(_mm512_mul_ps(_mm512_set1_ps(0.044715f), g), g), g);
    const __m512 u2 = _mm512_mul_ps(_mm512_set1_ps(2 * 0.7978845608f), _mm512_add_ps(g, cube));
    const __m512 e = ld_exp16(_mm512_sub_ps(_mm512_setzero_ps(), u2));
    return _mm512_div_ps(g, _mm512_add_ps(_mm512_set1_ps(1.0f), e));
}

// Runs `body`, which uses i and mask, for each sixteen values.
#define LD_EACH16(body) \
    for (int64_t i = 0; i < n; i += 16) { \
        const __mmask16 mask = n - i < 16 ? (__mmask16)((1 << (n - i)) - 1) : (__mmask16)0xffff; \
        body \
    }
#define LD_LOAD16(x) _mm512_maskz_loadu_ps(mask, (x) + i)
#define LD_STORE16(y, v) _mm512_mask_storeu_ps((y) + i, mask, v)

static float ld_sum_squares_avx512(const float *x, int64_t n) {
    __m512 even = _mm512_setzero_ps(), odd = _mm512_setzero_ps();
    int64_t done = n & ~(int64_t)31;
    for (int64_t i = 0; i < done; i += 32) {
        const __m512 a = _mm512_loadu_ps(x + i), b = _mm512_loadu_ps(x + i + 16);
        even = _mm512_fmadd_ps(a, a, even);
        odd = _mm512_fmadd_ps(b, b, odd);
    }
    x += done;
    n -= done;
    LD_EACH16({
        const __m512 v = LD_LOAD16(x);
        even = _mm512_fmadd_ps(v, v, even);
    })
    return _mm512_reduce_add_ps(_mm512_add_ps(even, odd));
}

static void ld_norm_avx512(const float *x, const float *w, float scale, float *y, int64_t n) {
    const __m512 s = _mm512_set1_ps(scale);
    if (w) LD_EACH16(LD_STORE16(y, _mm512_mul_ps(_mm512_mul_ps(LD_LOAD16(x), s), LD_LOAD16(w)));)
    else LD_EACH16(LD_STORE16(y, _mm512_mul_ps(LD_LOAD16(x), s));)
}

static void ld_silu_mul_avx512(const float *gate, const float *up, float *y, int64_t n) {
    LD_EACH16(LD_STORE16(y, _mm512_mul_ps(ld_silu16(LD_LOAD16(gate)), LD_LOAD16(up)));)
}

static void ld_gelu_tanh_mul_avx512(const float *gate, const float *up, float *y, int64_t n) {
    LD_EACH16(LD_STORE16(y, _mm512_mul_ps(ld_gelu_tanh16(LD_LOAD16(gate)), LD_LOAD16(up)));)
}

// min and max give their second operand when one is not a number, so a NaN goes through.
static void ld_swiglu_clamped_avx512(const float *gate, const float *up, float *y, int64_t n, float alpha, float limit) {
    const __m512 top = _mm512_set1_ps(limit), bottom = _mm512_set1_ps(-limit), one = _mm512_set1_ps(1.0f), steep = _mm512_set1_ps(-alpha);
    LD_EACH16({
        const __m512 g = _mm512_min_ps(top, LD_LOAD16(gate));
        const __m512 u = _mm512_max_ps(bottom, _mm512_min_ps(top, LD_LOAD16(up)));
        const __m512 swish = _mm512_div_ps(g, _mm512_add_ps(one, ld_exp16(_mm512_mul_ps(steep, g))));
        LD_STORE16(y, _mm512_mul_ps(swish, _mm512_add_ps(u, one)));
    })
}

static void ld_add_avx512(float *x, const float *y, int64_t n) {
    LD_EACH16(LD_STORE16(x, _mm512_add_ps(LD_LOAD16(x), LD_LOAD16(y)));)
}

static void ld_f32_to_f16_avx512(const float *x, uint16_t *y, int64_t n) {
    LD_EACH16(_mm256_mask_storeu_epi16(y + i, mask, _mm512_cvtps_ph(LD_LOAD16(x), _MM_FROUND_TO_NEAREST_INT));)
}

static void ld_f16_to_f32_avx512(const uint16_t *x, float *y, int64_t n) {
    LD_EACH16(LD_STORE16(y, _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, x + i)));)
}

static float ld_max_avx512(const float *x, int64_t n) {
    __m512 max = _mm512_set1_ps(-__builtin_inff());
    LD_EACH16(max = _mm512_mask_max_ps(max, mask, max, LD_LOAD16(x));)
    return _mm512_reduce_max_ps(max);
}

static float ld_exp_sum_avx512(float *x, float max, int64_t n) {
    const __m512 top = _mm512_set1_ps(max);
    __m512 sum = _mm512_setzero_ps();
    LD_EACH16({
        const __m512 e = ld_exp16(_mm512_sub_ps(LD_LOAD16(x), top));
        LD_STORE16(x, e);
        sum = _mm512_mask_add_ps(sum, mask, sum, e);
    })
    return _mm512_reduce_add_ps(sum);
}

static int ld_all_finite_avx512(const float *x, int64_t n) {
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff), largest = _mm512_set1_epi32(0x7f7fffff);
    __mmask16 bad = 0;
    LD_EACH16(bad |= _mm512_cmpgt_epi32_mask(_mm512_and_si512(magnitude, _mm512_castps_si512(LD_LOAD16(x))), largest);)
    return bad == 0;
}

static void ld_sigmoid_mul_avx512(float *x, const float *gate, int64_t n) {
    const __m512 one = _mm512_set1_ps(1.0f);
    LD_EACH16({
        const __m512 e = ld_exp16(_mm512_sub_ps(_mm512_setzero_ps(), LD_LOAD16(gate)));
        LD_STORE16(x, _mm512_div_ps(LD_LOAD16(x), _mm512_add_ps(one, e)));
    })
}

static const ld_vec_kernels ld_vec_avx512 = LD_VEC(LD_ISA_AVX512, avx512);
#undef LD_EACH16
#undef LD_LOAD16
#undef LD_STORE16

#pragma GCC pop_options
