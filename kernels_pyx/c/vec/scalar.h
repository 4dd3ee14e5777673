// Vector operations in plain C.
#pragma once
#include "../vec.h"
#include <math.h>

static float ld_sum_squares_scalar(const float *x, int64_t n) {
    float sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i] * x[i];
    return sum;
}

static void ld_norm_scalar(const float *x, const float *w, float scale, float *y, int64_t n) {
    if (w) for (int64_t i = 0; i < n; i++) y[i] = x[i] * scale * w[i];
    else for (int64_t i = 0; i < n; i++) y[i] = x[i] * scale;
}

static void ld_silu_mul_scalar(const float *gate, const float *up, float *y, int64_t n) {
    for (int64_t i = 0; i < n; i++) y[i] = gate[i] / (1.0f + expf(-gate[i])) * up[i];
}

static void ld_gelu_tanh_mul_scalar(const float *gate, const float *up, float *y, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        const float g = gate[i], inner = 0.7978845608f * (g + 0.044715f * g * g * g); // sqrt(2 / pi)
        y[i] = 0.5f * g * (1.0f + tanhf(inner)) * up[i];
    }
}

static void ld_swiglu_clamped_scalar(const float *gate, const float *up, float *y, int64_t n, float alpha, float limit) {
    for (int64_t i = 0; i < n; i++) {
        const float g = gate[i] > limit ? limit : gate[i], u = up[i] > limit ? limit : up[i] < -limit ? -limit : up[i];
        y[i] = g / (1.0f + expf(-alpha * g)) * (u + 1.0f);
    }
}

static void ld_add_scalar(float *x, const float *y, int64_t n) {
    for (int64_t i = 0; i < n; i++) x[i] += y[i];
}

static void ld_f32_to_f16_scalar(const float *x, uint16_t *y, int64_t n) {
    for (int64_t i = 0; i < n; i++) y[i] = ld_f16_of_f32(x[i]);
}

static void ld_f16_to_f32_scalar(const uint16_t *x, float *y, int64_t n) {
    for (int64_t i = 0; i < n; i++) y[i] = ld_f32_of_f16(x[i]);
}

static float ld_max_scalar(const float *x, int64_t n) {
    float max = -INFINITY;
    for (int64_t i = 0; i < n; i++) max = x[i] > max ? x[i] : max;
    return max;
}

static float ld_exp_sum_scalar(float *x, float max, int64_t n) {
    float sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i] = expf(x[i] - max);
    return sum;
}

static int ld_all_finite_scalar(const float *x, int64_t n) {
    uint32_t max = 0;
    for (int64_t i = 0; i < n; i++) {
        const uint32_t magnitude = ld_bits_of_f32(x[i]) & 0x7fffffff;
        max = magnitude > max ? magnitude : max;
    }
    return max < 0x7f800000;
}

static void ld_sigmoid_mul_scalar(float *x, const float *gate, int64_t n) {
    for (int64_t i = 0; i < n; i++) x[i] /= 1.0f + expf(-gate[i]);
}

#define LD_VEC(isa_id, isa_name) \
    {.sum_squares = ld_sum_squares_##isa_name, .norm = ld_norm_##isa_name, .silu_mul = ld_silu_mul_##isa_name, \
     .gelu_tanh_mul = ld_gelu_tanh_mul_##isa_name, .swiglu_clamped = ld_swiglu_clamped_##isa_name, .add = ld_add_##isa_name, .f32_to_f16 = ld_f32_to_f16_##isa_name, \
     .f16_to_f32 = ld_f16_to_f32_##isa_name, .max = ld_max_##isa_name, .exp_sum = ld_exp_sum_##isa_name, \
     .all_finite = ld_all_finite_##isa_name, .sigmoid_mul = ld_sigmoid_mul_##isa_name, .isa = isa_id}

static const ld_vec_kernels ld_vec_scalar = LD_VEC(LD_ISA_SCALAR, scalar);
