// The integer panel with 256-bit registers: tiles of 16 rows by up to 4 activations; int32 sums of a scale group in registers,
// f32 sums of the slice in the L1 cache. Included once for each instruction set, inside its target region, with LD_NAME(x) giving
// x its suffix and this step defined for it:
//   LD_NAME(ld_group_sums)(q, x, act_stride, n_act, n_steps, kind, sum)  sum[a][h] = the products of n_steps steps of 8 rows

LD_INLINE void LD_NAME(ld_int_tile)(LD_TILE_ARGS, ld_slice_scales_fn slice_scales, const int n_scales, const int kind,
                                    const int has_min) {
    const ld_int_panel panel = ld_int_panel_in((uint8_t *)scratch);
    float dx[4][2 * LD_PANEL_GROUPS], sx[4][2 * LD_PANEL_GROUPS];
    LD_UNROLL for (int a = 0; a < n_act; a++) slice_scales(act + a * act_stride, k, g, n_groups, dx[a], sx[a]);
    for (int64_t first = 0; first < n_rows; first += 16) {
        __m256 acc[4][2];
        LD_UNROLL for (int a = 0; a < n_act; a++) acc[a][0] = acc[a][1] = _mm256_setzero_ps();
        for (int64_t j = 0; j < n_groups * n_scales; j++) {
            __m256i sum[4][2];
            LD_NAME(ld_group_sums)(panel.q + j * (LD_GROUP_BYTES / n_scales) + 4 * first, act + 32 * g + j * (32 / n_scales),
                                   act_stride, n_act, 8 / n_scales, kind, sum);
            LD_UNROLL for (int h = 0; h < 2; h++) {
                const __m256 d = _mm256_load_ps(panel.d + j * LD_PANEL_ROWS + first + 8 * h);
                LD_UNROLL for (int a = 0; a < n_act; a++)
                    acc[a][h] = _mm256_fmadd_ps(_mm256_mul_ps(d, _mm256_set1_ps(dx[a][j])), _mm256_cvtepi32_ps(sum[a][h]),
                                                acc[a][h]);
                if (!has_min) continue;
                const __m256 m = _mm256_load_ps(panel.m + j * LD_PANEL_ROWS + first + 8 * h);
                LD_UNROLL for (int a = 0; a < n_act; a++) acc[a][h] = _mm256_fmadd_ps(m, _mm256_set1_ps(sx[a][j]), acc[a][h]);
            }
        }
        LD_UNROLL for (int a = 0; a < n_act; a++)
            LD_UNROLL for (int h = 0; h < 2; h++)
                ld_add_to_rows(y + a * y_stride + first + 8 * h, acc[a][h], n_rows - first - 8 * h, g == 0);
    }
}

#define LD_DEFINE_TILE(name, slice_scales, n_scales, kind, has_min) \
    LD_DEFINE_TILE_EXPANDED(name, LD_NAME(ld_int_tile), slice_scales, n_scales, kind, has_min)
#define LD_DEFINE_TILE_EXPANDED(name, tile, slice_scales, n_scales, kind, has_min) \
    static void name(LD_TILE_ARGS) { \
        switch (n_act) { \
        case 1: tile(LD_TILE_PASS(1), slice_scales, n_scales, kind, has_min); return; \
        case 2: tile(LD_TILE_PASS(2), slice_scales, n_scales, kind, has_min); return; \
        case 3: tile(LD_TILE_PASS(3), slice_scales, n_scales, kind, has_min); return; \
        default: tile(LD_TILE_PASS(4), slice_scales, n_scales, kind, has_min); return; \
        } \
    }
LD_DEFINE_TILE(LD_NAME(ld_tile_nibbles), ld_slice_scales_q8_32, 1, LD_NIBBLES, 1)
LD_DEFINE_TILE(LD_NAME(ld_tile_five_bits), ld_slice_scales_q8_32, 1, LD_FIVE_BITS, 1)
LD_DEFINE_TILE(LD_NAME(ld_tile_int8), ld_slice_scales_q8_32, 1, LD_INT8, LD_INT8_BIAS)
LD_DEFINE_TILE(LD_NAME(ld_tile_nibbles_q8_256), ld_slice_scales_q8_256, 1, LD_NIBBLES, 1)
LD_DEFINE_TILE(LD_NAME(ld_tile_five_bits_q8_256), ld_slice_scales_q8_256, 1, LD_FIVE_BITS, 1)
LD_DEFINE_TILE(LD_NAME(ld_tile_int8_q8_256), ld_slice_scales_q8_256, 1, LD_INT8, LD_INT8_BIAS)
LD_DEFINE_TILE(LD_NAME(ld_tile_nibbles_by16), ld_slice_scales_q8_256_by16, 2, LD_NIBBLES, 1)
LD_DEFINE_TILE(LD_NAME(ld_tile_six_bits), ld_slice_scales_q8_256_by16, 2, LD_SIX_BITS, 1)
#undef LD_DEFINE_TILE
#undef LD_DEFINE_TILE_EXPANDED

