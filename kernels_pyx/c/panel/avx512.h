// The f32 panel for AVX-512: a tile of 32 rows by 6 activations.
#pragma once
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")

LD_INLINE void ld_f32_tile_avx512(LD_F32_TILE_ARGS) {
    const __mmask16 masks[2] = {(__mmask16)(n_rows >= 16 ? 0xffff : (1 << n_rows) - 1),
                                (__mmask16)(n_rows >= 32 ? 0xffff : n_rows <= 16 ? 0 : (1 << (n_rows - 16)) - 1)};
    const int64_t run = ld_f32_run(depth);
    const uint8_t *x = act + 4 * start;
    const float *panel = (const float *)scratch;
    for (int64_t at = 0; at < depth; at += run) {
        __m512 acc[6][2];
        LD_UNROLL for (int a = 0; a < n_act; a++) acc[a][0] = acc[a][1] = _mm512_setzero_ps();
        for (int64_t i = ld_least(depth - at, run); i > 0; i--) {
            const __m512 w0 = _mm512_load_ps(panel), w1 = _mm512_load_ps(panel + 16);
            LD_UNROLL for (int a = 0; a < n_act; a++) {
                const __m512 value = _mm512_set1_ps(*(const float *)(x + a * act_stride));
                acc[a][0] = _mm512_fmadd_ps(w0, value, acc[a][0]);
                acc[a][1] = _mm512_fmadd_ps(w1, value, acc[a][1]);
            }
            panel += LD_PANEL_ROWS;
            x += 4;
        }
        LD_UNROLL for (int a = 0; a < n_act; a++)
            LD_UNROLL for (int h = 0; h < 2; h++) {
                float *row = y + a * y_stride + 16 * h;
                if (start + at > 0) acc[a][h] = _mm512_add_ps(acc[a][h], _mm512_maskz_loadu_ps(masks[h], row));
                _mm512_mask_storeu_ps(row, masks[h], acc[a][h]);
            }
    }
}

static void ld_tile_f32_avx512(LD_F32_TILE_ARGS) {
    switch (n_act) {
    case 1: ld_f32_tile_avx512(LD_F32_TILE_PASS(1)); return;
    case 2: ld_f32_tile_avx512(LD_F32_TILE_PASS(2)); return;
    case 3: ld_f32_tile_avx512(LD_F32_TILE_PASS(3)); return;
    case 4: ld_f32_tile_avx512(LD_F32_TILE_PASS(4)); return;
    case 5: ld_f32_tile_avx512(LD_F32_TILE_PASS(5)); return;
    default: ld_f32_tile_avx512(LD_F32_TILE_PASS(6)); return;
    }
}

LD_DEFINE_MANY_F32(ld_many_f32_avx512, ld_unpack_f32_f32, ld_tile_f32_avx512, 6)
LD_DEFINE_MANY_F32(ld_many_f16_avx512, ld_unpack_f32_f16, ld_tile_f32_avx512, 6)
LD_DEFINE_MANY_F32(ld_many_bf16_avx512, ld_unpack_f32_bf16, ld_tile_f32_avx512, 6)
LD_DEFINE_MANY_F32(ld_many_q4_0_f32_avx512, ld_unpack_f32_q4_0, ld_tile_f32_avx512, 6)
LD_DEFINE_MANY_F32(ld_many_q4_1_f32_avx512, ld_unpack_f32_q4_1, ld_tile_f32_avx512, 6)
LD_DEFINE_MANY_F32(ld_many_q8_0_f32_avx512, ld_unpack_f32_q8_0, ld_tile_f32_avx512, 6)
LD_DEFINE_MANY_F32(ld_many_q4_k_f32_avx512, ld_unpack_f32_q4_k, ld_tile_f32_avx512, 6)
LD_DEFINE_MANY_F32(ld_many_q6_k_f32_avx512, ld_unpack_f32_q6_k, ld_tile_f32_avx512, 6)
LD_DEFINE_MANY_F32(ld_many_q5_0_f32_avx512, ld_unpack_f32_q5_0, ld_tile_f32_avx512, 6)
LD_DEFINE_MANY_F32(ld_many_q5_1_f32_avx512, ld_unpack_f32_q5_1, ld_tile_f32_avx512, 6)
LD_DEFINE_MANY_F32(ld_many_q2_k_f32_avx512, ld_unpack_f32_q2_k, ld_tile_f32_avx512, 6)
LD_DEFINE_MANY_F32(ld_many_q3_k_f32_avx512, ld_unpack_f32_q3_k, ld_tile_f32_avx512, 6)
LD_DEFINE_MANY_F32(ld_many_q5_k_f32_avx512, ld_unpack_f32_q5_k, ld_tile_f32_avx512, 6)
LD_DEFINE_MANY_F32(ld_many_iq4_nl_f32_avx512, ld_unpack_f32_iq4_nl, ld_tile_f32_avx512, 6)
LD_DEFINE_MANY_F32(ld_many_iq4_xs_f32_avx512, ld_unpack_f32_iq4_xs, ld_tile_f32_avx512, 6)
LD_DEFINE_MANY_F32(ld_many_mxfp4_f32_avx512, ld_unpack_f32_mxfp4, ld_tile_f32_avx512, 6)

#pragma GCC pop_options
