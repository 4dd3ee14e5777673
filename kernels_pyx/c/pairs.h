// Attention over latent rows in 16-bit integers: sums of products of pairs, two products for the price of one in f32.
//
// Keys become 16-bit integers with a scale for each token, |key| <= LD_PAIR_KEY; queries and weights too. Sums are in int32 and never
// overflow: |sum| <= |query| |key| (Cauchy-Schwarz), and callers scale queries so that their norm is at most
// LD_PAIR_SUM / (LD_PAIR_KEY sqrt(n)). A rounded value is off by half a step, that is 2^-13 of the largest of its row: as f16 is of
// values of middling size. Queries stand side by side in registers: arrays are [..][m], m a multiple of 16, so that nothing is ever
// summed across a register. Rows have n values, a multiple of 32 with zeros at the end.
#pragma once
#include <stdint.h>

#include "dispatch.h"

#define LD_PAIR_KEY 4095.0f
#define LD_PAIR_SUM 2147000000.0
#define LD_PAIR_WEIGHT 4095.0f
#define LD_PAIR_KEYS 128 // keys of a call of `sum` at most: 128 * 4095 * 4095 < 2^31

typedef struct {
    void (*narrow)(const float *x, float factor, int16_t *y, int64_t n); // y = round(x * factor)
    // y = round(x / scale) with |y| <= LD_PAIR_KEY; the scale. A row that is not finite has a scale that is not.
    float (*key_f32)(const float *x, int16_t *y, int64_t n);
    float (*key_f16)(const uint16_t *x, int16_t *y, int64_t n);
    void (*zip)(const int16_t *a, const int16_t *b, int16_t *y, int64_t n); // y[2j], y[2j + 1] = a[j], b[j]
    // out[t][i] = key_scale[t] * query_scale[i] * sum over p of key[t][2p..] query[p][i][..], or out += it. Keys are key_stride values
    // apart; queries are [n / 2][m][2].
    void (*dot)(const int16_t *keys, int64_t key_stride, const float *key_scale, int64_t n_keys, const int16_t *queries,
                const float *query_scale, int64_t m, int64_t n, float *out, int add);
    // max[i] = the largest of the first valid[i] of scores[n_keys][m] (-infinity of none); scores become their distances to it, and
    // -200 from valid[i] on.
    void (*below_max)(float *scores, int64_t n_keys, int64_t m, const int32_t *valid, float *max);
    // total[i] = the sum of x[n_keys][i]; weights[p][i] = round(x * ratio[t]) of t = 2p and 2p + 1, 0 beyond n_keys.
    void (*weigh)(const float *x, int64_t n_keys, int64_t m, const float *ratio, int16_t *weights, float *total);
    // sums[d][i] = sums[d][i] * keep[i] + gain[i] * sum over p of weights[p][i][..] rows[p][d][..], for d < n. rows: zipped, row_stride
    // values apart, n_pairs of them.
    void (*sum)(const int16_t *weights, int64_t m, const int16_t *rows, int64_t row_stride, int64_t n_pairs, const float *keep,
                const float *gain, float *sums, int64_t n);
    ld_isa isa; // which ISA serves
} ld_pair_kernels;

// The best kernels not above the cap `isa`.
const ld_pair_kernels *ld_pairs_for(ld_isa isa);
