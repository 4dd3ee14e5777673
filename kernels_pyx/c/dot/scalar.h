// The readable truth of the dot family: every format in plain C, one unpacker each.
#pragma once
#include "../dot.h"

// One block as integers in groups: value i is d[i / group] * q[i] + m[i / group].
typedef struct {
    int8_t q[256];
    float d[16], m[16];
} ld_block_view;

typedef struct {
    int block, bytes, group;
    int has_min; // m is not zero
    ld_act act;
    void (*unpack)(const uint8_t *w, ld_block_view *view);
} ld_scalar_format;

static void ld_unpack_q4_0_scalar(const uint8_t *w, ld_block_view *view) {
    const ld_block_q4_0 *block = (const ld_block_q4_0 *)w;
    for (int i = 0; i < 16; i++) {
        view->q[i] = (int8_t)((block->q[i] & 15) - 8);
        view->q[i + 16] = (int8_t)((block->q[i] >> 4) - 8);
    }
    view->d[0] = ld_f32_of_f16(block->d);
    view->m[0] = 0;
}

static void ld_unpack_q4_1_scalar(const uint8_t *w, ld_block_view *view) {
    const ld_block_q4_1 *block = (const ld_block_q4_1 *)w;
    for (int i = 0; i < 16; i++) {
        view->q[i] = block->q[i] & 15;
        view->q[i + 16] = block->q[i] >> 4;
    }
    view->d[0] = ld_f32_of_f16(block->d);
    view->m[0] = ld_f32_of_f16(block->m);
}

static int ld_fifth_bit(const uint8_t high[4], int i) { return ((high[i / 8] >> (i % 8)) & 1) << 4; }

static void ld_unpack_q5_0_scalar(const uint8_t *w, ld_block_view *view) {
    const ld_block_q5_0 *block = (const ld_block_q5_0 *)w;
    for (int i = 0; i < 16; i++) {
        view->q[i] = (int8_t)(((block->q[i] & 15) | ld_fifth_bit(block->high, i)) - 16);
        view->q[i + 16] = (int8_t)(((block->q[i] >> 4) | ld_fifth_bit(block->high, i + 16)) - 16);
    }
    view->d[0] = ld_f32_of_f16(block->d);
    view->m[0] = 0;
}

static void ld_unpack_q5_1_scalar(const uint8_t *w, ld_block_view *view) {
    const ld_block_q5_1 *block = (const ld_block_q5_1 *)w;
    for (int i = 0; i < 16; i++) {
        view->q[i] = (int8_t)((block->q[i] & 15) | ld_fifth_bit(block->high, i));
        view->q[i + 16] = (int8_t)((block->q[i] >> 4) | ld_fifth_bit(block->high, i + 16));
    }
    view->d[0] = ld_f32_of_f16(block->d);
    view->m[0] = ld_f32_of_f16(block->m);
}

// 32 values that 16 bytes of nibbles choose.
static void ld_choose_values(const int8_t values[16], const uint8_t packed[16], int8_t q[32]) {
    for (int i = 0; i < 16; i++) {
        q[i] = values[packed[i] & 15];
        q[i + 16] = values[packed[i] >> 4];
    }
}

static void ld_unpack_iq4_nl_scalar(const uint8_t *w, ld_block_view *view) {
    const ld_block_iq4_nl *block = (const ld_block_iq4_nl *)w;
    ld_choose_values(ld_iq4_values, block->q, view->q);
    view->d[0] = ld_f32_of_f16(block->d);
    view->m[0] = 0;
}

static void ld_unpack_mxfp4_scalar(const uint8_t *w, ld_block_view *view) {
    const ld_block_mxfp4 *block = (const ld_block_mxfp4 *)w;
    ld_choose_values(ld_fp4_values, block->q, view->q);
    view->d[0] = ld_f32_of_exponent(block->exponent);
    view->m[0] = 0;
}

static void ld_unpack_iq4_xs_scalar(const uint8_t *w, ld_block_view *view) {
    const ld_block_iq4_xs *block = (const ld_block_iq4_xs *)w;
    const float d = ld_f32_of_f16(block->d);
    for (int group = 0; group < 8; group++) {
        const int low = (block->scales_low[group / 2] >> (4 * (group % 2))) & 15, high = (block->scales_high >> (2 * group)) & 3;
        ld_choose_values(ld_iq4_values, block->q + 16 * group, view->q + 32 * group);
        view->d[group] = d * (float)((low | (high << 4)) - 32);
        view->m[group] = 0;
    }
}

