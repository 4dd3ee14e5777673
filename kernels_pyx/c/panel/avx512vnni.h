// The integer panel for AVX-512 VNNI: a tile of 32 rows by 6 activations, int32 sums of a scale group and f32 sums of the slice
// all in registers (12 + 12). vpdpbusd is inline assembly: gcc 12 copies and spills the accumulators of chained intrinsics.
#pragma once
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")

#define LD_DPBUSD_ZMM(sum, w, x) __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(w), "v"(x))

// Where a format has a bias, the sums of its products begin with -bias times the sum of the activations: what is added then is
// the sum of (q - bias) * x. For the groups of one activation, from s = dx * sum, which is an integer times dx but for rounding.
LD_INLINE void ld_biased_sums_q8_32(const float *dx, const float *sx, int64_t n_groups, const int bias, int32_t *begin) {
    static_assert(LD_PANEL_GROUPS == 16, "a register");
    const __mmask16 mask = (__mmask16)((1 << n_groups) - 1);
    const __m512 d = _mm512_maskz_loadu_ps(mask, dx), s = _mm512_maskz_loadu_ps(mask, sx);
    const __mmask16 is_used = _mm512_cmp_ps_mask(d, _mm512_setzero_ps(), _CMP_NEQ_UQ);
    const __m512i sum = _mm512_cvtps_epi32(_mm512_maskz_div_ps(is_used, s, d));
    _mm512_mask_storeu_epi32(begin, mask, _mm512_mullo_epi32(sum, _mm512_set1_epi32(-bias)));
}

// The same for a slice of blocks of 256.
LD_INLINE void ld_biased_sums_q8_256(const int16_t *b16, int64_t n_groups, const int n_scales, const int bias, int32_t *begin) {
    for (int64_t i = 0; i < 2 * n_groups; i += 16) {
        const __m256i b = ld_load256(b16 + i);
        if (n_scales == 1) _mm256_storeu_si256((__m256i *)(begin + i / 2), _mm256_madd_epi16(b, _mm256_set1_epi16((short)-bias)));
        else _mm512_storeu_si512(begin + i, _mm512_mullo_epi32(_mm512_cvtepi16_epi32(b), _mm512_set1_epi32(-bias)));
    }
}

// y[a][row] += panel rows times n_act activations over n_groups groups from group g on.
LD_INLINE void ld_int_tile_avx512vnni(LD_TILE_ARGS, const int bias) {
    const ld_int_panel panel = ld_int_panel_in((uint8_t *)scratch);
    float dx[6][LD_PANEL_GROUPS], sx[6][LD_PANEL_GROUPS];
    int32_t begin[6][LD_PANEL_GROUPS];
    LD_UNROLL for (int a = 0; a < n_act; a++) {
        ld_slice_scales_q8_32(act + a * act_stride, k, g, n_groups, dx[a], sx[a]);
        if (bias) ld_biased_sums_q8_32(dx[a], sx[a], n_groups, bias, begin[a]);
    }
    const __mmask16 masks[2] = {(__mmask16)(n_rows >= 16 ? 0xffff : (1 << n_rows) - 1),
                                (__mmask16)(n_rows >= 32 ? 0xffff : n_rows <= 16 ? 0 : (1 << (n_rows - 16)) - 1)};
    __m512 acc[6][2];
    LD_UNROLL for (int a = 0; a < n_act; a++)
        LD_UNROLL for (int h = 0; h < 2; h++)
            acc[a][h] = g ? _mm512_maskz_loadu_ps(masks[h], y + a * y_stride + 16 * h) : _mm512_setzero_ps();
    const uint8_t *q = panel.q, *x = act + 32 * g;
    const float *d = panel.d, *m = panel.m;
    for (int64_t j = 0; j < n_groups; j++) {
        __m512i sum[6][2];
        LD_UNROLL for (int a = 0; a < n_act; a++)
            sum[a][0] = sum[a][1] = bias ? _mm512_set1_epi32(begin[a][j]) : _mm512_setzero_si512();
        LD_UNROLL for (int step = 0; step < 8; step++) {
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
            acc[a][0] = _mm512_fmadd_ps(_mm512_mul_ps(d0, da), _mm512_cvtepi32_ps(sum[a][0]), acc[a][0]);
            acc[a][1] = _mm512_fmadd_ps(_mm512_mul_ps(d1, da), _mm512_cvtepi32_ps(sum[a][1]), acc[a][1]);
            if (bias) continue;
            acc[a][0] = _mm512_fmadd_ps(m0, sa, acc[a][0]);
            acc[a][1] = _mm512_fmadd_ps(m1, sa, acc[a][1]);
        }
        q += LD_GROUP_BYTES;
        x += 32;
        d += LD_PANEL_ROWS;
        m += LD_PANEL_ROWS;
    }
    LD_UNROLL for (int a = 0; a < n_act; a++)
        LD_UNROLL for (int h = 0; h < 2; h++) _mm512_mask_storeu_ps(y + a * y_stride + 16 * h, masks[h], acc[a][h]);
}

