// The attention tile in plain C: the readable truth.

#define TILE(name, type, read)                                                                                             \
    static void name(const float *a, size_t a_stride, const void *b, size_t b_stride, float *c, size_t c_stride,             \
                     const float *scale, int64_t m, int64_t k, int64_t n, int64_t ahead) {                                   \
        (void)ahead;                                                                                                         \
        for (int64_t i = 0; i < m; i++) {                                                                                    \
            float *row = c + i * c_stride;                                                                                   \
            for (int64_t j = 0; j < n; j++) row[j] = scale ? row[j] * scale[i] : 0.0f;                                       \
            for (int64_t t = 0; t < k; t++) {                                                                                \
                const type *values = (const type *)b + t * b_stride;                                                         \
                float weight = a[i * a_stride + t];                                                                          \
                for (int64_t j = 0; j < n; j++) row[j] += weight * read(values[j]);                                          \
            }                                                                                                                \
        }                                                                                                                    \
    }

TILE(tile_f32_scalar, float, (float))
TILE(tile_f16_scalar, uint16_t, ld_half_to_f32)
#undef TILE

static void widen_scalar(const int8_t *x, float scale, float *y, int64_t n) {
    for (int64_t i = 0; i < n; i++) y[i] = (float)x[i] * scale;
}