static void ld_unpack_q2_k_scalar(const uint8_t *w, ld_block_view *view) {
    const ld_block_q2_k *block = (const ld_block_q2_k *)w;
    const float d = ld_f32_of_f16(block->d), dmin = ld_f32_of_f16(block->dmin);
    for (int i = 0; i < 256; i++) view->q[i] = (block->q[i / 128 * 32 + i % 32] >> (2 * (i % 128 / 32))) & 3;
    for (int group = 0; group < 16; group++) {
        view->d[group] = d * (float)(block->scales[group] & 15);
        view->m[group] = -(dmin * (float)(block->scales[group] >> 4));
    }
}

static void ld_unpack_q3_k_scalar(const uint8_t *w, ld_block_view *view) {
    const ld_block_q3_k *block = (const ld_block_q3_k *)w;
    const float d = ld_f32_of_f16(block->d);
    for (int i = 0; i < 256; i++) {
        const int low = (block->q[i / 128 * 32 + i % 32] >> (2 * (i % 128 / 32))) & 3;
        view->q[i] = (int8_t)((low | ((block->high[i % 32] >> (i / 32)) & 1) << 2) - 4);
    }
    for (int group = 0; group < 16; group++) {
        const int low = (block->scales[group % 8] >> (4 * (group / 8))) & 15;
        const int high = (block->scales[8 + group % 4] >> (2 * (group / 4))) & 3;
        view->d[group] = d * (float)((low | (high << 4)) - 32);
        view->m[group] = 0;
    }
}

static void ld_unpack_q5_k_scalar(const uint8_t *w, ld_block_view *view) {
    const ld_block_q5_k *block = (const ld_block_q5_k *)w;
    const float d = ld_f32_of_f16(block->d), dmin = ld_f32_of_f16(block->dmin);
    uint32_t scales[2], mins[2];
    ld_q4_k_scales(block->scales, scales, mins);
    for (int group = 0; group < 8; group++) {
        const int shift = 8 * (group % 4);
        view->d[group] = d * (float)((scales[group / 4] >> shift) & 255);
        view->m[group] = -(dmin * (float)((mins[group / 4] >> shift) & 255));
        for (int i = 0; i < 32; i++) {
            const int low = (block->q[32 * (group / 2) + i] >> (4 * (group % 2))) & 15;
            view->q[32 * group + i] = (int8_t)(low | ((block->high[i] >> group) & 1) << 4);
        }
    }
}

static void ld_unpack_q8_0_scalar(const uint8_t *w, ld_block_view *view) {
    const ld_block_q8_0 *block = (const ld_block_q8_0 *)w;
    memcpy(view->q, block->q, 32);
    view->d[0] = ld_f32_of_f16(block->d);
    view->m[0] = 0;
}

static void ld_unpack_q4_k_scalar(const uint8_t *w, ld_block_view *view) {
    const ld_block_q4_k *block = (const ld_block_q4_k *)w;
    const float d = ld_f32_of_f16(block->d), dmin = ld_f32_of_f16(block->dmin);
    uint32_t scales[2], mins[2];
    ld_q4_k_scales(block->scales, scales, mins);
    for (int group = 0; group < 8; group++) {
        const int shift = 8 * (group % 4);
        view->d[group] = d * (float)((scales[group / 4] >> shift) & 255);
        view->m[group] = -(dmin * (float)((mins[group / 4] >> shift) & 255));
        for (int i = 0; i < 32; i++) view->q[32 * group + i] = (block->q[32 * (group / 2) + i] >> (4 * (group % 2))) & 15;
    }
}

static void ld_unpack_q6_k_scalar(const uint8_t *w, ld_block_view *view) {
    const ld_block_q6_k *block = (const ld_block_q6_k *)w;
    const float d = ld_f32_of_f16(block->d);
    for (int i = 0; i < 256; i++) {
        const int half = i / 128, j = (i % 128) / 32, l = i % 32;
        const int low = (block->ql[64 * half + 32 * (j % 2) + l] >> (4 * (j / 2))) & 15;
        const int high = (block->qh[32 * half + l] >> (2 * j)) & 3;
        view->q[i] = (int8_t)((low | (high << 4)) - 32);
    }
    for (int group = 0; group < 16; group++) {
        view->d[group] = d * (float)block->scales[group];
        view->m[group] = 0;
    }
}

// The scale of an activation row at value i, and scale * sum of the group that begins at i.
static inline float ld_act_scale(const uint8_t *act, ld_act layout, int64_t k, int64_t i) {
    return ((const float *)(act + ld_act_scales_at(k)))[layout == LD_ACT_Q8_32 ? i / 32 : i / 256];
}

static inline float ld_act_sum(const uint8_t *act, ld_act layout, int64_t k, int64_t i, int group) {
    const uint8_t *sums = act + ld_act_sums_at(layout, k);
    if (layout == LD_ACT_Q8_32) return ((const float *)sums)[i / 32];
    int sum = 0;
    for (int64_t j = i / 16; j < (i + group) / 16; j++) sum += ((const int16_t *)sums)[j];
    return ld_act_scale(act, layout, k, i) * (float)sum;
}

