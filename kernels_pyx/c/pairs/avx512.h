// Pairs with AVX-512: rounding, zipping, and what is done with scores.
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx2,fma,f16c")
#include "../vec/exp512.h"

static inline __attribute__((always_inline)) __m512 floats_avx512(const void *x, int64_t i, const int half) {
    return half ? _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)((const uint16_t *)x + i))) : _mm512_loadu_ps((const float *)x + i);
}

// Beside 1.5 * 2^23 the last bit of an f32 counts 1: its low 16 bits are the rounded integer.
static inline __attribute__((always_inline)) __m512i rounded_avx512(const void *x, int64_t i, __m512 factor, const int half) {
    return _mm512_castps_si512(_mm512_fmadd_ps(floats_avx512(x, i, half), factor, _mm512_set1_ps(12582912.0f)));
}

// The low words of 32 numbers, side by side.
static inline __attribute__((always_inline)) __m512i words_avx512(__m512i a, __m512i b) {
    const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i words = _mm512_add_epi32(_mm512_mullo_epi32(lanes, _mm512_set1_epi32(0x00040004)), _mm512_set1_epi32(0x00020000));
    return _mm512_permutex2var_epi16(a, words, b);
}

static void narrow_avx512(const float *x, float factor, int16_t *y, int64_t n) {
    const __m512 f = _mm512_set1_ps(factor);
    for (int64_t i = 0; i < n; i += 32)
        _mm512_storeu_si512(y + i, words_avx512(rounded_avx512(x, i, f, 0), rounded_avx512(x, i + 16, f, 0)));
}

// The largest magnitude of a row. As integers, so that a NaN is the largest of all.
static inline __attribute__((always_inline)) float largest_f32_avx512(const float *x, int64_t n) {
    const __m512i sign = _mm512_set1_epi32(0x7fffffff);
    __m512i top = _mm512_setzero_si512();
    for (int64_t i = 0; i < n; i += 16) top = _mm512_max_epi32(_mm512_and_si512(_mm512_loadu_si512(x + i), sign), top);
    int32_t bits = _mm512_reduce_max_epi32(top);
    float max;
    memcpy(&max, &bits, sizeof max);
    return max;
}

static inline __attribute__((always_inline)) float largest_f16_avx512(const uint16_t *x, int64_t n) {
    const __m512i sign = _mm512_set1_epi16(0x7fff);
    __m512i top = _mm512_setzero_si512();
    for (int64_t i = 0; i < n; i += 32) top = _mm512_max_epi16(_mm512_and_si512(_mm512_loadu_si512(x + i), sign), top);
    __m256i half = _mm256_max_epi16(_mm512_castsi512_si256(top), _mm512_extracti64x4_epi64(top, 1));
    __m128i few = _mm_max_epi16(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
    // The least of the complements is the complement of the largest.
    uint16_t bits = (uint16_t)~_mm_extract_epi16(_mm_minpos_epu16(_mm_xor_si128(few, _mm_set1_epi16(-1))), 0);
    return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(bits)));
}

static void largest_avx512(const uint16_t *x, int64_t x_stride, int64_t n, float *max) {
    for (int64_t t = 0; t < LD_PAIR_GROUP; t++) max[t] = largest_f16_avx512(x + t * x_stride, n);
}

// 32 values of two rows. Zipped, a number of the second row is the upper word beside that of the first: a shift and a blend, no shuffle.
static inline __attribute__((always_inline)) void square_avx512(const void *x0, const void *x1, __m512 factor0, __m512 factor1, int16_t *y0,
                                                                int16_t *y1, int16_t *zipped, int64_t i, const int half) {
    const __m512i a0 = rounded_avx512(x0, i, factor0, half), a1 = rounded_avx512(x0, i + 16, factor0, half);
    const __m512i b0 = rounded_avx512(x1, i, factor1, half), b1 = rounded_avx512(x1, i + 16, factor1, half);
    _mm512_storeu_si512(y0 + i, words_avx512(a0, a1));
    _mm512_storeu_si512(y1 + i, words_avx512(b0, b1));
    if (!zipped) return;
    _mm512_storeu_si512(zipped + 2 * i, _mm512_mask_blend_epi16(0xaaaaaaaa, a0, _mm512_slli_epi32(b0, 16)));
    _mm512_storeu_si512(zipped + 2 * i + 32, _mm512_mask_blend_epi16(0xaaaaaaaa, a1, _mm512_slli_epi32(b1, 16)));
}