#define LD_DPWSSD_ZMM(sum, w, x) __asm__("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(w), "v"(x))

// The same for a panel of blocks of 256: integer sums of a block in registers (12 beside 12), f32 sums in y.
LD_INLINE void ld_block_tile_avx512vnni(LD_TILE_ARGS, const int n_scales, const int bias) {
    const ld_block_panel panel = ld_block_panel_in((uint8_t *)scratch);
    const int has_min = bias == 0;
    float dx[6][LD_PANEL_BLOCKS];
    int32_t pairs[6][8 * LD_PANEL_BLOCKS], begin[6][2 * LD_PANEL_GROUPS];
    LD_UNROLL for (int a = 0; a < n_act; a++) {
        const uint8_t *row = act + a * act_stride;
        ld_block_sums(row, k, g, n_groups, n_scales, dx[a], pairs[a]);
        if (bias)
            ld_biased_sums_q8_256((const int16_t *)(row + ld_act_sums_at(LD_ACT_Q8_256, k)) + 2 * g, n_groups, n_scales, bias,
                                  begin[a]);
    }
    const __mmask16 masks[2] = {(__mmask16)(n_rows >= 16 ? 0xffff : (1 << n_rows) - 1),
                                (__mmask16)(n_rows >= 32 ? 0xffff : n_rows <= 16 ? 0 : (1 << (n_rows - 16)) - 1)};
    const uint8_t *q = panel.q, *x = act + 32 * g;
    const int32_t *scale = panel.scale, *pair = panel.pairs;
    for (int64_t b = 0; b < n_groups / 8; b++) {
        __m512i total[6][2];
        LD_UNROLL for (int a = 0; a < n_act; a++)
            LD_UNROLL for (int h = 0; h < 2; h++) total[a][h] = _mm512_setzero_si512();
        for (int j = 0; j < 8 * n_scales; j++) {
            __m512i sum[6][2];
            LD_UNROLL for (int a = 0; a < n_act; a++)
                sum[a][0] = sum[a][1] = bias ? _mm512_set1_epi32(begin[a][8 * n_scales * b + j]) : _mm512_setzero_si512();
            LD_UNROLL for (int step = 0; step < 8 / n_scales; step++) {
                const __m512i w0 = _mm512_load_si512(q + 128 * step), w1 = _mm512_load_si512(q + 128 * step + 64);
                LD_UNROLL for (int a = 0; a < n_act; a++) {
                    const __m512i four = _mm512_set1_epi32(*(const int32_t *)(x + a * act_stride + 4 * step));
                    LD_DPBUSD_ZMM(sum[a][0], w0, four);
                    LD_DPBUSD_ZMM(sum[a][1], w1, four);
                }
            }
            const __m512i s0 = _mm512_load_si512(scale), s1 = _mm512_load_si512(scale + 16);
            LD_UNROLL for (int a = 0; a < n_act; a++) {
                total[a][0] = _mm512_add_epi32(total[a][0], _mm512_mullo_epi32(sum[a][0], s0));
                total[a][1] = _mm512_add_epi32(total[a][1], _mm512_mullo_epi32(sum[a][1], s1));
            }
            q += LD_GROUP_BYTES / n_scales;
            x += 32 / n_scales;
            scale += LD_PANEL_ROWS;
        }
        LD_UNROLL for (int h = 0; h < 2; h++) {
            __m512i least[6];
            LD_UNROLL for (int a = 0; a < n_act; a++) least[a] = _mm512_setzero_si512();
            if (has_min)
                LD_UNROLL for (int i = 0; i < 4 * n_scales; i++) {
                    const __m512i p = _mm512_load_si512(pair + i * LD_PANEL_ROWS + 16 * h);
                    LD_UNROLL for (int a = 0; a < n_act; a++)
                        LD_DPWSSD_ZMM(least[a], p, _mm512_set1_epi32(pairs[a][4 * n_scales * b + i]));
                }
            const __m512 d = _mm512_load_ps(panel.d + b * LD_PANEL_ROWS + 16 * h);
            const __m512 dmin = _mm512_load_ps(panel.dmin + b * LD_PANEL_ROWS + 16 * h);
            LD_UNROLL for (int a = 0; a < n_act; a++) {
                const __m512 factor = _mm512_set1_ps(dx[a][b]), old = g || b ? _mm512_maskz_loadu_ps(masks[h], y + a * y_stride + 16 * h)
                                                                             : _mm512_setzero_ps();
                __m512 new = _mm512_fmadd_ps(_mm512_mul_ps(d, factor), _mm512_cvtepi32_ps(total[a][h]), old);
                if (has_min) new = _mm512_fnmadd_ps(_mm512_mul_ps(dmin, factor), _mm512_cvtepi32_ps(least[a]), new);
                _mm512_mask_storeu_ps(y + a * y_stride + 16 * h, masks[h], new);
            }
        }
        pair += 4 * n_scales * LD_PANEL_ROWS;
    }
}

