// Unpacking a tile of weight rows into a panel, with 256-bit registers: eight rows at a time, transposed by 32-bit words.
#pragma once
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")

// Word j of in[i] becomes word i of out[j].
LD_INLINE void ld_transpose8(const __m256i in[8], __m256i out[8]) {
    __m256i pairs[8], quads[8];
    LD_UNROLL for (int i = 0; i < 8; i += 2) {
        pairs[i] = _mm256_unpacklo_epi32(in[i], in[i + 1]);
        pairs[i + 1] = _mm256_unpackhi_epi32(in[i], in[i + 1]);
    }
    LD_UNROLL for (int i = 0; i < 8; i += 4) {
        quads[i] = _mm256_unpacklo_epi64(pairs[i], pairs[i + 2]);
        quads[i + 1] = _mm256_unpackhi_epi64(pairs[i], pairs[i + 2]);
        quads[i + 2] = _mm256_unpacklo_epi64(pairs[i + 1], pairs[i + 3]);
        quads[i + 3] = _mm256_unpackhi_epi64(pairs[i + 1], pairs[i + 3]);
    }
    LD_UNROLL for (int i = 0; i < 4; i++) {
        out[i] = _mm256_permute2x128_si256(quads[i], quads[i + 4], 0x20);
        out[i + 4] = _mm256_permute2x128_si256(quads[i], quads[i + 4], 0x31);
    }
}

// What the integers of a panel are: it decides how far 16-bit sums may go.
enum { LD_NIBBLES, LD_FIVE_BITS, LD_SIX_BITS, LD_INT8 };

// Writes d and m of eight rows for n_groups groups from group g on: d[scale group * LD_PANEL_ROWS + row].
typedef void (*ld_scales_fn)(const uint8_t *const rows[8], int64_t g, int64_t n_groups, float *d, float *m);

LD_INLINE __m256i ld_low_nibbles(__m256i packed) { return _mm256_and_si256(packed, _mm256_set1_epi8(15)); }
LD_INLINE __m256i ld_high_nibbles(__m256i packed) { return ld_low_nibbles(_mm256_srli_epi16(packed, 4)); }

// Eight steps of eight rows from 16 bytes of nibbles of each, low nibbles first. Transposed before they are taken apart, they cost
// a third of the shuffles.
LD_INLINE void ld_transpose_nibbles(const uint8_t *const packed[8], __m256i out[8]) {
    __m256i both[4], pairs[4], words[4];
    LD_UNROLL for (int i = 0; i < 4; i++)
        both[i] = _mm256_set_m128i(_mm_loadu_si128((const __m128i *)packed[i + 4]), _mm_loadu_si128((const __m128i *)packed[i]));
    LD_UNROLL for (int i = 0; i < 4; i += 2) {
        pairs[i] = _mm256_unpacklo_epi32(both[i], both[i + 1]);
        pairs[i + 1] = _mm256_unpackhi_epi32(both[i], both[i + 1]);
    }
    LD_UNROLL for (int i = 0; i < 2; i++) {
        words[2 * i] = _mm256_unpacklo_epi64(pairs[i], pairs[i + 2]);
        words[2 * i + 1] = _mm256_unpackhi_epi64(pairs[i], pairs[i + 2]);
    }
    LD_UNROLL for (int i = 0; i < 4; i++) {
        out[i] = ld_low_nibbles(words[i]);
        out[i + 4] = ld_high_nibbles(words[i]);
    }
}

LD_INLINE void ld_store_steps(uint8_t *q, const __m256i steps[8]) {
    LD_UNROLL for (int i = 0; i < 8; i++) _mm256_store_si256((__m256i *)(q + 128 * i), steps[i]);
}

