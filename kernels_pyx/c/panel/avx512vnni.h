// The integer panel for AVX-512 VNNI: a tile of 32 rows by 6 activations, int32 sums of a scale group and f32 sums of the slice
// all in registers (12 + 12). vpdpbusd is inline assembly: gcc 12 copies and spills the accumulators of chained intrinsics.
#pragma once
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")

#define LD_DPBUSD_ZMM(sum, w, x) __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(w), "v"(x))

// y[a][row] += panel rows times n_act activations over n_groups groups from group g on; n_scales scale groups in each group.
LD_INLINE void ld_int_tile_avx512vnni(LD_TILE_ARGS, ld_slice_scales_fn slice_scales, const int n_scales) {
    const ld_int_panel panel = ld_int_panel_in((uint8_t *)scratch);
    float dx[6][2 * LD_PANEL_GROUPS], sx[6][2 * LD_PANEL_GROUPS];
    LD_UNROLL for (int a = 0; a < n_act; a++) slice_scales(act + a * act_stride, k, g, n_groups, dx[a], sx[a]);
    const __mmask16 masks[2] = {(__mmask16)(n_rows >= 16 ? 0xffff : (1 << n_rows) - 1),
                                (__mmask16)(n_rows >= 32 ? 0xffff : n_rows <= 16 ? 0 : (1 << (n_rows - 16)) - 1)};
    __m512 acc[6][2];
    LD_UNROLL for (int a = 0; a < n_act; a++)
        LD_UNROLL for (int h = 0; h < 2; h++)
            acc[a][h] = g ? _mm512_maskz_loadu_ps(masks[h], y + a * y_stride + 16 * h) : _mm512_setzero_ps();
    const uint8_t *q = panel.q, *x = act + 32 * g;
    const float *d = panel.d, *m = panel.m;
    for (int64_t j = 0; j < n_groups * n_scales; j++) {
        __m512i sum[6][2];
        LD_UNROLL for (int a = 0; a < n_act; a++)
            LD_UNROLL for (int h = 0; h < 2; h++) sum[a][h] = _mm512_setzero_si512();
        LD_UNROLL for (int step = 0; step < 8 / n_scales; step++) {
            const __m512i w0 = _mm512_load_si512(q + 128 * step), w1 = _mm512_load_si512(q + 128 * step + 64);
            LD_UNROLL for (int a = 0; a < n_act; a++) {
                const __m512i four = _mm512_set1_epi32(*(const int32_t *)(x + a * act_stride + 4 * step));
                LD_DPBUSD_ZMM(sum[a][0], w0, four);
                LD_DPBUSD_ZMM(sum[a][1], w1, four);
            }
        }
        const __m512 d0 = _mm512_load_ps(d), d1 = _mm512_load_ps(d + 16), m0 = _mm512_load_ps(m), m1 = _mm512_load_ps(m + 16);
        LD_UNROLL for (int a = 0; a < n_act; a++) {
            const __m512 da = _mm512_set1_ps(dx[a][j]), sa = _mm512_set1_ps(sx[a][j]);
            acc[a][0] = _mm512_fmadd_ps(m0, sa, _mm512_fmadd_ps(_mm512_mul_ps(d0, da), _mm512_cvtepi32_ps(sum[a][0]), acc[a][0]));
            acc[a][1] = _mm512_fmadd_ps(m1, sa, _mm512_fmadd_ps(_mm512_mul_ps(d1, da), _mm512_cvtepi32_ps(sum[a][1]), acc[a][1]));
        }
        q += LD_GROUP_BYTES / n_scales;
        x += 32 / n_scales;
        d += LD_PANEL_ROWS;
        m += LD_PANEL_ROWS;
    }
    LD_UNROLL for (int a = 0; a < n_act; a++)
        LD_UNROLL for (int h = 0; h < 2; h++) _mm512_mask_storeu_ps(y + a * y_stride + 16 * h, masks[h], acc[a][h]);
}

// The tile with a constant number of activations, so that its sums are registers.
#define LD_DEFINE_TILE(name, slice_scales, n_scales) \
    static void name(LD_TILE_ARGS) { \
        switch (n_act) { \
        case 1: ld_int_tile_avx512vnni(LD_TILE_PASS(1), slice_scales, n_scales); return; \
        case 2: ld_int_tile_avx512vnni(LD_TILE_PASS(2), slice_scales, n_scales); return; \
        case 3: ld_int_tile_avx512vnni(LD_TILE_PASS(3), slice_scales, n_scales); return; \
        case 4: ld_int_tile_avx512vnni(LD_TILE_PASS(4), slice_scales, n_scales); return; \
        case 5: ld_int_tile_avx512vnni(LD_TILE_PASS(5), slice_scales, n_scales); return; \
        default: ld_int_tile_avx512vnni(LD_TILE_PASS(6), slice_scales, n_scales); return; \
        } \
    }
