// Words times cached bytes in plain C: the readable truth.

static void scores_scalar(const int16_t *q, size_t q_stride, const float *unit, const int8_t *keys, const uint16_t *scales, float *c,
                          size_t c_stride, int64_t m, int64_t dim, int64_t group, int64_t ahead) {
    (void)ahead;
    for (int64_t i = 0; i < m; i++)
        for (int64_t t = 0; t < LD_BLOCK; t++) {
            float score = 0.0f;
            for (int64_t from = 0; from < dim;) {
                int64_t end = words_slice(from, dim, group);
                int32_t sum = 0;
                for (int64_t d = from; d < end; d++) sum += q[i * q_stride + d] * keys[(d / 2 * LD_BLOCK + t) * 2 + d % 2];
                score += (float)sum * ld_f32_of_f16(scales[from / group * LD_BLOCK + t]);
                from = end;
            }
            c[i * c_stride + t] = score * unit[i];
        }
}

// Weights times scales as words; returns their unit.
static float weights_scalar(const float *w, const uint16_t *scales, int64_t n, int16_t *words) {
    float product[LD_BLOCK], max = 0.0f;
    for (int64_t t = 0; t < n; t++) {
        product[t] = w[t] * ld_f32_of_f16(scales[t]);
        if (!(product[t] <= max)) max = product[t]; // a NaN is greater than all before it, and the next only replaces it
        if (max != max) break;
    }
    float inverse = max > LD_WEIGHT_MIN ? LD_WORD_MAX / max : 0.0f;
    for (int64_t t = 0; t < LD_BLOCK; t++) words[t] = t < n && inverse > 0.0f ? (int16_t)lrintf(product[t] * inverse) : 0;
    return max * (1.0f / LD_WORD_MAX);
}

static void values_scalar(const float *w, size_t w_stride, const int8_t *values, const uint16_t *scales, float *c,
                          const float *factor, int64_t m, int64_t n, int64_t v_pad, int64_t group, int64_t ahead) {
    (void)ahead;
    for (int64_t i = 0; i < m; i++)
        for (int64_t from = 0; from < v_pad; from += group) {
            int16_t words[LD_BLOCK];
            float unit = weights_scalar(w + i * w_stride, scales + from / group * LD_BLOCK, n, words);
            for (int64_t d = from; d < from + group && d < v_pad; d++) {
                int32_t sum = 0;
                for (int64_t t = 0; t < n; t++) sum += words[t] * values[(t / 2 * v_pad + d) * 2 + t % 2];
                c[i * v_pad + d] = c[i * v_pad + d] * factor[i] + (float)sum * unit;
            }
        }
}
