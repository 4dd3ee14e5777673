// Pairs with AVX2: multiply-add of words, 8 sums in a register, so two registers for 16 queries.
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#include "../vec/exp256.h"

static inline __attribute__((always_inline)) __m256 floats_avx2(const void *x, int64_t i, const int half) {
    return half ? _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)((const uint16_t *)x + i))) : _mm256_loadu_ps((const float *)x + i);
}

static inline __attribute__((always_inline)) void narrow_any_avx2(const void *x, float factor, int16_t *y, int64_t n, const int half) {
    const __m256 f = _mm256_set1_ps(factor);
    for (int64_t i = 0; i < n; i += 16) {
        __m256i a = _mm256_cvtps_epi32(_mm256_mul_ps(floats_avx2(x, i, half), f));
        __m256i b = _mm256_cvtps_epi32(_mm256_mul_ps(floats_avx2(x, i + 8, half), f));
        _mm256_storeu_si256((__m256i *)(y + i), _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xd8));
    }
}

static void narrow_avx2(const float *x, float factor, int16_t *y, int64_t n) { narrow_any_avx2(x, factor, y, n, 0); }

static inline __attribute__((always_inline)) float largest_of_avx2(const void *x, int64_t n, const int half) {
    // As integers, so that a NaN is the largest of all.
    const __m256i sign = _mm256_set1_epi32(0x7fffffff);
    __m256i a = _mm256_setzero_si256(), b = a;
    for (int64_t i = 0; i < n; i += 16) {
        a = _mm256_max_epi32(_mm256_and_si256(sign, _mm256_castps_si256(floats_avx2(x, i, half))), a);
        b = _mm256_max_epi32(_mm256_and_si256(sign, _mm256_castps_si256(floats_avx2(x, i + 8, half))), b);
    }
    a = _mm256_max_epi32(a, b);
    __m128i c = _mm_max_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    c = _mm_max_epi32(c, _mm_shuffle_epi32(c, 0x4e));
    c = _mm_max_epi32(c, _mm_shuffle_epi32(c, 0xb1));
    return _mm_cvtss_f32(_mm_castsi128_ps(c));
}

static inline __attribute__((always_inline)) float key_avx2(const void *x, int16_t *y, int64_t n, const int half) {
    float max = largest_of_avx2(x, n, half);
    narrow_any_avx2(x, max > 0.0f ? LD_PAIR_KEY / max : 0.0f, y, n, half);
    return max / LD_PAIR_KEY;
}

static inline __attribute__((always_inline)) void zip_words_avx2(__m256i a, __m256i b, int16_t *y) {
    __m256i u = _mm256_permute4x64_epi64(a, 0xd8), v = _mm256_permute4x64_epi64(b, 0xd8);
    _mm256_storeu_si256((__m256i *)y, _mm256_unpacklo_epi16(u, v));
    _mm256_storeu_si256((__m256i *)(y + 16), _mm256_unpackhi_epi16(u, v));
}

static void zip_avx2(int16_t *const y[2], int16_t *zipped, int64_t n) {
    for (int64_t i = 0; i < n; i += 16)
        zip_words_avx2(_mm256_loadu_si256((const __m256i *)(y[0] + i)), _mm256_loadu_si256((const __m256i *)(y[1] + i)), zipped + 2 * i);
}

static void keys_f32_avx2(const float *const x[2], int16_t *const y[2], int16_t *zipped, float scale[2], int64_t n) {
    for (int j = 0; j < 2; j++) scale[j] = key_avx2(x[j], y[j], n, 0);
    if (zipped) zip_avx2(y, zipped, n);
}

static void keys_f16_avx2(const uint16_t *const x[2], int16_t *const y[2], int16_t *zipped, float scale[2], int64_t n) {
    for (int j = 0; j < 2; j++) scale[j] = key_avx2(x[j], y[j], n, 1);
    if (zipped) zip_avx2(y, zipped, n);
}

