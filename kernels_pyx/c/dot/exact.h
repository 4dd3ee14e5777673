// The exact path: formats whose blocks are dequantised to f32 and multiplied there. One function a format, ld_exact_<format>(w, y),
// turns a block into f32; it is plain C, compiled again inside the target region of an instruction set, which vectorises it.
// Activations are f32, weights those of the format, so the product has no error but that of f32 sums.
#pragma once
#include "../dot.h"
#include "../iq_tables.h"

#define LD_EXACT_INLINE static inline __attribute__((always_inline))

// The grids of iq_tables.h with one byte a value, filled by ld_expand_grids.
#define LD_GRID(symbol, n_rows, width, bits) static int8_t ld_grid_##symbol[n_rows][width];
LD_GRIDS
#undef LD_GRID

static void ld_expand_grids(void) {
#define LD_GRID(symbol, n_rows, width, bits) \
    for (int row = 0; row < n_rows; row++) \
        for (int i = 0; i < width; i++) \
            ld_grid_##symbol[row][i] = ld_levels_##symbol[(ld_rows_of_##symbol[row] >> (bits * i)) & ((1 << bits) - 1)];
    LD_GRIDS
#undef LD_GRID
}

// The eighth sign of a group is such that their number is even.
LD_EXACT_INLINE uint32_t ld_eight_signs(uint32_t seven) { return seven | (uint32_t)__builtin_parity(seven) << 7; }

// y = d * grid, negated where the bit in signs is set, for n values.
LD_EXACT_INLINE void ld_exact_signed(const int8_t *grid, uint32_t signs, float d, float *y, const int n) {
    for (int i = 0; i < n; i++)
        y[i] = ld_f32_of_bits(ld_bits_of_f32(d * (float)grid[i]) ^ ((signs >> i & 1) << 31));
}

LD_EXACT_INLINE void ld_exact_iq2_xxs(const uint8_t *w, float *y) {
    const ld_block_iq2_xxs *block = (const ld_block_iq2_xxs *)w;
    for (int group = 0; group < 8; group++) {
        const uint8_t *rows = block->groups[group].rows;
        const uint32_t signs = block->groups[group].signs_scale;
        const float d = ld_f32_of_f16(block->d) * (0.5f + (float)(signs >> 28)) * 0.25f;
        for (int i = 0; i < 4; i++)
            ld_exact_signed(ld_grid_iq2_xxs[rows[i]], ld_eight_signs((signs >> (7 * i)) & 127), d, y + 32 * group + 8 * i, 8);
    }
}

LD_EXACT_INLINE void ld_exact_iq2_xs(const uint8_t *w, float *y) {
    const ld_block_iq2_xs *block = (const ld_block_iq2_xs *)w;
    for (int i = 0; i < 32; i++) {
        const int scale = (block->scales[i / 4] >> (4 * (i / 2 % 2))) & 15, q = block->q[i];
        const float d = ld_f32_of_f16(block->d) * (0.5f + (float)scale) * 0.25f;
        ld_exact_signed(ld_grid_iq2_xs[q & 511], ld_eight_signs((uint32_t)q >> 9), d, y + 8 * i, 8);
    }
}

LD_EXACT_INLINE void ld_exact_iq2_s(const uint8_t *w, float *y) {
    const ld_block_iq2_s *block = (const ld_block_iq2_s *)w;
    for (int i = 0; i < 32; i++) {
        const int scale = (block->scales[i / 4] >> (4 * (i / 2 % 2))) & 15;
        const int row = block->rows[i] | ((block->high[i / 4] >> (2 * (i % 4))) & 3) << 8;
        const float d = ld_f32_of_f16(block->d) * (0.5f + (float)scale) * 0.25f;
        ld_exact_signed(ld_grid_iq2_s[row], block->signs[i], d, y + 8 * i, 8);
    }
}

LD_EXACT_INLINE void ld_exact_iq3_xxs(const uint8_t *w, float *y) {
    const ld_block_iq3_xxs *block = (const ld_block_iq3_xxs *)w;
    for (int i = 0; i < 64; i++) { // four values each
        const uint32_t signs = block->signs_scale[i / 8];
        const float d = ld_f32_of_f16(block->d) * (0.5f + (float)(signs >> 28)) * 0.5f;
        const uint32_t eight = ld_eight_signs((signs >> (7 * (i / 2 % 4))) & 127);
        ld_exact_signed(ld_grid_iq3_xxs[block->rows[i]], eight >> (4 * (i % 2)), d, y + 4 * i, 4);
    }
}

