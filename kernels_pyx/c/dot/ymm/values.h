// Dequantisation with 256-bit registers: 32 consecutive values of a row as four registers of f32, for every format; to_f32 from
// it. Included once, inside the AVX2 target region; the wider instruction sets use the same functions.
#pragma once

#define LD_INLINE static inline __attribute__((always_inline))
// Before each loop over registers: unrolled late, or not at all, gcc keeps the array in memory.
#ifdef __SANITIZE_ADDRESS__
#define LD_UNROLL // with a check at each access gcc 12 takes three times as long for unrolled loops
#else
#define LD_UNROLL _Pragma("GCC unroll 16")
#endif

LD_INLINE __m256i ld_load256(const void *p) { return _mm256_loadu_si256((const __m256i *)p); }

// 16 bytes of nibbles to 32 bytes: low nibbles first.
LD_INLINE __m256i ld_nibbles(const void *p) {
    const __m128i packed = _mm_loadu_si128((const __m128i *)p);
    return _mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16(packed, 4), packed), _mm256_set1_epi8(15));
}

// The signed values that nibbles choose.
LD_INLINE __m256i ld_choose(const int8_t values[16], __m256i nibbles) {
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_load_si128((const __m128i *)values)), nibbles);
}

// 32 bits as 32 bytes, each 0 or 16.
LD_INLINE __m256i ld_fifth_bits(uint32_t bits) {
    const __m256i byte = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i bit = _mm256_set1_epi64x((int64_t)0x8040201008040201);
    const __m256i chosen = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32((int32_t)bits), byte), bit);
    return _mm256_and_si256(_mm256_cmpeq_epi8(chosen, bit), _mm256_set1_epi8(16));
}

// Bit `from` of each byte as bit `to` of a byte that is zero otherwise.
LD_INLINE __m256i ld_bit_at(__m256i bytes, const int from, const int to) {
    const __m256i moved = from <= to ? _mm256_slli_epi16(bytes, to - from) : _mm256_srli_epi16(bytes, from - to);
    return _mm256_and_si256(moved, _mm256_set1_epi8((char)(1 << to)));
}

typedef __m256i (*ld_quants_fn)(const uint8_t *row, int64_t g);

// The stored integers of 32-value group g of a row, each format's own: unsigned but for Q8_0 and IQ4, MXFP4's with 12 added.
LD_INLINE __m256i ld_quants_q5_0(const uint8_t *row, int64_t g) {
    const ld_block_q5_0 *block = (const ld_block_q5_0 *)row + g;
    return _mm256_or_si256(ld_nibbles(block->q), ld_fifth_bits(*(const ld_packed32 *)block->high));
}
LD_INLINE __m256i ld_quants_q5_1(const uint8_t *row, int64_t g) {
    const ld_block_q5_1 *block = (const ld_block_q5_1 *)row + g;
    return _mm256_or_si256(ld_nibbles(block->q), ld_fifth_bits(*(const ld_packed32 *)block->high));
}
LD_INLINE __m256i ld_quants_iq4_nl(const uint8_t *row, int64_t g) {
    return ld_choose(ld_iq4_values, ld_nibbles(((const ld_block_iq4_nl *)row)[g].q));
}
LD_INLINE __m256i ld_quants_mxfp4(const uint8_t *row, int64_t g) {
    const __m128i values = _mm_add_epi8(_mm_load_si128((const __m128i *)ld_fp4_values), _mm_set1_epi8(12));
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(values), ld_nibbles(((const ld_block_mxfp4 *)row)[g].q));
}
LD_INLINE __m256i ld_quants_iq4_xs(const uint8_t *row, int64_t g) {
    return ld_choose(ld_iq4_values, ld_nibbles(((const ld_block_iq4_xs *)row)[g / 8].q + 16 * (g % 8)));
}
LD_INLINE __m256i ld_quants_q2_k(const uint8_t *row, int64_t g) {
    const __m256i packed = ld_load256(((const ld_block_q2_k *)row)[g / 8].q + 32 * (g % 8 / 4));
    return _mm256_and_si256(_mm256_srli_epi16(packed, (int)(2 * (g % 4))), _mm256_set1_epi8(3));
}
LD_INLINE __m256i ld_quants_q3_k(const uint8_t *row, int64_t g) {
    const ld_block_q3_k *block = (const ld_block_q3_k *)row + g / 8;
    const __m256i packed = ld_load256(block->q + 32 * (g % 8 / 4)), high = ld_load256(block->high);
    const __m256i low2 = _mm256_and_si256(_mm256_srli_epi16(packed, (int)(2 * (g % 4))), _mm256_set1_epi8(3));
    return _mm256_or_si256(low2, ld_bit_at(high, (int)(g % 8), 2));
}
LD_INLINE __m256i ld_quants_q5_k(const uint8_t *row, int64_t g) {
    const ld_block_q5_k *block = (const ld_block_q5_k *)row + g / 8;
    const __m256i packed = ld_load256(block->q + 32 * (g % 8 / 2)), high = ld_load256(block->high);
    const __m256i low4 = _mm256_and_si256(g % 2 ? _mm256_srli_epi16(packed, 4) : packed, _mm256_set1_epi8(15));
    return _mm256_or_si256(low4, ld_bit_at(high, (int)(g % 8), 4));
}
LD_INLINE __m256i ld_quants_q4_0(const uint8_t *row, int64_t g) { return ld_nibbles(row + 18 * g + 2); }
LD_INLINE __m256i ld_quants_q4_1(const uint8_t *row, int64_t g) { return ld_nibbles(row + 20 * g + 4); }
LD_INLINE __m256i ld_quants_q8_0(const uint8_t *row, int64_t g) { return ld_load256(row + 34 * g + 2); }

