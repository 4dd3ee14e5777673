// The f32 panel of formats on the exact path: eight rows at a time, a block of each dequantised, then transposed.
#pragma once
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")

LD_INLINE void ld_unpack_exact_panel(const uint8_t *w, size_t w_stride, int64_t n_rows, int64_t start, int64_t depth,
                                     float *panel, const int block, const int bytes, ld_exact_fn exact) {
    float values[8][256] __attribute__((aligned(32)));
    for (int64_t first = 0; first < LD_PANEL_ROWS; first += 8)
        for (int64_t at = 0; at < depth; at += block) {
            for (int i = 0; i < 8; i++) {
                const uint8_t *row = w + (size_t)(first + i < n_rows ? first + i : n_rows - 1) * w_stride;
                exact(row + (start + at) / block * bytes, values[i]);
            }
            for (int j = 0; j < block; j += 8) {
                __m256i in[8], out[8];
                LD_UNROLL for (int i = 0; i < 8; i++) in[i] = _mm256_load_si256((const __m256i *)(values[i] + j));
                ld_transpose8(in, out);
                LD_UNROLL for (int i = 0; i < 8; i++)
                    _mm256_store_si256((__m256i *)(panel + (at + j + i) * LD_PANEL_ROWS + first), out[i]);
            }
        }
}

#define LD_UNPACK_EXACT(name, block) \
    static void ld_unpack_f32_##name(const uint8_t *w, size_t w_stride, int64_t n_rows, int64_t start, int64_t depth, int64_t k, \
                                     float *panel) { \
        (void)k; \
        ld_unpack_exact_panel(w, w_stride, n_rows, start, depth, panel, block, sizeof(ld_block_##name), ld_exact_##name##_avx2); \
    } \
    LD_DEFINE_MANY_F32(ld_many_##name##_avx2, ld_unpack_f32_##name, ld_tile_f32_avx2, 6) \
    LD_DEFINE_MANY_F32(ld_many_##name##_avx512, ld_unpack_f32_##name, ld_tile_f32_avx512, 6)
LD_UNPACK_EXACT(iq2_xxs, 256)
LD_UNPACK_EXACT(iq2_xs, 256)
LD_UNPACK_EXACT(iq2_s, 256)
LD_UNPACK_EXACT(iq3_xxs, 256)
LD_UNPACK_EXACT(iq3_s, 256)
LD_UNPACK_EXACT(iq1_s, 256)
LD_UNPACK_EXACT(iq1_m, 256)
LD_UNPACK_EXACT(tq1_0, 256)
LD_UNPACK_EXACT(tq2_0, 256)
LD_UNPACK_EXACT(nvfp4, 64)
LD_UNPACK_EXACT(q1_0, 128)

#pragma GCC pop_options
