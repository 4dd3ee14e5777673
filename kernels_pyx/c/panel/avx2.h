// The panels for AVX2: integers with 16-bit sums as far as they cannot overflow, and f32 in tiles of 16 rows by 6 activations.
#pragma once
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")

// y[0..n) = or += v, at most eight.
LD_INLINE void ld_add_to_rows(float *y, __m256 v, int64_t n, int is_first) {
    if (n >= 8) {
        _mm256_storeu_ps(y, is_first ? v : _mm256_add_ps(v, _mm256_loadu_ps(y)));
        return;
    }
    if (n <= 0) return;
    const __m256i mask = ld_mask8(n);
    _mm256_maskstore_ps(y, mask, is_first ? v : _mm256_add_ps(v, _mm256_maskload_ps(y, mask)));
}

// y[0..n) = or += v * factor, at most eight.
LD_INLINE void ld_add_times(float *y, __m256 v, __m256 factor, int64_t n, int is_first) {
    if (__builtin_expect(n >= 8, 1)) {
        _mm256_storeu_ps(y, is_first ? _mm256_mul_ps(v, factor) : _mm256_fmadd_ps(v, factor, _mm256_loadu_ps(y)));
        return;
    }
    if (n <= 0) return;
    const __m256i mask = ld_mask8(n);
    _mm256_maskstore_ps(y, mask, is_first ? _mm256_mul_ps(v, factor) : _mm256_fmadd_ps(v, factor, _mm256_maskload_ps(y, mask)));
}

#define LD_NAME(name) name##_avx2
#define LD_OWN_INT8

// Assembly keeps these chains in one register each: gcc 12 reorders the sums of intrinsics into trees, whose leaves it spills.
LD_INLINE __m256i ld_add_pairs(__m256i sum, __m256i w, __m256i x) {
    __m256i product;
    __asm__("vpmaddubsw %3, %2, %1\n\tvpaddw %1, %0, %0" : "+x"(sum), "=&x"(product) : "x"(w), "x"(x));
    return sum;
}

LD_INLINE __m256i ld_add_fours(__m256i sum, __m256i pairs, __m256i ones) {
    __m256i fours;
    __asm__("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0" : "+x"(sum), "=&x"(fours) : "x"(pairs), "x"(ones));
    return sum;
}

// Steps whose products fit a 16-bit sum.
LD_INLINE int ld_run_of(const int kind, const int n_steps) {
    return kind == LD_NIBBLES ? n_steps : kind == LD_FIVE_BITS ? 4 : 2;
}

// 16-bit sums of a run.
LD_INLINE void ld_run_sums(const uint8_t *q, const uint8_t *x, size_t act_stride, const int n_act, const int run,
                           __m256i pairs[4][2]) {
    LD_UNROLL for (int step = 0; step < run; step++) {
        const __m256i w[2] = {*(const __m256i *)(q + 128 * step), *(const __m256i *)(q + 128 * step + 32)};
        LD_UNROLL for (int a = 0; a < n_act; a++) {
            const __m256i four = _mm256_set1_epi32(*(const int32_t *)(x + a * act_stride + 4 * step));
            LD_UNROLL for (int h = 0; h < 2; h++) {
                if (step == 0) __asm__("vpmaddubsw %2, %1, %0" : "=x"(pairs[a][h]) : "x"(w[h]), "x"(four));
                else pairs[a][h] = ld_add_pairs(pairs[a][h], w[h], four);
            }
        }
    }
}

LD_INLINE void ld_group_sums_avx2(const uint8_t *q, const uint8_t *x, size_t act_stride, const int n_act, const int n_steps,
                                  const int kind, __m256i sum[4][2]) {
    const __m256i ones = _mm256_set1_epi16(1);
    const int run = ld_run_of(kind, n_steps);
    LD_UNROLL for (int first = 0; first < n_steps; first += run) {
        __m256i pairs[4][2];
        ld_run_sums(q + 128 * first, x + 4 * first, act_stride, n_act, run, pairs);
        LD_UNROLL for (int a = 0; a < n_act; a++)
            LD_UNROLL for (int h = 0; h < 2; h++)
                sum[a][h] = first ? ld_add_fours(sum[a][h], pairs[a][h], ones) : _mm256_madd_epi16(pairs[a][h], ones);
    }
}

LD_INLINE __m256i ld_add_products_avx2(__m256i sum, __m256i pairs, __m256i x) {
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, x));
}

LD_INLINE void ld_add_scaled_avx2(const uint8_t *q, const uint8_t *x, size_t act_stride, const int n_act, const int n_steps,
                                  const int kind, const int32_t *scale, __m256i total[4][2]) {
    const int run = ld_run_of(kind, n_steps);
    LD_UNROLL for (int first = 0; first < n_steps; first += run) {
        __m256i pairs[4][2];
        ld_run_sums(q + 128 * first, x + 4 * first, act_stride, n_act, run, pairs);
        LD_UNROLL for (int h = 0; h < 2; h++) {
            const __m256i factors = *(const __m256i *)(scale + 8 * h);
            LD_UNROLL for (int a = 0; a < n_act; a++) total[a][h] = ld_add_fours(total[a][h], pairs[a][h], factors);
        }
    }
}