LD_DEFINE_TILE(ld_tile_q8_32_avx512vnni, ld_slice_scales_q8_32, 1)
LD_DEFINE_TILE(ld_tile_q8_256_avx512vnni, ld_slice_scales_q8_256, 1)
LD_DEFINE_TILE(ld_tile_q8_256_by16_avx512vnni, ld_slice_scales_q8_256_by16, 2)
#undef LD_DEFINE_TILE

LD_DEFINE_MANY(ld_many_q4_0_avx512vnni, ld_unpack_q4_0, ld_tile_q8_32_avx512vnni, 6)
LD_DEFINE_MANY(ld_many_q4_1_avx512vnni, ld_unpack_q4_1, ld_tile_q8_32_avx512vnni, 6)
LD_DEFINE_MANY(ld_many_q5_0_avx512vnni, ld_unpack_q5_0, ld_tile_q8_32_avx512vnni, 6)
LD_DEFINE_MANY(ld_many_q5_1_avx512vnni, ld_unpack_q5_1, ld_tile_q8_32_avx512vnni, 6)
LD_DEFINE_MANY(ld_many_mxfp4_avx512vnni, ld_unpack_mxfp4, ld_tile_q8_32_avx512vnni, 6)
LD_DEFINE_MANY(ld_many_q8_0_avx512vnni, ld_unpack_q8_0, ld_tile_q8_32_avx512vnni, 6)
LD_DEFINE_MANY(ld_many_iq4_nl_avx512vnni, ld_unpack_iq4_nl, ld_tile_q8_32_avx512vnni, 6)
LD_DEFINE_MANY(ld_many_q4_k_avx512vnni, ld_unpack_q4_k, ld_tile_q8_256_avx512vnni, 6)
LD_DEFINE_MANY(ld_many_q5_k_avx512vnni, ld_unpack_q5_k, ld_tile_q8_256_avx512vnni, 6)
LD_DEFINE_MANY(ld_many_iq4_xs_avx512vnni, ld_unpack_iq4_xs, ld_tile_q8_256_avx512vnni, 6)
LD_DEFINE_MANY(ld_many_q2_k_avx512vnni, ld_unpack_q2_k, ld_tile_q8_256_by16_avx512vnni, 6)
LD_DEFINE_MANY(ld_many_q3_k_avx512vnni, ld_unpack_q3_k, ld_tile_q8_256_by16_avx512vnni, 6)
LD_DEFINE_MANY(ld_many_q6_k_avx512vnni, ld_unpack_q6_k, ld_tile_q8_256_by16_avx512vnni, 6)

LD_DEFINE_FEW_BY_PANEL(ld_few_or_panel_q4_0_avx512vnni, ld_few_q4_0_avx512vnni, ld_many_q4_0_avx512vnni)
LD_DEFINE_FEW_BY_PANEL(ld_few_or_panel_q4_1_avx512vnni, ld_few_q4_1_avx512vnni, ld_many_q4_1_avx512vnni)
LD_DEFINE_FEW_BY_PANEL(ld_few_or_panel_q5_0_avx512vnni, ld_few_q5_0_avx512vnni, ld_many_q5_0_avx512vnni)
LD_DEFINE_FEW_BY_PANEL(ld_few_or_panel_q5_1_avx512vnni, ld_few_q5_1_avx512vnni, ld_many_q5_1_avx512vnni)
LD_DEFINE_FEW_BY_PANEL(ld_few_or_panel_mxfp4_avx512vnni, ld_few_mxfp4_avx512vnni, ld_many_mxfp4_avx512vnni)
LD_DEFINE_FEW_BY_PANEL(ld_few_or_panel_q8_0_avx512vnni, ld_few_q8_0_avx512vnni, ld_many_q8_0_avx512vnni)
LD_DEFINE_FEW_BY_PANEL(ld_few_or_panel_iq4_nl_avx512vnni, ld_few_iq4_nl_avx512vnni, ld_many_iq4_nl_avx512vnni)
LD_DEFINE_FEW_BY_PANEL(ld_few_or_panel_q4_k_avx512vnni, ld_few_q4_k_avx512vnni, ld_many_q4_k_avx512vnni)
LD_DEFINE_FEW_BY_PANEL(ld_few_or_panel_q5_k_avx512vnni, ld_few_q5_k_avx512vnni, ld_many_q5_k_avx512vnni)
LD_DEFINE_FEW_BY_PANEL(ld_few_or_panel_iq4_xs_avx512vnni, ld_few_iq4_xs_avx512vnni, ld_many_iq4_xs_avx512vnni)

#pragma GCC pop_options
