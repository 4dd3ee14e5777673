// The attention tile in plain C: the readable truth.

static float ld_half_to_f32(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = (h >> 10) & 31, mantissa = h & 1023, bits;
    float f;
    if (exponent == 0) { // zero and subnormals: mantissa * 2^-24
        f = (float)mantissa * 0x1p-24f;
        return sign ? -f : f;
    }
    bits = sign | (exponent == 31 ? 0x7f800000u : (exponent + 112) << 23) | mantissa << 13;
    memcpy(&f, &bits, sizeof f);
    return f;
}

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