static void factors_avx2(const uint16_t *scales, int64_t n_groups, int16_t *factors, float *scale) {
    const __m256i sign = _mm256_set1_epi32(0x7fffffff);
    for (int64_t t = 0; t < LD_BLOCK; t += 8) {
        __m256i top = _mm256_setzero_si256(); // compared as integers, a NaN is the largest of all
        for (int64_t g = 0; g < n_groups; g++)
            top = _mm256_max_epi32(top, _mm256_and_si256(sign, _mm256_castps_si256(floats_avx2(scales, g * LD_BLOCK + t, 1))));
        __m256 max = _mm256_castsi256_ps(top), some = _mm256_cmp_ps(max, _mm256_set1_ps(LD_PAIR_TINY), _CMP_GE_OQ);
        __m256 share = _mm256_and_ps(some, _mm256_div_ps(_mm256_set1_ps(32767.0f), max));
        for (int64_t g = 0; g < n_groups; g++) {
            __m256i f = _mm256_cvtps_epi32(_mm256_mul_ps(floats_avx2(scales, g * LD_BLOCK + t, 1), share));
            _mm_storeu_si128((__m128i *)(factors + g * LD_BLOCK + t),
                             _mm_packs_epi32(_mm256_castsi256_si128(f), _mm256_extracti128_si256(f, 1)));
        }
        _mm256_storeu_ps(scale + t, _mm256_mul_ps(max, _mm256_set1_ps(32768.0f / 32767.0f / (1 << LD_PAIR_BYTE))));
    }
}

static void keys_i8_avx2(const int8_t *const x[2], const int16_t *factors, int64_t group, int16_t *const y[2], int16_t *zipped,
                         int64_t n) {
    for (int64_t from = 0; from < n; from += group, factors += LD_BLOCK) {
        const __m256i f0 = _mm256_set1_epi16(factors[0]), f1 = _mm256_set1_epi16(factors[1]);
        for (int64_t i = from; i < n && i < from + group; i += 16) {
            __m256i a = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(x[0] + i)));
            __m256i b = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(x[1] + i)));
            a = _mm256_mulhrs_epi16(_mm256_slli_epi16(a, LD_PAIR_BYTE), f0);
            b = _mm256_mulhrs_epi16(_mm256_slli_epi16(b, LD_PAIR_BYTE), f1);
            _mm256_storeu_si256((__m256i *)(y[0] + i), a);
            _mm256_storeu_si256((__m256i *)(y[1] + i), b);
            if (zipped) zip_words_avx2(a, b, zipped + 2 * i);
        }
    }
}

// Squares of eight by eight: words, pairs, then halves of registers change places.
static void cross_avx2(const void *x, int64_t x_stride, void *y, int64_t y_stride, int64_t rows, int64_t columns) {
    for (int64_t i = 0; i < rows; i += 8)
        for (int64_t j = 0; j < columns; j += 8) {
            __m256i a[8], b[8];
#pragma GCC unroll 8
            for (int r = 0; r < 8; r++) a[r] = _mm256_loadu_si256((const __m256i *)((const int32_t *)x + (i + r) * x_stride + j));
#pragma GCC unroll 4
            for (int r = 0; r < 8; r += 2) b[r] = _mm256_unpacklo_epi32(a[r], a[r + 1]), b[r + 1] = _mm256_unpackhi_epi32(a[r], a[r + 1]);
#pragma GCC unroll 2
            for (int r = 0; r < 8; r += 4)
#pragma GCC unroll 2
                for (int h = 0; h < 2; h++) {
                    a[r + 2 * h] = _mm256_unpacklo_epi64(b[r + h], b[r + 2 + h]);
                    a[r + 2 * h + 1] = _mm256_unpackhi_epi64(b[r + h], b[r + 2 + h]);
                }
#pragma GCC unroll 4
            for (int r = 0; r < 4; r++) {
                int32_t *to = (int32_t *)y + (j + r) * y_stride + i;
                _mm256_storeu_si256((__m256i *)to, _mm256_permute2x128_si256(a[r], a[r + 4], 0x20));
                _mm256_storeu_si256((__m256i *)(to + 4 * y_stride), _mm256_permute2x128_si256(a[r], a[r + 4], 0x31));
            }
        }
}