LD_DEFINE_MANY(LD_NAME(ld_many_q4_0), ld_unpack_q4_0, LD_NAME(ld_tile_nibbles), 4)
LD_DEFINE_MANY(LD_NAME(ld_many_q4_1), ld_unpack_q4_1, LD_NAME(ld_tile_nibbles), 4)
LD_DEFINE_MANY(LD_NAME(ld_many_q5_0), ld_unpack_q5_0, LD_NAME(ld_tile_five_bits), 4)
LD_DEFINE_MANY(LD_NAME(ld_many_q5_1), ld_unpack_q5_1, LD_NAME(ld_tile_five_bits), 4)
LD_DEFINE_MANY(LD_NAME(ld_many_mxfp4), ld_unpack_mxfp4, LD_NAME(ld_tile_five_bits), 4)
LD_DEFINE_MANY(LD_NAME(ld_many_q8_0), LD_UNPACK_INT8(q8_0), LD_NAME(ld_tile_int8), 4)
LD_DEFINE_MANY(LD_NAME(ld_many_iq4_nl), LD_UNPACK_INT8(iq4_nl), LD_NAME(ld_tile_int8), 4)
LD_DEFINE_MANY(LD_NAME(ld_many_q4_k), ld_unpack_q4_k, LD_NAME(ld_tile_nibbles_q8_256), 4)
LD_DEFINE_MANY(LD_NAME(ld_many_q5_k), ld_unpack_q5_k, LD_NAME(ld_tile_five_bits_q8_256), 4)
LD_DEFINE_MANY(LD_NAME(ld_many_iq4_xs), LD_UNPACK_INT8(iq4_xs), LD_NAME(ld_tile_int8_q8_256), 4)
LD_DEFINE_MANY(LD_NAME(ld_many_q2_k), ld_unpack_q2_k, LD_NAME(ld_tile_nibbles_by16), 4)
LD_DEFINE_MANY(LD_NAME(ld_many_q3_k), ld_unpack_q3_k, LD_NAME(ld_tile_nibbles_by16), 4)
LD_DEFINE_MANY(LD_NAME(ld_many_q6_k), ld_unpack_q6_k, LD_NAME(ld_tile_six_bits), 4)

LD_DEFINE_FEW_BY_PANEL(LD_NAME(ld_few_or_panel_q4_0), LD_NAME(ld_few_q4_0), LD_NAME(ld_many_q4_0))
LD_DEFINE_FEW_BY_PANEL(LD_NAME(ld_few_or_panel_q4_1), LD_NAME(ld_few_q4_1), LD_NAME(ld_many_q4_1))
LD_DEFINE_FEW_BY_PANEL(LD_NAME(ld_few_or_panel_q5_0), LD_NAME(ld_few_q5_0), LD_NAME(ld_many_q5_0))
LD_DEFINE_FEW_BY_PANEL(LD_NAME(ld_few_or_panel_q5_1), LD_NAME(ld_few_q5_1), LD_NAME(ld_many_q5_1))
LD_DEFINE_FEW_BY_PANEL(LD_NAME(ld_few_or_panel_mxfp4), LD_NAME(ld_few_mxfp4), LD_NAME(ld_many_mxfp4))
LD_DEFINE_FEW_BY_PANEL(LD_NAME(ld_few_or_panel_q8_0), LD_NAME(ld_few_q8_0), LD_NAME(ld_many_q8_0))
LD_DEFINE_FEW_BY_PANEL(LD_NAME(ld_few_or_panel_iq4_nl), LD_NAME(ld_few_iq4_nl), LD_NAME(ld_many_iq4_nl))
LD_DEFINE_FEW_BY_PANEL(LD_NAME(ld_few_or_panel_q4_k), LD_NAME(ld_few_q4_k), LD_NAME(ld_many_q4_k))
LD_DEFINE_FEW_BY_PANEL(LD_NAME(ld_few_or_panel_q5_k), LD_NAME(ld_few_q5_k), LD_NAME(ld_many_q5_k))
LD_DEFINE_FEW_BY_PANEL(LD_NAME(ld_few_or_panel_iq4_xs), LD_NAME(ld_few_iq4_xs), LD_NAME(ld_many_iq4_xs))
