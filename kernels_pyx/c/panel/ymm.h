// The integer panel with 256-bit registers: tiles of 16 rows by up to 4 activations; int32 sums of a scale group in registers,
// f32 sums of the slice in the L1 cache. Included once for each instruction set, inside its target region, with LD_NAME(x) giving
// x its suffix and this step defined for it:
//   LD_NAME(ld_group_sums)(q, x, act_stride, n_act, n_steps, kind, sum)          sum[a][h] = the products of n_steps steps of 8 rows
//   LD_NAME(ld_add_scaled)(q, x, act_stride, n_act, n_steps, kind, scale, total)  total[a][h] += scale[8 h + row] times these
//   LD_NAME(ld_add_products)(sum, pairs, x)                                       sum + two products of int16 for each int32
// LD_UNPACK_BLOCKS(name) names the unpacking whose scales the second takes.

// bias: what the integers are too large by; 0: the format has an m of its own.
LD_INLINE void LD_NAME(ld_int_tile)(LD_TILE_ARGS, ld_slice_scales_fn slice_scales, const int kind, const int bias) {
    const ld_int_panel panel = ld_int_panel_in((uint8_t *)scratch);
    float dx[4][LD_PANEL_GROUPS], sx[4][LD_PANEL_GROUPS];
    LD_UNROLL for (int a = 0; a < n_act; a++) {
        slice_scales(act + a * act_stride, k, g, n_groups, dx[a], sx[a]);
        for (int64_t j = 0; bias && j < n_groups; j++) sx[a][j] *= (float)-bias;
    }
    for (int64_t first = 0; first < n_rows; first += 16) {
        __m256 acc[4][2];
        LD_UNROLL for (int a = 0; a < n_act; a++) acc[a][0] = acc[a][1] = _mm256_setzero_ps();
        for (int64_t j = 0; j < n_groups; j++) {
            __m256i sum[4][2];
            LD_NAME(ld_group_sums)(panel.q + j * LD_GROUP_BYTES + 4 * first, act + 32 * (g + j), act_stride, n_act, 8, kind, sum);
            LD_UNROLL for (int h = 0; h < 2; h++) {
                const __m256 d = _mm256_load_ps(panel.d + j * LD_PANEL_ROWS + first + 8 * h);
                if (bias) {
                    LD_UNROLL for (int a = 0; a < n_act; a++) {
                        const __m256 value = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum[a][h]), _mm256_set1_ps(dx[a][j]),
                                                             _mm256_set1_ps(sx[a][j]));
                        acc[a][h] = _mm256_fmadd_ps(d, value, acc[a][h]);
                    }
                    continue;
                }
                LD_UNROLL for (int a = 0; a < n_act; a++)
                    acc[a][h] = _mm256_fmadd_ps(_mm256_mul_ps(d, _mm256_set1_ps(dx[a][j])), _mm256_cvtepi32_ps(sum[a][h]),
                                                acc[a][h]);
                const __m256 m = _mm256_load_ps(panel.m + j * LD_PANEL_ROWS + first + 8 * h);
                LD_UNROLL for (int a = 0; a < n_act; a++) acc[a][h] = _mm256_fmadd_ps(m, _mm256_set1_ps(sx[a][j]), acc[a][h]);
            }
        }
        LD_UNROLL for (int a = 0; a < n_act; a++)
            LD_UNROLL for (int h = 0; h < 2; h++)
                ld_add_to_rows(y + a * y_stride + first + 8 * h, acc[a][h], n_rows - first - 8 * h, g == 0);
    }
}

