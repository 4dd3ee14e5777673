// The dot family for AVX2 + FMA + F16C. Products of unsigned by signed bytes are summed in pairs to int16 (vpmaddubsw), which
// saturates: dot.h says why none of the sums here can.
#pragma once
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#include "ymm/values.h"
#include "ymm/few.h"
#include "ymm/exact.h"
#include "ymm/packed.h"
#include "ymm/abreast.h"

#define LD_NAME(name) name##_avx2
#define LD_INT8_BIAS 0
#define LD_MAX_SUMS 4
#define LD_ABREAST 1

LD_INLINE __m256i ld_dot_nibbles_avx2(__m256i lo, __m256i x_lo, __m256i hi, __m256i x_hi) {
    const __m256i pairs = _mm256_add_epi16(_mm256_maddubs_epi16(lo, x_lo), _mm256_maddubs_epi16(hi, x_hi));
    return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

// |w| * (x with the sign of w): unsigned by signed with |w| <= 128, as vpmaddubsw wants it.
LD_INLINE __m256i ld_dot_int8_avx2(__m256i w, __m256i x) {
    return _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w)), _mm256_set1_epi16(1));
}

LD_INLINE __m256i ld_dot_scaled_avx2(__m256i acc, __m256i q0, __m256i x0, __m256i q1, __m256i x1, __m256i scales, const int i,
                                     const int j) {
    const __m256i s0 = _mm256_shuffle_epi8(scales, _mm256_set1_epi16((short)(0x100 * (2 * i + 1) + 2 * i)));
    const __m256i s1 = _mm256_shuffle_epi8(scales, _mm256_set1_epi16((short)(0x100 * (2 * j + 1) + 2 * j)));
    const __m256i p0 = _mm256_madd_epi16(_mm256_maddubs_epi16(q0, x0), s0);
    const __m256i p1 = _mm256_madd_epi16(_mm256_maddubs_epi16(q1, x1), s1);
    return _mm256_add_epi32(acc, _mm256_add_epi32(p0, p1));
}

LD_INLINE __m256i ld_dot_scaled_int8_avx2(__m256i acc, __m256i w0, __m256i x0, __m256i w1, __m256i x1, __m256i scale) {
    const __m256i p0 = _mm256_maddubs_epi16(_mm256_abs_epi8(w0), _mm256_sign_epi8(x0, w0));
    const __m256i p1 = _mm256_maddubs_epi16(_mm256_abs_epi8(w1), _mm256_sign_epi8(x1, w1));
    return _mm256_add_epi32(acc, _mm256_add_epi32(_mm256_madd_epi16(p0, scale), _mm256_madd_epi16(p1, scale)));
}

#include "ymm/legacy.h"
#include "ymm/kquant.h"
#undef LD_NAME
#undef LD_INT8_BIAS
#undef LD_MAX_SUMS
#undef LD_ABREAST

#pragma GCC pop_options
