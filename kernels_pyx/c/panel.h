// The panel family, for many activations: a tile of LD_PANEL_ROWS weight rows is unpacked once, a slice of LD_PANEL_DEPTH values
// at a time, into scratch, and multiplied there with every activation. Functions are named ld_many_<format>_<isa> and have the
// signature ld_linear_many; many_f32 is the same with f32 activations.
// Integer panel, for each group of 32 values: eight steps of [row][4 bytes], four consecutive values of each of the 32 rows, so
//   that a register holds one step of 8 or 16 rows and meets four bytes of an activation broadcast. Bytes are unsigned; signed
//   formats are stored with a bias (Q4_0: 8, Q6_K: 32, Q8_0: 128). Beside the bytes, for each group, d[row] and m[row]:
//   y += d * dx * sum(q * x) + m * s, with s = dx * sum(x) of the activation, and m the format's own or -bias * d.
//   Formats with blocks of 256 keep integer scales there (panel/blocks.h): one multiplication for a sum, f32 once in a block.
//   A tile may begin the sums of a group at -bias * sum(x) instead of adding the bias's share (AVX-512 VNNI).
//   Q8_0 and IQ4 on AVX2: int16 (panel/words.h).
// f32 panel: [value][row]. Registers sum a slice, of a shorter one a quarter, and are added to y: the longer a chain of additions,
//   the larger its error. Shorter chains cost time where rows are long: quarters 3.5 %, sixteenths 9 % (F16, AVX-512, Zen 4).
// Rows beyond the last one repeat it in the panel; their sums are not stored.
// Accumulator: int32 for a scale group, exact; f32 across groups in registers, across slices in y. Overflow limits as in dot.h:
//   with 16-bit accumulation (AVX2) a group of 32 may hold values of at most 15, half of it values of at most 31, a pair of steps values of at most 63.
#pragma once
#include "dot.h"

#define LD_PANEL_GROUPS (LD_PANEL_DEPTH / 32)
#define LD_GROUP_BYTES (32 * LD_PANEL_ROWS)

typedef struct {
    uint8_t *q;   // [group][step][row][4]
    float *d, *m; // [scale group][row]
} ld_int_panel;

#define LD_PANEL_SCALES (2 * LD_PANEL_GROUPS * LD_PANEL_ROWS) // two scale groups in a group at most
#define LD_INT_PANEL_BYTES (LD_PANEL_GROUPS * LD_GROUP_BYTES + 2 * 4 * LD_PANEL_SCALES)

static inline ld_int_panel ld_int_panel_in(uint8_t *scratch) {
    float *scales = (float *)(scratch + LD_PANEL_GROUPS * LD_GROUP_BYTES);
    return (ld_int_panel){scratch, scales, scales + LD_PANEL_SCALES};
}

// How many values of a slice of `depth` a register of the f32 panel sums.
static inline int64_t ld_f32_run(int64_t depth) { return depth == LD_PANEL_DEPTH ? depth : depth < 64 ? 16 : depth / 4; }

static_assert(LD_PANEL_DEPTH % 256 == 0, "a slice holds whole blocks of every format");
static_assert(LD_PANEL_ROWS == 32, "the kernels' register tiles");