#define LD_UNPACK_BLOCKS(name) ld_unpack_##name##_twice
#include "words.h"
#include "ymm.h"
#undef LD_UNPACK_BLOCKS
#undef LD_NAME
#undef LD_OWN_INT8

LD_INLINE void ld_f32_tile_avx2(LD_F32_TILE_ARGS) {
    const int64_t run = ld_f32_run(depth);
    for (int64_t first = 0; first < n_rows; first += 16) {
        const uint8_t *x = act + 4 * start;
        const float *w = (const float *)scratch + first;
        for (int64_t at = 0; at < depth; at += run) {
            __m256 acc[6][2];
            LD_UNROLL for (int a = 0; a < n_act; a++) acc[a][0] = acc[a][1] = _mm256_setzero_ps();
            for (int64_t i = ld_least(depth - at, run); i > 0; i--) {
                const __m256 w0 = _mm256_load_ps(w), w1 = _mm256_load_ps(w + 8);
                LD_UNROLL for (int a = 0; a < n_act; a++) {
                    const __m256 value = _mm256_set1_ps(*(const float *)(x + a * act_stride));
                    acc[a][0] = _mm256_fmadd_ps(w0, value, acc[a][0]);
                    acc[a][1] = _mm256_fmadd_ps(w1, value, acc[a][1]);
                }
                w += LD_PANEL_ROWS;
                x += 4;
            }
            LD_UNROLL for (int a = 0; a < n_act; a++)
                LD_UNROLL for (int h = 0; h < 2; h++)
                    ld_add_to_rows(y + a * y_stride + first + 8 * h, acc[a][h], n_rows - first - 8 * h, start + at == 0);
        }
    }
}

static void ld_tile_f32_avx2(LD_F32_TILE_ARGS) {
    switch (n_act) {
    case 1: ld_f32_tile_avx2(LD_F32_TILE_PASS(1)); return;
    case 2: ld_f32_tile_avx2(LD_F32_TILE_PASS(2)); return;
    case 3: ld_f32_tile_avx2(LD_F32_TILE_PASS(3)); return;
    case 4: ld_f32_tile_avx2(LD_F32_TILE_PASS(4)); return;
    case 5: ld_f32_tile_avx2(LD_F32_TILE_PASS(5)); return;
    default: ld_f32_tile_avx2(LD_F32_TILE_PASS(6)); return;
    }
}

LD_DEFINE_MANY_F32(ld_many_f32_avx2, ld_unpack_f32_f32, ld_tile_f32_avx2, 6)
LD_DEFINE_MANY_F32(ld_many_f16_avx2, ld_unpack_f32_f16, ld_tile_f32_avx2, 6)
LD_DEFINE_MANY_F32(ld_many_bf16_avx2, ld_unpack_f32_bf16, ld_tile_f32_avx2, 6)
LD_DEFINE_MANY_F32(ld_many_q4_0_f32_avx2, ld_unpack_f32_q4_0, ld_tile_f32_avx2, 6)
LD_DEFINE_MANY_F32(ld_many_q4_1_f32_avx2, ld_unpack_f32_q4_1, ld_tile_f32_avx2, 6)
LD_DEFINE_MANY_F32(ld_many_q8_0_f32_avx2, ld_unpack_f32_q8_0, ld_tile_f32_avx2, 6)
LD_DEFINE_MANY_F32(ld_many_q4_k_f32_avx2, ld_unpack_f32_q4_k, ld_tile_f32_avx2, 6)
LD_DEFINE_MANY_F32(ld_many_q6_k_f32_avx2, ld_unpack_f32_q6_k, ld_tile_f32_avx2, 6)
LD_DEFINE_MANY_F32(ld_many_q5_0_f32_avx2, ld_unpack_f32_q5_0, ld_tile_f32_avx2, 6)
LD_DEFINE_MANY_F32(ld_many_q5_1_f32_avx2, ld_unpack_f32_q5_1, ld_tile_f32_avx2, 6)
LD_DEFINE_MANY_F32(ld_many_q2_k_f32_avx2, ld_unpack_f32_q2_k, ld_tile_f32_avx2, 6)
LD_DEFINE_MANY_F32(ld_many_q3_k_f32_avx2, ld_unpack_f32_q3_k, ld_tile_f32_avx2, 6)
LD_DEFINE_MANY_F32(ld_many_q5_k_f32_avx2, ld_unpack_f32_q5_k, ld_tile_f32_avx2, 6)
LD_DEFINE_MANY_F32(ld_many_iq4_nl_f32_avx2, ld_unpack_f32_iq4_nl, ld_tile_f32_avx2, 6)
LD_DEFINE_MANY_F32(ld_many_iq4_xs_f32_avx2, ld_unpack_f32_iq4_xs, ld_tile_f32_avx2, 6)
LD_DEFINE_MANY_F32(ld_many_mxfp4_f32_avx2, ld_unpack_f32_mxfp4, ld_tile_f32_avx2, 6)

#pragma GCC pop_options