LD_INLINE __m256i ld_quants_q4_k(const uint8_t *row, int64_t g) {
    const ld_block_q4_k *block = (const ld_block_q4_k *)row + g / 8;
    const __m256i packed = ld_load256(block->q + 32 * (g % 8 / 2));
    return _mm256_and_si256(g % 2 ? _mm256_srli_epi16(packed, 4) : packed, _mm256_set1_epi8(15));
}

LD_INLINE __m256i ld_quants_q6_k(const uint8_t *row, int64_t g) {
    const ld_block_q6_k *block = (const ld_block_q6_k *)row + g / 8;
    const int half = g % 8 / 4, j = g % 4;
    const __m256i low = ld_load256(block->ql + 64 * half + 32 * (j % 2)), high = ld_load256(block->qh + 32 * half);
    const __m256i low4 = _mm256_and_si256(j / 2 ? _mm256_srli_epi16(low, 4) : low, _mm256_set1_epi8(15));
    const __m256i at_4 = j < 2 ? _mm256_slli_epi16(high, 4 - 2 * j) : _mm256_srli_epi16(high, 2 * j - 4);
    return _mm256_or_si256(low4, _mm256_and_si256(at_4, _mm256_set1_epi8(0x30)));
}

// d and m of group g: x = d * q + m.
typedef struct { float d, m; } ld_scales;

LD_INLINE float ld_half(ld_f16 h) { return _cvtsh_ss(h); }

LD_INLINE ld_scales ld_scales_q4_1(const uint8_t *row, int64_t g) {
    const ld_block_q4_1 *block = (const ld_block_q4_1 *)row + g;
    return (ld_scales){ld_half(block->d), ld_half(block->m)};
}

LD_INLINE ld_scales ld_scales_q5_1(const uint8_t *row, int64_t g) {
    const ld_block_q5_1 *block = (const ld_block_q5_1 *)row + g;
    return (ld_scales){ld_half(block->d), ld_half(block->m)};
}

