// Absorbed queries over latent rows: wide, in f32, and narrow, in 16-bit integers, which is twice as fast and as exact as an f16 cache.
#include <immintrin.h>

#include <math.h>
#include <string.h>

#include "absorbed.h"

#include "../half.h"
#include "../pairs.h"
#include "../pairs/scalar.h"
#include "../pairs/avx2.h"
#include "../pairs/avx512.h"

#define WIDE_KEYS 64 // keys scored before their values are summed: their f32 rows stay in the second cache
#define KEYS LD_PAIR_KEYS
#define ZIP_PAD 32   // values between zipped rows, which would else all fall into the same sets of the first cache

const ld_pair_kernels *ld_pairs_for(ld_isa isa) {
#define MADE(to) narrow_##to, key_f32_##to, key_f16_##to, zip_##to
    static const ld_pair_kernels scalar = {MADE(scalar), dot_scalar, below_max_scalar, weigh_scalar, sum_scalar, LD_ISA_SCALAR};
    static const ld_pair_kernels avx2 = {MADE(avx2), dot_avx2, below_max_avx2, weigh_avx2, sum_avx2, LD_ISA_AVX2};
    static const ld_pair_kernels avx512 = {MADE(avx512), dot_avx512, below_max_avx512, weigh_avx512, sum_avx512, LD_ISA_AVX512};
    static const ld_pair_kernels vnni = {MADE(avx512),      dot_avx512vnni, below_max_avx512, weigh_avx512, sum_avx512vnni,
                                         LD_ISA_AVX512VNNI};
#undef MADE
    return isa >= LD_ISA_AVX512VNNI ? &vnni : isa >= LD_ISA_AVX512 ? &avx512 : isa >= LD_ISA_AVX2 ? &avx2 : &scalar;
}

// ---- memory ----

typedef struct {
    float *q, *rows, *crossed, *scores, *scales; // queries and scores of a block transposed
} wide_room;

typedef struct {
    float *rows, *scale, *scale_end, *ratio, *scores, *scales, *max, *total, *here, *sum, *keep, *gain, *q_scale, *q_scale_end;
    float *sums;     // [v_pad][m]
    float ratio_max; // what a weight of the largest scale counts for
    int32_t *valid;
    int16_t *keys, *zipped, *q, *q_row, *weights;
} narrow_room;

static int64_t lay_out(const ld_op *op, int64_t m, uint8_t *base, ld_absorbed *r, wide_room *w, narrow_room *n) {
    int64_t at = 0, m_pad = ld_round(m, 16), latent = ld_latent_floats(op), c = ld_round(op->width, 32);
#define TAKE(to, type, count) to = (type *)((uintptr_t)base + at), at += ld_round((count) * (int64_t)sizeof(type), 64)
    TAKE(r->limit, int64_t, m);
    TAKE(r->q, float, m * latent);
    TAKE(r->sums, float, m * ld_v_pad(op->width));
    TAKE(r->softmax.max, float, m);
    TAKE(r->softmax.total, float, m);
    TAKE(r->softmax.factor, float, m);
    r->rest = (uint8_t *)((uintptr_t)base + at);
    int64_t shared = at;
    TAKE(w->q, float, latent * m_pad);
    TAKE(w->rows, float, WIDE_KEYS * latent);
    TAKE(w->crossed, float, LD_BLOCK * m_pad);
    TAKE(w->scores, float, m * WIDE_KEYS);
    TAKE(w->scales, float, ld_latent_groups(op) * LD_BLOCK);
    int64_t end = at;
    at = shared;
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
    TAKE(n->keys, int16_t, (KEYS + 1) * latent);
    TAKE(n->zipped, int16_t, KEYS / 2 * (2 * c + ZIP_PAD));
    TAKE(n->q, int16_t, latent * m_pad);
    TAKE(n->q_row, int16_t, latent);
    TAKE(n->weights, int16_t, KEYS * m_pad);
#undef TAKE
    return at > end ? at : end;
}

int64_t ld_absorbed_scratch(const ld_node *node, int64_t m) {
    ld_absorbed r;
    wide_room w;
    narrow_room n;
    return lay_out(&node->op, m, NULL, &r, &w, &n);
}