// The tile at w as an integer panel: n_groups groups from group g on, n_scales scale groups in each. nibbles_at: of formats with
// blocks of 32 whose integers are nibbles as they stand, where these begin; else 0, and `quants` brings the integers.
LD_INLINE void ld_unpack_int_panel(const uint8_t *w, size_t w_stride, int64_t n_rows, int64_t g, int64_t n_groups,
                                   uint8_t *scratch, ld_quants_fn quants, ld_scales_fn scales, const int nibbles_at) {
    const ld_int_panel panel = ld_int_panel_in(scratch);
    for (int64_t first = 0; first < LD_PANEL_ROWS; first += 8) {
        const uint8_t *rows[8];
        for (int i = 0; i < 8; i++) rows[i] = w + (size_t)(first + i < n_rows ? first + i : n_rows - 1) * w_stride;
        scales(rows, g, n_groups, panel.d + first, panel.m + first);
        for (int64_t j = 0; j < n_groups; j++) {
            __m256i in[8], out[8];
            if (nibbles_at) {
                const uint8_t *packed[8];
                LD_UNROLL for (int i = 0; i < 8; i++) packed[i] = rows[i] + (g + j) * (nibbles_at + 16) + nibbles_at;
                ld_transpose_nibbles(packed, out);
            } else {
                LD_UNROLL for (int i = 0; i < 8; i++) in[i] = quants(rows[i], g + j);
                ld_transpose8(in, out);
            }
            ld_store_steps(panel.q + j * LD_GROUP_BYTES + 4 * first, out);
        }
    }
}

// Formats with an f16 d at the start of a block of `bytes`, and m = d * factor.
LD_INLINE void ld_panel_scales_by_d(const uint8_t *const rows[8], int64_t g, int64_t n_groups, float *d, float *m,
                                    const int bytes, const float factor) {
    for (int64_t j = 0; j < n_groups; j++) {
        ld_f16 halves[8];
        LD_UNROLL for (int i = 0; i < 8; i++) halves[i] = *(const ld_packed16 *)(rows[i] + (g + j) * bytes);
        const __m256 values = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)halves));
        _mm256_store_ps(d + j * LD_PANEL_ROWS, values);
        _mm256_store_ps(m + j * LD_PANEL_ROWS, _mm256_mul_ps(values, _mm256_set1_ps(factor)));
    }
}

LD_INLINE void ld_panel_scales_q4_0(const uint8_t *const rows[8], int64_t g, int64_t n_groups, float *d, float *m) {
    ld_panel_scales_by_d(rows, g, n_groups, d, m, 18, -8);
}

LD_INLINE void ld_panel_scales_q8_0(const uint8_t *const rows[8], int64_t g, int64_t n_groups, float *d, float *m) {
    ld_panel_scales_by_d(rows, g, n_groups, d, m, 34, -128);
}

LD_INLINE void ld_panel_scales_q5_0(const uint8_t *const rows[8], int64_t g, int64_t n_groups, float *d, float *m) {
    ld_panel_scales_by_d(rows, g, n_groups, d, m, 22, -16);
}

LD_INLINE void ld_panel_scales_iq4_nl(const uint8_t *const rows[8], int64_t g, int64_t n_groups, float *d, float *m) {
    ld_panel_scales_by_d(rows, g, n_groups, d, m, 18, -128);
}

LD_INLINE void ld_panel_scales_mxfp4(const uint8_t *const rows[8], int64_t g, int64_t n_groups, float *d, float *m) {
    for (int64_t j = 0; j < n_groups; j++)
        for (int i = 0; i < 8; i++) {
            d[j * LD_PANEL_ROWS + i] = ld_f32_of_exponent(rows[i][(g + j) * 17]);
            m[j * LD_PANEL_ROWS + i] = -12 * d[j * LD_PANEL_ROWS + i];
        }
}

// Formats with f16 d and m at the start of a block of `bytes`.
LD_INLINE void ld_panel_scales_by_d_m(const uint8_t *const rows[8], int64_t g, int64_t n_groups, float *d, float *m,
                                      const int bytes) {
    for (int64_t j = 0; j < n_groups; j++) {
        uint32_t both[8]; // d below m
        LD_UNROLL for (int i = 0; i < 8; i++) both[i] = *(const ld_packed32 *)(rows[i] + (g + j) * bytes);
        const __m256i words = ld_load256(both);
        const __m256i halves = _mm256_permute4x64_epi64(
            _mm256_packus_epi32(_mm256_and_si256(words, _mm256_set1_epi32(0xffff)), _mm256_srli_epi32(words, 16)), 0xd8);
        _mm256_store_ps(d + j * LD_PANEL_ROWS, _mm256_cvtph_ps(_mm256_castsi256_si128(halves)));
        _mm256_store_ps(m + j * LD_PANEL_ROWS, _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1)));
    }
}

