// few for the formats with blocks of 32 whose integers are nibbles or chosen by them, with 512-bit registers: four blocks fill one
// register with their low and one with their high nibbles, a quarter of each belongs to one block. Included once, inside the region
// of AVX-512 VNNI.
#pragma once

// Four blocks: 64 bytes of nibbles, and d and m (d again where there is no m) as f32 in turns, picked out of few loads by shuffles,
// since loads bound these loops. fifth: bit i of the first belongs to byte i of the low nibbles, of the second to the high ones.
typedef struct { __m512i packed; __m256 d_m; uint64_t fifth[2]; } ld_four_blocks;

LD_INLINE ld_four_blocks ld_four_q4_1(const uint8_t *block) {
    const __m512i pick_q = _mm512_setr_epi32(1, 2, 3, 4, 6, 7, 8, 9, 11, 12, 13, 14, 16, 17, 18, 19);
    const __m512i pick_d_m = _mm512_setr_epi32(0, 5, 10, 15, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    const __m512i head = _mm512_loadu_si512(block), tail = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)(block + 64)));
    const __m128i d_m = _mm512_castsi512_si128(_mm512_permutexvar_epi32(pick_d_m, head));
    return (ld_four_blocks){_mm512_permutex2var_epi32(head, pick_q, tail), _mm256_cvtph_ps(d_m), {0, 0}};
}

LD_INLINE ld_four_blocks ld_four_q4_0(const uint8_t *block) { // and IQ4_NL
    const __m512i pick_q = _mm512_set_epi16(35, 34, 33, 32, 31, 30, 29, 28, 26, 25, 24, 23, 22, 21, 20, 19, //
                                            17, 16, 15, 14, 13, 12, 11, 10, 8, 7, 6, 5, 4, 3, 2, 1);
    const __m512i pick_d = _mm512_castsi128_si512(_mm_setr_epi16(0, 0, 9, 9, 18, 18, 27, 27));
    const __m512i head = _mm512_loadu_si512(block), tail = _mm512_castsi128_si512(_mm_loadl_epi64((const __m128i *)(block + 64)));
    const __m128i d_d = _mm512_castsi512_si128(_mm512_permutexvar_epi16(pick_d, head));
    return (ld_four_blocks){_mm512_permutex2var_epi16(head, pick_q, tail), _mm256_cvtph_ps(d_d), {0, 0}};
}

// The first eight words that `pick` chooses from head and tail.
LD_INLINE __m128i ld_pick_words(__m512i head, __m128i pick, __m512i tail) {
    return _mm512_castsi512_si128(_mm512_permutex2var_epi16(head, _mm512_castsi128_si512(pick), tail));
}

LD_INLINE ld_four_blocks ld_four_q5_1(const uint8_t *block) {
    const __m512i pick_q = _mm512_setr_epi32(2, 3, 4, 5, 8, 9, 10, 11, 14, 15, 16, 17, 20, 21, 22, 23);
    const __m512i head = _mm512_loadu_si512(block), tail = _mm512_castsi256_si512(ld_load256(block + 64));
    const __m128i d_m = ld_pick_words(head, _mm_setr_epi16(0, 1, 12, 13, 24, 25, 36, 37), tail);
    const __m128i fifth = ld_pick_words(head, _mm_setr_epi16(2, 14, 26, 38, 3, 15, 27, 39), tail);
    return (ld_four_blocks){_mm512_permutex2var_epi32(head, pick_q, tail), _mm256_cvtph_ps(d_m),
                            {(uint64_t)_mm_cvtsi128_si64(fifth), (uint64_t)_mm_extract_epi64(fifth, 1)}};
}

LD_INLINE ld_four_blocks ld_four_q5_0(const uint8_t *block) {
    const __m512i pick_q = _mm512_set_epi16(43, 42, 41, 40, 39, 38, 37, 36, 32, 31, 30, 29, 28, 27, 26, 25, //
                                            21, 20, 19, 18, 17, 16, 15, 14, 10, 9, 8, 7, 6, 5, 4, 3);
    const __m512i head = _mm512_loadu_si512(block), tail = _mm512_maskz_loadu_epi64(7, block + 64);
    const __m128i d_d = ld_pick_words(head, _mm_setr_epi16(0, 0, 11, 11, 22, 22, 33, 33), tail);
    const __m128i fifth = ld_pick_words(head, _mm_setr_epi16(1, 12, 23, 34, 2, 13, 24, 35), tail);
    return (ld_four_blocks){_mm512_permutex2var_epi16(head, pick_q, tail), _mm256_cvtph_ps(d_d),
                            {(uint64_t)_mm_cvtsi128_si64(fifth), (uint64_t)_mm_extract_epi64(fifth, 1)}};
}

