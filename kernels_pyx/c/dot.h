// The dot family: weight rows times a few activations, straight from the GGUF rows. Functions are named <op>_<format>_<isa>:
//   to_f32   one row to f32, bit for bit the format's definition: each product and sum rounded once, no fused multiply-add.
//   few      y = W x for 1..LD_FEW_MAX activations in the format's own activation layout.
//   few_f32  the same with f32 activations, weights dequantised as by to_f32.
// Layout: as dispatch.h says. Weight rows are byte-aligned, activation rows 64-byte aligned. Nothing is read outside a row except
// by prefetch, which never faults.
// Accumulator: the integer sum of a group of 16 or 32 products is exact in int32; groups are scaled and summed in f32.
// Overflow: |x| <= 127 in an activation. A weight is at most 255 unsigned or 128 signed, so the sum over 256 values stays below
// 2^23 and the sum over a group below 2^24, where f32 is still exact. With 16-bit steps (AVX2) two products meet in int16:
// unsigned weights must be <= 128 (2 * 128 * 127 = 32512); 15-valued weights may be summed over 8 such steps (8 * 2 * 15 * 127 =
// 30480).
// Error: |y - exact(quantised x)| <= 2^-23 * (2 + k / group) * sum |d * dx * isum| + |m * s| in the worst case; ISAs differ only
// by the order of the f32 sums.
#pragma once
#include "blocks.h"
#include "dispatch.h"

typedef struct {
    int format; // ggml id
    ld_linear_few few, few_f32;
    ld_linear_many many, many_f32;
    ld_to_f32 to_f32;
} ld_kernel_row; // what one ISA adds; NULL keeps the kernel of the ISA below
