// Absorbed queries over latent rows in 16-bit integers, which is twice as fast as f32 and as exact as an f16 cache.
#include <math.h>
#include <string.h>

#include "absorbed.h"

#include "../pairs.h"

#define KEYS LD_PAIR_KEYS
#define ZIP_PAD 32   // values between zipped rows, which would else all fall into the same sets of the first cache

typedef struct {
    float *rows, *scale, *scale_end, *ratio, *scores, *scales, *max, *total, *here, *sum, *keep, *gain, *q_scale, *q_scale_end;
    float *sums;     // [v_pad][m]
    float factor[LD_PAIR_GROUP];
    float ratio_max; // what a weight of the largest scale counts for
    int32_t *valid;
    int16_t *keys, *zipped, *q, *q_rows, *weights, *factors;
} room;

static int64_t lay_out(const ld_op *op, int64_t m, uint8_t *base, room *n) {
    int64_t at = 0, m_pad = ld_round(m, 16), latent = ld_latent_floats(op), c = ld_round(op->width, 32);
#define TAKE(to, type, count) to = (type *)((uintptr_t)base + at), at += ld_round((count) * (int64_t)sizeof(type), 64)
    TAKE(n->rows, float, LD_BLOCK * latent);
    TAKE(n->scale, float, KEYS);
    TAKE(n->scale_end, float, KEYS);
    TAKE(n->ratio, float, KEYS);
    TAKE(n->scores, float, KEYS * m_pad);
    TAKE(n->scales, float, ld_latent_groups(op) * LD_BLOCK);
    TAKE(n->max, float, m_pad);
    TAKE(n->total, float, m_pad);
    TAKE(n->here, float, m_pad);
    TAKE(n->sum, float, m_pad);
    TAKE(n->keep, float, m_pad);
    TAKE(n->gain, float, m_pad);
    TAKE(n->q_scale, float, m_pad);
    TAKE(n->q_scale_end, float, m_pad);
    TAKE(n->sums, float, ld_v_pad(op->width) * m_pad);
    TAKE(n->valid, int32_t, m_pad);
    TAKE(n->keys, int16_t, KEYS * latent);
    TAKE(n->zipped, int16_t, KEYS / 2 * (2 * c + ZIP_PAD));
    TAKE(n->q, int16_t, latent * m_pad);
    TAKE(n->q_rows, int16_t, latent * m_pad);
    TAKE(n->weights, int16_t, KEYS * m_pad);
    TAKE(n->factors, int16_t, ld_latent_groups(op) * LD_BLOCK);
#undef TAKE
    return at;
}

int64_t ld_narrow_scratch(const ld_op *op, int64_t m) {
    room n;
    return lay_out(op, m, NULL, &n);
}

// A part of a query as integers whose norm leaves room for the largest keys; the factor that brings sums back.
static float narrow_part(const ld_node *node, ld_ctx *ctx, const ld_pair_kernels *pairs, const float *x, int16_t *y, int64_t n) {
    float squares = ctx->table->vec.sum_squares(x, n);
    if (!isfinite(squares)) ld_bad_value(ctx, node);
    double norm = sqrt((double)squares), most = LD_PAIR_SUM / ((LD_PAIR_KEY + 1.0) * sqrt((double)n));
    double factor = norm > 0.0 && isfinite(norm) ? (most < 32000.0 ? most : 32000.0) / norm : 0.0;
    pairs->narrow(x, (float)factor, y, n);
    return factor > 0.0 ? (float)(1.0 / factor) : 0.0f;
}

static void narrow_queries(const ld_node *node, ld_ctx *ctx, const ld_pair_kernels *pairs, const ld_absorbed *r, room *w,
                           int64_t m) {
    int64_t latent = ld_latent_floats(&node->op), c = ld_round(node->op.width, 32), m_pad = ld_round(m, 16);
    memset(w->q_rows + m * latent, 0, (m_pad - m) * latent * sizeof *w->q_rows);
    for (int64_t i = 0; i < m_pad; i++) {
        const float *x = r->q + i * latent;
        int16_t *y = w->q_rows + i * latent;
        w->q_scale[i] = i < m ? narrow_part(node, ctx, pairs, x, y, c) : 0.0f;
        w->q_scale_end[i] = i < m ? narrow_part(node, ctx, pairs, x + c, y + c, latent - c) : 0.0f;
        w->max[i] = -INFINITY, w->total[i] = 0.0f;
    }
    pairs->cross(w->q_rows, latent / 2, w->q, m_pad, m_pad, latent / 2);
}

