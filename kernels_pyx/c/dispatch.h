// The kernel table: what the program may call, one entry per (format, ISA), filled once at import, best ISA first.
//
// Shapes. A weight matrix has n rows of k values; a row is ld_row_bytes(format, k) bytes, rows are w_stride bytes apart. An
// activation row is what the format's quantise function makes of k f32 values: ld_act_row_bytes(act, k) bytes, 64-byte aligned,
// act_stride bytes apart. y is f32; y[a * y_stride + r] belongs to activation a and weight row r (y_stride in floats).
// k is a multiple of the format's block size. Kernels never allocate, never fail, and write nothing but y and scratch.
#pragma once
#include <stddef.h>
#include <stdint.h>

// Activation layouts. F32: float[k].
// Q8_32:  int8 q[k], then float d[k/32], then float s[k/32] with s = d * sum(q) over the 32; x ~ d * q.
// Q8_256: int8 q[k], then float d[k/256], then int16 b[k/16] with b = sum(q) over the 16.
// Each part starts at the next multiple of 64 bytes.
typedef enum { LD_ACT_F32 = 0, LD_ACT_Q8_32 = 1, LD_ACT_Q8_256 = 2, LD_N_ACTS = 3 } ld_act;

typedef enum { LD_ISA_SCALAR = 0, LD_ISA_AVX2 = 1, LD_ISA_AVXVNNI = 2, LD_ISA_AVX512 = 3, LD_ISA_AVX512VNNI = 4,
              LD_N_ISAS = 5 } ld_isa;

// y = W x for n_act activations (1..LD_FEW_MAX), reading W once and prefetching ahead: memory-bound.
typedef void (*ld_linear_few)(const uint8_t *w, size_t w_stride, const uint8_t *act, size_t act_stride, int64_t n_act, float *y,
                              size_t y_stride, int64_t k, int64_t n);
// The same for many activations: unpacks a tile of weight rows once into scratch (64-byte aligned, ld_many_scratch_bytes(k)
// bytes) and multiplies it with all activations: compute-bound. Rows beyond the last one, that the caller comes to next, lie at
// `next`: the first of them are asked for meanwhile.
typedef void (*ld_linear_many)(const uint8_t *w, size_t w_stride, const uint8_t *act, size_t act_stride, int64_t n_act, float *y,
                               size_t y_stride, int64_t k, int64_t n, uint8_t *scratch, const uint8_t *next);
typedef void (*ld_quantize)(const float *x, uint8_t *act, int64_t k);
typedef void (*ld_to_f32)(const uint8_t *w, float *y, int64_t k);

#define LD_FEW_MAX 8

// One weight format on one ISA cap. few/many take activations of the format's own act; few_f32/many_f32 take f32 activations.
typedef struct {
    ld_act act;
    ld_linear_few few, few_f32;
    ld_linear_many many, many_f32;
    ld_to_f32 to_f32;
    ld_isa few_isa, many_isa; // which ISA really serves, for selftest
} ld_format_kernels;

// Vectors of f32. Lengths are any; pointers need no alignment.
typedef struct {
    float (*sum_squares)(const float *x, int64_t n);
    void (*norm)(const float *x, const float *w, float scale, float *y, int64_t n); // y = x * scale * w (w may be NULL: 1)
    void (*silu_mul)(const float *gate, const float *up, float *y, int64_t n);      // y = gate * sigmoid(gate) * up
    void (*gelu_tanh_mul)(const float *gate, const float *up, float *y, int64_t n);
    // y = min(gate, limit) * sigmoid(alpha * min(gate, limit)) * (clamp(up, -limit, limit) + 1)
    void (*swiglu_clamped)(const float *gate, const float *up, float *y, int64_t n, float alpha, float limit);
    void (*add)(float *x, const float *y, int64_t n);                               // x += y
    void (*f32_to_f16)(const float *x, uint16_t *y, int64_t n);
    void (*f16_to_f32)(const uint16_t *x, float *y, int64_t n);
    float (*max)(const float *x, int64_t n);
    float (*exp_sum)(float *x, float max, int64_t n); // x = exp(x - max) in place; the sum
    int (*all_finite)(const float *x, int64_t n);
    void (*sigmoid_mul)(float *x, const float *gate, int64_t n); // x *= sigmoid(gate)
    ld_isa isa;
} ld_vec_kernels;