// Formats with an f16 d at the start of a block of 32 and no m: m is d, for what a bias makes of it.
#define LD_SCALES_BY_D(name) \
    LD_INLINE ld_scales ld_scales_##name(const uint8_t *row, int64_t g) { \
        const float d = ld_half(((const ld_block_##name *)row)[g].d); \
        return (ld_scales){d, d}; \
    }
LD_SCALES_BY_D(q4_0)
LD_SCALES_BY_D(q5_0)
LD_SCALES_BY_D(q8_0)
LD_SCALES_BY_D(iq4_nl)

LD_INLINE ld_scales ld_scales_mxfp4(const uint8_t *row, int64_t g) {
    const float d = ld_f32_of_exponent(((const ld_block_mxfp4 *)row)[g].exponent);
    return (ld_scales){d, d};
}

typedef ld_scales (*ld_scales_of_fn)(const uint8_t *row, int64_t g);

// A block of Q4_K or Q5_K, whose heads are alike; g in 0..7.
LD_INLINE ld_scales ld_scales_in_block_k(const ld_block_q4_k *block, int64_t g) {
    uint32_t scales[2], mins[2];
    ld_q4_k_scales(block->scales, scales, mins);
    const int word = g % 8 / 4, shift = 8 * (g % 4);
    return (ld_scales){ld_half(block->d) * (float)((scales[word] >> shift) & 255),
                       -(ld_half(block->dmin) * (float)((mins[word] >> shift) & 255))};
}
LD_INLINE ld_scales ld_scales_q4_k(const uint8_t *row, int64_t g) {
    return ld_scales_in_block_k((const ld_block_q4_k *)row + g / 8, g % 8);
}
LD_INLINE ld_scales ld_scales_q5_k(const uint8_t *row, int64_t g) {
    return ld_scales_in_block_k((const ld_block_q4_k *)((const ld_block_q5_k *)row + g / 8), g % 8);
}

// The sixteen scales of a Q3_K block, 32 taken away.
LD_INLINE __m128i ld_q3_k_scales(const uint8_t packed[12]) {
    const __m128i low8 = _mm_loadl_epi64((const __m128i *)packed);
    const uint32_t top = *(const ld_packed32 *)(packed + 8);
    const __m128i low = _mm_and_si128(_mm_unpacklo_epi64(low8, _mm_srli_epi16(low8, 4)), _mm_set1_epi8(15));
    const __m128i high = _mm_and_si128(_mm_srlv_epi32(_mm_set1_epi32((int32_t)top), _mm_setr_epi32(0, 2, 4, 6)), _mm_set1_epi8(3));
    return _mm_sub_epi8(_mm_or_si128(low, _mm_slli_epi16(high, 4)), _mm_set1_epi8(32));
}

// The eight scales of an IQ4_XS block, 32 taken away.
LD_INLINE __m128i ld_iq4_xs_scales(const ld_block_iq4_xs *block) {
    const __m128i low8 = _mm_cvtsi32_si128((int32_t)*(const ld_packed32 *)block->scales_low);
    const __m128i low = _mm_unpacklo_epi8(_mm_and_si128(low8, _mm_set1_epi8(15)),
                                          _mm_and_si128(_mm_srli_epi16(low8, 4), _mm_set1_epi8(15)));
    // each pair of bits to the top of its word, then down to bit 4
    const __m128i up = _mm_mullo_epi16(_mm_set1_epi16((int16_t)block->scales_high),
                                       _mm_setr_epi16(1 << 14, 1 << 12, 1 << 10, 1 << 8, 1 << 6, 1 << 4, 1 << 2, 1));
    const __m128i high = _mm_slli_epi16(_mm_srli_epi16(up, 14), 4);
    return _mm_sub_epi16(_mm_or_si128(_mm_cvtepu8_epi16(low), high), _mm_set1_epi16(32));
}

// The head of a block of 256 in groups of 32: int16 scales and mins.
typedef struct { __m128i scale8, min8; float d, dmin; } ld_group_scales;

LD_INLINE ld_group_scales ld_group_scales_k(const uint8_t *w) { // Q4_K and Q5_K
    const ld_block_q4_k *block = (const ld_block_q4_k *)w;
    uint32_t scales[2], mins[2];
    ld_q4_k_scales(block->scales, scales, mins);
    return (ld_group_scales){_mm_cvtepu8_epi16(_mm_cvtsi64_si128((int64_t)(scales[0] | (uint64_t)scales[1] << 32))),
                             _mm_cvtepu8_epi16(_mm_cvtsi64_si128((int64_t)(mins[0] | (uint64_t)mins[1] << 32))),
                             ld_half(block->d), ld_half(block->dmin)};
}

LD_INLINE ld_group_scales ld_group_scales_iq4_xs(const uint8_t *w) {
    const ld_block_iq4_xs *block = (const ld_block_iq4_xs *)w;
    return (ld_group_scales){ld_iq4_xs_scales(block), _mm_setzero_si128(), ld_half(block->d), 0};
}

// The head of a block of 256 in groups of 16: int8 scales and mins.
typedef struct { __m128i scale16, min16; float d, dmin; } ld_half_scales;
typedef ld_half_scales (*ld_half_scales_fn)(const uint8_t *w);

LD_INLINE ld_half_scales ld_half_scales_q2_k(const uint8_t *w) {
    const ld_block_q2_k *block = (const ld_block_q2_k *)w;
    const __m128i packed = _mm_loadu_si128((const __m128i *)block->scales), low4 = _mm_set1_epi8(15);
    return (ld_half_scales){_mm_and_si128(packed, low4), _mm_and_si128(_mm_srli_epi16(packed, 4), low4), ld_half(block->d),
                            ld_half(block->dmin)};
}

LD_INLINE ld_half_scales ld_half_scales_q3_k(const uint8_t *w) {
    const ld_block_q3_k *block = (const ld_block_q3_k *)w;
    return (ld_half_scales){ld_q3_k_scales(block->scales), _mm_setzero_si128(), ld_half(block->d), 0};
}

LD_INLINE ld_half_scales ld_half_scales_q6_k(const uint8_t *w) {
    const ld_block_q6_k *block = (const ld_block_q6_k *)w;
    return (ld_half_scales){_mm_loadu_si128((const __m128i *)block->scales), _mm_setzero_si128(), ld_half(block->d), 0};
}

LD_INLINE void ld_widen_int8(__m256i q, __m256 v[4]) {
    const __m128i low = _mm256_castsi256_si128(q), high = _mm256_extracti128_si256(q, 1);
    v[0] = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(low));
    v[1] = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(low, 8)));
    v[2] = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(high));
    v[3] = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(high, 8)));
}