// A block of rows that are not yet as the kernels take them, as f32: c and k_pe in whole registers.
static void widen_block(const ld_node *node, const ld_ctx *ctx, room *w, int64_t block) {
    const ld_op *op = &node->op;
    int64_t latent = ld_latent_floats(op), c = ld_round(op->width, 32);
    ld_latent_load(node, ctx, block, 0, LD_BLOCK, w->rows, latent, w->scales);
    for (float *row = w->rows; row < w->rows + LD_BLOCK * latent; row += latent) {
        if (c != op->width) memmove(row + c, row + op->width, op->n_rot * sizeof *row);
        for (int64_t d = op->width; d < c; d++) row[d] = 0.0f;
        for (int64_t d = c + op->n_rot; d < latent; d++) row[d] = 0.0f;
    }
}

// Whether rows are whole registers, so that they become integers as they lie.
static int as_they_lie(const ld_op *op) { return ld_latent_of(op) == ld_latent_floats(op); }
static int64_t groups_of_c(const ld_op *op) { return op->k_type == LD_KV_Q8_0 ? op->width / 32 : 1; }

// Scales and factors of the 32 tokens of a block of bytes; t: of the first one in the window.
static void load_factors(const ld_op *op, const ld_pair_kernels *pairs, room *w, int64_t block, int64_t t) {
    const uint16_t *scales = (const uint16_t *)(ld_latent_block(op, block) + ld_latent_of(op) * LD_BLOCK);
    int64_t groups = ld_latent_groups(op), of_c = groups_of_c(op);
    pairs->factors(scales, of_c, w->factors, w->scale + t);
    if (groups > of_c)
        pairs->factors(scales + of_c * LD_BLOCK, groups - of_c, w->factors + of_c * LD_BLOCK, w->scale_end + t);
    else
        memcpy(w->scale_end + t, w->scale + t, LD_BLOCK * sizeof *w->scale);
}

// The ends of the rows of tokens t and t + 1 of a window, which lie at `slot` and behind it, as integers.
static void load_ends(const ld_op *op, const ld_pair_kernels *pairs, room *w, int64_t block, int64_t slot, int64_t t, int16_t *key) {
    int64_t latent = ld_latent_of(op), c = op->width, of_c = groups_of_c(op), at = slot * latent + c;
    int16_t *ends[2] = {key + c, key + latent + c};
    if (op->k_type == LD_KV_F16) {
        const uint16_t *x = (const uint16_t *)ld_latent_block(op, block) + at;
        pairs->keys_f16((const uint16_t *[2]){x, x + latent}, ends, NULL, w->scale_end + t, latent - c);
    } else {
        const int8_t *x = (const int8_t *)ld_latent_block(op, block) + at;
        const int16_t *factors = w->factors + (ld_latent_groups(op) > of_c ? of_c * LD_BLOCK : 0) + slot;
        pairs->keys_i8((const int8_t *[2]){x, x + latent}, factors, ld_kv_group(op->k_type, latent), ends, NULL, latent - c);
    }
}

// The latent rows of those tokens: c and k_pe, with a scale each.
static void load_pair(const ld_node *node, const ld_ctx *ctx, const ld_pair_kernels *pairs, room *w, int64_t block, int64_t slot,
                      int64_t t) {
    const ld_op *op = &node->op;
    int64_t latent = ld_latent_floats(op), c = ld_round(op->width, 32), at = slot * latent;
    int16_t *keys[2] = {w->keys + t * latent, w->keys + (t + 1) * latent}, *zipped = w->zipped + t / 2 * (2 * c + ZIP_PAD);
    if (!as_they_lie(op)) {
        if (slot == 0) widen_block(node, ctx, w, block);
        const float *x = w->rows + at;
        pairs->keys_f32((const float *[2]){x, x + latent}, keys, zipped, w->scale + t, c);
        pairs->keys_f32((const float *[2]){x + c, x + latent + c}, (int16_t *[2]){keys[0] + c, keys[1] + c}, NULL, w->scale_end + t,
                        latent - c);
        return;
    }
    if (op->k_type == LD_KV_F16) {
        const uint16_t *x = (const uint16_t *)ld_latent_block(op, block) + at;
        pairs->keys_f16((const uint16_t *[2]){x, x + latent}, keys, zipped, w->scale + t, c);
    } else {
        const int8_t *x = (const int8_t *)ld_latent_block(op, block) + at;
        if (slot == 0) load_factors(op, pairs, w, block, t);
        pairs->keys_i8((const int8_t *[2]){x, x + latent}, w->factors + slot, ld_kv_group(op->k_type, latent), keys, zipped, c);
    }
    load_ends(op, pairs, w, block, slot, t, keys[0]);
}