static inline __attribute__((always_inline)) void keys_avx512(const void *const x[2], int16_t *const y[2], int16_t *zipped, float scale[2],
                                                              int64_t n, const int half) {
    __m512 factor[2];
#pragma GCC unroll 2
    for (int j = 0; j < 2; j++) {
        float max = half ? largest_f16_avx512(x[j], n) : largest_f32_avx512(x[j], n);
        factor[j] = _mm512_set1_ps(max > 0.0f ? LD_PAIR_KEY / max : 0.0f);
        scale[j] = max / LD_PAIR_KEY;
    }
    for (int64_t i = 0; i < n; i += 32) square_avx512(x[0], x[1], factor[0], factor[1], y[0], y[1], zipped, i, half);
}

static void keys_f32_avx512(const float *const x[2], int16_t *const y[2], int16_t *zipped, float scale[2], int64_t n) {
    const void *const rows[2] = {x[0], x[1]};
    keys_avx512(rows, y, zipped, scale, n, 0);
}

static void keys_f16_avx512(const uint16_t *const x[2], int16_t *const y[2], int16_t *zipped, float scale[2], int64_t n) {
    const void *const rows[2] = {x[0], x[1]};
    keys_avx512(rows, y, zipped, scale, n, 1);
}

static void factors_avx512(const uint16_t *scales, int64_t n_groups, int16_t *factors, float *scale) {
    const __m512i sign = _mm512_set1_epi32(0x7fffffff);
    for (int64_t t = 0; t < LD_BLOCK; t += 16) {
        __m512i top = _mm512_setzero_si512();
        for (int64_t g = 0; g < n_groups; g++)
            top = _mm512_max_epi32(top, _mm512_and_si512(sign, _mm512_castps_si512(floats_avx512(scales, g * LD_BLOCK + t, 1))));
        const __m512 max = _mm512_castsi512_ps(top);
        const __mmask16 some = _mm512_cmp_ps_mask(max, _mm512_set1_ps(LD_PAIR_TINY), _CMP_GE_OQ);
        const __m512 share = _mm512_maskz_div_ps(some, _mm512_set1_ps(32767.0f), max);
        for (int64_t g = 0; g < n_groups; g++) {
            const __m512 f = _mm512_mul_ps(floats_avx512(scales, g * LD_BLOCK + t, 1), share);
            _mm256_storeu_si256((__m256i *)(factors + g * LD_BLOCK + t), _mm512_cvtsepi32_epi16(_mm512_cvtps_epi32(f)));
        }
        _mm512_storeu_ps(scale + t, _mm512_mul_ps(max, _mm512_set1_ps(32768.0f / 32767.0f / (1 << LD_PAIR_BYTE))));
    }
}

// 32 bytes of two rows.
static inline __attribute__((always_inline)) void byte_square_avx512(const int8_t *x0, const int8_t *x1, __m512i factor0, __m512i factor1,
                                                                     int16_t *y0, int16_t *y1, int16_t *zipped, int64_t i) {
    const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i low = _mm512_or_si512(lanes, _mm512_slli_epi32(_mm512_add_epi32(lanes, _mm512_set1_epi32(32)), 16));
    const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
    __m512i a = _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)(x0 + i)));
    __m512i b = _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)(x1 + i)));
    a = _mm512_mulhrs_epi16(_mm512_slli_epi16(a, LD_PAIR_BYTE), factor0);
    b = _mm512_mulhrs_epi16(_mm512_slli_epi16(b, LD_PAIR_BYTE), factor1);
    _mm512_storeu_si512(y0 + i, a);
    _mm512_storeu_si512(y1 + i, b);
    if (!zipped) return;
    _mm512_storeu_si512(zipped + 2 * i, _mm512_permutex2var_epi16(a, low, b));
    _mm512_storeu_si512(zipped + 2 * i + 32, _mm512_permutex2var_epi16(a, high, b));
}

static void keys_i8_avx512(const int8_t *const x[2], const int16_t *factors, int64_t group, int16_t *const y[2], int16_t *zipped,
                           int64_t n) {
    for (int64_t from = 0; from < n; from += group, factors += LD_BLOCK) {
        const __m512i f0 = _mm512_set1_epi16(factors[0]), f1 = _mm512_set1_epi16(factors[1]);
        for (int64_t i = from; i < n && i < from + group; i += 32) byte_square_avx512(x[0], x[1], f0, f1, y[0], y[1], zipped, i);
    }
}

