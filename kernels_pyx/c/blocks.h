// The blocks of quantised formats as they lie in a GGUF file: little endian, packed, only byte-aligned. q is the stored integer.
#pragma once
#include <assert.h>
#include <stdint.h>
#include <string.h>

#define LD_PACKED __attribute__((packed))

typedef uint16_t ld_f16; // IEEE half precision, as bits
typedef uint16_t ld_packed16 __attribute__((aligned(1), may_alias)); // read at any address
typedef uint32_t ld_packed32 __attribute__((aligned(1), may_alias));
typedef uint64_t ld_packed64 __attribute__((aligned(1), may_alias));

// x = d * (q - 8); byte i holds value i in its low and value i + 16 in its high nibble.
typedef struct LD_PACKED { ld_f16 d; uint8_t q[16]; } ld_block_q4_0;
// x = d * q + m; nibbles as in Q4_0.
typedef struct LD_PACKED { ld_f16 d, m; uint8_t q[16]; } ld_block_q4_1;
// x = d * q
typedef struct LD_PACKED { ld_f16 d; int8_t q[32]; } ld_block_q8_0;
// 8 groups of 32: x = d * scale * q - dmin * min. The 6-bit scales and mins of the groups are packed into 12 bytes
// (ld_q4_k_scales); 32 bytes of q hold group 2i in the low and group 2i + 1 in the high nibbles.
typedef struct LD_PACKED { ld_f16 d, dmin; uint8_t scales[12]; uint8_t q[128]; } ld_block_q4_k;
// 16 groups of 16: x = d * scale * (q - 32). In each half of 128 values, value 32 j + l has its low 4 bits in nibble j / 2 of
// ql[32 (j % 2) + l] and its high 2 bits at bit 2 j of qh[l].
typedef struct LD_PACKED { uint8_t ql[128]; uint8_t qh[64]; int8_t scales[16]; ld_f16 d; } ld_block_q6_k;

// x = d * (q - 16) and x = d * q + m: nibbles as in Q4_0, the fifth bit of value i is bit i of high.
typedef struct LD_PACKED { ld_f16 d; uint8_t high[4]; uint8_t q[16]; } ld_block_q5_0;
typedef struct LD_PACKED { ld_f16 d, m; uint8_t high[4]; uint8_t q[16]; } ld_block_q5_1;
// 16 groups of 16: x = d * scale * q - dmin * min, scale in the low and min in the high nibble. In each half of 128 values, value
// 32 j + l is at bit 2 j of q[l].
typedef struct LD_PACKED { uint8_t scales[16]; uint8_t q[64]; ld_f16 d, dmin; } ld_block_q2_k;
// 16 groups of 16: x = d * (scale - 32) * (q - 4); low two bits as in Q2_K, the third bit of value 32 j + l is bit j of high[l]
// (j = 0..7). Scale i has its low 4 bits in nibble i / 8 of byte i % 8 and its high 2 bits at bit 2 (i / 4) of byte 8 + i % 4.
typedef struct LD_PACKED { uint8_t high[32]; uint8_t q[64]; uint8_t scales[12]; ld_f16 d; } ld_block_q3_k;
// As Q4_K; the fifth bit of value l of group i is bit i of high[l].
typedef struct LD_PACKED { ld_f16 d, dmin; uint8_t scales[12]; uint8_t high[32]; uint8_t q[128]; } ld_block_q5_k;
// x = d * ld_iq4_values[q]; nibbles as in Q4_0.
typedef struct LD_PACKED { ld_f16 d; uint8_t q[16]; } ld_block_iq4_nl;
// 8 groups of 32: x = d * (scale - 32) * ld_iq4_values[q], nibbles of a group as in Q4_0. Scale i has its low 4 bits in nibble
// i % 2 of scales_low[i / 2] and its high 2 bits at bit 2 i of scales_high.
typedef struct LD_PACKED { ld_f16 d; uint16_t scales_high; uint8_t scales_low[4]; uint8_t q[128]; } ld_block_iq4_xs;
// x = 2^(exponent - 128) * ld_fp4_values[q]; nibbles as in Q4_0.
typedef struct LD_PACKED { uint8_t exponent; uint8_t q[16]; } ld_block_mxfp4;