// The tile with a constant number of activations, so that its sums are registers.
#define LD_DEFINE_TILE(name, tile, ...) \
    static void name(LD_TILE_ARGS) { \
        switch (n_act) { \
        case 1: tile(LD_TILE_PASS(1), __VA_ARGS__); return; \
        case 2: tile(LD_TILE_PASS(2), __VA_ARGS__); return; \
        case 3: tile(LD_TILE_PASS(3), __VA_ARGS__); return; \
        case 4: tile(LD_TILE_PASS(4), __VA_ARGS__); return; \
        case 5: tile(LD_TILE_PASS(5), __VA_ARGS__); return; \
        default: tile(LD_TILE_PASS(6), __VA_ARGS__); return; \
        } \
    }
LD_DEFINE_TILE(ld_tile_min_avx512vnni, ld_int_tile_avx512vnni, 0)
LD_DEFINE_TILE(ld_tile_q4_0_avx512vnni, ld_int_tile_avx512vnni, 8)
LD_DEFINE_TILE(ld_tile_q5_0_avx512vnni, ld_int_tile_avx512vnni, 16)
LD_DEFINE_TILE(ld_tile_int8_avx512vnni, ld_int_tile_avx512vnni, 128)
LD_DEFINE_TILE(ld_tile_mxfp4_avx512vnni, ld_int_tile_avx512vnni, 12)
LD_DEFINE_TILE(ld_tile_groups_min_avx512vnni, ld_block_tile_avx512vnni, 1, 0)
LD_DEFINE_TILE(ld_tile_halves_min_avx512vnni, ld_block_tile_avx512vnni, 2, 0)
LD_DEFINE_TILE(ld_tile_iq4_xs_avx512vnni, ld_block_tile_avx512vnni, 1, 128)
LD_DEFINE_TILE(ld_tile_q3_k_avx512vnni, ld_block_tile_avx512vnni, 2, 4)
LD_DEFINE_TILE(ld_tile_q6_k_avx512vnni, ld_block_tile_avx512vnni, 2, 32)
#undef LD_DEFINE_TILE

LD_DEFINE_MANY(ld_many_q4_0_avx512vnni, ld_unpack_q4_0, ld_tile_q4_0_avx512vnni, 6)
LD_DEFINE_MANY(ld_many_q4_1_avx512vnni, ld_unpack_q4_1, ld_tile_min_avx512vnni, 6)
LD_DEFINE_MANY(ld_many_q5_0_avx512vnni, ld_unpack_q5_0, ld_tile_q5_0_avx512vnni, 6)
LD_DEFINE_MANY(ld_many_q5_1_avx512vnni, ld_unpack_q5_1, ld_tile_min_avx512vnni, 6)
LD_DEFINE_MANY(ld_many_mxfp4_avx512vnni, ld_unpack_mxfp4, ld_tile_mxfp4_avx512vnni, 6)
LD_DEFINE_MANY(ld_many_q8_0_avx512vnni, ld_unpack_q8_0, ld_tile_int8_avx512vnni, 6)
LD_DEFINE_MANY(ld_many_iq4_nl_avx512vnni, ld_unpack_iq4_nl, ld_tile_int8_avx512vnni, 6)
LD_DEFINE_MANY(ld_many_q4_k_avx512vnni, ld_unpack_q4_k, ld_tile_groups_min_avx512vnni, 6)
LD_DEFINE_MANY(ld_many_q5_k_avx512vnni, ld_unpack_q5_k, ld_tile_groups_min_avx512vnni, 6)
LD_DEFINE_MANY(ld_many_iq4_xs_avx512vnni, ld_unpack_iq4_xs, ld_tile_iq4_xs_avx512vnni, 6)
LD_DEFINE_MANY(ld_many_q2_k_avx512vnni, ld_unpack_q2_k, ld_tile_halves_min_avx512vnni, 6)
LD_DEFINE_MANY(ld_many_q3_k_avx512vnni, ld_unpack_q3_k, ld_tile_q3_k_avx512vnni, 6)
LD_DEFINE_MANY(ld_many_q6_k_avx512vnni, ld_unpack_q6_k, ld_tile_q6_k_avx512vnni, 6)

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
