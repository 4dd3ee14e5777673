// Attention over 8-bit caches in integers: 16-bit words (queries, or weights of the softmax) times cached bytes, summed in int32.
//
// A byte costs as little as with 8-bit queries, but words add no error that could be seen beside that of the cache: a query is
// rounded to 2^-15 of its largest value, the weights of a block to 2^-15 of the largest of them. Sums are exact. Bytes lie in pairs
// along the summed axis, so that one instruction multiplies and adds a pair: keys of a KV head [head_dim / 2][LD_BLOCK][2], values
// [LD_BLOCK / 2][v_pad][2]; head_dim is even, v_pad a multiple of 16. Scales are f16, [group][LD_BLOCK], `group` values share one.
// What lies `ahead` bytes further is asked for while a block is read, as in attn.h.
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "dispatch.h"

#define LD_WORD_MAX 32767
#define LD_WORDS_DEPTH 256 // values summed in int32 at most: 256 * 127 * LD_WORD_MAX < 2^31

// c[m][LD_BLOCK] = unit[m] * sum over groups of scale[group][token] * (q words . key bytes). Strides count elements; q_stride is a
// multiple of 2.
typedef void (*ld_words_scores)(const int16_t *q, size_t q_stride, const float *unit, const int8_t *keys, const uint16_t *scales,
                                float *c, size_t c_stride, int64_t m, int64_t dim, int64_t group, int64_t ahead);

// c[m][v_pad] = c * factor[m] + sum over the first n tokens of w[m][token] * scale[group][token] * values[token]; 1 <= n <= LD_BLOCK,
// w >= 0 with LD_BLOCK floats to read in each row, whatever lies behind n. A scale that is not a number makes its group one.
typedef void (*ld_words_values)(const float *w, size_t w_stride, const int8_t *values, const uint16_t *scales, float *c,
                                const float *factor, int64_t m, int64_t n, int64_t v_pad, int64_t group, int64_t ahead);

typedef struct ld_words_kernels {
    ld_words_scores scores;
    ld_words_values values;
    // x to words with its unit: x ~ unit * words. A value that is not finite makes the unit NaN.
    void (*to_words)(const float *x, int64_t n, int16_t *words, float *unit);
    ld_isa isa; // which ISA serves
} ld_words_kernels;

// The best kernels not above the cap `isa`; for the dispatch, which puts them into its tables.
const ld_words_kernels *ld_words_for(ld_isa isa);
