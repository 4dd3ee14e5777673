// The dot family for AVX-512 VNNI: Q4_0, Q4_1 and Q4_K with 512-bit registers (fewer instructions and loads for a byte of
// weights, which is what bounds them), the others by the 256-bit loops with vpdpbusd.
#pragma once
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")

#define LD_NAME(name) name##_avx512vnni
#define LD_DPBUSD _mm256_dpbusd_epi32
#define LD_DPWSSD _mm256_dpwssd_epi32
#define LD_MAX_SUMS 8
#include "ymm/vnni.h"

// The sixteen sums as eight.
LD_INLINE __m256 ld_fold16(__m512 v) { return _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1)); }

// Four blocks of 18 or 20 bytes are two loads: their 64 bytes of nibbles, and their d and m (d again where there is no m) as f32
// in turns, are picked out by one shuffle each. Single loads would be 8, and loads bound these loops.
typedef struct { __m512i packed; __m256 d_m; } ld_four_blocks;

LD_INLINE ld_four_blocks ld_four_q4_1(const uint8_t *block) {
    const __m512i pick_q = _mm512_setr_epi32(1, 2, 3, 4, 6, 7, 8, 9, 11, 12, 13, 14, 16, 17, 18, 19);
    const __m512i pick_d_m = _mm512_setr_epi32(0, 5, 10, 15, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    const __m512i head = _mm512_loadu_si512(block), tail = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)(block + 64)));
    const __m128i d_m = _mm512_castsi512_si128(_mm512_permutexvar_epi32(pick_d_m, head));
    return (ld_four_blocks){_mm512_permutex2var_epi32(head, pick_q, tail), _mm256_cvtph_ps(d_m)};
}

LD_INLINE ld_four_blocks ld_four_q4_0(const uint8_t *block) {
    const __m512i pick_q = _mm512_set_epi16(35, 34, 33, 32, 31, 30, 29, 28, 26, 25, 24, 23, 22, 21, 20, 19, //
                                            17, 16, 15, 14, 13, 12, 11, 10, 8, 7, 6, 5, 4, 3, 2, 1);
    const __m512i pick_d = _mm512_castsi128_si512(_mm_setr_epi16(0, 0, 9, 9, 18, 18, 27, 27));
    const __m512i head = _mm512_loadu_si512(block), tail = _mm512_castsi128_si512(_mm_loadl_epi64((const __m128i *)(block + 64)));
    const __m128i d_d = _mm512_castsi512_si128(_mm512_permutexvar_epi16(pick_d, head));
    return (ld_four_blocks){_mm512_permutex2var_epi16(head, pick_q, tail), _mm256_cvtph_ps(d_d)};
}

