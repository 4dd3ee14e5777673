// The integer panel of formats with blocks of 256: scales stay integers there, for they multiply integer sums, which are exact
// over a block. What is unpacked beside the bytes, for n_groups groups of 32, n_scales scale groups in each:
//   scale[scale group][row]  int32, or the same int16 twice where 16-bit sums are multiplied (LD_TWICE);
//   pairs[pair][row]         two int16 for two scale groups: their mins, or -bias * scale where the format has a bias; they meet
//                            the sums of the activation;
//   d[block][row], dmin[block][row]  f32: y += d dx (sum(scale * sum(q x)) + sum(pair * b)), with mins y += d dx (...) - dmin dx (...).
// Overflow: |sum| over a block stays below 256 * 255 * 127 * 32 < 2^29; bias * scale below 2^12.
#pragma once
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")

#define LD_PANEL_BLOCKS (LD_PANEL_DEPTH / 256)

typedef struct {
    uint8_t *q;
    int32_t *scale, *pairs;
    float *d, *dmin;
} ld_block_panel;

static_assert(4 * LD_PANEL_SCALES >= (8 * 4 + 2 * 4) * LD_PANEL_BLOCKS * LD_PANEL_ROWS, "pairs, d and dmin take the place of m");

LD_INLINE ld_block_panel ld_block_panel_in(uint8_t *scratch) {
    const ld_int_panel panel = ld_int_panel_in(scratch);
    int32_t *pairs = (int32_t *)panel.m;
    float *d = (float *)(pairs + 8 * LD_PANEL_BLOCKS * LD_PANEL_ROWS);
    return (ld_block_panel){panel.q, (int32_t *)panel.d, pairs, d, d + LD_PANEL_BLOCKS * LD_PANEL_ROWS};
}

// The head of a block: up to sixteen int16 scales and mins, d and dmin.
typedef struct { __m256i scale, min; float d, dmin; } ld_block_head;
typedef ld_block_head (*ld_block_head_fn)(const uint8_t *block);

LD_INLINE ld_block_head ld_head_of_groups(ld_group_scales head) {
    return (ld_block_head){_mm256_zextsi128_si256(head.scale8), _mm256_zextsi128_si256(head.min8), head.d, head.dmin};
}
LD_INLINE ld_block_head ld_head_of_halves(ld_half_scales head) {
    return (ld_block_head){_mm256_cvtepi8_epi16(head.scale16), _mm256_cvtepi8_epi16(head.min16), head.d, head.dmin};
}
LD_INLINE ld_block_head ld_head_q4_k(const uint8_t *block) { return ld_head_of_groups(ld_group_scales_k(block)); }
LD_INLINE ld_block_head ld_head_q5_k(const uint8_t *block) { return ld_head_of_groups(ld_group_scales_k(block)); }
LD_INLINE ld_block_head ld_head_iq4_xs(const uint8_t *block) { return ld_head_of_groups(ld_group_scales_iq4_xs(block)); }
LD_INLINE ld_block_head ld_head_q2_k(const uint8_t *block) { return ld_head_of_halves(ld_half_scales_q2_k(block)); }
LD_INLINE ld_block_head ld_head_q3_k(const uint8_t *block) { return ld_head_of_halves(ld_half_scales_q3_k(block)); }
LD_INLINE ld_block_head ld_head_q6_k(const uint8_t *block) { return ld_head_of_halves(ld_half_scales_q6_k(block)); }

enum { LD_ONCE, LD_TWICE };

// Eight int16 scales as int32, or each twice.
LD_INLINE __m256i ld_widened_scales(__m128i scale8, const int twice) {
    if (!twice) return _mm256_cvtepi16_epi32(scale8);
    return _mm256_set_m128i(_mm_unpackhi_epi16(scale8, scale8), _mm_unpacklo_epi16(scale8, scale8));
}

// Stores n of the eight words of each of eight rows, transposed.
LD_INLINE void ld_store_words(const __m256i rows[8], int32_t *out, const int n) {
    __m256i words[8];
    ld_transpose8(rows, words);
    LD_UNROLL for (int i = 0; i < n; i++) _mm256_store_si256((__m256i *)(out + i * LD_PANEL_ROWS), words[i]);
}

// Of formats whose integers are nibbles, the 32 bytes of groups g (low nibbles) and g + 1; NULL: others.
typedef __m256i (*ld_nibble_pairs_fn)(const uint8_t *row, int64_t g);
LD_INLINE __m256i ld_nibble_pairs_q4_k(const uint8_t *row, int64_t g) {
    return ld_load256(((const ld_block_q4_k *)row)[g / 8].q + 32 * (g % 8 / 2));
}