LD_INLINE void ld_scale_values(__m256i q, float d, __m256 v[4]) {
    ld_widen_int8(q, v);
    LD_UNROLL for (int i = 0; i < 4; i++) v[i] = _mm256_mul_ps(_mm256_set1_ps(d), v[i]);
}

LD_INLINE void ld_affine_values(__m256i q, ld_scales scales, __m256 v[4]) {
    ld_scale_values(q, scales.d, v);
    LD_UNROLL for (int i = 0; i < 4; i++) v[i] = _mm256_add_ps(v[i], _mm256_set1_ps(scales.m));
}

LD_INLINE void ld_values_q4_0(const uint8_t *row, int64_t g, __m256 v[4]) {
    const __m256i q = _mm256_sub_epi8(ld_quants_q4_0(row, g), _mm256_set1_epi8(8));
    ld_scale_values(q, ld_half(((const ld_block_q4_0 *)row)[g].d), v);
}

LD_INLINE void ld_values_q4_1(const uint8_t *row, int64_t g, __m256 v[4]) {
    ld_affine_values(ld_quants_q4_1(row, g), ld_scales_q4_1(row, g), v);
}

LD_INLINE void ld_values_q8_0(const uint8_t *row, int64_t g, __m256 v[4]) {
    ld_scale_values(ld_quants_q8_0(row, g), ld_half(((const ld_block_q8_0 *)row)[g].d), v);
}

LD_INLINE void ld_values_q4_k(const uint8_t *row, int64_t g, __m256 v[4]) {
    ld_affine_values(ld_quants_q4_k(row, g), ld_scales_q4_k(row, g), v);
}