// Gated DeltaNet, see delta.h.
typedef struct {
    void (*conv)(const float *const *x, const float *w, int64_t w_stride, int64_t taps, float *y, int64_t n);
    void (*step)(const float *from, float *to, const float *k, const float *q, const float *v, float decay, float rate, float *out,
                 int64_t dim);
    ld_isa isa;
} ld_delta_kernels;

typedef struct {
    ld_isa isa; // the cap: min(detected, LAYERDECK_ISA)
    const ld_format_kernels *formats; // indexed by the ggml type id; formats without kernels have to_f32 == NULL
    int n_formats;
    ld_quantize quantize[LD_N_ACTS];
    ld_vec_kernels vec;
    ld_delta_kernels delta;
    const struct ld_words_kernels *words; // 8-bit caches, see words.h
    const struct ld_pair_kernels *pairs;  // latent rows, see pairs.h
} ld_table;

// The table for the active cap, and for one ISA by name (NULL where this machine lacks it): tests and selftest.
const ld_table *ld_table_active(void);
const ld_table *ld_table_for(ld_isa isa);

// Fills the tables; called once, by the dispatch extension at import, before any other thread. `cap` is the best ISA allowed.
void ld_dispatch_init(ld_isa cap);
ld_isa ld_isa_detected(void);

#define LD_N_FORMATS 42 // highest ggml id with kernels, plus one

static inline int64_t ld_format_block(int format) {
    switch (format) {
#define LD_FORMAT(symbol, name, id, block, bytes, act, path) case id: return block;
#include "formats.def"
#undef LD_FORMAT
    }
    return 0;
}

// Bytes of a weight row; 0 for a format without kernels.
static inline size_t ld_row_bytes(int format, int64_t k) {
    switch (format) {
#define LD_FORMAT(symbol, name, id, block, bytes, act, path) case id: return (size_t)(k / block) * bytes;
#include "formats.def"
#undef LD_FORMAT
    }
    return 0;
}

static inline size_t ld_align64(size_t bytes) { return (bytes + 63) & ~(size_t)63; }

// Where the scales d and the sums s or b of a quantised activation row begin.
static inline size_t ld_act_scales_at(int64_t k) { return ld_align64((size_t)k); }
static inline size_t ld_act_sums_at(ld_act act, int64_t k) {
    return ld_act_scales_at(k) + ld_align64(4 * (size_t)(k / (act == LD_ACT_Q8_32 ? 32 : 256)));
}

// A multiple of 64, and an odd one from 1 KiB up: rows a multiple of 4 KiB apart would all fall into the same sets of the L1
// cache.
static inline size_t ld_act_row_bytes(ld_act act, int64_t k) {
    const size_t bytes = act == LD_ACT_F32      ? ld_align64(4 * (size_t)k)
                         : act == LD_ACT_Q8_32 ? ld_act_sums_at(act, k) + ld_align64(4 * (size_t)(k / 32))
                                               : ld_act_sums_at(act, k) + ld_align64(2 * (size_t)(k / 16));
    return bytes >= 1024 ? bytes | 64 : bytes;
}

// Scratch of ld_linear_many: one slice of a panel of 32 rows with its scales, whatever the format.
#define LD_PANEL_ROWS 32
#define LD_PANEL_DEPTH 512
static inline size_t ld_many_scratch_bytes(int64_t k) {
    (void)k;
    return 4 * LD_PANEL_ROWS * LD_PANEL_DEPTH + 2 * 4 * LD_PANEL_ROWS * (LD_PANEL_DEPTH / 16);
}