LD_INLINE void ld_panel_scales_q4_1(const uint8_t *const rows[8], int64_t g, int64_t n_groups, float *d, float *m) {
    ld_panel_scales_by_d_m(rows, g, n_groups, d, m, 20);
}

LD_INLINE void ld_panel_scales_q5_1(const uint8_t *const rows[8], int64_t g, int64_t n_groups, float *d, float *m) {
    ld_panel_scales_by_d_m(rows, g, n_groups, d, m, 24);
}

LD_INLINE __m256i ld_quants_q8_0_biased(const uint8_t *row, int64_t g) {
    return _mm256_xor_si256(ld_quants_q8_0(row, g), _mm256_set1_epi8((char)0x80));
}

LD_INLINE __m256i ld_quants_iq4_nl_biased(const uint8_t *row, int64_t g) {
    return _mm256_xor_si256(ld_quants_iq4_nl(row, g), _mm256_set1_epi8((char)0x80));
}

LD_INLINE __m256i ld_quants_iq4_xs_biased(const uint8_t *row, int64_t g) {
    return _mm256_xor_si256(ld_quants_iq4_xs(row, g), _mm256_set1_epi8((char)0x80));
}

// An integer panel of one format; int8 biased by 128.
#define LD_DEFINE_UNPACK(name, quants, scales, nibbles_at) \
    static __attribute__((noinline)) void ld_unpack_##name(const uint8_t *w, size_t w_stride, int64_t n_rows, int64_t g, \
                                                           int64_t n_groups, uint8_t *scratch) { \
        ld_unpack_int_panel(w, w_stride, n_rows, g, n_groups, scratch, quants, scales, nibbles_at); \
    }
LD_DEFINE_UNPACK(q4_0, ld_quants_q4_0, ld_panel_scales_q4_0, 2)
LD_DEFINE_UNPACK(q4_1, ld_quants_q4_1, ld_panel_scales_q4_1, 4)
LD_DEFINE_UNPACK(q8_0, ld_quants_q8_0_biased, ld_panel_scales_q8_0, 0)
LD_DEFINE_UNPACK(q5_0, ld_quants_q5_0, ld_panel_scales_q5_0, 0)
LD_DEFINE_UNPACK(q5_1, ld_quants_q5_1, ld_panel_scales_q5_1, 0)
LD_DEFINE_UNPACK(mxfp4, ld_quants_mxfp4, ld_panel_scales_mxfp4, 0)
LD_DEFINE_UNPACK(iq4_nl, ld_quants_iq4_nl_biased, ld_panel_scales_iq4_nl, 0)

typedef void (*ld_slice_scales_fn)(const uint8_t *act, int64_t k, int64_t g, int64_t n_groups, float *d, float *s);

// The scales dx and sums s of one activation for the slice from group g on, one for each group.
LD_INLINE void ld_slice_scales_q8_32(const uint8_t *act, int64_t k, int64_t g, int64_t n_groups, float *d, float *s) {
    const float *from_d = (const float *)(act + ld_act_scales_at(k)) + g;
    const float *from_s = (const float *)(act + ld_act_sums_at(LD_ACT_Q8_32, k)) + g;
    for (int64_t j = 0; j < n_groups; j += 8) { // by registers: memcpy would be called, for a tenth of what a tile takes
        const __m256i mask = ld_mask8(n_groups - j);
        _mm256_storeu_ps(d + j, _mm256_maskload_ps(from_d + j, mask));
        _mm256_storeu_ps(s + j, _mm256_maskload_ps(from_s + j, mask));
    }
}

// An f32 panel: `depth` values from value `start` on, a multiple of 32.
typedef void (*ld_values_fn)(const uint8_t *row, int64_t g, __m256 v[4]);