// Four blocks fill one register with their low and one with their high nibbles; a quarter of each belongs to one block.
LD_INLINE void ld_rows_nibbles_avx512vnni(LD_ROWS_ARGS, const int has_min) {
    const int bytes = has_min ? 20 : 18, q_at = has_min ? 4 : 2;
    const __m512i low4 = _mm512_set1_epi8(15);
    const __m512i even = _mm512_setr_epi32(0, 0, 0, 0, 2, 2, 2, 2, 4, 4, 4, 4, 6, 6, 6, 6);
    const int64_t n_blocks = k / 32;
    const size_t d_at = ld_act_scales_at(k), s_at = ld_act_sums_at(LD_ACT_Q8_32, k);
    const uint8_t *next = ld_prefetch_from(w, w_stride, n_rows);
    __m512 acc[4][4];
    __m256 acc_min[4][4], rest[4][4];
    LD_UNROLL for (int a = 0; a < n_act; a++)
        LD_UNROLL for (int r = 0; r < n_rows; r++)
            acc[a][r] = _mm512_setzero_ps(), acc_min[a][r] = rest[a][r] = _mm256_setzero_ps();
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
            const uint8_t *block = w + r * w_stride + b * bytes;
            next = ld_prefetch(next, 4 * bytes);
            const ld_four_blocks four = has_min ? ld_four_q4_1(block) : ld_four_q4_0(block);
            const __m512i lo = _mm512_and_si512(four.packed, low4);
            const __m512i hi = _mm512_and_si512(_mm512_srli_epi16(four.packed, 4), low4);
            LD_UNROLL for (int a = 0; a < n_act; a++) {
                const __m512i dot = _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(_mm512_setzero_si512(), lo, x_lo[a]), hi, x_hi[a]);
                // the products of d are for the sums, those of m terms themselves
                const __m256 scales = _mm256_mul_ps(four.d_m, d_s[a]);
                acc_min[a][r] = _mm256_mask_add_ps(acc_min[a][r], 0xaa, acc_min[a][r], scales);
                acc[a][r] = _mm512_fmadd_ps(_mm512_permutexvar_ps(even, _mm512_castps256_ps512(scales)),
                                            _mm512_cvtepi32_ps(dot), acc[a][r]);
            }
        }
    }
    for (; b < n_blocks; b++)
        LD_UNROLL for (int r = 0; r < n_rows; r++) {
            const uint8_t *block = w + r * w_stride + b * bytes;
            const __m256i q = ld_nibbles(block + q_at);
            const float d = ld_half(*(const ld_packed16 *)block), m = has_min ? ld_half(*(const ld_packed16 *)(block + 2)) : d;
            LD_UNROLL for (int a = 0; a < n_act; a++) {
                const uint8_t *x = act + a * act_stride;
                const __m256i dot = _mm256_dpbusd_epi32(_mm256_setzero_si256(), q, *(const __m256i *)(x + 32 * b));
                const float dx = ((const float *)(x + d_at))[b], s = ((const float *)(x + s_at))[b];
                rest[a][r] = _mm256_fmadd_ps(_mm256_set1_ps(d * dx), _mm256_cvtepi32_ps(dot), rest[a][r]);
                acc_min[a][r] = _mm256_mask_add_ps(acc_min[a][r], 2, acc_min[a][r], _mm256_set1_ps(m * s));
            }
        }
    LD_UNROLL for (int a = 0; a < n_act; a++) {
        __m256 sum[4];
        LD_UNROLL for (int r = 0; r < n_rows; r++)
            sum[r] = _mm256_fmadd_ps(_mm256_set1_ps(has_min ? 1 : -8), acc_min[a][r],
                                     _mm256_add_ps(rest[a][r], ld_fold16(acc[a][r])));
        ld_store_sums(sum, y + a * y_stride, n_rows);
    }
}

LD_INLINE void ld_rows_q4_0_avx512vnni(LD_ROWS_ARGS) {
    ld_rows_nibbles_avx512vnni(w, w_stride, act, act_stride, y, y_stride, k, n_rows, n_act, 0);
}
LD_INLINE void ld_rows_q4_1_avx512vnni(LD_ROWS_ARGS) {
    ld_rows_nibbles_avx512vnni(w, w_stride, act, act_stride, y, y_stride, k, n_rows, n_act, 1);
}
LD_DEFINE_FEW(ld_few_q4_0_avx512vnni, ld_rows_q4_0_avx512vnni, 4, LD_MAX_SUMS)
LD_DEFINE_FEW(ld_few_q4_1_avx512vnni, ld_rows_q4_1_avx512vnni, 4, LD_MAX_SUMS)

