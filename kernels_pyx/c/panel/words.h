// The panel of signed bytes for AVX2, which has no product of signed bytes and whose unsigned by signed one saturates: the bytes
// are widened to int16 in the panel, the activations in the tile, and vpmaddwd sums two products exactly. That is 2 instructions
// for 32 operations, where |w| * (x with the sign of w) takes 4 for 64, three of them for the same two pipes.
// Layout: for each group of 32 sixteen steps of [row][2 int16], beside it d[group][row]. Slices are half as deep as others, so
// that they fill as much of the L1 cache.
#pragma once

#define LD_WORD_GROUPS (LD_PANEL_GROUPS / 2)
#define LD_WORD_GROUP_BYTES (2 * LD_GROUP_BYTES)

LD_INLINE void ld_unpack_word_panel(const uint8_t *w, size_t w_stride, int64_t n_rows, int64_t g, int64_t n_groups,
                                    uint8_t *scratch, ld_quants_fn quants, ld_scales_fn scales) {
    const ld_int_panel panel = ld_int_panel_in(scratch);
    for (int64_t first = 0; first < LD_PANEL_ROWS; first += 8) {
        const uint8_t *rows[8];
        for (int i = 0; i < 8; i++) rows[i] = w + (size_t)(first + i < n_rows ? first + i : n_rows - 1) * w_stride;
        scales(rows, g, n_groups, panel.d + first, panel.m + first);
        for (int64_t j = 0; j < n_groups; j++)
            LD_UNROLL for (int half = 0; half < 2; half++) {
                __m256i in[8], out[8];
                uint8_t *q = panel.q + j * LD_WORD_GROUP_BYTES + half * LD_GROUP_BYTES + 4 * first;
                LD_UNROLL for (int i = 0; i < 8; i++) {
                    const __m256i bytes = quants(rows[i], g + j);
                    in[i] = _mm256_cvtepi8_epi16(half ? _mm256_extracti128_si256(bytes, 1) : _mm256_castsi256_si128(bytes));
                }
                ld_transpose8(in, out);
                LD_UNROLL for (int i = 0; i < 8; i++) _mm256_store_si256((__m256i *)(q + 128 * i), out[i]);
            }
    }
}

typedef int32_t __attribute__((may_alias)) ld_word_pair;

LD_INLINE void ld_word_tile(LD_TILE_ARGS, ld_slice_scales_fn slice_scales) {
    const ld_int_panel panel = ld_int_panel_in((uint8_t *)scratch);
    float dx[4][LD_WORD_GROUPS], sx[LD_WORD_GROUPS];
    int16_t words[4][32 * LD_WORD_GROUPS] __attribute__((aligned(32)));
    LD_UNROLL for (int a = 0; a < n_act; a++) {
        const uint8_t *x = act + a * act_stride;
        slice_scales(x, k, g, n_groups, dx[a], sx);
        for (int64_t i = 0; i < 32 * n_groups; i += 16)
            _mm256_store_si256((__m256i *)(words[a] + i), _mm256_cvtepi8_epi16(_mm_load_si128((const __m128i *)(x + 32 * g + i))));
    }
    for (int64_t first = 0; first < n_rows; first += 16) {
        __m256 acc[4][2];
        LD_UNROLL for (int a = 0; a < n_act; a++) acc[a][0] = acc[a][1] = _mm256_setzero_ps();
        for (int64_t j = 0; j < n_groups; j++) {
            const uint8_t *q = panel.q + j * LD_WORD_GROUP_BYTES + 4 * first;
            __m256i sum[4][2];
            LD_UNROLL for (int step = 0; step < 16; step++) {
                const __m256i w[2] = {*(const __m256i *)(q + 128 * step), *(const __m256i *)(q + 128 * step + 32)};
                LD_UNROLL for (int a = 0; a < n_act; a++) {
                    const __m256i two = _mm256_set1_epi32(((const ld_word_pair *)words[a])[16 * j + step]);
                    LD_UNROLL for (int h = 0; h < 2; h++)
                        sum[a][h] = step ? ld_add_fours(sum[a][h], w[h], two) : _mm256_madd_epi16(w[h], two);
                }
            }
            LD_UNROLL for (int h = 0; h < 2; h++) {
                const __m256 d = _mm256_load_ps(panel.d + j * LD_PANEL_ROWS + first + 8 * h);
                LD_UNROLL for (int a = 0; a < n_act; a++)
                    acc[a][h] = _mm256_fmadd_ps(_mm256_mul_ps(d, _mm256_set1_ps(dx[a][j])), _mm256_cvtepi32_ps(sum[a][h]), acc[a][h]);
            }
        }
        LD_UNROLL for (int a = 0; a < n_act; a++)
            LD_UNROLL for (int h = 0; h < 2; h++)
                ld_add_to_rows(y + a * y_stride + first + 8 * h, acc[a][h], n_rows - first - 8 * h, g == 0);
    }
}

LD_INLINE void ld_panel_scales_iq4_xs(const uint8_t *const rows[8], int64_t g, int64_t n_groups, float *d, float *m) {
    (void)m;
    for (int64_t j = 0; j < n_groups; j += 8) {
        __m256i ds[8];
        LD_UNROLL for (int i = 0; i < 8; i++) {
            const ld_group_scales head = ld_group_scales_iq4_xs(rows[i] + (g + j) / 8 * (int64_t)sizeof(ld_block_iq4_xs));
            ds[i] = _mm256_castps_si256(
                _mm256_mul_ps(_mm256_set1_ps(head.d), _mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(head.scale8))));
        }
        ld_store_words(ds, (int32_t *)(d + j * LD_PANEL_ROWS), 8);
    }
}

LD_INLINE void ld_slice_scales_q8_256(const uint8_t *act, int64_t k, int64_t g, int64_t n_groups, float *d, float *s) {
    (void)s;
    const float *scales = (const float *)(act + ld_act_scales_at(k)) + g / 8;
    for (int64_t j = 0; j < n_groups; j++) d[j] = scales[j / 8];
}

#define LD_DEFINE_MANY_WORDS(name, slice_scales) \
    static __attribute__((noinline)) void ld_unpack_##name##_words(const uint8_t *w, size_t w_stride, int64_t n_rows, int64_t g, \
                                                                   int64_t n_groups, uint8_t *scratch) { \
        ld_unpack_word_panel(w, w_stride, n_rows, g, n_groups, scratch, ld_quants_##name, ld_panel_scales_##name); \
    } \
    static void ld_tile_##name##_words(LD_TILE_ARGS) { \
        switch (n_act) { \
        case 1: ld_word_tile(LD_TILE_PASS(1), slice_scales); return; \
        case 2: ld_word_tile(LD_TILE_PASS(2), slice_scales); return; \
        case 3: ld_word_tile(LD_TILE_PASS(3), slice_scales); return; \
        default: ld_word_tile(LD_TILE_PASS(4), slice_scales); return; \
        } \
    } \
    static void ld_many_##name##_avx2(LD_FEW_ARGS, uint8_t *scratch, const uint8_t *next) { \
        ld_many_by_tiles(LD_FEW_PASS, scratch, next, ld_unpack_##name##_words, ld_tile_##name##_words, 4, LD_WORD_GROUPS); \
    }
LD_DEFINE_MANY_WORDS(q8_0, ld_slice_scales_q8_32)
LD_DEFINE_MANY_WORDS(iq4_nl, ld_slice_scales_q8_32)
LD_DEFINE_MANY_WORDS(iq4_xs, ld_slice_scales_q8_256)