ld_absorbed ld_absorbed_room(const ld_node *node, const ld_ctx *ctx, int64_t m) {
    ld_absorbed r;
    wide_room w;
    narrow_room n;
    lay_out(&node->op, m, ctx->scratch, &r, &w, &n);
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

// ---- narrow ----

// A part of a query as integers whose norm leaves room for the largest keys; the factor that brings sums back.
static float narrow_part(const ld_node *node, ld_ctx *ctx, const ld_pair_kernels *pairs, const float *x, int16_t *y, int64_t n) {
    float squares = ctx->table->vec.sum_squares(x, n);
    if (!isfinite(squares)) ld_bad_value(ctx, node);
    double norm = sqrt((double)squares), room = LD_PAIR_SUM / ((LD_PAIR_KEY + 1.0) * sqrt((double)n));
    double factor = norm > 0.0 && isfinite(norm) ? (room < 32000.0 ? room : 32000.0) / norm : 0.0;
    pairs->narrow(x, (float)factor, y, n);
    return factor > 0.0 ? (float)(1.0 / factor) : 0.0f;
}

static void narrow_queries(const ld_node *node, ld_ctx *ctx, const ld_pair_kernels *pairs, const ld_absorbed *r, narrow_room *w,
                           int64_t m) {
    int64_t latent = ld_latent_floats(&node->op), c = ld_round(node->op.width, 32), m_pad = ld_round(m, 16);
    if (m < m_pad) memset(w->q, 0, latent * m_pad * sizeof *w->q);
    for (int64_t i = 0; i < m_pad; i++) {
        const float *x = r->q + i * latent;
        w->q_scale[i] = i < m ? narrow_part(node, ctx, pairs, x, w->q_row, c) : 0.0f;
        w->q_scale_end[i] = i < m ? narrow_part(node, ctx, pairs, x + c, w->q_row + c, latent - c) : 0.0f;
        w->max[i] = -INFINITY, w->total[i] = 0.0f;
        for (int64_t p = 0; i < m && p < latent / 2; p++) memcpy(w->q + (p * m_pad + i) * 2, w->q_row + 2 * p, 2 * sizeof *w->q);
    }
}

// The latent row of a token as integers: c and k_pe, with a scale each.
static void load_key(const ld_node *node, const ld_ctx *ctx, const ld_pair_kernels *pairs, narrow_room *w, int64_t block, int64_t slot,
                     int64_t t, int64_t n_in_block) {
    const ld_op *op = &node->op;
    int64_t latent = ld_latent_floats(op), c = ld_round(op->width, 32);
    int16_t *key = w->keys + t * latent;
    if (op->k_type == LD_KV_F16 && ld_latent_of(op) == latent) {
        const uint16_t *from = (const uint16_t *)ld_latent_block(op, block) + slot * latent;
        w->scale[t] = pairs->key_f16(from, key, c);
        w->scale_end[t] = pairs->key_f16(from + c, key + c, latent - c);
        return;
    }
    if (slot == 0)
        ld_latent_load(node, ctx, block, 0, n_in_block, w->rows, latent, w->scales);
    float *row = w->rows + slot * latent;
    if (c != op->width) memmove(row + c, row + op->width, op->n_rot * sizeof *row);
    for (int64_t d = op->width; d < c; d++) row[d] = 0.0f;
    for (int64_t d = c + op->n_rot; d < latent; d++) row[d] = 0.0f;
    w->scale[t] = pairs->key_f32(row, key, c);
    w->scale_end[t] = pairs->key_f32(row + c, key + c, latent - c);
}

static void load_keys(const ld_node *node, const ld_ctx *ctx, const ld_pair_kernels *pairs, narrow_room *w, const int32_t *blocks,
                      int64_t start, int64_t n, int64_t to) {
    int64_t latent = ld_latent_floats(&node->op), c = ld_round(node->op.width, 32), stride = 2 * c + ZIP_PAD;
    int64_t bytes = ld_kv_head_bytes(node->op.k_type, ld_latent_of(&node->op)) / LD_BLOCK;
    for (int64_t t = 0; t < n; t++) {
        int64_t later = start + t + KEYS;
        if (later < to) { // asked for row by row: there is time until then, and no queue of requests to wait for
            const uint8_t *next = ld_latent_block(&node->op, blocks[later / LD_BLOCK]) + later % LD_BLOCK * bytes;
            for (int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(next + at, 0, 2);
        }
        load_key(node, ctx, pairs, w, blocks[(start + t) / LD_BLOCK], (start + t) % LD_BLOCK, t,
                 ld_min(LD_BLOCK, n - t));
        if (t % 2) pairs->zip(w->keys + (t - 1) * latent, w->keys + t * latent, w->zipped + t / 2 * stride, c);
    }
    if (n % 2) { // beside a row of zeros
        memset(w->keys + n * latent, 0, c * sizeof *w->keys);
        pairs->zip(w->keys + (n - 1) * latent, w->keys + n * latent, w->zipped + n / 2 * stride, c);
    }
    float largest = 0.0f;
    for (int64_t t = 0; t < n; t++) largest = w->scale[t] > largest ? w->scale[t] : largest;
    for (int64_t t = 0; t < n; t++) w->ratio[t] = largest > 0.0f ? w->scale[t] / largest * LD_PAIR_WEIGHT : 0.0f;
    w->ratio_max = largest / LD_PAIR_WEIGHT;
}

// Weights of n scores against the largest of these n, so that they use all of their bits; keep and gain bring earlier and these sums
// to the running maximum.
static void weigh(const ld_ctx *ctx, const ld_pair_kernels *pairs, narrow_room *w, int64_t m_pad, int64_t n) {
    pairs->below_max(w->scores, n, m_pad, w->valid, w->here);
    ctx->table->vec.exp_sum(w->scores, 0.0f, n * m_pad);
    pairs->weigh(w->scores, n, m_pad, w->ratio, w->weights, w->sum);
    for (int64_t i = 0; i < m_pad; i++) {
        if (w->valid[i] <= 0) {
            w->keep[i] = 1.0f, w->gain[i] = 0.0f;
            continue;
        }
        float max = fmaxf(w->max[i], w->here[i]), gain = expf(w->here[i] - max);
        w->keep[i] = expf(w->max[i] - max); // the first time exp(-inf) = 0
        w->gain[i] = gain * w->ratio_max;
        w->total[i] = w->total[i] * w->keep[i] + gain * w->sum[i];
        w->max[i] = max;
    }
}

static void attend_narrow(const ld_node *node, ld_ctx *ctx, ld_absorbed *r, narrow_room *w, const int32_t *blocks, int64_t m,
                          int64_t from, int64_t to) {
    const ld_op *op = &node->op;
    const ld_pair_kernels *pairs = ld_pairs_for(ctx->table->isa);
    int64_t latent = ld_latent_floats(op), c = ld_round(op->width, 32), v_pad = ld_v_pad(op->width), m_pad = ld_round(m, 16);
    narrow_queries(node, ctx, pairs, r, w, m);
    memset(w->sums, 0, v_pad * m_pad * sizeof *w->sums);
    for (int64_t start = from; start < to; start += KEYS) {
        int64_t n = ld_min(KEYS, to - start);
        load_keys(node, ctx, pairs, w, blocks, start, n, to);
        for (int64_t i = 0; i < m_pad; i++) w->valid[i] = (int32_t)(i < m ? ld_min(n, r->limit[i] - start) : n);
        pairs->dot(w->keys, latent, w->scale, n, w->q, w->q_scale, m_pad, c, w->scores, 0);
        pairs->dot(w->keys + c, latent, w->scale_end, n, w->q + c * m_pad, w->q_scale_end, m_pad, latent - c, w->scores, 1);
        weigh(ctx, pairs, w, m_pad, n);
        pairs->sum(w->weights, m_pad, w->zipped, 2 * c + ZIP_PAD, (n + 1) / 2, w->keep, w->gain, w->sums, v_pad);
    }
    for (int64_t i = 0; i < m; i++) {
        r->softmax.max[i] = w->max[i], r->softmax.total[i] = w->total[i];
        for (int64_t d = 0; d < v_pad; d++) r->sums[i * v_pad + d] = w->sums[d * m_pad + i];
    }
}

void ld_absorbed_attend(const ld_node *node, ld_ctx *ctx, ld_absorbed *r, const int32_t *blocks, int64_t m, int64_t from, int64_t to) {
    ld_absorbed again;
    wide_room wide;
    narrow_room fine;
    lay_out(&node->op, m, ctx->scratch, &again, &wide, &fine);
    memset(r->sums, 0, m * ld_v_pad(node->op.width) * sizeof *r->sums);
    ld_softmax_start(&r->softmax, m);
    if (ld_latent_narrow(&node->op))
        attend_narrow(node, ctx, r, &fine, blocks, m, from, to);
    else
        attend_wide(node, ctx, r, &wide, blocks, m, from, to);
}
