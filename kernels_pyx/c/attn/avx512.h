// The attention tile with AVX-512 F/BW/VL: up to 12 rows x 32 columns in registers, 16 columns at the edge.
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx2,fma,f16c")

static inline __attribute__((always_inline)) __m512 load_avx512(const void *b, size_t index, const int bytes) {
    return bytes == 2 ? _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)((const uint16_t *)b + index)))
                      : _mm512_loadu_ps((const float *)b + index);
}

static inline __attribute__((always_inline)) void rows_avx512(const float *a, size_t a_stride, const void *b, size_t b_stride,
                                                              float *c, size_t c_stride, const float *scale, int64_t k,
                                                              int64_t ahead, const int rows, const int vectors,
                                                              const int bytes) {
    __m512 sum[12][2];
#pragma GCC unroll 12
    for (int i = 0; i < rows; i++) {
        __m512 factor = scale ? _mm512_set1_ps(scale[i]) : _mm512_setzero_ps();
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++)
            sum[i][v] = scale ? _mm512_mul_ps(_mm512_loadu_ps(c + i * c_stride + 16 * v), factor) : factor;
    }
    for (int64_t t = 0; t < k; t++) {
        __m512 value[2];
        for (int line = 0; line < vectors * bytes * 16; line += 64)
            _mm_prefetch((const char *)b + t * b_stride * bytes + ahead + line, _MM_HINT_T1);
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) value[v] = load_avx512(b, t * b_stride + 16 * v, bytes);
#pragma GCC unroll 12
        for (int i = 0; i < rows; i++) {
            __m512 weight = _mm512_set1_ps(a[i * a_stride + t]);
#pragma GCC unroll 2
            for (int v = 0; v < vectors; v++) sum[i][v] = _mm512_fmadd_ps(weight, value[v], sum[i][v]);
        }
    }
#pragma GCC unroll 12
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) _mm512_storeu_ps(c + i * c_stride + 16 * v, sum[i][v]);
}

static inline __attribute__((always_inline)) void column_avx512(const float *a, size_t a_stride, const void *b, size_t b_stride,
                                                                float *c, size_t c_stride, const float *scale, int64_t m,
                                                                int64_t k, int64_t ahead, const int vectors, const int bytes) {
    for (int64_t i = 0; i < m; i += 12) {
        const float *weights = a + i * a_stride, *factors = scale ? scale + i : NULL;
        float *out = c + i * c_stride;
        switch (m - i) {
#define ROWS(r) rows_avx512(weights, a_stride, b, b_stride, out, c_stride, factors, k, i ? 0 : ahead, r, vectors, bytes)
        case 1: ROWS(1); break;
        case 2: ROWS(2); break;
        case 3: ROWS(3); break;
        case 4: ROWS(4); break;
        case 5: ROWS(5); break;
        case 6: ROWS(6); break;
        case 7: ROWS(7); break;
        case 8: ROWS(8); break;
        case 9: ROWS(9); break;
        case 10: ROWS(10); break;
        case 11: ROWS(11); break;
        default: ROWS(12);
#undef ROWS
        }
    }
}

static inline __attribute__((always_inline)) void tile_avx512(const float *a, size_t a_stride, const void *b, size_t b_stride,
                                                              float *c, size_t c_stride, const float *scale, int64_t m,
                                                              int64_t k, int64_t n, int64_t ahead, const int bytes) {
    for (int64_t j = 0; j < n; j += 32) {
        const void *column = (const uint8_t *)b + j * bytes;
        if (n - j >= 32)
            column_avx512(a, a_stride, column, b_stride, c + j, c_stride, scale, m, k, ahead, 2, bytes);
        else
            column_avx512(a, a_stride, column, b_stride, c + j, c_stride, scale, m, k, ahead, 1, bytes);
    }
}

static void tile_f32_avx512(const float *a, size_t a_stride, const void *b, size_t b_stride, float *c, size_t c_stride,
                            const float *scale, int64_t m, int64_t k, int64_t n, int64_t ahead) {
    tile_avx512(a, a_stride, b, b_stride, c, c_stride, scale, m, k, n, ahead, 4);
}

static void tile_f16_avx512(const float *a, size_t a_stride, const void *b, size_t b_stride, float *c, size_t c_stride,
                            const float *scale, int64_t m, int64_t k, int64_t n, int64_t ahead) {
    tile_avx512(a, a_stride, b, b_stride, c, c_stride, scale, m, k, n, ahead, 2);
}

#pragma GCC pop_options
