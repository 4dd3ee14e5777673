// Pairs with AVX-512: rounding, zipping, and what is done with scores.
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx2,fma,f16c")

static inline __attribute__((always_inline)) __m512 floats_avx512(const void *x, int64_t i, const int half) {
    return half ? _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)((const uint16_t *)x + i))) : _mm512_loadu_ps((const float *)x + i);
}

static inline __attribute__((always_inline)) void narrow_any_avx512(const void *x, float factor, int16_t *y, int64_t n, const int half) {
    // Beside 1.5 * 2^23 the last bit of an f32 counts 1: its low 16 bits are the rounded integer.
    const __m512 f = _mm512_set1_ps(factor), big = _mm512_set1_ps(12582912.0f);
    const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i words = _mm512_add_epi32(_mm512_mullo_epi32(lanes, _mm512_set1_epi32(0x00040004)), _mm512_set1_epi32(0x00020000));
    for (int64_t i = 0; i < n; i += 32) {
        __m512 a = _mm512_fmadd_ps(floats_avx512(x, i, half), f, big), b = _mm512_fmadd_ps(floats_avx512(x, i + 16, half), f, big);
        _mm512_storeu_si512(y + i, _mm512_permutex2var_epi16(_mm512_castps_si512(a), words, _mm512_castps_si512(b)));
    }
}

static void narrow_avx512(const float *x, float factor, int16_t *y, int64_t n) { narrow_any_avx512(x, factor, y, n, 0); }

static float key_f32_avx512(const float *x, int16_t *y, int64_t n) {
    // As integers, so that a NaN is the largest of all.
    const __m512i sign = _mm512_set1_epi32(0x7fffffff);
    __m512i top = _mm512_setzero_si512();
    for (int64_t i = 0; i < n; i += 16) top = _mm512_max_epi32(_mm512_and_si512(_mm512_loadu_si512(x + i), sign), top);
    int32_t bits = _mm512_reduce_max_epi32(top);
    float max;
    memcpy(&max, &bits, sizeof max);
    narrow_any_avx512(x, max > 0.0f ? LD_PAIR_KEY / max : 0.0f, y, n, 0);
    return max / LD_PAIR_KEY;
}

static float key_f16_avx512(const uint16_t *x, int16_t *y, int64_t n) {
    const __m512i sign = _mm512_set1_epi16(0x7fff);
    __m512i top = _mm512_setzero_si512();
    for (int64_t i = 0; i < n; i += 32) top = _mm512_max_epi16(_mm512_and_si512(_mm512_loadu_si512(x + i), sign), top);
    __m256i half = _mm256_max_epi16(_mm512_castsi512_si256(top), _mm512_extracti64x4_epi64(top, 1));
    __m128i few = _mm_max_epi16(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
    // The least of the complements is the complement of the largest.
    uint16_t bits = (uint16_t)~_mm_extract_epi16(_mm_minpos_epu16(_mm_xor_si128(few, _mm_set1_epi16(-1))), 0);
    float max = _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(bits)));
    narrow_any_avx512(x, max > 0.0f ? LD_PAIR_KEY / max : 0.0f, y, n, 1);
    return max / LD_PAIR_KEY;
}

static void zip_avx512(const int16_t *a, const int16_t *b, int16_t *y, int64_t n) {
    const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i low = _mm512_or_si512(lanes, _mm512_slli_epi32(_mm512_add_epi32(lanes, _mm512_set1_epi32(32)), 16));
    const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
    for (int64_t i = 0; i < n; i += 32) {
        __m512i u = _mm512_loadu_si512(a + i), v = _mm512_loadu_si512(b + i);
        _mm512_storeu_si512(y + 2 * i, _mm512_permutex2var_epi16(u, low, v));
        _mm512_storeu_si512(y + 2 * i + 32, _mm512_permutex2var_epi16(u, high, v));
    }
}

static void below_max_avx512(float *scores, int64_t n_keys, int64_t m, const int32_t *valid, float *max) {
    const __m512 far = _mm512_set1_ps(-200.0f);
    for (int64_t i = 0; i < m; i += 16) {
        const __m512i last = _mm512_loadu_si512(valid + i);
        __m512 top = _mm512_set1_ps(-INFINITY);
        for (int64_t t = 0; t < n_keys; t++) {
            __mmask16 counts = _mm512_cmpgt_epi32_mask(last, _mm512_set1_epi32((int)t));
            top = _mm512_mask_max_ps(top, counts, top, _mm512_loadu_ps(scores + t * m + i));
        }
        _mm512_storeu_ps(max + i, top);
        for (int64_t t = 0; t < n_keys; t++) {
            __mmask16 counts = _mm512_cmpgt_epi32_mask(last, _mm512_set1_epi32((int)t));
            _mm512_storeu_ps(scores + t * m + i, _mm512_mask_sub_ps(far, counts, _mm512_loadu_ps(scores + t * m + i), top));
        }
    }
}

static void weigh_avx512(const float *x, int64_t n_keys, int64_t m, const float *ratio, int16_t *weights, float *total) {
    for (int64_t i = 0; i < m; i += 16) {
        __m512 sum = _mm512_setzero_ps();
        for (int64_t t = 0; t < n_keys; t += 2) {
            __m512 a = _mm512_loadu_ps(x + t * m + i), b = t + 1 < n_keys ? _mm512_loadu_ps(x + (t + 1) * m + i) : _mm512_setzero_ps();
            sum = _mm512_add_ps(_mm512_add_ps(sum, a), b);
            __m512i low = _mm512_cvtps_epi32(_mm512_mul_ps(a, _mm512_set1_ps(ratio[t])));
            __m512i high = _mm512_cvtps_epi32(_mm512_mul_ps(b, _mm512_set1_ps(t + 1 < n_keys ? ratio[t + 1] : 0.0f)));
            _mm512_storeu_si512(weights + (t / 2 * m + i) * 2, _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
        }
        _mm512_storeu_ps(total + i, sum);
    }
}

static inline __attribute__((always_inline)) __m512i pair_avx512(const int16_t *at) {
    int32_t pair;
    memcpy(&pair, at, sizeof pair);
    return _mm512_set1_epi32(pair);
}

#define LD_PAIRS(name) name##_avx512
#define LD_PAIR_ADD(sum, columns, at) sum = _mm512_add_epi32(sum, _mm512_madd_epi16(columns, pair_avx512(at)))
#include "products512.h"
#undef LD_PAIRS
#undef LD_PAIR_ADD
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")
// Inline assembly: gcc 12 copies the sums of chained _mm512_dpwssd_epi32 to and fro.
#define LD_PAIRS(name) name##_avx512vnni
#define LD_PAIR_ADD(sum, columns, at)                                                                                                    \
    __asm__("vpdpwssd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(columns), "m"(*(const int32_t *)(const void *)(at)))
#include "products512.h"
#undef LD_PAIRS
#undef LD_PAIR_ADD
#pragma GCC pop_options
