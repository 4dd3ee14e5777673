// The attention tile with AVX2, FMA and F16C: up to 6 rows x 16 columns in registers.
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")

static inline __attribute__((always_inline)) __m256 load_avx2(const void *b, size_t index, const int bytes) {
    if (bytes == 1) return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)((const int8_t *)b + index))));
    return bytes == 2 ? _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)((const uint16_t *)b + index)))
                      : _mm256_loadu_ps((const float *)b + index);
}

static inline __attribute__((always_inline)) void rows_avx2(const float *a, size_t a_stride, const void *b, size_t b_stride,
                                                            float *c, size_t c_stride, const float *scale, int64_t k,
                                                            int64_t ahead, const int rows, const int bytes) {
    __m256 sum[6][2];
#pragma GCC unroll 6
    for (int i = 0; i < rows; i++) {
        __m256 factor = scale ? _mm256_set1_ps(scale[i]) : _mm256_setzero_ps();
        sum[i][0] = scale ? _mm256_mul_ps(_mm256_loadu_ps(c + i * c_stride), factor) : factor;
        sum[i][1] = scale ? _mm256_mul_ps(_mm256_loadu_ps(c + i * c_stride + 8), factor) : factor;
    }
    for (int64_t t = 0; t < k; t++) {
        _mm_prefetch((const char *)b + t * b_stride * bytes + ahead, _MM_HINT_T1);
        __m256 b0 = load_avx2(b, t * b_stride, bytes), b1 = load_avx2(b, t * b_stride + 8, bytes);
#pragma GCC unroll 6
        for (int i = 0; i < rows; i++) {
            __m256 weight = _mm256_broadcast_ss(a + i * a_stride + t);
            sum[i][0] = _mm256_fmadd_ps(weight, b0, sum[i][0]);
            sum[i][1] = _mm256_fmadd_ps(weight, b1, sum[i][1]);
        }
    }
#pragma GCC unroll 6
    for (int i = 0; i < rows; i++) {
        _mm256_storeu_ps(c + i * c_stride, sum[i][0]);
        _mm256_storeu_ps(c + i * c_stride + 8, sum[i][1]);
    }
}

static inline __attribute__((always_inline)) void tile_avx2(const float *a, size_t a_stride, const void *b, size_t b_stride,
                                                            float *c, size_t c_stride, const float *scale, int64_t m, int64_t k,
                                                            int64_t n, int64_t ahead, const int bytes) {
    for (int64_t j = 0; j < n; j += 16) {
        const void *column = (const uint8_t *)b + j * bytes;
        for (int64_t i = 0; i < m; i += 6) {
            const float *weights = a + i * a_stride, *factors = scale ? scale + i : NULL;
            float *out = c + i * c_stride + j;
            switch (m - i) {
#define ROWS(r) rows_avx2(weights, a_stride, column, b_stride, out, c_stride, factors, k, i ? 0 : ahead, r, bytes)
            case 1: ROWS(1); break;
            case 2: ROWS(2); break;
            case 3: ROWS(3); break;
            case 4: ROWS(4); break;
            case 5: ROWS(5); break;
            default: ROWS(6);
#undef ROWS
            }
        }
    }
}

static void tile_f32_avx2(const float *a, size_t a_stride, const void *b, size_t b_stride, float *c, size_t c_stride,
                          const float *scale, int64_t m, int64_t k, int64_t n, int64_t ahead) {
    tile_avx2(a, a_stride, b, b_stride, c, c_stride, scale, m, k, n, ahead, 4);
}

static void tile_f16_avx2(const float *a, size_t a_stride, const void *b, size_t b_stride, float *c, size_t c_stride,
                          const float *scale, int64_t m, int64_t k, int64_t n, int64_t ahead) {
    tile_avx2(a, a_stride, b, b_stride, c, c_stride, scale, m, k, n, ahead, 2);
}

static void widen_avx2(const int8_t *x, float scale, float *y, int64_t n) {
    const __m256 factor = _mm256_set1_ps(scale);
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const __m256i eight = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(x + i)));
        _mm256_storeu_ps(y + i, _mm256_mul_ps(_mm256_cvtepi32_ps(eight), factor));
    }
    for (; i < n; i++) y[i] = (float)x[i] * scale;
}

#pragma GCC pop_options