// sum[j][v] += the pairs that stand at `at` + j * step, j < 4, times those of 16 columns, for n_pairs.
static inline __attribute__((always_inline)) void products_avx2(__m256i sum[4][2], const int16_t *at, int64_t step, int64_t at_stride,
                                                                const int16_t *columns, int64_t m, int64_t n_pairs, const int count) {
#pragma GCC unroll 4
    for (int j = 0; j < count; j++) sum[j][0] = sum[j][1] = _mm256_setzero_si256();
    for (int64_t p = 0; p < n_pairs; p++) {
        __m256i a = _mm256_loadu_si256((const __m256i *)(columns + p * m * 2));
        __m256i b = _mm256_loadu_si256((const __m256i *)(columns + p * m * 2 + 16));
#pragma GCC unroll 4
        for (int j = 0; j < count; j++) {
            int32_t pair;
            memcpy(&pair, at + j * step + p * at_stride, sizeof pair);
            __m256i both = _mm256_set1_epi32(pair);
            sum[j][0] = _mm256_add_epi32(sum[j][0], _mm256_madd_epi16(both, a));
            sum[j][1] = _mm256_add_epi32(sum[j][1], _mm256_madd_epi16(both, b));
        }
    }
}

static inline __attribute__((always_inline)) void dot_keys_avx2(const int16_t *keys, int64_t key_stride, const float *key_scale,
                                                                const int16_t *queries, const float *query_scale, int64_t m, int64_t n,
                                                                float *out, int add, const int count) {
    __m256i sum[4][2];
    products_avx2(sum, keys, key_stride, 2, queries, m, n / 2, count);
#pragma GCC unroll 4
    for (int t = 0; t < count; t++)
#pragma GCC unroll 2
        for (int v = 0; v < 2; v++) {
            float *to = out + t * m + 8 * v;
            __m256 scale = _mm256_mul_ps(_mm256_set1_ps(key_scale[t]), _mm256_loadu_ps(query_scale + 8 * v));
            __m256 scaled = _mm256_mul_ps(_mm256_cvtepi32_ps(sum[t][v]), scale);
            _mm256_storeu_ps(to, add ? _mm256_add_ps(_mm256_loadu_ps(to), scaled) : scaled);
        }
}

static void dot_avx2(const int16_t *keys, int64_t key_stride, const float *key_scale, int64_t n_keys, const int16_t *queries,
                     const float *query_scale, int64_t m, int64_t n, float *out, int add) {
    for (int64_t i = 0; i < m; i += 16) {
        int64_t t = 0;
        for (; t + 4 <= n_keys; t += 4)
            dot_keys_avx2(keys + t * key_stride, key_stride, key_scale + t, queries + 2 * i, query_scale + i, m, n, out + t * m + i, add, 4);
        for (; t < n_keys; t++)
            dot_keys_avx2(keys + t * key_stride, key_stride, key_scale + t, queries + 2 * i, query_scale + i, m, n, out + t * m + i, add, 1);
    }
}

static void largest_avx2(const uint16_t *x, int64_t x_stride, int64_t n, float *max) {
    for (int64_t t = 0; t < LD_PAIR_GROUP; t++) max[t] = largest_of_avx2(x + t * x_stride, n, 1);
}

static void dot_beside_avx2(const int16_t *keys, int64_t key_stride, const float *key_scale, const int16_t *queries,
                            const float *query_scale, int64_t m, int64_t n, float *out, const ld_pair_next *next) {
    dot_avx2(keys, key_stride, key_scale, LD_PAIR_GROUP, queries, query_scale, m, n, out, 0);
    for (int64_t t = 0; t < LD_PAIR_GROUP; t += 2) {
        int16_t *y[2] = {next->y + t * next->y_stride, next->y + (t + 1) * next->y_stride};
        int16_t *zipped = next->zipped + t / 2 * next->zipped_stride;
        if (!next->halves) {
            const int8_t *x = next->bytes + t * next->x_stride;
            keys_i8_avx2((const int8_t *[2]){x, x + next->x_stride}, next->factors + t, next->one_group ? n : 32, y, zipped, n);
            continue;
        }
        for (int j = 0; j < 2; j++) narrow_any_avx2(next->halves + (t + j) * next->x_stride, next->factor[t + j], y[j], n, 1);
        zip_avx2(y, zipped, n);
    }
}