static void ld_dot_groups_scalar(const ld_scalar_format *format, const uint8_t *w, size_t w_stride, const uint8_t *act,
                                 size_t act_stride, int64_t n_act, float *y, size_t y_stride, int64_t k, int64_t n) {
    ld_block_view view;
    for (int64_t row = 0; row < n; row++) {
        float sum[LD_FEW_MAX] = {0};
        for (int64_t start = 0; start < k; start += format->block) {
            format->unpack(w + row * w_stride + start / format->block * format->bytes, &view);
            for (int64_t a = 0; a < n_act; a++) {
                const uint8_t *x = act + a * act_stride;
                for (int g = 0; g < format->block / format->group; g++) {
                    const int64_t at = start + g * format->group;
                    const int8_t *xq = (const int8_t *)x + at, *wq = view.q + g * format->group;
                    int32_t dot = 0;
                    for (int i = 0; i < format->group; i++) dot += wq[i] * xq[i];
                    sum[a] += view.d[g] * ld_act_scale(x, format->act, k, at) * (float)dot;
                    if (format->has_min) sum[a] += view.m[g] * ld_act_sum(x, format->act, k, at, format->group);
                }
            }
        }
        for (int64_t a = 0; a < n_act; a++) y[a * y_stride + row] = sum[a];
    }
}

static void ld_dequantise_block_scalar(const ld_scalar_format *format, const uint8_t *w, float *y) {
    ld_block_view view;
    format->unpack(w, &view);
    for (int i = 0; i < format->block; i++) {
        const float product = view.d[i / format->group] * (float)view.q[i];
        y[i] = format->has_min ? product + view.m[i / format->group] : product; // adding 0 would turn -0 into 0
    }
}

static void ld_dequantise_row_scalar(const ld_scalar_format *format, const uint8_t *w, float *y, int64_t k) {
    for (int64_t b = 0; b < k / format->block; b++)
        ld_dequantise_block_scalar(format, w + b * format->bytes, y + b * format->block);
}

static void ld_dot_values_scalar(const ld_scalar_format *format, const uint8_t *w, size_t w_stride, const uint8_t *act,
                                 size_t act_stride, int64_t n_act, float *y, size_t y_stride, int64_t k, int64_t n) {
    float values[256];
    for (int64_t row = 0; row < n; row++) {
        float sum[LD_FEW_MAX] = {0};
        for (int64_t start = 0; start < k; start += format->block) {
            ld_dequantise_block_scalar(format, w + row * w_stride + start / format->block * format->bytes, values);
            for (int64_t a = 0; a < n_act; a++) {
                const float *x = (const float *)(act + a * act_stride) + start;
                for (int i = 0; i < format->block; i++) sum[a] += values[i] * x[i];
            }
        }
        for (int64_t a = 0; a < n_act; a++) y[a * y_stride + row] = sum[a];
    }
}

// Many activations, plainly: LD_FEW_MAX at a time.
static inline void ld_many_by_few(ld_linear_few few, const uint8_t *w, size_t w_stride, const uint8_t *act, size_t act_stride,
                                  int64_t n_act, float *y, size_t y_stride, int64_t k, int64_t n) {
    for (int64_t a = 0; a < n_act; a += LD_FEW_MAX) {
        const int64_t count = n_act - a < LD_FEW_MAX ? n_act - a : LD_FEW_MAX;
        few(w, w_stride, act + a * act_stride, act_stride, count, y + a * y_stride, y_stride, k, n);
    }
}

#define LD_FEW_ARGS \
    const uint8_t *w, size_t w_stride, const uint8_t *act, size_t act_stride, int64_t n_act, float *y, size_t y_stride, \
        int64_t k, int64_t n
#define LD_FEW_PASS w, w_stride, act, act_stride, n_act, y, y_stride, k, n

#define LD_SCALAR_MANY(op, name) \
    static void ld_##op##_##name##_scalar(LD_FEW_ARGS, uint8_t *scratch, const uint8_t *next) { \
        (void)scratch, (void)next; \
        ld_many_by_few(ld_few##_##name##_scalar, LD_FEW_PASS); \
    }

