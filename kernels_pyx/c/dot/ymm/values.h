// Dequantisation with 256-bit registers: 32 consecutive values of a row as four registers of f32, for every format; to_f32 from
// it. Included once, inside the AVX2 target region; the wider instruction sets use the same functions.
#pragma once

#define LD_INLINE static inline __attribute__((always_inline))
// Before each loop over registers: unrolled late, or not at all, gcc keeps the array in memory.
#define LD_UNROLL _Pragma("GCC unroll 16")

// The f16 at p and at three more places, stride bytes apart.
LD_INLINE __m128 ld_four_halves(const uint8_t *p, const int stride) {
    __m128i halves = _mm_cvtsi32_si128(*(const ld_packed16 *)p);
    halves = _mm_insert_epi16(halves, *(const ld_packed16 *)(p + stride), 1);
    halves = _mm_insert_epi16(halves, *(const ld_packed16 *)(p + 2 * stride), 2);
    return _mm_cvtph_ps(_mm_insert_epi16(halves, *(const ld_packed16 *)(p + 3 * stride), 3));
}

LD_INLINE __m256i ld_load256(const void *p) { return _mm256_loadu_si256((const __m256i *)p); }

// 16 bytes of nibbles to 32 bytes: low nibbles first.
LD_INLINE __m256i ld_nibbles(const void *p) {
    const __m128i packed = _mm_loadu_si128((const __m128i *)p);
    return _mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16(packed, 4), packed), _mm256_set1_epi8(15));
}

// The stored integers of 32-value group g of a row, each format's own: unsigned but for Q8_0.
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
    const __m256i top2 = _mm256_and_si256(_mm256_srl_epi16(high, _mm_cvtsi32_si128(2 * j)), _mm256_set1_epi8(3));
    return _mm256_or_si256(low4, _mm256_slli_epi16(top2, 4));
}

// d and m of group g: x = d * q + m.
typedef struct { float d, m; } ld_scales;

LD_INLINE float ld_half(ld_f16 h) { return _cvtsh_ss(h); }

LD_INLINE ld_scales ld_scales_q4_1(const uint8_t *row, int64_t g) {
    const ld_block_q4_1 *block = (const ld_block_q4_1 *)row + g;
    return (ld_scales){ld_half(block->d), ld_half(block->m)};
}

LD_INLINE ld_scales ld_scales_q4_k(const uint8_t *row, int64_t g) {
    const ld_block_q4_k *block = (const ld_block_q4_k *)row + g / 8;
    uint32_t scales[2], mins[2];
    ld_q4_k_scales(block->scales, scales, mins);
    const int word = g % 8 / 4, shift = 8 * (g % 4);
    return (ld_scales){ld_half(block->d) * (float)((scales[word] >> shift) & 255),
                       -(ld_half(block->dmin) * (float)((mins[word] >> shift) & 255))};
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
