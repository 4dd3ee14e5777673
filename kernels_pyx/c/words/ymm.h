// Words times cached bytes in 256-bit registers: up to 6 rows x 16 columns. Included inside the target region of an instruction set,
// which names the functions (LD_WORDS) and multiplies and adds pairs (LD_WORDS_STEP).

LD_ALWAYS void LD_WORDS(sum)(const int16_t *a, size_t a_stride, const int8_t *b, size_t b_stride, int64_t pairs, int64_t ahead,
                             __m256i sum[6][2], const int rows) {
    LD_UNROLL_ROWS for (int i = 0; i < rows; i++) sum[i][0] = sum[i][1] = _mm256_setzero_si256();
    for (int64_t t = 0; t < pairs; t++) {
        const int8_t *at = b + t * b_stride;
        _mm_prefetch((const char *)at + ahead, _MM_HINT_T1);
        __m256i b0 = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)at));
        __m256i b1 = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(at + 16)));
        LD_UNROLL_ROWS for (int i = 0; i < rows; i++) {
            __m256i pair = _mm256_set1_epi32(*(const word_pair *)(a + i * a_stride + 2 * t));
            LD_WORDS_STEP(sum[i][0], pair, b0);
            LD_WORDS_STEP(sum[i][1], pair, b1);
        }
    }
}

LD_ALWAYS void LD_WORDS(score_rows)(const int16_t *q, size_t q_stride, const float *unit, const int8_t *keys, const uint16_t *scales,
                                    float *c, size_t c_stride, int64_t dim, int64_t group, int64_t ahead, const int rows) {
    for (int64_t from = 0, end; from < dim; from = end) {
        end = words_slice(from, dim, group);
        const uint16_t *scale = scales + from / group * LD_BLOCK;
        _mm_prefetch((const char *)scale + ahead, _MM_HINT_T1);
        for (int j = 0; j < LD_BLOCK; j += 16) {
            __m256i sum[6][2];
            LD_WORDS(sum)(q + from, q_stride, keys + from * LD_BLOCK + 2 * j, 2 * LD_BLOCK, (end - from) / 2, ahead, sum, rows);
            __m256 s0 = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(scale + j)));
            __m256 s1 = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(scale + j + 8)));
            LD_UNROLL_ROWS for (int i = 0; i < rows; i++) {
                __m256 by = _mm256_set1_ps(unit[i]);
                float *out = c + i * c_stride + j;
                __m256 c0 = _mm256_mul_ps(_mm256_cvtepi32_ps(sum[i][0]), _mm256_mul_ps(s0, by));
                __m256 c1 = _mm256_mul_ps(_mm256_cvtepi32_ps(sum[i][1]), _mm256_mul_ps(s1, by));
                _mm256_storeu_ps(out, from ? _mm256_add_ps(_mm256_loadu_ps(out), c0) : c0);
                _mm256_storeu_ps(out + 8, from ? _mm256_add_ps(_mm256_loadu_ps(out + 8), c1) : c1);
            }
        }
    }
}

// Weights times scales as words; returns their unit. Compared as unsigned integers, a NaN is the largest of what is not negative.
LD_ALWAYS float LD_WORDS(weigh)(const float *w, const uint16_t *scales, int64_t n, int16_t *words) {
    __m256 product[4];
    __m256i count = _mm256_set1_epi32((int)n), lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), top = _mm256_setzero_si256();
    LD_UNROLL_ROWS for (int v = 0; v < 4; v++) {
        __m256i valid = _mm256_cmpgt_epi32(count, _mm256_add_epi32(lane, _mm256_set1_epi32(8 * v)));
        __m256 scale = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(scales + 8 * v)));
        product[v] = _mm256_and_ps(_mm256_mul_ps(_mm256_loadu_ps(w + 8 * v), scale), _mm256_castsi256_ps(valid));
        top = _mm256_max_epu32(top, _mm256_castps_si256(product[v]));
    }
    __m128i most = _mm_max_epu32(_mm256_castsi256_si128(top), _mm256_extracti128_si256(top, 1));
    most = _mm_max_epu32(most, _mm_shuffle_epi32(most, 0x4e));
    most = _mm_max_epu32(most, _mm_shuffle_epi32(most, 0xb1));
    float max = _mm_cvtss_f32(_mm_castsi128_ps(most));
    __m256 inverse = _mm256_set1_ps(max > LD_WEIGHT_MIN ? LD_WORD_MAX / max : 0.0f);
    LD_UNROLL_ROWS for (int v = 0; v < 4; v += 2) {
        __m256i low = _mm256_cvtps_epi32(_mm256_mul_ps(product[v], inverse));
        __m256i high = _mm256_cvtps_epi32(_mm256_mul_ps(product[v + 1], inverse));
        __m256i both = _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xd8);
        _mm256_storeu_si256((__m256i *)(words + 8 * v), both);
    }
    return max * (1.0f / LD_WORD_MAX);
}

