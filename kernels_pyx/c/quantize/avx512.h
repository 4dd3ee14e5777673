// Activation quantisation for AVX-512: 32 values in two registers; the same bits as plain C.
#pragma once
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")

LD_INLINE __m512i ld_max_magnitude16(const float *x, __m512i max) {
    return _mm512_max_epu32(max, _mm512_and_si512(_mm512_set1_epi32(0x7fffffff), _mm512_loadu_si512(x)));
}

// 32 values times factor, rounded to int8. A factor of zero gives zeros, whatever the values.
LD_INLINE __m256i ld_round32_avx512(const float *x, float factor) {
    if (factor == 0) return _mm256_setzero_si256();
    const __m512 f = _mm512_set1_ps(factor);
    const __m128i low = _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x), f)));
    const __m128i high = _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x + 16), f)));
    return _mm256_set_m128i(high, low);
}

static void ld_quantize_q8_32_avx512(const float *x, uint8_t *act, int64_t k) {
    float *d = (float *)(act + ld_act_scales_at(k)), *s = (float *)(act + ld_act_sums_at(LD_ACT_Q8_32, k));
    for (int64_t b = 0; b < k / 32; b++) {
        float factor;
        const __m512i max = ld_max_magnitude16(x + 32 * b + 16, ld_max_magnitude16(x + 32 * b, _mm512_setzero_si512()));
        d[b] = ld_quantize_scale(_mm512_reduce_max_epu32(max), &factor);
        const __m256i q = ld_round32_avx512(x + 32 * b, factor);
        _mm256_store_si256((__m256i *)(act + 32 * b), q);
        const __m256i sum = ld_sum16_avx2(q);
        s[b] = d[b] * (float)(_mm256_extract_epi32(sum, 0) + _mm256_extract_epi32(sum, 4));
    }
}

static void ld_quantize_q8_256_avx512(const float *x, uint8_t *act, int64_t k) {
    float *d = (float *)(act + ld_act_scales_at(k));
    int16_t *sums = (int16_t *)(act + ld_act_sums_at(LD_ACT_Q8_256, k));
    for (int64_t b = 0; b < k / 256; b++) {
        __m512i max = _mm512_setzero_si512();
        for (int i = 0; i < 256; i += 16) max = ld_max_magnitude16(x + 256 * b + i, max);
        float factor;
        d[b] = ld_quantize_scale(_mm512_reduce_max_epu32(max), &factor);
        for (int64_t g = 8 * b; g < 8 * b + 8; g++) {
            const __m256i q = ld_round32_avx512(x + 32 * g, factor);
            _mm256_store_si256((__m256i *)(act + 32 * g), q);
            const __m256i sum = ld_sum16_avx2(q);
            sums[2 * g] = (int16_t)_mm256_extract_epi32(sum, 0);
            sums[2 * g + 1] = (int16_t)_mm256_extract_epi32(sum, 4);
        }
    }
}

#pragma GCC pop_options
