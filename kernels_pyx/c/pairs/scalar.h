// Pairs in plain C: the readable truth.

static int16_t to_int16(float x) { return (int16_t)lrintf(x > 32767.0f ? 32767.0f : x > -32768.0f ? x : -32768.0f); }

static void narrow_scalar(const float *x, float factor, int16_t *y, int64_t n) {
    for (int64_t i = 0; i < n; i++) y[i] = to_int16(x[i] * factor);
}

static void zip_scalar(const int16_t *a, const int16_t *b, int16_t *y, int64_t n) {
    for (int64_t i = 0; i < n; i++) y[2 * i] = a[i], y[2 * i + 1] = b[i];
}

static float key_f32_scalar(const float *x, int16_t *y, int64_t n) {
    float max = 0.0f;
    for (int64_t i = 0; i < n; i++) max = fabsf(x[i]) > max || isnan(x[i]) ? fabsf(x[i]) : max;
    narrow_scalar(x, max > 0.0f ? LD_PAIR_KEY / max : 0.0f, y, n);
    return max / LD_PAIR_KEY;
}

static void keys_f32_scalar(const float *const x[2], int16_t *const y[2], int16_t *zipped, float scale[2], int64_t n) {
    for (int j = 0; j < 2; j++) scale[j] = key_f32_scalar(x[j], y[j], n);
    if (zipped) zip_scalar(y[0], y[1], zipped, n);
}

static float largest_of_scalar(const uint16_t *x, int64_t n) {
    float max = 0.0f, value;
    for (int64_t i = 0; i < n; i++) {
        value = fabsf(ld_half_to_f32(x[i]));
        max = value > max || isnan(value) ? value : max;
    }
    return max;
}

static float key_f16_scalar(const uint16_t *x, int16_t *y, int64_t n) {
    float max = largest_of_scalar(x, n), factor = max > 0.0f ? LD_PAIR_KEY / max : 0.0f;
    for (int64_t i = 0; i < n; i++) y[i] = to_int16(ld_half_to_f32(x[i]) * factor);
    return max / LD_PAIR_KEY;
}

static void keys_f16_scalar(const uint16_t *const x[2], int16_t *const y[2], int16_t *zipped, float scale[2], int64_t n) {
    for (int j = 0; j < 2; j++) scale[j] = key_f16_scalar(x[j], y[j], n);
    if (zipped) zip_scalar(y[0], y[1], zipped, n);
}

static void factors_scalar(const uint16_t *scales, int64_t n_groups, int16_t *factors, float *scale) {
    for (int64_t t = 0; t < LD_BLOCK; t++) {
        float max = 0.0f, value;
        for (int64_t g = 0; g < n_groups; g++) {
            value = ld_half_to_f32(scales[g * LD_BLOCK + t]);
            max = value > max || isnan(value) ? value : max;
        }
        float share = max >= LD_PAIR_TINY ? 32767.0f / max : 0.0f;
        for (int64_t g = 0; g < n_groups; g++)
            factors[g * LD_BLOCK + t] = to_int16(ld_half_to_f32(scales[g * LD_BLOCK + t]) * share);
        scale[t] = max * (32768.0f / 32767.0f / (1 << LD_PAIR_BYTE));
    }
}

static int16_t byte_key(int8_t x, int16_t factor) { return (int16_t)((x * (1 << LD_PAIR_BYTE) * factor + (1 << 14)) >> 15); }

static void keys_i8_scalar(const int8_t *const x[2], const int16_t *factors, int64_t group, int16_t *const y[2], int16_t *zipped,
                           int64_t n) {
    for (int j = 0; j < 2; j++)
        for (int64_t i = 0; i < n; i++) y[j][i] = byte_key(x[j][i], factors[i / group * LD_BLOCK + j]);
    if (zipped) zip_scalar(y[0], y[1], zipped, n);
}

static void cross_scalar(const void *x, int64_t x_stride, void *y, int64_t y_stride, int64_t rows, int64_t columns) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            memcpy((char *)y + 4 * (j * y_stride + i), (const char *)x + 4 * (i * x_stride + j), 4);
}

static void dot_scalar(const int16_t *keys, int64_t key_stride, const float *key_scale, int64_t n_keys, const int16_t *queries,
                       const float *query_scale, int64_t m, int64_t n, float *out, int add) {
    for (int64_t t = 0; t < n_keys; t++)
        for (int64_t i = 0; i < m; i++) {
            const int16_t *key = keys + t * key_stride;
            int32_t sum = 0;
            for (int64_t p = 0; p < n / 2; p++) {
                const int16_t *query = queries + (p * m + i) * 2;
                sum += key[2 * p] * query[0] + key[2 * p + 1] * query[1];
            }
            out[t * m + i] = (add ? out[t * m + i] : 0.0f) + (float)sum * (key_scale[t] * query_scale[i]);
        }
}

static void largest_scalar(const uint16_t *x, int64_t x_stride, int64_t n, float *max) {
    for (int64_t t = 0; t < LD_PAIR_GROUP; t++) max[t] = largest_of_scalar(x + t * x_stride, n);
}

static void dot_beside_scalar(const int16_t *keys, int64_t key_stride, const float *key_scale, const int16_t *queries,
                              const float *query_scale, int64_t m, int64_t n, float *out, const ld_pair_next *next) {
    dot_scalar(keys, key_stride, key_scale, LD_PAIR_GROUP, queries, query_scale, m, n, out, 0);
    for (int64_t t = 0; t < LD_PAIR_GROUP; t++) {
        int16_t *y = next->y + t * next->y_stride;
        for (int64_t i = 0; i < n; i++) {
            int64_t from = t * next->x_stride + i, group = next->one_group ? 0 : i / 32;
            y[i] = next->halves ? to_int16(ld_half_to_f32(next->halves[from]) * next->factor[t])
                                : byte_key(next->bytes[from], next->factors[group * LD_BLOCK + t]);
        }
        if (t % 2) zip_scalar(y - next->y_stride, y, next->zipped + t / 2 * next->zipped_stride, n);
    }
}

static void weigh_scalar(const float *scores, int64_t n_keys, int64_t m, const int32_t *valid, const float *ratio, int16_t *weights,
                         float *max, float *total) {
    for (int64_t i = 0; i < m; i++) max[i] = -INFINITY, total[i] = 0.0f;
    for (int64_t t = 0; t < n_keys; t++)
        for (int64_t i = 0; i < m; i++) max[i] = t < valid[i] && !(scores[t * m + i] < max[i]) ? scores[t * m + i] : max[i];
    for (int64_t t = 0; t < n_keys + n_keys % 2; t++)
        for (int64_t i = 0; i < m; i++) {
            float value = t < valid[i] ? expf(scores[t * m + i] - max[i]) : 0.0f;
            total[i] += value;
            weights[(t / 2 * m + i) * 2 + t % 2] = t < valid[i] ? to_int16(value * ratio[t]) : 0;
        }
}

static void sum_scalar(const int16_t *weights, int64_t m, const int16_t *rows, int64_t row_stride, int64_t n_pairs, const float *keep,
                       const float *gain, float *sums, int64_t n) {
    for (int64_t d = 0; d < n; d++)
        for (int64_t i = 0; i < m; i++) {
            int32_t sum = 0;
            for (int64_t p = 0; p < n_pairs; p++) {
                const int16_t *weight = weights + (p * m + i) * 2, *row = rows + p * row_stride + 2 * d;
                sum += weight[0] * row[0] + weight[1] * row[1];
            }
            sums[d * m + i] = sums[d * m + i] * keep[i] + gain[i] * (float)sum;
        }
}