// The exponent of block i is byte 17 i: byte i of quarter i of a register.
LD_INLINE ld_four_blocks ld_four_mxfp4(const uint8_t *block) {
    const __m256i first = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(block + 1))),
                                                  _mm_loadu_si128((const __m128i *)(block + 18)), 1);
    const __m256i last = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(block + 35))),
                                                 _mm_loadu_si128((const __m128i *)(block + 52)), 1);
    const __m512i pick = _mm512_setr_epi32(-256, -1, -1, -1, -255, -1, -1, -1, -254, -1, -1, -1, -253, -1, -1, -1);
    const __m512i twice = _mm512_castsi256_si512(_mm256_setr_epi32(0, 0, 4, 4, 8, 8, 12, 12));
    const __m256i exponents = _mm512_castsi512_si256(
        _mm512_permutexvar_epi32(twice, _mm512_shuffle_epi8(_mm512_loadu_si512(block), pick)));
    return (ld_four_blocks){_mm512_inserti64x4(_mm512_castsi256_si512(first), last, 1), ld_eight_powers(exponents), {0, 0}};
}

typedef ld_four_blocks (*ld_four_blocks_fn)(const uint8_t *block);

// x = d * (q - bias) + m; m_factor is 1, or -bias where the format has no m.
LD_INLINE void ld_rows_wide_blocks(LD_ROWS_ARGS, const int bytes, ld_four_blocks_fn four_blocks, ld_quants_fn quants,
                                   ld_scales_of_fn scales, const int kind, const int8_t *values, const float m_factor) {
    const __m512i low4 = _mm512_set1_epi8(15), sixteen = _mm512_set1_epi8(16);
    const __m512i even = _mm512_setr_epi32(0, 0, 0, 0, 2, 2, 2, 2, 4, 4, 4, 4, 6, 6, 6, 6);
    __m512i table = sixteen;
    if (kind == LD_CHOSEN)
        table = _mm512_add_epi8(_mm512_broadcast_i32x4(_mm_load_si128((const __m128i *)values)),
                                _mm512_set1_epi8((char)-(int)m_factor));
    const int64_t n_blocks = k / 32;
    const size_t d_at = ld_act_scales_at(k), s_at = ld_act_sums_at(LD_ACT_Q8_32, k);
    const uint8_t *next = ld_prefetch_from(w, w_stride, n_rows);
    __m512 acc[4][4];
    __m256 acc_m[4][4], rest[4][4];
    LD_UNROLL for (int a = 0; a < n_act; a++)
        LD_UNROLL for (int r = 0; r < n_rows; r++)
            acc[a][r] = _mm512_setzero_ps(), acc_m[a][r] = rest[a][r] = _mm256_setzero_ps();
    int64_t b = 0;
    for (; b + 4 <= n_blocks; b += 4) {
        __m512i x_lo[4], x_hi[4];
        __m256 d_s[4]; // dx and s of the four blocks in turns, as d and m of the weights
        LD_UNROLL for (int a = 0; a < n_act; a++) {
            const uint8_t *x = act + a * act_stride;
            const __m512i x0 = _mm512_loadu_si512(x + 32 * b), x1 = _mm512_loadu_si512(x + 32 * b + 64);
            x_lo[a] = _mm512_shuffle_i64x2(x0, x1, 0x88);
            x_hi[a] = _mm512_shuffle_i64x2(x0, x1, 0xdd);
            const __m128 d = _mm_load_ps((const float *)(x + d_at) + b), s = _mm_load_ps((const float *)(x + s_at) + b);
            d_s[a] = _mm256_set_m128(_mm_unpackhi_ps(d, s), _mm_unpacklo_ps(d, s));
        }
        LD_UNROLL for (int r = 0; r < n_rows; r++) {
            next = ld_prefetch(next, 4 * bytes, n_rows);
            const ld_four_blocks four = four_blocks(w + r * w_stride + b * bytes);
            __m512i lo = _mm512_and_si512(four.packed, low4), hi = _mm512_and_si512(_mm512_srli_epi16(four.packed, 4), low4);
            if (kind == LD_CHOSEN) {
                lo = _mm512_shuffle_epi8(table, lo);
                hi = _mm512_shuffle_epi8(table, hi);
            }
            if (kind == LD_FIFTH) {
                lo = _mm512_mask_add_epi8(lo, four.fifth[0], lo, sixteen);
                hi = _mm512_mask_add_epi8(hi, four.fifth[1], hi, sixteen);
            }
            LD_UNROLL for (int a = 0; a < n_act; a++) {
                const __m512i dot = _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(_mm512_setzero_si512(), lo, x_lo[a]), hi, x_hi[a]);
                // the products of d are for the sums, those of m terms themselves
                const __m256 both = _mm256_mul_ps(four.d_m, d_s[a]);
                acc_m[a][r] = _mm256_mask_add_ps(acc_m[a][r], 0xaa, acc_m[a][r], both);
                acc[a][r] = _mm512_fmadd_ps(_mm512_permutexvar_ps(even, _mm512_castps256_ps512(both)), _mm512_cvtepi32_ps(dot),
                                            acc[a][r]);
            }
        }
    }
    for (; b < n_blocks; b++)
        LD_UNROLL for (int r = 0; r < n_rows; r++) {
            const ld_scales d_m = scales(w + r * w_stride, b);
            __m256i q = quants(w + r * w_stride, b);
            if (kind == LD_CHOSEN && m_factor == -128) q = _mm256_xor_si256(q, _mm256_set1_epi8((char)0x80));
            LD_UNROLL for (int a = 0; a < n_act; a++) {
                const uint8_t *x = act + a * act_stride;
                const __m256i dot = _mm256_dpbusd_epi32(_mm256_setzero_si256(), q, *(const __m256i *)(x + 32 * b));
                const float dx = ((const float *)(x + d_at))[b], s = ((const float *)(x + s_at))[b];
                rest[a][r] = _mm256_fmadd_ps(_mm256_set1_ps(d_m.d * dx), _mm256_cvtepi32_ps(dot), rest[a][r]);
                acc_m[a][r] = _mm256_mask_add_ps(acc_m[a][r], 2, acc_m[a][r], _mm256_set1_ps(d_m.m * s));
            }
        }
    LD_UNROLL for (int a = 0; a < n_act; a++) {
        __m256 sum[4];
        LD_UNROLL for (int r = 0; r < n_rows; r++)
            sum[r] = _mm256_fmadd_ps(_mm256_set1_ps(m_factor), acc_m[a][r], _mm256_add_ps(rest[a][r], ld_fold16(acc[a][r])));
        ld_store_sums(sum, y + a * y_stride, n_rows);
    }
}