LD_INLINE void ld_values_q6_k(const uint8_t *row, int64_t g, __m256 v[4]) {
    const ld_block_q6_k *block = (const ld_block_q6_k *)row + g / 8;
    ld_widen_int8(_mm256_sub_epi8(ld_quants_q6_k(row, g), _mm256_set1_epi8(32)), v);
    const float d = ld_half(block->d);
    const int8_t *scales = block->scales + 2 * (g % 8);
    LD_UNROLL for (int i = 0; i < 4; i++) v[i] = _mm256_mul_ps(_mm256_set1_ps(d * (float)scales[i / 2]), v[i]);
}

LD_INLINE void ld_values_q5_0(const uint8_t *row, int64_t g, __m256 v[4]) {
    const __m256i q = _mm256_sub_epi8(ld_quants_q5_0(row, g), _mm256_set1_epi8(16));
    ld_scale_values(q, ld_scales_q5_0(row, g).d, v);
}

LD_INLINE void ld_values_q5_1(const uint8_t *row, int64_t g, __m256 v[4]) {
    ld_affine_values(ld_quants_q5_1(row, g), ld_scales_q5_1(row, g), v);
}

LD_INLINE void ld_values_iq4_nl(const uint8_t *row, int64_t g, __m256 v[4]) {
    ld_scale_values(ld_quants_iq4_nl(row, g), ld_scales_iq4_nl(row, g).d, v);
}

LD_INLINE void ld_values_mxfp4(const uint8_t *row, int64_t g, __m256 v[4]) {
    ld_scale_values(_mm256_sub_epi8(ld_quants_mxfp4(row, g), _mm256_set1_epi8(12)), ld_scales_mxfp4(row, g).d, v);
}

LD_INLINE void ld_values_q5_k(const uint8_t *row, int64_t g, __m256 v[4]) {
    ld_affine_values(ld_quants_q5_k(row, g), ld_scales_q5_k(row, g), v);
}

LD_INLINE void ld_values_iq4_xs(const uint8_t *row, int64_t g, __m256 v[4]) {
    const ld_block_iq4_xs *block = (const ld_block_iq4_xs *)row + g / 8;
    const int i = (int)(g % 8), low = (block->scales_low[i / 2] >> (4 * (i % 2))) & 15, high = (block->scales_high >> (2 * i)) & 3;
    ld_scale_values(ld_quants_iq4_xs(row, g), ld_half(block->d) * (float)((low | (high << 4)) - 32), v);
}

LD_INLINE void ld_values_q2_k(const uint8_t *row, int64_t g, __m256 v[4]) {
    const ld_block_q2_k *block = (const ld_block_q2_k *)row + g / 8;
    const uint8_t *scales = block->scales + 2 * (g % 8);
    const float d = ld_half(block->d), dmin = ld_half(block->dmin);
    ld_widen_int8(ld_quants_q2_k(row, g), v);
    LD_UNROLL for (int i = 0; i < 4; i++)
        v[i] = _mm256_sub_ps(_mm256_mul_ps(_mm256_set1_ps(d * (float)(scales[i / 2] & 15)), v[i]),
                             _mm256_set1_ps(dmin * (float)(scales[i / 2] >> 4)));
}

LD_INLINE void ld_values_q3_k(const uint8_t *row, int64_t g, __m256 v[4]) {
    const ld_block_q3_k *block = (const ld_block_q3_k *)row + g / 8;
    int8_t scales[16];
    _mm_storeu_si128((__m128i *)scales, ld_q3_k_scales(block->scales));
    ld_widen_int8(_mm256_sub_epi8(ld_quants_q3_k(row, g), _mm256_set1_epi8(4)), v);
    LD_UNROLL for (int i = 0; i < 4; i++)
        v[i] = _mm256_mul_ps(_mm256_set1_ps(ld_half(block->d) * (float)scales[2 * (g % 8) + i / 2]), v[i]);
}

