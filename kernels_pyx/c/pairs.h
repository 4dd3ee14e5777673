// Attention over latent rows in 16-bit integers: sums of products of pairs, two products for the price of one in f32.
//
// Keys become 16-bit integers with a scale for each token, |key| <= LD_PAIR_KEY; queries and weights too. Sums are in int32 and never
// overflow: |sum| <= |query| |key| (Cauchy-Schwarz), and callers scale queries so that their norm is at most
// LD_PAIR_SUM / (LD_PAIR_KEY sqrt(n)). A rounded value is off by half a step, that is 2^-13 of the largest of its row: as f16 is of
// values of middling size. Queries stand side by side in registers: arrays are [..][m], m a multiple of 16, so that nothing is ever
// summed across a register. Rows have n values, a multiple of 32 with zeros at the end.
//
// Rows become integers two at a time, and are left twice: as they are, for scores, and zipped (zipped[2j], zipped[2j + 1] = y[0][j],
// y[1][j]), for the sums of values; zipped may be NULL. A row that is not finite has a scale that is not.
#pragma once
#include <stdint.h>

#include "dispatch.h"

#define LD_PAIR_KEY 4095.0f
#define LD_PAIR_SUM 2147000000.0
#define LD_PAIR_WEIGHT 4095.0f
#define LD_PAIR_KEYS 128 // keys of a call of `sum` at most: 128 * 4095 * 4095 < 2^31
#define LD_PAIR_BYTE 5   // a cached byte counts 2^5 where its scale is the largest of its row: 127 * 2^5 <= LD_PAIR_KEY
#define LD_PAIR_TINY 1e-30f // a scale below is that of zeros
#define LD_PAIR_GROUP 16    // keys of a call of `dot_beside`

// Rows that `dot_beside` makes integers of: LD_PAIR_GROUP of them, zipped by twos.
typedef struct {
    const uint16_t *halves; // f16: y = round(x * factor), a factor for each row; or NULL
    const float *factor;
    const int8_t *bytes;    // see keys_i8; factors [..][LD_BLOCK] of 32 values each, or (one_group) of all values
    const int16_t *factors;
    int one_group;
    int16_t *y, *zipped;
    int64_t x_stride, y_stride, zipped_stride; // in values, the last one of two rows
    const uint8_t *ask; // as many rows that come later and are asked for on the way, line by line; any address
} ld_pair_next;

typedef struct ld_pair_kernels {
    void (*narrow)(const float *x, float factor, int16_t *y, int64_t n); // y = round(x * factor)
    // y = round(x / scale) with |y| <= LD_PAIR_KEY.
    void (*keys_f32)(const float *const x[2], int16_t *const y[2], int16_t *zipped, float scale[2], int64_t n);
    void (*keys_f16)(const uint16_t *const x[2], int16_t *const y[2], int16_t *zipped, float scale[2], int64_t n);
    // max[t] = the largest magnitude of a row, for LD_PAIR_GROUP rows of n values of f16; not finite where the row is not.
    void (*largest)(const uint16_t *x, int64_t x_stride, int64_t n, float *max);
    // The scales of LD_BLOCK tokens, f16 [n_groups][LD_BLOCK], become a scale for each token and factors, the share that a group has of
    // it, in 2^-15; a byte of the cache is then scale * factor * 2^(LD_PAIR_BYTE - 15).
    void (*factors)(const uint16_t *scales, int64_t n_groups, int16_t *factors, float *scale);
    // y = the bytes x times 2^LD_PAIR_BYTE, times the factors of the two tokens, which stand side by side and LD_BLOCK from group to
    // group. group: values that share one, a multiple of 32.
    void (*keys_i8)(const int8_t *const x[2], const int16_t *factors, int64_t group, int16_t *const y[2], int16_t *zipped, int64_t n);
    // y[j][i] = x[i][j], words of 32 bits; rows and columns of x are multiples of 16.
    void (*cross)(const void *x, int64_t x_stride, void *y, int64_t y_stride, int64_t rows, int64_t columns);
    // out[t][i] = key_scale[t] * query_scale[i] * sum over p of key[t][2p..] query[p][i][..], or out += it. Keys are key_stride values
    // apart; queries are [n / 2][m][2].
    void (*dot)(const int16_t *keys, int64_t key_stride, const float *key_scale, int64_t n_keys, const int16_t *queries,
                const float *query_scale, int64_t m, int64_t n, float *out, int add);
    // `dot` of LD_PAIR_GROUP keys, not added; on the way n values of the rows `next` become integers: products and conversions
    // wait for different units. n is a multiple of 32.
    void (*dot_beside)(const int16_t *keys, int64_t key_stride, const float *key_scale, const int16_t *queries, const float *query_scale,
                       int64_t m, int64_t n, float *out, const ld_pair_next *next);
    // max[i] = the largest of the first valid[i] of scores[n_keys][m], valid[i] <= n_keys (-infinity of none); weights[p][i] =
    // round(e * ratio[t]) of t = 2p and 2p + 1, with e = exp(score - max), 0 from valid[i] on; total[i] = the sum of e.
    void (*weigh)(const float *scores, int64_t n_keys, int64_t m, const int32_t *valid, const float *ratio, int16_t *weights, float *max,
                  float *total);
    // sums[d][i] = sums[d][i] * keep[i] + gain[i] * sum over p of weights[p][i][..] rows[p][d][..], for d < n. rows: zipped, row_stride
    // values apart, n_pairs of them.
    void (*sum)(const int16_t *weights, int64_t m, const int16_t *rows, int64_t row_stride, int64_t n_pairs, const float *keep,
                const float *gain, float *sums, int64_t n);
    ld_isa isa; // which ISA serves
} ld_pair_kernels;

// The best kernels not above the cap `isa`; for the dispatch, which puts them into its tables.
const ld_pair_kernels *ld_pairs_for(ld_isa isa);