// Formats of the exact path (dot/exact.h). Their values come as rows of a grid (iq_tables.h), eight or four at a time; signs are a
// bit a value, or seven bits for eight values, whose eighth makes the number of minuses even.
// 8 groups of 32, four rows each: x = d * (scale + 1/2) / 4 * row; signs_scale holds 4 x 7 sign bits below a 4-bit scale.
typedef struct LD_PACKED { ld_f16 d; struct LD_PACKED { uint8_t rows[4]; uint32_t signs_scale; } groups[8]; } ld_block_iq2_xxs;
// 32 rows: low 9 bits the row, high 7 its signs; a 4-bit scale for two rows, x as above.
typedef struct LD_PACKED { ld_f16 d; uint16_t q[32]; uint8_t scales[8]; } ld_block_iq2_xs;
// 32 rows of 10 bits, the high two at bit 2 (i % 4) of high[i / 4]; scales and x as above.
typedef struct LD_PACKED { ld_f16 d; uint8_t rows[32], signs[32], high[8], scales[8]; } ld_block_iq2_s;
// 64 rows of four values: x = d * (scale + 1/2) / 2 * row; signs and scales of 32 values as in IQ2_XXS.
typedef struct LD_PACKED { ld_f16 d; uint8_t rows[64]; uint32_t signs_scale[8]; } ld_block_iq3_xxs;
// 64 rows of 9 bits, the high one at bit i % 8 of high[i / 8]; x = d * (2 scale + 1) * row, a 4-bit scale for 32 values.
typedef struct LD_PACKED { ld_f16 d; uint8_t rows[64], high[8], signs[32], scales[4]; } ld_block_iq3_s;
// 32 rows of 11 bits: x = d * (2 scale + 1) * (row +- 1/8). high: 4 x 3 high bits of rows, a 3-bit scale, the sign of 1/8.
typedef struct LD_PACKED { ld_f16 d; uint8_t rows[32]; uint16_t high[8]; } ld_block_iq1_s;
// The same with a nibble for each row (3 high bits, the sign of 1/8) and a 3-bit scale for two rows; d lies in the high nibbles of
// scales, lowest first.
typedef struct LD_PACKED { uint8_t rows[32], high[16]; uint16_t scales[4]; } ld_block_iq1_m;
// x = d * (digit - 1), digits of base 3: five in a byte of q, which is 32 + 16 bytes of 160 + 80 values, and four in one of last.
typedef struct LD_PACKED { uint8_t q[48], last[4]; ld_f16 d; } ld_block_tq1_0;
// x = d * (q - 1), laid out as Q2_K.
typedef struct LD_PACKED { uint8_t q[64]; ld_f16 d; } ld_block_tq2_0;
// 4 groups of 16: x = E4M3 scale / 2 * ld_fp4_values[q], low nibbles first.
typedef struct LD_PACKED { uint8_t scales[4], q[32]; } ld_block_nvfp4;
// x = d where bit i is set, else -d.
typedef struct LD_PACKED { ld_f16 d; uint8_t q[16]; } ld_block_q1_0;

// The sixteen values of IQ4, and those of a 4-bit float (E2M1), doubled.
static const int8_t ld_iq4_values[16] __attribute__((aligned(16))) = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                                      1,    13,   25,  38,  53,  69,  89,  113};
static const int8_t ld_fp4_values[16] __attribute__((aligned(16))) = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