LD_INLINE void ld_values_f32(const uint8_t *row, int64_t g, __m256 v[4]) {
    LD_UNROLL for (int i = 0; i < 4; i++) v[i] = _mm256_loadu_ps((const float *)(row + 128 * g) + 8 * i);
}

LD_INLINE void ld_values_f16(const uint8_t *row, int64_t g, __m256 v[4]) {
    LD_UNROLL for (int i = 0; i < 4; i++) v[i] = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(row + 64 * g) + i));
}

LD_INLINE void ld_values_bf16(const uint8_t *row, int64_t g, __m256 v[4]) {
    LD_UNROLL for (int i = 0; i < 4; i++) {
        const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(row + 64 * g) + i));
        v[i] = _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
    }
}

// The last k % 32 values of a row of a float format, zeros after them.
#define LD_TAIL_VALUES(name) \
    LD_INLINE void ld_tail_values_##name(const uint8_t *row, int64_t k, __m256 v[4]) { \
        float tail[32] = {0}; \
        for (int64_t i = k & ~(int64_t)31; i < k; i++) tail[i & 31] = ld_value_##name(row, i); \
        LD_UNROLL for (int i = 0; i < 4; i++) v[i] = _mm256_loadu_ps(tail + 8 * i); \
    }
LD_TAIL_VALUES(f32)
LD_TAIL_VALUES(f16)
LD_TAIL_VALUES(bf16)
// Quantised rows end with a whole group.
#define LD_NO_TAIL_VALUES(name) \
    LD_INLINE void ld_tail_values_##name(const uint8_t *row, int64_t k, __m256 v[4]) { \
        (void)row, (void)k; \
        LD_UNROLL for (int i = 0; i < 4; i++) v[i] = _mm256_setzero_ps(); \
    }
LD_NO_TAIL_VALUES(q4_0)
LD_NO_TAIL_VALUES(q4_1)
LD_NO_TAIL_VALUES(q8_0)
LD_NO_TAIL_VALUES(q4_k)
LD_NO_TAIL_VALUES(q6_k)
LD_NO_TAIL_VALUES(q5_0)
LD_NO_TAIL_VALUES(q5_1)
LD_NO_TAIL_VALUES(q2_k)
LD_NO_TAIL_VALUES(q3_k)
LD_NO_TAIL_VALUES(q5_k)
LD_NO_TAIL_VALUES(iq4_nl)
LD_NO_TAIL_VALUES(iq4_xs)
LD_NO_TAIL_VALUES(mxfp4)

#define LD_TO_F32_YMM(name) \
    static void ld_to_f32_##name##_avx2(const uint8_t *w, float *y, int64_t k) { \
        __m256 v[4]; \
        for (int64_t g = 0; g < k / 32; g++) { \
            ld_values_##name(w, g, v); \
            LD_UNROLL for (int i = 0; i < 4; i++) _mm256_storeu_ps(y + 32 * g + 8 * i, v[i]); \
        } \
        if (k % 32 == 0) return; \
        float tail[32]; \
        ld_tail_values_##name(w, k, v); \
        LD_UNROLL for (int i = 0; i < 4; i++) _mm256_storeu_ps(tail + 8 * i, v[i]); \
        memcpy(y + (k & ~(int64_t)31), tail, 4 * (size_t)(k % 32)); \
    }
LD_TO_F32_YMM(f32)
LD_TO_F32_YMM(f16)
LD_TO_F32_YMM(bf16)
LD_TO_F32_YMM(q4_0)
LD_TO_F32_YMM(q4_1)
LD_TO_F32_YMM(q8_0)
LD_TO_F32_YMM(q4_k)
LD_TO_F32_YMM(q6_k)
LD_TO_F32_YMM(q5_0)
LD_TO_F32_YMM(q5_1)
LD_TO_F32_YMM(q2_k)
LD_TO_F32_YMM(q3_k)
LD_TO_F32_YMM(q5_k)
LD_TO_F32_YMM(iq4_nl)
LD_TO_F32_YMM(iq4_xs)
LD_TO_F32_YMM(mxfp4)