LD_INLINE void ld_unpack_f32_panel(const uint8_t *w, size_t w_stride, int64_t n_rows, int64_t start, int64_t depth, int64_t k,
                                   float *panel, ld_values_fn values, ld_values_fn tail_values) {
    for (int64_t first = 0; first < LD_PANEL_ROWS; first += 8)
        for (int64_t at = 0; at < depth; at += 32) {
            __m256 v[8][4];
            LD_UNROLL for (int i = 0; i < 8; i++) {
                const uint8_t *row = w + (size_t)(first + i < n_rows ? first + i : n_rows - 1) * w_stride;
                if (at + 32 <= depth) values(row, (start + at) / 32, v[i]);
                else tail_values(row, k, v[i]);
            }
            LD_UNROLL for (int j = 0; j < 4; j++) {
                __m256i in[8], out[8];
                LD_UNROLL for (int i = 0; i < 8; i++) in[i] = _mm256_castps_si256(v[i][j]);
                ld_transpose8(in, out);
                LD_UNROLL for (int i = 0; i < 8; i++)
                    _mm256_store_si256((__m256i *)(panel + (at + 8 * j + i) * LD_PANEL_ROWS + first), out[i]);
            }
        }
}

#define LD_DEFINE_UNPACK_F32(name) \
    static __attribute__((noinline)) void ld_unpack_f32_##name(const uint8_t *w, size_t w_stride, int64_t n_rows, int64_t start, \
                                                               int64_t depth, int64_t k, float *panel) { \
        ld_unpack_f32_panel(w, w_stride, n_rows, start, depth, k, panel, ld_values_##name, ld_tail_values_##name); \
    }
LD_DEFINE_UNPACK_F32(f32)
LD_DEFINE_UNPACK_F32(f16)
LD_DEFINE_UNPACK_F32(bf16)
LD_DEFINE_UNPACK_F32(q4_0)
LD_DEFINE_UNPACK_F32(q4_1)
LD_DEFINE_UNPACK_F32(q8_0)
LD_DEFINE_UNPACK_F32(q4_k)
LD_DEFINE_UNPACK_F32(q6_k)
LD_DEFINE_UNPACK_F32(q5_0)
LD_DEFINE_UNPACK_F32(q5_1)
LD_DEFINE_UNPACK_F32(q2_k)
LD_DEFINE_UNPACK_F32(q3_k)
LD_DEFINE_UNPACK_F32(q5_k)
LD_DEFINE_UNPACK_F32(iq4_nl)
LD_DEFINE_UNPACK_F32(iq4_xs)
LD_DEFINE_UNPACK_F32(mxfp4)

// A tile multiplies the slice that scratch holds with up to its width of activations; y and act are those of its first row and
// value. Integer tiles take groups g .. g + n_groups, f32 tiles values start .. start + depth; both set y for the first slice and
// add to it for the others.
#define LD_TILE_ARGS \
    const uint8_t *scratch, const uint8_t *act, size_t act_stride, int64_t n_act, float *y, size_t y_stride, int64_t n_rows, \
        int64_t k, int64_t g, int64_t n_groups
#define LD_TILE_PASS(n_act) scratch, act, act_stride, n_act, y, y_stride, n_rows, k, g, n_groups
#define LD_F32_TILE_ARGS \
    const uint8_t *scratch, const uint8_t *act, size_t act_stride, int64_t n_act, float *y, size_t y_stride, int64_t n_rows, \
        int64_t start, int64_t depth
#define LD_F32_TILE_PASS(n_act) scratch, act, act_stride, n_act, y, y_stride, n_rows, start, depth

typedef void (*ld_unpack_fn)(const uint8_t *w, size_t w_stride, int64_t n_rows, int64_t g, int64_t n_groups, uint8_t *scratch);
typedef void (*ld_tile_fn)(LD_TILE_ARGS);
typedef void (*ld_unpack_f32_fn)(const uint8_t *w, size_t w_stride, int64_t n_rows, int64_t start, int64_t depth, int64_t k,
                                 float *panel);
typedef void (*ld_f32_tile_fn)(LD_F32_TILE_ARGS);

static inline int64_t ld_least(int64_t a, int64_t b) { return a < b ? a : b; }

// How many of n activations a tile takes: at most width, and alike for all tiles, since narrow tiles load as much for less work.
static inline int64_t ld_tile_width(int64_t n, const int width) {
    const int64_t n_tiles = (n + width - 1) / width;
    return (n + n_tiles - 1) / n_tiles;
}

// Asks the L2 cache for bytes `start` .. `end` of the rows [first, last): unpacking walks eight short rows at once, which no
// prefetcher foresees.
LD_INLINE void ld_prefetch_rows(const uint8_t *w, size_t w_stride, int64_t first, int64_t last, size_t start, size_t end) {
    for (int64_t row = first; row < last; row++)
        for (size_t at = start; at < end; at += 64) _mm_prefetch((const char *)w + row * w_stride + at, _MM_HINT_T1);
}

// The loops of every `many`: tiles of rows, slices of `slice` groups, up to `width` activations at a time. The next tile of rows is
// asked for in portions, between the activations: all lines at once would wait for each other.
LD_INLINE void ld_many_by_tiles(LD_FEW_ARGS, uint8_t *scratch, const uint8_t *next, ld_unpack_fn unpack, ld_tile_fn tile,
                                const int width, const int slice) {
    for (int64_t row = 0; row < n; row += LD_PANEL_ROWS) {
        const int64_t n_rows = ld_least(n - row, LD_PANEL_ROWS);
        const uint8_t *coming = row + n_rows < n ? w + (row + n_rows) * w_stride : next;
        for (int64_t g = 0; g < k / 32; g += slice) {
            const int64_t n_groups = ld_least(k / 32 - g, slice);
            unpack(w + row * w_stride, w_stride, n_rows, g, n_groups, scratch);
            for (int64_t a = 0, n_tile; a < n_act; a += n_tile) {
                n_tile = ld_tile_width(n_act - a, width);
                ld_prefetch_rows(coming, w_stride, LD_PANEL_ROWS * a / n_act, LD_PANEL_ROWS * (a + n_tile) / n_act,
                                 w_stride * g / (k / 32), w_stride * (g + n_groups) / (k / 32));
                tile(scratch, act + a * act_stride, act_stride, n_tile, y + a * y_stride + row, y_stride, n_rows, k, g,
                     n_groups);
            }
        }
    }
}

LD_INLINE void ld_many_by_f32_tiles(LD_FEW_ARGS, uint8_t *scratch, ld_unpack_f32_fn unpack, ld_f32_tile_fn tile,
                                    const int width) {
    for (int64_t row = 0; row < n; row += LD_PANEL_ROWS) {
        const int64_t n_rows = ld_least(n - row, LD_PANEL_ROWS);
        for (int64_t start = 0; start < k; start += LD_PANEL_DEPTH) {
            const int64_t depth = ld_least(k - start, LD_PANEL_DEPTH);
            unpack(w + row * w_stride, w_stride, n_rows, start, depth, k, (float *)scratch);
            for (int64_t a = 0, n_tile; a < n_act; a += n_tile) {
                n_tile = ld_tile_width(n_act - a, width);
                tile(scratch, act + a * act_stride, act_stride, n_tile, y + a * y_stride + row, y_stride, n_rows, start,
                     depth);
            }
        }
    }
}

#define LD_DEFINE_MANY(name, unpack, tile, width) LD_DEFINE_MANY_EXPANDED(name, unpack, tile, width)
#define LD_DEFINE_MANY_EXPANDED(name, unpack, tile, width) \
    static void name(LD_FEW_ARGS, uint8_t *scratch, const uint8_t *next) { \
        ld_many_by_tiles(LD_FEW_PASS, scratch, next, unpack, tile, width, LD_PANEL_GROUPS); \
    }
// `few` by the panel from five activations on, where that is faster (at 8 activations 1.8 times in cache, 1.2 times from memory,
// measured on Zen 4), with scratch on the stack. With fewer than half a tile of rows it would unpack rows that nobody asked for.
#define LD_DEFINE_FEW_BY_PANEL(name, few, many) LD_DEFINE_FEW_BY_PANEL_EXPANDED(name, few, many)
#define LD_DEFINE_FEW_BY_PANEL_EXPANDED(name, few, many) \
    static void name(LD_FEW_ARGS) { \
        uint8_t scratch[LD_INT_PANEL_BYTES] __attribute__((aligned(64))); \
        if (n_act > 4 && n >= LD_PANEL_ROWS / 2) many(LD_FEW_PASS, scratch, w + n * w_stride); \
        else few(LD_FEW_PASS); \
    }
#define LD_DEFINE_MANY_F32(name, unpack, tile, width) \
    static void name(LD_FEW_ARGS, uint8_t *scratch, const uint8_t *next) { \
        (void)next; \
        ld_many_by_f32_tiles(LD_FEW_PASS, scratch, unpack, tile, width); \
    }

#pragma GCC pop_options
