// Activation quantisation: k f32 values to a Q8_32 or Q8_256 row (layouts in dispatch.h). k is a multiple of the block.
// For each block: d = max|x| / 127, q = round to nearest even of x * (127 / max|x|), sums of q. All ISAs give the same bits.
// A block whose largest magnitude is below LD_QUANTIZE_TINY is zero (127 / max|x| must not overflow, and denormals may be off).
// A block with a value that is not finite has q = 0 and d = NaN (s too), so that it shows in every result that it touches.
// The source needs no alignment.
#pragma once
#include "blocks.h"
#include "dispatch.h"

#define LD_QUANTIZE_TINY_BITS 0x0554ad2eu // 1e-35f
#define LD_QUANTIZE_INF_BITS 0x7f800000u
#define LD_QUIET_NAN_BITS 0x7fc00000u

// The scale of a block and the factor for its values, from the bits of max|x|: as integers these order like the floats, with
// infinity and NaN above all others.
static inline float ld_quantize_scale(uint32_t max_bits, float *factor) {
    *factor = 0;
    if (max_bits >= LD_QUANTIZE_INF_BITS) return ld_f32_of_bits(LD_QUIET_NAN_BITS);
    if (max_bits < LD_QUANTIZE_TINY_BITS) return 0;
    const float max = ld_f32_of_bits(max_bits);
    *factor = 127.0f / max;
    return max / 127.0f;
}
