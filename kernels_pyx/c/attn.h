// The attention tile: C[m][n] = C * scale[m] + A[m][k] B[k][n], the inner kernel of attention, for scores and for values.
//
// A and C are f32 with strides in floats; B is f32 or f16 with its stride in elements; n is a multiple of 16; any
// m, k >= 0. scale NULL: C is not read. Sums in f32, in order of k. A cached block of keys is B for scores (k = head_dim,
// n = LD_BLOCK tokens: it is stored transposed), a block of values is B for the weighted sum (k = tokens, n = ld_v_pad(v_dim)).
// While B is read, what lies `ahead` bytes further is asked for, line by line: the block that comes next (0: nothing does). Asked
// for all at once, it would fill every buffer for outstanding lines and nothing would be computed meanwhile.
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "dispatch.h"

typedef void (*ld_attn_tile)(const float *a, size_t a_stride, const void *b, size_t b_stride, float *c, size_t c_stride,
                             const float *scale, int64_t m, int64_t k, int64_t n, int64_t ahead);

// y[n] = x * scale: values of an 8-bit cache that share a scale. Any n, no alignment.
typedef void (*ld_attn_widen)(const int8_t *x, float scale, float *y, int64_t n);

typedef struct {
    ld_attn_tile tile[2]; // B is f32, f16
    ld_attn_widen widen;
    ld_isa isa;           // which ISA serves
} ld_attn_kernels;

// The best tile not above the cap `isa`.
const ld_attn_kernels *ld_attn_for(ld_isa isa);