static_assert(sizeof(ld_block_q4_0) == 18, "Q4_0");
static_assert(sizeof(ld_block_q4_1) == 20, "Q4_1");
static_assert(sizeof(ld_block_q8_0) == 34, "Q8_0");
static_assert(sizeof(ld_block_q4_k) == 144, "Q4_K");
static_assert(sizeof(ld_block_q6_k) == 210, "Q6_K");
static_assert(sizeof(ld_block_q5_0) == 22, "Q5_0");
static_assert(sizeof(ld_block_q5_1) == 24, "Q5_1");
static_assert(sizeof(ld_block_q2_k) == 84, "Q2_K");
static_assert(sizeof(ld_block_q3_k) == 110, "Q3_K");
static_assert(sizeof(ld_block_q5_k) == 176, "Q5_K");
static_assert(sizeof(ld_block_iq4_nl) == 18, "IQ4_NL");
static_assert(sizeof(ld_block_iq4_xs) == 136, "IQ4_XS");
static_assert(sizeof(ld_block_mxfp4) == 17, "MXFP4");
static_assert(sizeof(ld_block_iq2_xxs) == 66, "IQ2_XXS");
static_assert(sizeof(ld_block_iq2_xs) == 74, "IQ2_XS");
static_assert(sizeof(ld_block_iq2_s) == 82, "IQ2_S");
static_assert(sizeof(ld_block_iq3_xxs) == 98, "IQ3_XXS");
static_assert(sizeof(ld_block_iq3_s) == 110, "IQ3_S");
static_assert(sizeof(ld_block_iq1_s) == 50, "IQ1_S");
static_assert(sizeof(ld_block_iq1_m) == 56, "IQ1_M");
static_assert(sizeof(ld_block_tq1_0) == 54, "TQ1_0");
static_assert(sizeof(ld_block_tq2_0) == 66, "TQ2_0");
static_assert(sizeof(ld_block_nvfp4) == 36, "NVFP4");
static_assert(sizeof(ld_block_q1_0) == 18, "Q1_0");

// The packed scales of a Q4_K block: bytes 0..3 hold scales 0..3 and bytes 4..7 mins 0..3 in their low 6 bits; bytes 8..11 hold
// the low 4 bits of scales 4..7 (low nibble) and mins 4..7 (high nibble), whose top 2 bits are the top bits of bytes 0..3 and
// 4..7. scales and mins: four per 32-bit word, value i in byte i % 4 of word i / 4.
static inline void ld_q4_k_scales(const uint8_t packed[12], uint32_t scales[2], uint32_t mins[2]) {
    uint32_t w[3];
    memcpy(w, packed, 12);
    scales[0] = w[0] & 0x3f3f3f3f;
    mins[0] = w[1] & 0x3f3f3f3f;
    scales[1] = (w[2] & 0x0f0f0f0f) | ((w[0] >> 2) & 0x30303030);
    mins[1] = ((w[2] >> 4) & 0x0f0f0f0f) | ((w[1] >> 2) & 0x30303030);
}

static inline float ld_f32_of_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

static inline uint32_t ld_bits_of_f32(float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return bits;
}

// Exact; a signalling NaN becomes quiet, as F16C does it.
static inline float ld_f32_of_f16(ld_f16 h) {
    const uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = (h >> 10) & 31, fraction = h & 0x3ff;
    if (exponent == 31) return ld_f32_of_bits(sign | 0x7f800000 | (fraction ? 0x400000 | (fraction << 13) : 0));
    if (exponent == 0) return ld_f32_of_bits(sign | ld_bits_of_f32((float)fraction * 0x1p-24f));
    return ld_f32_of_bits(sign | ((exponent + 112) << 23) | (fraction << 13));
}

// Round to nearest even; overflow gives infinity, NaN a quiet NaN with the top of its payload: bit for bit what F16C gives.
static inline ld_f16 ld_f16_of_f32(float x) {
    const uint32_t bits = ld_bits_of_f32(x), sign = (bits >> 16) & 0x8000, magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000) return (ld_f16)(sign | 0x7e00 | ((magnitude >> 13) & 0x3ff));
    if (magnitude >= 0x477ff000) return (ld_f16)(sign | 0x7c00);
    if (magnitude < 0x33000000) return (ld_f16)sign;
    const uint32_t exponent = magnitude >> 23, fraction = (magnitude & 0x7fffff) | 0x800000;
    const uint32_t shift = exponent < 113 ? 126 - exponent : 13;
    const uint32_t value = exponent < 113 ? fraction : magnitude - (112u << 23);
    const uint32_t kept = value >> shift, rest = value & ((1u << shift) - 1), half = 1u << (shift - 1);
    return (ld_f16)(sign | (kept + (rest > half || (rest == half && (kept & 1)))));
}

// 2^(exponent - 128); the first two are denormal.
static inline float ld_f32_of_exponent(uint8_t exponent) {
    return ld_f32_of_bits(exponent < 2 ? 0x200000u << exponent : (uint32_t)(exponent - 1) << 23);
}

static inline float ld_f32_of_bf16(uint16_t h) { return ld_f32_of_bits((uint32_t)h << 16); }
