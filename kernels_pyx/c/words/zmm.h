// Words times cached bytes in 512-bit registers: up to 12 rows x 32 columns, 16 at the edge. Included like ymm.h.

LD_ALWAYS void LD_WORDS(sum)(const int16_t *a, size_t a_stride, const int8_t *b, size_t b_stride, int64_t pairs, int64_t ahead,
                             __m512i sum[12][2], const int rows, const int vectors) {
    LD_UNROLL_ROWS for (int i = 0; i < rows; i++)
        LD_UNROLL_ROWS for (int v = 0; v < vectors; v++) sum[i][v] = _mm512_setzero_si512();
    for (int64_t t = 0; t < pairs; t++) {
        const int8_t *at = b + t * b_stride;
        __m512i byte[2];
        _mm_prefetch((const char *)at + ahead, _MM_HINT_T1);
        LD_UNROLL_ROWS for (int v = 0; v < vectors; v++)
            byte[v] = _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)(at + 32 * v)));
        LD_UNROLL_ROWS for (int i = 0; i < rows; i++)
            LD_UNROLL_ROWS for (int v = 0; v < vectors; v++) LD_WORDS_STEP(sum[i][v], a + i * a_stride + 2 * t, byte[v]);
    }
}

LD_ALWAYS void LD_WORDS(score_rows)(const int16_t *q, size_t q_stride, const float *unit, const int8_t *keys, const uint16_t *scales,
                                    float *c, size_t c_stride, int64_t dim, int64_t group, int64_t ahead, const int rows) {
    for (int64_t from = 0, end; from < dim; from = end) {
        end = words_slice(from, dim, group);
        const uint16_t *scale = scales + from / group * LD_BLOCK;
        _mm_prefetch((const char *)scale + ahead, _MM_HINT_T1);
        __m512i sum[12][2];
        LD_WORDS(sum)(q + from, q_stride, keys + from * LD_BLOCK, 2 * LD_BLOCK, (end - from) / 2, ahead, sum, rows, 2);
        LD_UNROLL_ROWS for (int v = 0; v < 2; v++) {
            __m512 s = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(scale + 16 * v)));
            LD_UNROLL_ROWS for (int i = 0; i < rows; i++) {
                float *out = c + i * c_stride + 16 * v;
                __m512 part = _mm512_mul_ps(_mm512_cvtepi32_ps(sum[i][v]), _mm512_mul_ps(s, _mm512_set1_ps(unit[i])));
                _mm512_storeu_ps(out, from ? _mm512_add_ps(_mm512_loadu_ps(out), part) : part);
            }
        }
    }
}

// Weights times scales as words; returns their unit. Compared as unsigned integers, a NaN is the largest of what is not negative.
LD_ALWAYS float LD_WORDS(weigh)(const float *w, const uint16_t *scales, int64_t n, int16_t *words) {
    __mmask32 valid = n >= LD_BLOCK ? 0xffffffffu : (1u << n) - 1;
    __m512 s0 = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)scales));
    __m512 s1 = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(scales + 16)));
    __m512 p0 = _mm512_maskz_mul_ps((__mmask16)valid, _mm512_loadu_ps(w), s0);
    __m512 p1 = _mm512_maskz_mul_ps((__mmask16)(valid >> 16), _mm512_loadu_ps(w + 16), s1);
    uint32_t bits = _mm512_reduce_max_epu32(_mm512_max_epu32(_mm512_castps_si512(p0), _mm512_castps_si512(p1)));
    float max = _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128((int)bits)));
    __m512 inverse = _mm512_set1_ps(max > LD_WEIGHT_MIN ? LD_WORD_MAX / max : 0.0f);
    _mm256_storeu_si256((__m256i *)words, _mm512_cvtsepi32_epi16(_mm512_cvtps_epi32(_mm512_mul_ps(p0, inverse))));
    _mm256_storeu_si256((__m256i *)(words + 16), _mm512_cvtsepi32_epi16(_mm512_cvtps_epi32(_mm512_mul_ps(p1, inverse))));
    return max * (1.0f / LD_WORD_MAX);
}

LD_ALWAYS void LD_WORDS(add_sums)(const __m512i sum[12][2], float *c, int64_t v_pad, const float *factor, const float *unit,
                                  const int rows, const int vectors) {
    LD_UNROLL_ROWS for (int i = 0; i < rows; i++)
        LD_UNROLL_ROWS for (int v = 0; v < vectors; v++) {
            float *out = c + i * v_pad + 16 * v;
            __m512 old = _mm512_mul_ps(_mm512_loadu_ps(out), _mm512_set1_ps(factor[i]));
            _mm512_storeu_ps(out, _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[i][v]), _mm512_set1_ps(unit[i]), old));
        }
}

LD_ALWAYS void LD_WORDS(value_rows)(const float *w, size_t w_stride, const int8_t *values, const uint16_t *scales, float *c,
                                    const float *factor, int64_t n, int64_t v_pad, int64_t group, int64_t ahead, const int rows) {
    for (int64_t from = 0; from < v_pad; from += group) {
        int16_t words[12][LD_BLOCK];
        float unit[12];
        int64_t end = group < v_pad - from ? from + group : v_pad, pairs = (n + 1) / 2, j = from;
        const uint16_t *scale = scales + from / group * LD_BLOCK;
        _mm_prefetch((const char *)scale + ahead, _MM_HINT_T1);
        LD_UNROLL_ROWS for (int i = 0; i < rows; i++) unit[i] = LD_WORDS(weigh)(w + i * w_stride, scale, n, words[i]);
        __m512i sum[12][2];
        for (; j + 32 <= end; j += 32) {
            LD_WORDS(sum)(words[0], LD_BLOCK, values + 2 * j, 2 * v_pad, pairs, ahead, sum, rows, 2);
            LD_WORDS(add_sums)(sum, c + j, v_pad, factor, unit, rows, 2);
        }
        if (j < end) {
            LD_WORDS(sum)(words[0], LD_BLOCK, values + 2 * j, 2 * v_pad, pairs, ahead, sum, rows, 1);
            LD_WORDS(add_sums)(sum, c + j, v_pad, factor, unit, rows, 1);
        }
    }
}

static void LD_WORDS(scores)(const int16_t *q, size_t q_stride, const float *unit, const int8_t *keys, const uint16_t *scales,
                             float *c, size_t c_stride, int64_t m, int64_t dim, int64_t group, int64_t ahead) {
    for (int64_t i = 0; i < m; i += 12)
        switch (m - i) {
#define ROWS(r) \
    LD_WORDS(score_rows)(q + i * q_stride, q_stride, unit + i, keys, scales, c + i * c_stride, c_stride, dim, group, i ? 0 : ahead, r)
            LD_EACH_ROW_COUNT
#undef ROWS
        }
}

static void LD_WORDS(values)(const float *w, size_t w_stride, const int8_t *values, const uint16_t *scales, float *c,
                             const float *factor, int64_t m, int64_t n, int64_t v_pad, int64_t group, int64_t ahead) {
    for (int64_t i = 0; i < m; i += 12)
        switch (m - i) {
#define ROWS(r) \
    LD_WORDS(value_rows)(w + i * w_stride, w_stride, values, scales, c + i * v_pad, factor + i, n, v_pad, group, i ? 0 : ahead, r)
            LD_EACH_ROW_COUNT
#undef ROWS
        }
}