static const uint8_t *rows_at(const ld_op *op, const int32_t *blocks, int64_t t) {
    int64_t bytes = ld_kv_head_bytes(op->k_type, ld_latent_of(op)) / LD_BLOCK;
    return ld_latent_block(op, blocks[t / LD_BLOCK]) + t % LD_BLOCK * bytes;
}

// Keys of n tokens from `start` on. Where n is odd, the last row is loaded beside what lies behind it, which weighs nothing.
static void load_keys(const ld_node *node, const ld_ctx *ctx, const ld_pair_kernels *pairs, room *w, const int32_t *blocks,
                      int64_t start, int64_t n, int64_t to) {
    int64_t bytes = 2 * ld_kv_head_bytes(node->op.k_type, ld_latent_of(&node->op)) / LD_BLOCK;
    for (int64_t t = 0; t < n; t += 2) {
        int64_t later = start + t + KEYS; // asked for by twos: there is time until then, and no queue of requests to wait for
        const uint8_t *ask = later < to ? rows_at(&node->op, blocks, later) : NULL;
        for (int64_t at = 0; ask && at < bytes; at += 64) __builtin_prefetch(ask + at, 0, 2);
        load_pair(node, ctx, pairs, w, blocks[(start + t) / LD_BLOCK], (start + t) % LD_BLOCK, t);
    }
}

// What is to be done with the rows of a group of tokens, which lie at `slot` of a block and behind it; all but their first parts is done.
static ld_pair_next next_group(const ld_op *op, const ld_pair_kernels *pairs, room *w, int64_t block, int64_t slot, int64_t t,
                               int16_t *y) {
    int64_t latent = ld_latent_of(op), zipped_stride = 2 * op->width + ZIP_PAD;
    ld_pair_next next = {.one_group = op->k_type == LD_KV_INT8, .y = y, .zipped = w->zipped + t / 2 * zipped_stride, .x_stride = latent,
                         .y_stride = latent, .zipped_stride = zipped_stride};
    if (op->k_type == LD_KV_F16) {
        next.halves = (const uint16_t *)ld_latent_block(op, block) + slot * latent;
        next.factor = w->factor;
        pairs->largest(next.halves, latent, op->width, w->factor);
        for (int64_t i = 0; i < LD_PAIR_GROUP; i++) {
            w->scale[t + i] = w->factor[i] * (1.0f / LD_PAIR_KEY);
            w->factor[i] = w->factor[i] > 0.0f ? LD_PAIR_KEY / w->factor[i] : 0.0f;
        }
    } else {
        if (slot == 0) load_factors(op, pairs, w, block, t);
        next.bytes = (const int8_t *)ld_latent_block(op, block) + slot * latent;
        next.factors = w->factors + slot;
    }
    for (int64_t i = 0; i < LD_PAIR_GROUP; i += 2) load_ends(op, pairs, w, block, slot + i, t + i, y + i * latent);
    return next;
}

// Scores of n tokens from `start` on, whose keys come to lie in w.
static void score(const ld_node *node, const ld_ctx *ctx, const ld_pair_kernels *pairs, room *w, const int32_t *blocks,
                  int64_t start, int64_t n, int64_t to, int64_t m_pad) {
    int64_t latent = ld_latent_floats(&node->op), c = ld_round(node->op.width, 32);
    load_keys(node, ctx, pairs, w, blocks, start, n, to);
    pairs->dot(w->keys, latent, w->scale, n, w->q, w->q_scale, m_pad, c, w->scores, 0);
    pairs->dot(w->keys + c, latent, w->scale_end, n, w->q + c * m_pad, w->q_scale_end, m_pad, latent - c, w->scores, 1);
}

