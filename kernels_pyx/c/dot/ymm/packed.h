// What the loops of kquant.h and legacy.h take from packed blocks where values.h would be dearer: scales of four blocks at once,
// integers that need fewer shifts. Included once, inside the AVX2 target region.
#pragma once

// What the integers of a block of 32 are: nibbles, with a fifth bit, or what nibbles choose from a table.
enum { LD_PLAIN, LD_FIFTH, LD_CHOSEN };

// The f16 at p and at three more places, stride bytes apart.
LD_INLINE __m128 ld_four_halves(const uint8_t *p, const int stride) {
    __m128i halves = _mm_cvtsi32_si128(*(const ld_packed16 *)p);
    halves = _mm_insert_epi16(halves, *(const ld_packed16 *)(p + stride), 1);
    halves = _mm_insert_epi16(halves, *(const ld_packed16 *)(p + 2 * stride), 2);
    return _mm_cvtph_ps(_mm_insert_epi16(halves, *(const ld_packed16 *)(p + 3 * stride), 3));
}

// d and m of four blocks of 32, as the functions of values.h give them.
typedef struct { __m128 d, m; } ld_four_scales;
typedef ld_four_scales (*ld_four_scales_fn)(const uint8_t *block);

#define LD_FOUR_SCALES_BY_D(name) \
    LD_INLINE ld_four_scales ld_four_scales_##name(const uint8_t *block) { \
        const __m128 d = ld_four_halves(block, sizeof(ld_block_##name)); \
        return (ld_four_scales){d, d}; \
    }
LD_FOUR_SCALES_BY_D(q4_0)
LD_FOUR_SCALES_BY_D(q5_0)
LD_FOUR_SCALES_BY_D(q8_0)
LD_FOUR_SCALES_BY_D(iq4_nl)

LD_INLINE ld_four_scales ld_four_scales_by_d_m(const uint8_t *block, const int bytes) {
    const __m128i halves = _mm_setr_epi32(*(const ld_packed32 *)block, *(const ld_packed32 *)(block + bytes),
                                          *(const ld_packed32 *)(block + 2 * bytes), *(const ld_packed32 *)(block + 3 * bytes));
    const __m256 d_m = _mm256_permutevar8x32_ps(_mm256_cvtph_ps(halves), _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7));
    return (ld_four_scales){_mm256_castps256_ps128(d_m), _mm256_extractf128_ps(d_m, 1)};
}
LD_INLINE ld_four_scales ld_four_scales_q4_1(const uint8_t *block) { return ld_four_scales_by_d_m(block, 20); }
LD_INLINE ld_four_scales ld_four_scales_q5_1(const uint8_t *block) { return ld_four_scales_by_d_m(block, 24); }

// 2^(exponent - 128), see ld_f32_of_exponent.
LD_INLINE __m256 ld_eight_powers(__m256i exponent) {
    const __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(exponent, _mm256_set1_epi32(1)), 23);
    const __m256i denormal = _mm256_sllv_epi32(_mm256_set1_epi32(0x200000), exponent);
    const __m256i is_denormal = _mm256_cmpgt_epi32(_mm256_set1_epi32(2), exponent);
    return _mm256_castsi256_ps(_mm256_blendv_epi8(normal, denormal, is_denormal));
}

LD_INLINE ld_four_scales ld_four_scales_mxfp4(const uint8_t *block) {
    const __m128i exponent = _mm_setr_epi32(block[0], block[17], block[34], block[51]);
    const __m128 d = _mm256_castps256_ps128(ld_eight_powers(_mm256_zextsi128_si256(exponent)));
    return (ld_four_scales){d, d};
}

// Each half holds 32 bits four times; bits of bytes `first` and `first` + 1 of them as bytes 0 or 16.
LD_INLINE __m256i ld_spread_bits(__m256i bits, const int first) {
    const int64_t low = 0x0101010101010101 * (int64_t)first, high = low + 0x0101010101010101;
    const __m256i bit = _mm256_set1_epi64x((int64_t)0x8040201008040201);
    const __m256i chosen = _mm256_and_si256(_mm256_shuffle_epi8(bits, _mm256_setr_epi64x(low, high, low, high)), bit);
    return _mm256_and_si256(_mm256_cmpeq_epi8(chosen, bit), _mm256_set1_epi8(16));
}

// Group g of a block of Q2_K or Q3_K, four times as large where g is odd: two groups share a shift.
LD_INLINE __m256i ld_two_bits_odd4(const uint8_t *packed, int64_t g) {
    const __m256i four = ld_load256(packed + 32 * (g / 4));
    return _mm256_and_si256(g % 4 < 2 ? four : _mm256_srli_epi16(four, 4), _mm256_set1_epi8(g % 2 ? 12 : 3));
}
LD_INLINE __m256i ld_quants_q2_k_odd4(const uint8_t *block, int64_t g) {
    return ld_two_bits_odd4(((const ld_block_q2_k *)block)->q, g);
}
LD_INLINE __m256i ld_quants_q3_k_odd4(const uint8_t *block, int64_t g) {
    const __m256i high = ld_load256(((const ld_block_q3_k *)block)->high);
    return _mm256_or_si256(ld_two_bits_odd4(((const ld_block_q3_k *)block)->q, g), ld_bit_at(high, (int)g, g % 2 ? 4 : 2));
}