#define LD_ROWS_OF_WIDE_BLOCKS(name, four_blocks, kind, values, m_factor) \
    LD_INLINE void ld_rows_##name##_avx512vnni(LD_ROWS_ARGS) { \
        ld_rows_wide_blocks(w, w_stride, act, act_stride, y, y_stride, k, n_rows, n_act, sizeof(ld_block_##name), four_blocks, \
                            ld_quants_##name, ld_scales_##name, kind, values, m_factor); \
    } \
    LD_DEFINE_FEW(ld_few_##name##_avx512vnni, ld_rows_##name##_avx512vnni, 4, LD_MAX_SUMS)
LD_ROWS_OF_WIDE_BLOCKS(q4_0, ld_four_q4_0, LD_PLAIN, NULL, -8)
LD_ROWS_OF_WIDE_BLOCKS(q4_1, ld_four_q4_1, LD_PLAIN, NULL, 1)
LD_ROWS_OF_WIDE_BLOCKS(q5_0, ld_four_q5_0, LD_FIFTH, NULL, -16)
LD_ROWS_OF_WIDE_BLOCKS(q5_1, ld_four_q5_1, LD_FIFTH, NULL, 1)
LD_ROWS_OF_WIDE_BLOCKS(iq4_nl, ld_four_q4_0, LD_CHOSEN, ld_iq4_values, -128)
LD_ROWS_OF_WIDE_BLOCKS(mxfp4, ld_four_mxfp4, LD_CHOSEN, ld_fp4_values, -12)
#undef LD_ROWS_OF_WIDE_BLOCKS