#define LD_SCALAR_QUANT(name, block, bytes, group, has_min, act_layout) \
    static const ld_scalar_format ld_##name##_scalar = {block, bytes, group, has_min, act_layout, ld_unpack_##name##_scalar}; \
    static void ld_few_##name##_scalar(LD_FEW_ARGS) { ld_dot_groups_scalar(&ld_##name##_scalar, LD_FEW_PASS); } \
    static void ld_few_##name##_f32_scalar(LD_FEW_ARGS) { ld_dot_values_scalar(&ld_##name##_scalar, LD_FEW_PASS); } \
    static void ld_to_f32_##name##_scalar(const uint8_t *w, float *y, int64_t k) { \
        ld_dequantise_row_scalar(&ld_##name##_scalar, w, y, k); \
    } \
    LD_SCALAR_MANY(many, name) \
    LD_SCALAR_MANY(many, name##_f32)

LD_SCALAR_QUANT(q4_0, 32, 18, 32, 0, LD_ACT_Q8_32)
LD_SCALAR_QUANT(q4_1, 32, 20, 32, 1, LD_ACT_Q8_32)
LD_SCALAR_QUANT(q8_0, 32, 34, 32, 0, LD_ACT_Q8_32)
LD_SCALAR_QUANT(q4_k, 256, 144, 32, 1, LD_ACT_Q8_256)
LD_SCALAR_QUANT(q6_k, 256, 210, 16, 0, LD_ACT_Q8_256)
LD_SCALAR_QUANT(q5_0, 32, 22, 32, 0, LD_ACT_Q8_32)
LD_SCALAR_QUANT(q5_1, 32, 24, 32, 1, LD_ACT_Q8_32)
LD_SCALAR_QUANT(iq4_nl, 32, 18, 32, 0, LD_ACT_Q8_32)
LD_SCALAR_QUANT(mxfp4, 32, 17, 32, 0, LD_ACT_Q8_32)
LD_SCALAR_QUANT(q2_k, 256, 84, 16, 1, LD_ACT_Q8_256)
LD_SCALAR_QUANT(q3_k, 256, 110, 16, 0, LD_ACT_Q8_256)
LD_SCALAR_QUANT(q5_k, 256, 176, 32, 1, LD_ACT_Q8_256)
LD_SCALAR_QUANT(iq4_xs, 256, 136, 32, 0, LD_ACT_Q8_256)

static inline float ld_value_f32(const uint8_t *w, int64_t i) {
    float x;
    memcpy(&x, w + 4 * i, 4);
    return x;
}

static inline uint16_t ld_load16(const uint8_t *w, int64_t i) {
    uint16_t x;
    memcpy(&x, w + 2 * i, 2);
    return x;
}

static inline float ld_value_f16(const uint8_t *w, int64_t i) { return ld_f32_of_f16(ld_load16(w, i)); }
static inline float ld_value_bf16(const uint8_t *w, int64_t i) { return ld_f32_of_bf16(ld_load16(w, i)); }

#define LD_SCALAR_FLOAT(name) \
    static void ld_few_##name##_scalar(LD_FEW_ARGS) { \
        for (int64_t row = 0; row < n; row++) { \
            float sum[LD_FEW_MAX] = {0}; \
            for (int64_t i = 0; i < k; i++) { \
                const float value = ld_value_##name(w + row * w_stride, i); \
                for (int64_t a = 0; a < n_act; a++) sum[a] += value * ((const float *)(act + a * act_stride))[i]; \
            } \
            for (int64_t a = 0; a < n_act; a++) y[a * y_stride + row] = sum[a]; \
        } \
    } \
    static void ld_to_f32_##name##_scalar(const uint8_t *w, float *y, int64_t k) { \
        for (int64_t i = 0; i < k; i++) y[i] = ld_value_##name(w, i); \
    } \
    LD_SCALAR_MANY(many, name)

LD_SCALAR_FLOAT(f32)
LD_SCALAR_FLOAT(f16)
LD_SCALAR_FLOAT(bf16)

// The quantised formats with integer kernels, and the float formats: ROW(ggml id, symbol, isa) makes what a table needs.
#define LD_QUANT_FORMATS(ROW, isa) \
    ROW(2, q4_0, isa), ROW(3, q4_1, isa), ROW(6, q5_0, isa), ROW(7, q5_1, isa), ROW(8, q8_0, isa), ROW(10, q2_k, isa), \
        ROW(11, q3_k, isa), ROW(12, q4_k, isa), ROW(13, q5_k, isa), ROW(14, q6_k, isa), ROW(20, iq4_nl, isa), \
        ROW(23, iq4_xs, isa), ROW(39, mxfp4, isa)
#define LD_FLOAT_FORMATS(ROW, isa) ROW(0, f32, isa), ROW(1, f16, isa), ROW(30, bf16, isa)

// All kernels of a format on one instruction set; those of a float format are their own f32 ones.
#define LD_ROW_FLOAT(id, name, isa) LD_ROW_ALL(id, name, name, isa)
#define LD_ROW_QUANT(id, name, isa) LD_ROW_ALL(id, name, name##_f32, isa)
#define LD_ROW_ALL(id, name, name_f32, isa) \
    {id, ld_few_##name##_##isa, ld_few_##name_f32##_##isa, ld_many_##name##_##isa, ld_many_##name_f32##_##isa, \
     ld_to_f32_##name##_##isa}