// The same for a panel of blocks of 256: integer sums of a block, f32 sums of the slice in y.
LD_INLINE void LD_NAME(ld_block_tile)(LD_TILE_ARGS, const int n_scales, const int kind, const int has_min) {
    const ld_block_panel panel = ld_block_panel_in((uint8_t *)scratch);
    float dx[4][LD_PANEL_BLOCKS];
    int32_t b_pairs[4][8 * LD_PANEL_BLOCKS];
    LD_UNROLL for (int a = 0; a < n_act; a++) ld_block_sums(act + a * act_stride, k, g, n_groups, n_scales, dx[a], b_pairs[a]);
    for (int64_t first = 0; first < n_rows; first += 16)
        for (int64_t b = 0; b < n_groups / 8; b++) {
            const uint8_t *q = panel.q + b * 8 * LD_GROUP_BYTES + 4 * first, *x = act + 32 * g + 256 * b;
            const int32_t *scale = panel.scale + b * 8 * n_scales * LD_PANEL_ROWS + first;
            __m256i total[4][2];
            LD_UNROLL for (int a = 0; a < n_act; a++) total[a][0] = total[a][1] = _mm256_setzero_si256();
            for (int j = 0; j < 8 * n_scales; j++) {
                LD_NAME(ld_add_scaled)(q, x, act_stride, n_act, 8 / n_scales, kind, scale, total);
                q += LD_GROUP_BYTES / n_scales;
                x += 32 / n_scales;
                scale += LD_PANEL_ROWS;
            }
            LD_UNROLL for (int h = 0; h < 2; h++) {
                const int32_t *pair = panel.pairs + b * 4 * n_scales * LD_PANEL_ROWS + first + 8 * h;
                __m256i offset[4];
                LD_UNROLL for (int a = 0; a < n_act; a++) offset[a] = has_min ? _mm256_setzero_si256() : total[a][h];
                LD_UNROLL for (int i = 0; i < 4 * n_scales; i++)
                    LD_UNROLL for (int a = 0; a < n_act; a++)
                        offset[a] = LD_NAME(ld_add_products)(offset[a], *(const __m256i *)(pair + i * LD_PANEL_ROWS),
                                                             _mm256_set1_epi32(b_pairs[a][4 * n_scales * b + i]));
                const __m256 d = _mm256_load_ps(panel.d + b * LD_PANEL_ROWS + first + 8 * h);
                const __m256 dmin = _mm256_load_ps(panel.dmin + b * LD_PANEL_ROWS + first + 8 * h);
                LD_UNROLL for (int a = 0; a < n_act; a++) {
                    __m256 sum = _mm256_mul_ps(d, _mm256_cvtepi32_ps(has_min ? total[a][h] : offset[a]));
                    if (has_min) sum = _mm256_fnmadd_ps(dmin, _mm256_cvtepi32_ps(offset[a]), sum);
                    ld_add_times(y + a * y_stride + first + 8 * h, sum, _mm256_set1_ps(dx[a][b]), n_rows - first - 8 * h,
                                 g + b == 0);
                }
            }
        }
}

#define LD_DEFINE_TILE(name, tile, ...) LD_DEFINE_TILE_EXPANDED(name, tile, __VA_ARGS__)
#define LD_DEFINE_TILE_EXPANDED(name, tile, ...) \
    static void name(LD_TILE_ARGS) { \
        switch (n_act) { \
        case 1: tile(LD_TILE_PASS(1), __VA_ARGS__); return; \
        case 2: tile(LD_TILE_PASS(2), __VA_ARGS__); return; \
        case 3: tile(LD_TILE_PASS(3), __VA_ARGS__); return; \
        default: tile(LD_TILE_PASS(4), __VA_ARGS__); return; \
        } \
    }
LD_DEFINE_TILE(LD_NAME(ld_tile_nibbles_4_0), LD_NAME(ld_int_tile), ld_slice_scales_q8_32, LD_NIBBLES, 8)
LD_DEFINE_TILE(LD_NAME(ld_tile_nibbles_4_1), LD_NAME(ld_int_tile), ld_slice_scales_q8_32, LD_NIBBLES, 0)
LD_DEFINE_TILE(LD_NAME(ld_tile_five_bits_5_0), LD_NAME(ld_int_tile), ld_slice_scales_q8_32, LD_FIVE_BITS, 16)
LD_DEFINE_TILE(LD_NAME(ld_tile_five_bits_5_1), LD_NAME(ld_int_tile), ld_slice_scales_q8_32, LD_FIVE_BITS, 0)
LD_DEFINE_TILE(LD_NAME(ld_tile_five_bits_fp4), LD_NAME(ld_int_tile), ld_slice_scales_q8_32, LD_FIVE_BITS, 12)
LD_DEFINE_TILE(LD_NAME(ld_tile_nibbles_min), LD_NAME(ld_block_tile), 1, LD_NIBBLES, 1)
LD_DEFINE_TILE(LD_NAME(ld_tile_five_bits_min), LD_NAME(ld_block_tile), 1, LD_FIVE_BITS, 1)
LD_DEFINE_TILE(LD_NAME(ld_tile_nibbles_by16_min), LD_NAME(ld_block_tile), 2, LD_NIBBLES, 1)
LD_DEFINE_TILE(LD_NAME(ld_tile_nibbles_by16), LD_NAME(ld_block_tile), 2, LD_NIBBLES, 0)
LD_DEFINE_TILE(LD_NAME(ld_tile_six_bits_by16), LD_NAME(ld_block_tile), 2, LD_SIX_BITS, 0)
#ifndef LD_OWN_INT8 // an instruction set may bring its own
LD_DEFINE_TILE(LD_NAME(ld_tile_int8), LD_NAME(ld_int_tile), ld_slice_scales_q8_32, LD_INT8, 128)
LD_DEFINE_TILE(LD_NAME(ld_tile_int8_blocks), LD_NAME(ld_block_tile), 1, LD_INT8, 0)
LD_DEFINE_MANY(LD_NAME(ld_many_q8_0), ld_unpack_q8_0, LD_NAME(ld_tile_int8), 4)
LD_DEFINE_MANY(LD_NAME(ld_many_iq4_nl), ld_unpack_iq4_nl, LD_NAME(ld_tile_int8), 4)
LD_DEFINE_MANY(LD_NAME(ld_many_iq4_xs), LD_UNPACK_BLOCKS(iq4_xs), LD_NAME(ld_tile_int8_blocks), 4)
#endif
#undef LD_DEFINE_TILE
#undef LD_DEFINE_TILE_EXPANDED

