// exp of eight values. Included inside a target region with AVX2 and FMA.
#pragma once

// e^x = 2^n * e^r with n = round(x / ln 2), |r| <= ln 2 / 2, ln 2 in two parts, e^r by a polynomial of degree 6 (Taylor, error
// 2e-8 relative at the ends). 2^n in two factors, so that results down to the denormals and up to infinity come out right.
LD_INLINE __m256 ld_exp8(__m256 x) {
    const __m256 clamped = _mm256_max_ps(_mm256_set1_ps(-104.0f), _mm256_min_ps(_mm256_set1_ps(89.0f), x)); // a NaN goes through
    const __m256 n = _mm256_round_ps(_mm256_mul_ps(clamped, _mm256_set1_ps(1.44269504f)),
                                     _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693145752f), clamped);
    r = _mm256_fnmadd_ps(n, _mm256_set1_ps(1.42860677e-6f), r);
    __m256 p = _mm256_set1_ps(1.0f / 720);
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 120));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 24));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 6));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0.5f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
    const __m256i e = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(e, 1), rest = _mm256_sub_epi32(e, half);
    const __m256i bias = _mm256_set1_epi32(127);
    const __m256 f0 = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23));
    const __m256 f1 = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23));
    return _mm256_mul_ps(_mm256_mul_ps(p, f0), f1);
}
