// Gated DeltaNet in plain C.
#pragma once
#include "../delta.h"
#include <math.h>

static void ld_conv_scalar(const float *const *x, const float *w, int64_t w_stride, int64_t taps, float *y, int64_t n) {
    for (int64_t c = 0; c < n; c++) {
        float sum = 0;
        for (int64_t j = 0; j < taps; j++) sum += w[j * w_stride + c] * x[j][c];
        y[c] = sum / (1.0f + expf(-sum));
    }
}

static void ld_delta_step_scalar(const float *from, float *to, const float *k, const float *q, const float *v, float decay,
                                 float rate, float *out, int64_t dim) {
    float kq = 0;
    for (int64_t i = 0; i < dim; i++) kq += k[i] * q[i];
    for (int64_t j = 0; j < dim; j++) {
        float known = 0, asked = 0;
        for (int64_t i = 0; from && i < dim; i++) {
            known += k[i] * from[i * dim + j];
            asked += q[i] * from[i * dim + j];
        }
        const float d = rate * (v[j] - decay * known);
        out[j] = decay * asked + kq * d;
        for (int64_t i = 0; i < dim; i++) to[i * dim + j] = (from ? decay * from[i * dim + j] : 0.0f) + k[i] * d;
    }
}

#define LD_DELTA(isa_id, isa_name) {.conv = ld_conv_##isa_name, .step = ld_delta_step_##isa_name, .isa = isa_id}

static const ld_delta_kernels ld_delta_scalar = LD_DELTA(LD_ISA_SCALAR, scalar);