LD_ALWAYS void LD_WORDS(value_rows)(const float *w, size_t w_stride, const int8_t *values, const uint16_t *scales, float *c,
                                    const float *factor, int64_t n, int64_t v_pad, int64_t group, int64_t ahead, const int rows) {
    for (int64_t from = 0; from < v_pad; from += group) {
        int16_t words[6][LD_BLOCK];
        float unit[6];
        int64_t width = group < v_pad - from ? group : v_pad - from;
        const uint16_t *scale = scales + from / group * LD_BLOCK;
        _mm_prefetch((const char *)scale + ahead, _MM_HINT_T1);
        LD_UNROLL_ROWS for (int i = 0; i < rows; i++) unit[i] = LD_WORDS(weigh)(w + i * w_stride, scale, n, words[i]);
        for (int64_t j = from; j < from + width; j += 16) {
            __m256i sum[6][2];
            LD_WORDS(sum)(words[0], LD_BLOCK, values + 2 * j, 2 * v_pad, (n + 1) / 2, ahead, sum, rows);
            LD_UNROLL_ROWS for (int i = 0; i < rows; i++) {
                __m256 by = _mm256_set1_ps(unit[i]), old = _mm256_set1_ps(factor[i]);
                float *out = c + i * v_pad + j;
                _mm256_storeu_ps(out, _mm256_add_ps(_mm256_mul_ps(_mm256_loadu_ps(out), old),
                                                    _mm256_mul_ps(_mm256_cvtepi32_ps(sum[i][0]), by)));
                _mm256_storeu_ps(out + 8, _mm256_add_ps(_mm256_mul_ps(_mm256_loadu_ps(out + 8), old),
                                                        _mm256_mul_ps(_mm256_cvtepi32_ps(sum[i][1]), by)));
            }
        }
    }
}

static void LD_WORDS(scores)(const int16_t *q, size_t q_stride, const float *unit, const int8_t *keys, const uint16_t *scales,
                             float *c, size_t c_stride, int64_t m, int64_t dim, int64_t group, int64_t ahead) {
    for (int64_t i = 0; i < m; i += 6)
        switch (m - i) {
#define ROWS(r) \
    LD_WORDS(score_rows)(q + i * q_stride, q_stride, unit + i, keys, scales, c + i * c_stride, c_stride, dim, group, i ? 0 : ahead, r)
        case 1: ROWS(1); break;
        case 2: ROWS(2); break;
        case 3: ROWS(3); break;
        case 4: ROWS(4); break;
        case 5: ROWS(5); break;
        default: ROWS(6);
#undef ROWS
        }
}

static void LD_WORDS(values)(const float *w, size_t w_stride, const int8_t *values, const uint16_t *scales, float *c,
                             const float *factor, int64_t m, int64_t n, int64_t v_pad, int64_t group, int64_t ahead) {
    for (int64_t i = 0; i < m; i += 6)
        switch (m - i) {
#define ROWS(r) \
    LD_WORDS(value_rows)(w + i * w_stride, w_stride, values, scales, c + i * v_pad, factor + i, n, v_pad, group, i ? 0 : ahead, r)
        case 1: ROWS(1); break;
        case 2: ROWS(2); break;
        case 3: ROWS(3); break;
        case 4: ROWS(4); break;
        case 5: ROWS(5); break;
        default: ROWS(6);
#undef ROWS
        }
}
