// Activation quantisation in plain C.
#pragma once
#include "../quantize.h"
#include <math.h>

// Quantises n values with one scale; returns the scale.
static float ld_quantize_block_scalar(const float *x, int8_t *q, int n) {
    uint32_t max_bits = 0;
    for (int i = 0; i < n; i++) {
        const uint32_t magnitude = ld_bits_of_f32(x[i]) & 0x7fffffff;
        if (magnitude > max_bits) max_bits = magnitude;
    }
    float factor;
    const float scale = ld_quantize_scale(max_bits, &factor);
    if (factor == 0) memset(q, 0, (size_t)n);
    else for (int i = 0; i < n; i++) q[i] = (int8_t)lrintf(x[i] * factor);
    return scale;
}

static inline int ld_sum_int8(const int8_t *q, int n) {
    int sum = 0;
    for (int i = 0; i < n; i++) sum += q[i];
    return sum;
}

static void ld_quantize_q8_32_scalar(const float *x, uint8_t *act, int64_t k) {
    int8_t *q = (int8_t *)act;
    float *d = (float *)(act + ld_act_scales_at(k)), *s = (float *)(act + ld_act_sums_at(LD_ACT_Q8_32, k));
    for (int64_t b = 0; b < k / 32; b++) {
        d[b] = ld_quantize_block_scalar(x + 32 * b, q + 32 * b, 32);
        s[b] = d[b] * (float)ld_sum_int8(q + 32 * b, 32);
    }
}

static void ld_quantize_q8_256_scalar(const float *x, uint8_t *act, int64_t k) {
    int8_t *q = (int8_t *)act;
    float *d = (float *)(act + ld_act_scales_at(k));
    int16_t *sums = (int16_t *)(act + ld_act_sums_at(LD_ACT_Q8_256, k));
    for (int64_t b = 0; b < k / 256; b++) d[b] = ld_quantize_block_scalar(x + 256 * b, q + 256 * b, 256);
    for (int64_t b = 0; b < k / 16; b++) sums[b] = (int16_t)ld_sum_int8(q + 16 * b, 16);
}

static void ld_quantize_f32_scalar(const float *x, uint8_t *act, int64_t k) { memcpy(act, x, 4 * (size_t)k); }