LD_DEFINE_MANY(LD_NAME(ld_many_q4_0), ld_unpack_q4_0, LD_NAME(ld_tile_nibbles_4_0), 4)
LD_DEFINE_MANY(LD_NAME(ld_many_q4_1), ld_unpack_q4_1, LD_NAME(ld_tile_nibbles_4_1), 4)
LD_DEFINE_MANY(LD_NAME(ld_many_q5_0), ld_unpack_q5_0, LD_NAME(ld_tile_five_bits_5_0), 4)
LD_DEFINE_MANY(LD_NAME(ld_many_q5_1), ld_unpack_q5_1, LD_NAME(ld_tile_five_bits_5_1), 4)
LD_DEFINE_MANY(LD_NAME(ld_many_mxfp4), ld_unpack_mxfp4, LD_NAME(ld_tile_five_bits_fp4), 4)
LD_DEFINE_MANY(LD_NAME(ld_many_q4_k), LD_UNPACK_BLOCKS(q4_k), LD_NAME(ld_tile_nibbles_min), 4)
LD_DEFINE_MANY(LD_NAME(ld_many_q5_k), LD_UNPACK_BLOCKS(q5_k), LD_NAME(ld_tile_five_bits_min), 4)
LD_DEFINE_MANY(LD_NAME(ld_many_q2_k), LD_UNPACK_BLOCKS(q2_k), LD_NAME(ld_tile_nibbles_by16_min), 4)
LD_DEFINE_MANY(LD_NAME(ld_many_q3_k), LD_UNPACK_BLOCKS(q3_k), LD_NAME(ld_tile_nibbles_by16), 4)
LD_DEFINE_MANY(LD_NAME(ld_many_q6_k), LD_UNPACK_BLOCKS(q6_k), LD_NAME(ld_tile_six_bits_by16), 3)

LD_DEFINE_FEW_BY_PANEL(LD_NAME(ld_few_or_panel_q4_0), LD_NAME(ld_few_q4_0), LD_NAME(ld_many_q4_0))
LD_DEFINE_FEW_BY_PANEL(LD_NAME(ld_few_or_panel_q4_1), LD_NAME(ld_few_q4_1), LD_NAME(ld_many_q4_1))
LD_DEFINE_FEW_BY_PANEL(LD_NAME(ld_few_or_panel_q5_0), LD_NAME(ld_few_q5_0), LD_NAME(ld_many_q5_0))
LD_DEFINE_FEW_BY_PANEL(LD_NAME(ld_few_or_panel_q5_1), LD_NAME(ld_few_q5_1), LD_NAME(ld_many_q5_1))
LD_DEFINE_FEW_BY_PANEL(LD_NAME(ld_few_or_panel_mxfp4), LD_NAME(ld_few_mxfp4), LD_NAME(ld_many_mxfp4))
LD_DEFINE_FEW_BY_PANEL(LD_NAME(ld_few_or_panel_q8_0), LD_NAME(ld_few_q8_0), LD_NAME(ld_many_q8_0))
LD_DEFINE_FEW_BY_PANEL(LD_NAME(ld_few_or_panel_iq4_nl), LD_NAME(ld_few_iq4_nl), LD_NAME(ld_many_iq4_nl))
LD_DEFINE_FEW_BY_PANEL(LD_NAME(ld_few_or_panel_q2_k), LD_NAME(ld_few_q2_k), LD_NAME(ld_many_q2_k))
LD_DEFINE_FEW_BY_PANEL(LD_NAME(ld_few_or_panel_q3_k), LD_NAME(ld_few_q3_k), LD_NAME(ld_many_q3_k))
LD_DEFINE_FEW_BY_PANEL(LD_NAME(ld_few_or_panel_q4_k), LD_NAME(ld_few_q4_k), LD_NAME(ld_many_q4_k))
LD_DEFINE_FEW_BY_PANEL(LD_NAME(ld_few_or_panel_q5_k), LD_NAME(ld_few_q5_k), LD_NAME(ld_many_q5_k))
LD_DEFINE_FEW_BY_PANEL(LD_NAME(ld_few_or_panel_iq4_xs), LD_NAME(ld_few_iq4_xs), LD_NAME(ld_many_iq4_xs))