// 64 bytes hold groups 0 and 2 in their low and 1 and 3 in their high nibbles. The sums of four products (at most 4 * 15 * 127)
// fit int16: packed, groups side by side, they meet their scales in one vpdpwssd.
LD_INLINE void ld_rows_q4_k_avx512vnni(LD_ROWS_ARGS) {
    const __m512i low4 = _mm512_set1_epi8(15), zero = _mm512_setzero_si512();
    // int16 scale i of a quarter register is bytes 2i, 2i + 1; packing puts four sums of an even group before four of the odd one
    const __m512i order = _mm512_broadcast_i64x2(_mm_setr_epi8(0, 1, 0, 1, 0, 1, 0, 1, 2, 3, 2, 3, 2, 3, 2, 3));
    const __m512i order0 = _mm512_add_epi8(order, _mm512_setr_epi64(0, 0, 0, 0, 0x0404040404040404, 0x0404040404040404,
                                                                    0x0404040404040404, 0x0404040404040404));
    const __m512i order1 = _mm512_add_epi8(order0, _mm512_set1_epi8(8));
    const size_t d_at = ld_act_scales_at(k), b_at = ld_act_sums_at(LD_ACT_Q8_256, k);
    const uint8_t *next = ld_prefetch_from(w, w_stride, n_rows);
    __m512 acc[4][4];
    __m128 acc_min[4][4];
    LD_UNROLL for (int a = 0; a < n_act; a++)
        LD_UNROLL for (int r = 0; r < n_rows; r++) acc[a][r] = _mm512_setzero_ps(), acc_min[a][r] = _mm_setzero_ps();
    for (int64_t b = 0; b < k / 256; b++) {
        __m512i x[4][4]; // groups 0 and 2, 1 and 3, 4 and 6, 5 and 7
        __m128i sums[4];
        LD_UNROLL for (int a = 0; a < n_act; a++) {
            const uint8_t *row = act + a * act_stride;
            LD_UNROLL for (int h = 0; h < 2; h++) {
                const __m512i x0 = _mm512_load_si512(row + 256 * b + 128 * h);
                const __m512i x1 = _mm512_load_si512(row + 256 * b + 128 * h + 64);
                x[a][2 * h] = _mm512_shuffle_i64x2(x0, x1, 0x44);
                x[a][2 * h + 1] = _mm512_shuffle_i64x2(x0, x1, 0xee);
            }
            const __m128i *b16 = (const __m128i *)((const int16_t *)(row + b_at) + 16 * b);
            sums[a] = _mm_hadd_epi16(b16[0], b16[1]);
        }
        LD_UNROLL for (int r = 0; r < n_rows; r++) {
            const ld_block_q4_k *block = (const ld_block_q4_k *)(w + r * w_stride) + b;
            next = ld_prefetch(next, sizeof *block);
            uint32_t scales[2], mins[2];
            ld_q4_k_scales(block->scales, scales, mins);
            const __m512i scale8 = _mm512_broadcast_i64x2(
                _mm_cvtepu8_epi16(_mm_cvtsi64_si128((int64_t)(scales[0] | (uint64_t)scales[1] << 32))));
            const __m128i min8 = _mm_cvtepu8_epi16(_mm_cvtsi64_si128((int64_t)(mins[0] | (uint64_t)mins[1] << 32)));
            const __m128 d_dmin = _mm_cvtph_ps(_mm_cvtsi32_si128(*(const ld_packed32 *)&block->d));
            const __m512i scales0 = _mm512_shuffle_epi8(scale8, order0), scales1 = _mm512_shuffle_epi8(scale8, order1);
            const __m512i z0 = _mm512_loadu_si512(block->q), z1 = _mm512_loadu_si512(block->q + 64);
            const __m512i q0 = _mm512_and_si512(z0, low4), q1 = _mm512_and_si512(_mm512_srli_epi16(z0, 4), low4);
            const __m512i q2 = _mm512_and_si512(z1, low4), q3 = _mm512_and_si512(_mm512_srli_epi16(z1, 4), low4);
            LD_UNROLL for (int a = 0; a < n_act; a++) {
                const __m512i p0 = _mm512_packs_epi32(_mm512_dpbusd_epi32(zero, q0, x[a][0]),
                                                      _mm512_dpbusd_epi32(zero, q1, x[a][1]));
                const __m512i p1 = _mm512_packs_epi32(_mm512_dpbusd_epi32(zero, q2, x[a][2]),
                                                      _mm512_dpbusd_epi32(zero, q3, x[a][3]));
                const __m512i sum = _mm512_dpwssd_epi32(_mm512_dpwssd_epi32(zero, p0, scales0), p1, scales1);
                const __m128 both = _mm_mul_ps(d_dmin, _mm_set1_ps(((const float *)(act + a * act_stride + d_at))[b]));
                acc[a][r] = _mm512_fmadd_ps(_mm512_broadcastss_ps(both), _mm512_cvtepi32_ps(sum), acc[a][r]);
                acc_min[a][r] = _mm_fnmadd_ps(_mm_shuffle_ps(both, both, 0x55),
                                              _mm_cvtepi32_ps(_mm_madd_epi16(min8, sums[a])), acc_min[a][r]);
            }
        }
    }
    LD_UNROLL for (int a = 0; a < n_act; a++) {
        __m256 sum[4];
        LD_UNROLL for (int r = 0; r < n_rows; r++)
            sum[r] = _mm256_add_ps(ld_fold16(acc[a][r]), _mm256_set_m128(_mm_setzero_ps(), acc_min[a][r]));
        ld_store_sums(sum, y + a * y_stride, n_rows);
    }
}
LD_DEFINE_FEW(ld_few_q4_k_avx512vnni, ld_rows_q4_k_avx512vnni, 4, LD_MAX_SUMS)

#define LD_OWN_Q4
#include "ymm/legacy.h"
#include "ymm/kquant.h"
#undef LD_OWN_Q4
#undef LD_NAME
#undef LD_DPBUSD
#undef LD_DPWSSD
#undef LD_MAX_SUMS
#undef LD_INT8_BIAS

#pragma GCC pop_options