// Squares of sixteen by sixteen: words, pairs, quarters, then halves of registers change places.
static void cross_avx512(const void *x, int64_t x_stride, void *y, int64_t y_stride, int64_t rows, int64_t columns) {
    for (int64_t i = 0; i < rows; i += 16)
        for (int64_t j = 0; j < columns; j += 16) {
            __m512i a[16], b[16];
#pragma GCC unroll 16
            for (int r = 0; r < 16; r++) a[r] = _mm512_loadu_si512((const int32_t *)x + (i + r) * x_stride + j);
#pragma GCC unroll 8
            for (int r = 0; r < 16; r += 2) b[r] = _mm512_unpacklo_epi32(a[r], a[r + 1]), b[r + 1] = _mm512_unpackhi_epi32(a[r], a[r + 1]);
#pragma GCC unroll 4
            for (int r = 0; r < 16; r += 4)
#pragma GCC unroll 2
                for (int h = 0; h < 2; h++) { // a[r + c]: column c of each quarter, rows r to r + 3
                    a[r + 2 * h] = _mm512_unpacklo_epi64(b[r + h], b[r + 2 + h]);
                    a[r + 2 * h + 1] = _mm512_unpackhi_epi64(b[r + h], b[r + 2 + h]);
                }
#pragma GCC unroll 4
            for (int c = 0; c < 4; c++) {
                const __m512i even0 = _mm512_shuffle_i32x4(a[c], a[c + 4], 0x88), even1 = _mm512_shuffle_i32x4(a[c + 8], a[c + 12], 0x88);
                const __m512i odd0 = _mm512_shuffle_i32x4(a[c], a[c + 4], 0xdd), odd1 = _mm512_shuffle_i32x4(a[c + 8], a[c + 12], 0xdd);
                int32_t *to = (int32_t *)y + (j + c) * y_stride + i;
                _mm512_storeu_si512(to, _mm512_shuffle_i32x4(even0, even1, 0x88));
                _mm512_storeu_si512(to + 4 * y_stride, _mm512_shuffle_i32x4(odd0, odd1, 0x88));
                _mm512_storeu_si512(to + 8 * y_stride, _mm512_shuffle_i32x4(even0, even1, 0xdd));
                _mm512_storeu_si512(to + 12 * y_stride, _mm512_shuffle_i32x4(odd0, odd1, 0xdd));
            }
        }
}

static void weigh_avx512(const float *scores, int64_t n_keys, int64_t m, const int32_t *valid, const float *ratio, int16_t *weights,
                         float *max, float *total) {
    for (int64_t i = 0; i < m; i += 16) {
        const __m512i last = _mm512_loadu_si512(valid + i);
        __m512 top = _mm512_set1_ps(-INFINITY), sum = _mm512_setzero_ps();
        for (int64_t t = 0; t < n_keys; t++) {
            __mmask16 counts = _mm512_cmpgt_epi32_mask(last, _mm512_set1_epi32((int)t));
            top = _mm512_mask_max_ps(top, counts, top, _mm512_loadu_ps(scores + t * m + i));
        }
        _mm512_storeu_ps(max + i, top);
        for (int64_t t = 0; t < n_keys; t += 2) {
            __m512 e[2];
#pragma GCC unroll 2
            for (int j = 0; j < 2; j++) { // beyond n_keys nothing counts, and is not read
                __mmask16 counts = _mm512_cmpgt_epi32_mask(last, _mm512_set1_epi32((int)t + j));
                __m512 below = _mm512_sub_ps(_mm512_maskz_loadu_ps(counts, scores + (t + j) * m + i), top);
                e[j] = _mm512_maskz_mov_ps(counts, ld_exp16(below));
            }
            sum = _mm512_add_ps(_mm512_add_ps(sum, e[0]), e[1]);
            __m512i low = _mm512_cvtps_epi32(_mm512_mul_ps(e[0], _mm512_set1_ps(ratio[t])));
            __m512i high = _mm512_cvtps_epi32(_mm512_mul_ps(e[1], _mm512_set1_ps(t + 1 < n_keys ? ratio[t + 1] : 0.0f)));
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