LD_EXACT_INLINE void ld_exact_iq3_s(const uint8_t *w, float *y) {
    const ld_block_iq3_s *block = (const ld_block_iq3_s *)w;
    for (int i = 0; i < 64; i++) {
        const int scale = (block->scales[i / 16] >> (4 * (i / 8 % 2))) & 15;
        const int row = block->rows[i] | ((block->high[i / 8] >> (i % 8)) & 1) << 8;
        const float d = ld_f32_of_f16(block->d) * (float)(1 + 2 * scale);
        ld_exact_signed(ld_grid_iq3_s[row], (uint32_t)block->signs[i / 2] >> (4 * (i % 2)), d, y + 4 * i, 4);
    }
}

LD_EXACT_INLINE void ld_exact_iq1_row(int row, float d, float delta, float *y) {
    for (int i = 0; i < 8; i++) y[i] = d * ((float)ld_grid_iq1_s[row][i] + delta);
}

LD_EXACT_INLINE void ld_exact_iq1_s(const uint8_t *w, float *y) {
    const ld_block_iq1_s *block = (const ld_block_iq1_s *)w;
    for (int i = 0; i < 32; i++) {
        const int high = block->high[i / 4];
        const float d = ld_f32_of_f16(block->d) * (float)(2 * ((high >> 12) & 7) + 1);
        const int row = block->rows[i] | ((high >> (3 * (i % 4))) & 7) << 8;
        ld_exact_iq1_row(row, d, high & 0x8000 ? -0.125f : 0.125f, y + 8 * i);
    }
}

LD_EXACT_INLINE void ld_exact_iq1_m(const uint8_t *w, float *y) {
    const ld_block_iq1_m *block = (const ld_block_iq1_m *)w;
    const ld_packed16 *s = (const ld_packed16 *)block->scales;
    const float d = ld_f32_of_f16((ld_f16)(s[0] >> 12 | (s[1] >> 12) << 4 | (s[2] >> 12) << 8 | (s[3] >> 12) << 12));
    for (int i = 0; i < 32; i++) {
        const int scale = (s[i / 8] >> (3 * (i / 2 % 4))) & 7, high = (block->high[i / 2] >> (4 * (i % 2))) & 15;
        ld_exact_iq1_row(block->rows[i] | (high & 7) << 8, d * (float)(2 * scale + 1), high & 8 ? -0.125f : 0.125f, y + 8 * i);
    }
}

// Digit n of a byte that holds five of base 3, the first one highest, as a fraction of 256.
LD_EXACT_INLINE float ld_exact_digit(uint8_t byte, const int power, float d) {
    return d * (float)((int)(((uint32_t)(uint8_t)(byte * power) * 3) >> 8) - 1);
}

LD_EXACT_INLINE void ld_exact_tq1_0(const uint8_t *w, float *y) {
    static const int powers[5] = {1, 3, 9, 27, 81};
    const ld_block_tq1_0 *block = (const ld_block_tq1_0 *)w;
    const float d = ld_f32_of_f16(block->d);
    for (int n = 0; n < 5; n++) {
        for (int i = 0; i < 32; i++) y[32 * n + i] = ld_exact_digit(block->q[i], powers[n], d);
        for (int i = 0; i < 16; i++) y[160 + 16 * n + i] = ld_exact_digit(block->q[32 + i], powers[n], d);
    }
    for (int n = 0; n < 4; n++)
        for (int i = 0; i < 4; i++) y[240 + 4 * n + i] = ld_exact_digit(block->last[i], powers[n], d);
}

LD_EXACT_INLINE void ld_exact_tq2_0(const uint8_t *w, float *y) {
    const ld_block_tq2_0 *block = (const ld_block_tq2_0 *)w;
    const float d = ld_f32_of_f16(block->d);
    for (int j = 0; j < 8; j++)
        for (int i = 0; i < 32; i++) y[32 * j + i] = d * (float)(((block->q[j / 4 * 32 + i] >> (2 * (j % 4))) & 3) - 1);
}