// The same where rows become integers as they lie: each group of keys beside the products of the one before it. Only two groups of
// keys are kept, what is zipped of all.
static void score_beside(const ld_node *node, const ld_ctx *ctx, const ld_pair_kernels *pairs, room *w, const int32_t *blocks,
                         int64_t start, int64_t n, int64_t to, int64_t m_pad) {
    const ld_op *op = &node->op;
    int64_t latent = ld_latent_of(op), c = op->width;
    load_keys(node, ctx, pairs, w, blocks, start, ld_min(n, LD_PAIR_GROUP), to);
    for (int64_t t = 0; t < n; t += LD_PAIR_GROUP) {
        int64_t later = t + LD_PAIR_GROUP, here = ld_min(n - t, LD_PAIR_GROUP);
        int16_t *keys = w->keys + t / LD_PAIR_GROUP % 2 * LD_PAIR_GROUP * latent;
        float *scores = w->scores + t * m_pad;
        if (later < n) {
            int16_t *y = w->keys + later / LD_PAIR_GROUP % 2 * LD_PAIR_GROUP * latent;
            ld_pair_next next = next_group(op, pairs, w, blocks[(start + later) / LD_BLOCK], (start + later) % LD_BLOCK, later, y);
            next.ask = rows_at(op, blocks, start + later + KEYS < to ? start + later + KEYS : start + later);
            pairs->dot_beside(keys, latent, w->scale + t, w->q, w->q_scale, m_pad, c, scores, &next);
        } else
            pairs->dot(keys, latent, w->scale + t, here, w->q, w->q_scale, m_pad, c, scores, 0);
        pairs->dot(keys + c, latent, w->scale_end + t, here, w->q + c * m_pad, w->q_scale_end, m_pad, latent - c, scores, 1);
    }
}

// What the weights of n tokens are multiplied with, so that the largest product of weight and scale uses all bits.
static void share(room *w, int64_t n) {
    float largest = 0.0f;
    for (int64_t t = 0; t < n; t++) largest = w->scale[t] > largest ? w->scale[t] : largest;
    float factor = largest > LD_PAIR_TINY ? LD_PAIR_WEIGHT / largest : 0.0f;
    for (int64_t t = 0; t < n; t++) w->ratio[t] = w->scale[t] * factor;
    w->ratio_max = largest / LD_PAIR_WEIGHT;
}

// Weights of n scores against the largest of these n, so that they use all of their bits; keep and gain bring earlier and these sums
// to the running maximum. The first time keep is exp(-inf) = 0.
static void weigh(const ld_ctx *ctx, const ld_pair_kernels *pairs, room *w, int64_t m_pad, int64_t n) {
    pairs->weigh(w->scores, n, m_pad, w->valid, w->ratio, w->weights, w->here, w->sum);
    for (int64_t i = 0; i < m_pad; i++) {
        int seen = w->valid[i] > 0;
        float max = !seen || w->max[i] > w->here[i] ? w->max[i] : w->here[i];
        w->keep[i] = seen ? w->max[i] - max : 0.0f;
        w->gain[i] = seen ? w->here[i] - max : -INFINITY;
        w->max[i] = max;
    }
    ctx->table->vec.exp_sum(w->keep, 0.0f, m_pad);
    ctx->table->vec.exp_sum(w->gain, 0.0f, m_pad);
    for (int64_t i = 0; i < m_pad; i++) {
        w->total[i] = w->total[i] * w->keep[i] + w->gain[i] * w->sum[i];
        w->gain[i] *= w->ratio_max;
    }
}

void ld_narrow_attend(const ld_node *node, ld_ctx *ctx, ld_absorbed *r, const int32_t *blocks, int64_t m, int64_t from, int64_t to) {
    const ld_op *op = &node->op;
    const ld_pair_kernels *pairs = ctx->table->pairs;
    int64_t c = ld_round(op->width, 32), v_pad = ld_v_pad(op->width), m_pad = ld_round(m, 16);
    room own, *w = &own;
    lay_out(op, m, r->rest, w);
    narrow_queries(node, ctx, pairs, r, w, m);
    memset(w->sums, 0, v_pad * m_pad * sizeof *w->sums);
    for (int64_t start = from; start < to; start += KEYS) {
        int64_t n = ld_min(KEYS, to - start);
        (as_they_lie(op) ? score_beside : score)(node, ctx, pairs, w, blocks, start, n, to, m_pad);
        for (int64_t i = 0; i < m_pad; i++) w->valid[i] = (int32_t)(i < m ? ld_min(n, r->limit[i] - start) : n);
        share(w, n);
        weigh(ctx, pairs, w, m_pad, n);
        pairs->sum(w->weights, m_pad, w->zipped, 2 * c + ZIP_PAD, (n + 1) / 2, w->keep, w->gain, w->sums, v_pad);
    }
    for (int64_t i = 0; i < m; i++) r->softmax.max[i] = w->max[i], r->softmax.total[i] = w->total[i];
    pairs->cross(w->sums, m_pad, r->sums, v_pad, v_pad, m_pad);
}
