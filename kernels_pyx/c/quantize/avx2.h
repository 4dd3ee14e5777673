// Activation quantisation for AVX2: 32 values in four registers; one rounding for each value as in plain C, so the bits are the
// same.
#pragma once
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")

LD_INLINE uint32_t ld_max_magnitude_avx2(const float *x, const int n) {
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
    __m256i max = _mm256_setzero_si256();
    LD_UNROLL for (int i = 0; i < n; i += 8)
        max = _mm256_max_epi32(max, _mm256_and_si256(magnitude, ld_load256(x + i)));
    __m128i m = _mm_max_epi32(_mm256_castsi256_si128(max), _mm256_extracti128_si256(max, 1));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
    return (uint32_t)_mm_cvtsi128_si32(_mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1)));
}

// 32 values times factor, rounded to int8. A factor of zero gives zeros, whatever the values.
LD_INLINE __m256i ld_round32_avx2(const float *x, float factor) {
    if (factor == 0) return _mm256_setzero_si256();
    const __m256 f = _mm256_set1_ps(factor);
    __m256i q[4];
    LD_UNROLL for (int i = 0; i < 4; i++) q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8 * i), f));
    const __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
    // packing works by halves: back to order
    return _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

// The sums of the low and of the high 16 of 32 bytes, in lanes 0 and 4.
LD_INLINE __m256i ld_sum16_avx2(__m256i q) {
    const __m256i fours = _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_set1_epi8(1), q), _mm256_set1_epi16(1));
    const __m256i eights = _mm256_add_epi32(fours, _mm256_shuffle_epi32(fours, 0x4e));
    return _mm256_add_epi32(eights, _mm256_shuffle_epi32(eights, 0xb1));
}

static void ld_quantize_q8_32_avx2(const float *x, uint8_t *act, int64_t k) {
    float *d = (float *)(act + ld_act_scales_at(k)), *s = (float *)(act + ld_act_sums_at(LD_ACT_Q8_32, k));
    for (int64_t b = 0; b < k / 32; b++) {
        float factor;
        d[b] = ld_quantize_scale(ld_max_magnitude_avx2(x + 32 * b, 32), &factor);
        const __m256i q = ld_round32_avx2(x + 32 * b, factor);
        _mm256_store_si256((__m256i *)(act + 32 * b), q);
        const __m256i sum = ld_sum16_avx2(q);
        s[b] = d[b] * (float)(_mm256_extract_epi32(sum, 0) + _mm256_extract_epi32(sum, 4));
    }
}

static void ld_quantize_q8_256_avx2(const float *x, uint8_t *act, int64_t k) {
    float *d = (float *)(act + ld_act_scales_at(k));
    int16_t *sums = (int16_t *)(act + ld_act_sums_at(LD_ACT_Q8_256, k));
    for (int64_t b = 0; b < k / 256; b++) {
        float factor;
        d[b] = ld_quantize_scale(ld_max_magnitude_avx2(x + 256 * b, 256), &factor);
        for (int64_t g = 8 * b; g < 8 * b + 8; g++) {
            const __m256i q = ld_round32_avx2(x + 32 * g, factor);
            _mm256_store_si256((__m256i *)(act + 32 * g), q);
            const __m256i sum = ld_sum16_avx2(q);
            sums[2 * g] = (int16_t)_mm256_extract_epi32(sum, 0);
            sums[2 * g + 1] = (int16_t)_mm256_extract_epi32(sum, 4);
        }
    }
}

#pragma GCC pop_options