// Half of an unsigned 8-bit float, 4 bits of exponent and 3 of fraction.
LD_EXACT_INLINE float ld_exact_e4m3(uint8_t x) {
    const int exponent = (x >> 3) & 15, fraction = x & 7;
    if (x == 0x7f) return 0;
    if (exponent == 0) return (float)fraction * 0x1p-10f;
    return (float)(8 + fraction) * ld_f32_of_bits((uint32_t)(127 + exponent - 11) << 23);
}

LD_EXACT_INLINE void ld_exact_nvfp4(const uint8_t *w, float *y) {
    const ld_block_nvfp4 *block = (const ld_block_nvfp4 *)w;
    for (int group = 0; group < 4; group++) {
        const float d = ld_exact_e4m3(block->scales[group]);
        for (int i = 0; i < 8; i++) {
            y[16 * group + i] = d * (float)ld_fp4_values[block->q[8 * group + i] & 15];
            y[16 * group + 8 + i] = d * (float)ld_fp4_values[block->q[8 * group + i] >> 4];
        }
    }
}

LD_EXACT_INLINE void ld_exact_q1_0(const uint8_t *w, float *y) {
    const ld_block_q1_0 *block = (const ld_block_q1_0 *)w;
    const uint32_t d = ld_bits_of_f32(ld_f32_of_f16(block->d));
    for (int i = 0; i < 128; i++) y[i] = ld_f32_of_bits(d ^ (block->q[i / 8] >> (i % 8) & 1 ? 0 : 0x80000000u));
}

#define LD_EXACT_FORMATS(ROW, isa) \
    ROW(16, iq2_xxs, isa), ROW(17, iq2_xs, isa), ROW(18, iq3_xxs, isa), ROW(19, iq1_s, isa), ROW(21, iq3_s, isa), \
        ROW(22, iq2_s, isa), ROW(29, iq1_m, isa), ROW(34, tq1_0, isa), ROW(35, tq2_0, isa), ROW(40, nvfp4, isa), \
        ROW(41, q1_0, isa)

typedef void (*ld_exact_fn)(const uint8_t *w, float *y);

LD_EXACT_INLINE void ld_exact_dot_scalar(LD_FEW_ARGS, const int block, const int bytes, ld_exact_fn exact) {
    for (int64_t row = 0; row < n; row++) {
        float sum[LD_FEW_MAX] = {0}, values[256];
        for (int64_t b = 0; b < k / block; b++) {
            exact(w + row * w_stride + b * bytes, values);
            for (int64_t a = 0; a < n_act; a++) {
                const float *x = (const float *)(act + a * act_stride) + b * block;
                for (int i = 0; i < block; i++) sum[a] += values[i] * x[i];
            }
        }
        for (int64_t a = 0; a < n_act; a++) y[a * y_stride + row] = sum[a];
    }
}

#define LD_SCALAR_EXACT(name, block) \
    static __attribute__((noinline)) void ld_exact_##name##_scalar(const uint8_t *w, float *y) { ld_exact_##name(w, y); } \
    static void ld_few_##name##_scalar(LD_FEW_ARGS) { \
        ld_exact_dot_scalar(LD_FEW_PASS, block, sizeof(ld_block_##name), ld_exact_##name##_scalar); \
    } \
    static void ld_to_f32_##name##_scalar(const uint8_t *w, float *y, int64_t k) { \
        for (int64_t b = 0; b < k / block; b++) ld_exact_##name##_scalar(w + b * sizeof(ld_block_##name), y + b * block); \
    } \
    LD_SCALAR_MANY(many, name)
LD_SCALAR_EXACT(iq2_xxs, 256)
LD_SCALAR_EXACT(iq2_xs, 256)
LD_SCALAR_EXACT(iq2_s, 256)
LD_SCALAR_EXACT(iq3_xxs, 256)
LD_SCALAR_EXACT(iq3_s, 256)
LD_SCALAR_EXACT(iq1_s, 256)
LD_SCALAR_EXACT(iq1_m, 256)
LD_SCALAR_EXACT(tq1_0, 256)
LD_SCALAR_EXACT(tq2_0, 256)
LD_SCALAR_EXACT(nvfp4, 64)
LD_SCALAR_EXACT(q1_0, 128)
