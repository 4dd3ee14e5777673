// Absorbed queries over latent rows: wide, in f32. Narrow, in 16-bit integers, is in narrow.c.
#include <math.h>
#include <string.h>

#include "absorbed.h"

#define WIDE_KEYS 64 // keys scored before their values are summed: their f32 rows stay in the second cache

// ---- memory ----

typedef struct {
    float *q, *rows, *crossed, *scores, *scales; // queries and scores of a block transposed
} wide_room;

static int64_t lay_out(const ld_op *op, int64_t m, uint8_t *base, ld_absorbed *r, wide_room *w) {
    int64_t at = 0, m_pad = ld_round(m, 16), latent = ld_latent_floats(op);
#define TAKE(to, type, count) to = (type *)((uintptr_t)base + at), at += ld_round((count) * (int64_t)sizeof(type), 64)
    TAKE(r->limit, int64_t, m);
    TAKE(r->q, float, m * latent);
    TAKE(r->sums, float, m_pad * ld_v_pad(op->width));
    TAKE(r->softmax.max, float, m);
    TAKE(r->softmax.total, float, m);
    TAKE(r->softmax.factor, float, m);
    r->rest = (uint8_t *)((uintptr_t)base + at);
    if (ld_latent_narrow(op)) return at + ld_narrow_scratch(op, m);
    TAKE(w->q, float, latent * m_pad);
    TAKE(w->rows, float, WIDE_KEYS * latent);
    TAKE(w->crossed, float, LD_BLOCK * m_pad);
    TAKE(w->scores, float, m * WIDE_KEYS);
    TAKE(w->scales, float, ld_latent_groups(op) * LD_BLOCK);
#undef TAKE
    return at;
}

int64_t ld_absorbed_scratch(const ld_node *node, int64_t m) {
    ld_absorbed r;
    wide_room w;
    return lay_out(&node->op, m, NULL, &r, &w);
}

ld_absorbed ld_absorbed_room(const ld_node *node, const ld_ctx *ctx, int64_t m) {
    ld_absorbed r;
    wide_room w;
    lay_out(&node->op, m, ctx->scratch, &r, &w);
    return r;
}

// ---- wide ----

static void attend_wide(const ld_node *node, const ld_ctx *ctx, ld_absorbed *r, wide_room *w, const int32_t *blocks, int64_t m,
                        int64_t from, int64_t to) {
    const ld_op *op = &node->op;
    int64_t latent = ld_latent_of(op), stride = ld_latent_floats(op), v_pad = ld_v_pad(op->width), m_pad = ld_round(m, 16);
    memset(w->q, 0, stride * m_pad * sizeof *w->q);
    for (int64_t i = 0; i < m; i++)
        for (int64_t d = 0; d < latent; d++) w->q[d * m_pad + i] = r->q[i * stride + d];
    for (int64_t start = from; start < to; start += WIDE_KEYS) {
        int64_t n = ld_min(WIDE_KEYS, to - start);
        for (int64_t b = 0; b < n; b += LD_BLOCK) {
            int64_t in_block = ld_min(LD_BLOCK, n - b);
            float *rows = w->rows + b * stride;
            ld_latent_load(node, ctx, blocks[(start + b) / LD_BLOCK], 0, in_block, rows, stride, w->scales);
            ctx->attn->tile[0](rows, stride, w->q, m_pad, w->crossed, m_pad, NULL, in_block, latent, m_pad, 0);
            for (int64_t i = 0; i < m; i++)
                for (int64_t t = 0; t < in_block; t++) w->scores[i * WIDE_KEYS + b + t] = w->crossed[t * m_pad + i];
        }
        for (int64_t i = 0; i < m; i++)
            ld_softmax_weigh(ctx, &r->softmax, i, w->scores + i * WIDE_KEYS, n, r->limit[i] - start);
        ctx->attn->tile[0](w->scores, WIDE_KEYS, w->rows, stride, r->sums, v_pad, r->softmax.factor, m, n, v_pad, 0);
    }
}

void ld_absorbed_attend(const ld_node *node, ld_ctx *ctx, ld_absorbed *r, const int32_t *blocks, int64_t m, int64_t from, int64_t to) {
    if (ld_latent_narrow(&node->op)) {
        ld_narrow_attend(node, ctx, r, blocks, m, from, to);
        return;
    }
    ld_absorbed again;
    wide_room wide;
    lay_out(&node->op, m, ctx->scratch, &again, &wide);
    memset(r->sums, 0, m * ld_v_pad(node->op.width) * sizeof *r->sums);
    ld_softmax_start(&r->softmax, m);
    attend_wide(node, ctx, r, &wide, blocks, m, from, to);
}
