// The online softmax of latent attention: weights of a run of scores against the running maximum of their query.
#pragma once
#include <math.h>
#include <string.h>

#include "ops.h"

// Per query: the largest score so far, the sum of exp(score - max), and what brings earlier sums to the newest maximum.
typedef struct {
    float *max, *total, *factor;
} ld_softmax;

static inline void ld_softmax_start(ld_softmax *s, int64_t m) {
    for (int64_t i = 0; i < m; i++) s->max[i] = -INFINITY, s->total[i] = 0.0f;
}

// n scores of query i become weights; those from `valid` on (which may be below 0, or above n) count nothing.
static inline void ld_softmax_weigh(const ld_ctx *ctx, ld_softmax *s, int64_t i, float *scores, int64_t n, int64_t valid) {
    if (valid > n) valid = n;
    if (valid <= 0) {
        s->factor[i] = 1.0f;
        memset(scores, 0, n * sizeof *scores);
        return;
    }
    float max = fmaxf(s->max[i], ctx->table->vec.max(scores, valid));
    s->factor[i] = expf(s->max[i] - max); // the first time exp(-inf) = 0
    s->total[i] = s->total[i] * s->factor[i] + ctx->table->vec.exp_sum(scores, max, valid);
    s->max[i] = max;
    memset(scores + valid, 0, (n - valid) * sizeof *scores);
}
