// Pairs in plain C: the readable truth.

static int16_t to_int16(float x) { return (int16_t)lrintf(x > 32767.0f ? 32767.0f : x > -32768.0f ? x : -32768.0f); }

static void narrow_scalar(const float *x, float factor, int16_t *y, int64_t n) {
    for (int64_t i = 0; i < n; i++) y[i] = to_int16(x[i] * factor);
}

static float key_f32_scalar(const float *x, int16_t *y, int64_t n) {
    float max = 0.0f;
    for (int64_t i = 0; i < n; i++) max = fabsf(x[i]) > max || isnan(x[i]) ? fabsf(x[i]) : max;
    narrow_scalar(x, max > 0.0f ? LD_PAIR_KEY / max : 0.0f, y, n);
    return max / LD_PAIR_KEY;
}

static float key_f16_scalar(const uint16_t *x, int16_t *y, int64_t n) {
    float max = 0.0f, value;
    for (int64_t i = 0; i < n; i++) {
        value = fabsf(ld_half_to_f32(x[i]));
        max = value > max || isnan(value) ? value : max;
    }
    float factor = max > 0.0f ? LD_PAIR_KEY / max : 0.0f;
    for (int64_t i = 0; i < n; i++) y[i] = to_int16(ld_half_to_f32(x[i]) * factor);
    return max / LD_PAIR_KEY;
}

static void zip_scalar(const int16_t *a, const int16_t *b, int16_t *y, int64_t n) {
    for (int64_t i = 0; i < n; i++) y[2 * i] = a[i], y[2 * i + 1] = b[i];
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

static void below_max_scalar(float *scores, int64_t n_keys, int64_t m, const int32_t *valid, float *max) {
    for (int64_t i = 0; i < m; i++) max[i] = -INFINITY;
    for (int64_t t = 0; t < n_keys; t++)
        for (int64_t i = 0; i < m; i++) max[i] = t < valid[i] && !(scores[t * m + i] < max[i]) ? scores[t * m + i] : max[i];
    for (int64_t t = 0; t < n_keys; t++)
        for (int64_t i = 0; i < m; i++) scores[t * m + i] = t < valid[i] ? scores[t * m + i] - max[i] : -200.0f;
}

static void weigh_scalar(const float *x, int64_t n_keys, int64_t m, const float *ratio, int16_t *weights, float *total) {
    for (int64_t i = 0; i < m; i++) total[i] = 0.0f;
    for (int64_t t = 0; t < n_keys + n_keys % 2; t++)
        for (int64_t i = 0; i < m; i++) {
            float value = t < n_keys ? x[t * m + i] : 0.0f;
            total[i] += value;
            weights[(t / 2 * m + i) * 2 + t % 2] = t < n_keys ? to_int16(value * ratio[t]) : 0;
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