// exp of the distances of eight scores to the largest; those that do not count are not read.
static inline __attribute__((always_inline)) __m256 likely_avx2(const float *scores, __m256 counts, __m256 top) {
    __m256 x = _mm256_maskload_ps(scores, _mm256_castps_si256(counts));
    return _mm256_and_ps(counts, ld_exp8(_mm256_sub_ps(x, top)));
}

static void weigh_avx2(const float *scores, int64_t n_keys, int64_t m, const int32_t *valid, const float *ratio, int16_t *weights,
                       float *max, float *total) {
    const __m256 none = _mm256_set1_ps(-INFINITY);
    for (int64_t i = 0; i < m; i += 8) {
        const __m256i last = _mm256_loadu_si256((const __m256i *)(valid + i));
#define COUNTS(t) _mm256_castsi256_ps(_mm256_cmpgt_epi32(last, _mm256_set1_epi32((int)(t))))
        __m256 top = none, sum = _mm256_setzero_ps();
        for (int64_t t = 0; t < n_keys; t++)
            top = _mm256_max_ps(top, _mm256_blendv_ps(none, _mm256_loadu_ps(scores + t * m + i), COUNTS(t)));
        _mm256_storeu_ps(max + i, top);
        for (int64_t t = 0; t < n_keys; t += 2) {
            __m256 a = likely_avx2(scores + t * m + i, COUNTS(t), top);
            __m256 b = likely_avx2(scores + (t + 1) * m + i, COUNTS(t + 1), top);
            sum = _mm256_add_ps(_mm256_add_ps(sum, a), b);
            __m256i low = _mm256_cvtps_epi32(_mm256_mul_ps(a, _mm256_set1_ps(ratio[t])));
            __m256i high = _mm256_cvtps_epi32(_mm256_mul_ps(b, _mm256_set1_ps(t + 1 < n_keys ? ratio[t + 1] : 0.0f)));
            _mm256_storeu_si256((__m256i *)(weights + (t / 2 * m + i) * 2), _mm256_or_si256(low, _mm256_slli_epi32(high, 16)));
        }
#undef COUNTS
        _mm256_storeu_ps(total + i, sum);
    }
}

static inline __attribute__((always_inline)) void sum_rows_avx2(const int16_t *weights, int64_t m, const int16_t *rows,
                                                                int64_t row_stride, int64_t n_pairs, const float *keep,
                                                                const float *gain, float *sums, const int count) {
    __m256i sum[4][2];
    products_avx2(sum, rows, 2, row_stride, weights, m, n_pairs, count);
#pragma GCC unroll 4
    for (int d = 0; d < count; d++)
#pragma GCC unroll 2
        for (int v = 0; v < 2; v++) {
            float *to = sums + d * m + 8 * v;
            __m256 kept = _mm256_mul_ps(_mm256_loadu_ps(to), _mm256_loadu_ps(keep + 8 * v));
            _mm256_storeu_ps(to, _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum[d][v]), _mm256_loadu_ps(gain + 8 * v), kept));
        }
}

static void sum_avx2(const int16_t *weights, int64_t m, const int16_t *rows, int64_t row_stride, int64_t n_pairs, const float *keep,
                     const float *gain, float *sums, int64_t n) {
    for (int64_t i = 0; i < m; i += 16) {
        int64_t d = 0;
        for (; d + 4 <= n; d += 4)
            sum_rows_avx2(weights + 2 * i, m, rows + 2 * d, row_stride, n_pairs, keep + i, gain + i, sums + d * m + i, 4);
        for (; d < n; d++)
            sum_rows_avx2(weights + 2 * i, m, rows + 2 * d, row_stride, n_pairs, keep + i, gain + i, sums + d * m + i, 1);
    }
}

#pragma GCC pop_options