// bias: what the stored integers are too large by; 0 where the format has mins.
LD_INLINE void ld_unpack_block_panel(const uint8_t *w, size_t w_stride, int64_t n_rows, int64_t g, int64_t n_groups,
                                     uint8_t *scratch, const int bytes, ld_quants_fn quants, ld_nibble_pairs_fn nibble_pairs,
                                     ld_block_head_fn head_of, const int n_scales, const int bias, const int twice) {
    const ld_block_panel panel = ld_block_panel_in(scratch);
    for (int64_t first = 0; first < LD_PANEL_ROWS; first += 8) {
        const uint8_t *rows[8];
        for (int i = 0; i < 8; i++)
            rows[i] = w + (size_t)(first + i < n_rows ? first + i : n_rows - 1) * w_stride + (size_t)(g / 8) * bytes;
        for (int64_t b = 0; b < n_groups / 8; b++) {
            __m256i low[8], high[8], pairs[8];
            float d[8], dmin[8];
            LD_UNROLL for (int i = 0; i < 8; i++) {
                const ld_block_head head = head_of(rows[i] + b * bytes);
                low[i] = ld_widened_scales(_mm256_castsi256_si128(head.scale), twice);
                if (n_scales == 2) high[i] = ld_widened_scales(_mm256_extracti128_si256(head.scale, 1), twice);
                pairs[i] = bias ? _mm256_mullo_epi16(head.scale, _mm256_set1_epi16((short)-bias)) : head.min;
                d[i] = head.d, dmin[i] = head.dmin;
            }
            int32_t *scale = panel.scale + 8 * b * n_scales * LD_PANEL_ROWS + first;
            ld_store_words(low, scale, 8);
            if (n_scales == 2) ld_store_words(high, scale + 8 * LD_PANEL_ROWS, 8);
            ld_store_words(pairs, panel.pairs + 4 * b * n_scales * LD_PANEL_ROWS + first, 4 * n_scales);
            _mm256_store_ps(panel.d + b * LD_PANEL_ROWS + first, _mm256_loadu_ps(d));
            _mm256_store_ps(panel.dmin + b * LD_PANEL_ROWS + first, _mm256_loadu_ps(dmin));
        }
        for (int64_t j = 0; j < n_groups; j++) {
            __m256i in[8], out[8];
            uint8_t *q = panel.q + j * LD_GROUP_BYTES + 4 * first;
            LD_UNROLL for (int i = 0; i < 8; i++) in[i] = nibble_pairs ? nibble_pairs(rows[i], j) : quants(rows[i], j);
            ld_transpose8(in, out);
            if (nibble_pairs) {
                LD_UNROLL for (int i = 0; i < 8; i++) in[i] = ld_low_nibbles(out[i]);
                ld_store_steps(q, in);
                LD_UNROLL for (int i = 0; i < 8; i++) out[i] = ld_high_nibbles(out[i]);
                q += LD_GROUP_BYTES;
                j++;
            }
            ld_store_steps(q, out);
        }
    }
}

#define LD_DEFINE_UNPACK_BLOCKS(suffix, name, quants, nibble_pairs, n_scales, bias, twice) \
    static __attribute__((noinline)) void ld_unpack_##name##suffix(const uint8_t *w, size_t w_stride, int64_t n_rows, int64_t g, \
                                                                   int64_t n_groups, uint8_t *scratch) { \
        ld_unpack_block_panel(w, w_stride, n_rows, g, n_groups, scratch, sizeof(ld_block_##name), quants, nibble_pairs, \
                              ld_head_##name, n_scales, bias, twice); \
    }
#define LD_UNPACK_BLOCKS(suffix, twice) \
    LD_DEFINE_UNPACK_BLOCKS(suffix, q4_k, ld_quants_q4_k, ld_nibble_pairs_q4_k, 1, 0, twice) \
    LD_DEFINE_UNPACK_BLOCKS(suffix, q5_k, ld_quants_q5_k, NULL, 1, 0, twice) \
    LD_DEFINE_UNPACK_BLOCKS(suffix, q2_k, ld_quants_q2_k, NULL, 2, 0, twice) \
    LD_DEFINE_UNPACK_BLOCKS(suffix, q3_k, ld_quants_q3_k, NULL, 2, 4, twice) \
    LD_DEFINE_UNPACK_BLOCKS(suffix, q6_k, ld_quants_q6_k, NULL, 2, 32, twice)
LD_UNPACK_BLOCKS(, LD_ONCE)
LD_UNPACK_BLOCKS(_twice, LD_TWICE)
LD_DEFINE_UNPACK_BLOCKS(, iq4_xs, ld_quants_iq4_xs_biased, NULL, 1, 128, LD_ONCE)
#undef LD_UNPACK_BLOCKS

// dx of each block of the slice and the sums of its scale groups in pairs, for one activation.
LD_INLINE void ld_block_sums(const uint8_t *act, int64_t k, int64_t g, int64_t n_groups, const int n_scales, float *dx,
                             int32_t *pairs) {
    const int16_t *sums = (const int16_t *)(act + ld_act_sums_at(LD_ACT_Q8_256, k)) + 2 * g;
    const float *scales = (const float *)(act + ld_act_scales_at(k)) + g / 8;
    for (int64_t b = 0; b < n_groups / 8; b++) {
        dx[b] = scales[b];
        const __m128i *b16 = (const __m128i *)(sums + 16 * b);
        if (n_scales == 1) {
            _mm_storeu_si128((__m128i *)(pairs + 4 * b), _mm_hadd_epi16(_mm_load_si128(b16), _mm_load_si128(b16 + 1)));
        } else {
            _mm_storeu_si128((__m128i *)(pairs + 8 * b), _mm_load_si128(b16));
            _mm_storeu_si128((__m128i *)(pairs + 8 * b + 4), _mm_load_si128(b16 + 1));
        }
    }
}

#pragma GCC pop_options
