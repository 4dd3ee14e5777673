// Attention over latent rows for many queries: keys and values of a head are made from a window of cached rows, then used by all
// queries of the task. A query then costs head_dim + v_dim products a key and head, not twice the rank; making them costs as much
// as some 150 queries gain, which is where the absorbed form of latent.c begins to lose.
#include <string.h>

#include "ops.h"
#include "softmax.h"

#define WINDOW 128     // keys made at a time: their latent rows, keys and values stay in the second cache
#define TILE_ROWS 24   // queries whose scores are summed at a time
#define ROWS_MIN 64    // queries of a task
#define HEADS_MAX 4    // heads of a task, which share latent rows and their quantisation

static int64_t row_floats(const ld_op *op) { return ld_round(op->width + op->n_rot, 16); }
static int64_t act_bytes(const ld_node *node, int act) { return ld_round(ld_act_row_bytes(act, node->op.width), 64); }

void ld_decompress_split(ld_node *node, int n_workers) {
    int64_t heads = node->op.n_heads, wanted = 4 * n_workers;
    node->tile_heads = ld_min(HEADS_MAX, heads / wanted < 1 ? 1 : heads / wanted);
    node->tile_rows = (wanted + heads - 1) / heads; // parts to cut the rows in
}

static int64_t rows_of_task(const ld_node *node, int64_t n_rows) {
    int64_t rows = ld_round((n_rows + node->tile_rows - 1) / node->tile_rows, TILE_ROWS);
    return rows < ROWS_MIN ? ROWS_MIN : rows;
}

static int64_t head_groups(const ld_node *node) { return (node->op.n_heads + node->tile_heads - 1) / node->tile_heads; }

int64_t ld_decompress_tasks(const ld_node *node, int64_t n_rows) {
    return (n_rows + rows_of_task(node, n_rows) - 1) / rows_of_task(node, n_rows) * head_groups(node);
}

// One worker's memory. acts: of the WINDOW latent rows, for each layout in use. keys: [head_dim][WINDOW], values: [WINDOW][v_pad].
typedef struct {
    float *rows, *made, *keys, *values, *scores, *scales;
    uint8_t *acts[LD_N_ACTS], *unpacked;
    float *sums; // [tile_heads][rows of the task][v_pad]
    ld_softmax softmax; // [tile_heads][rows of the task]
} room;

static int64_t lay_out(const ld_node *node, int64_t n_rows, uint8_t *base, room *r) {
    const ld_op *op = &node->op;
    int64_t at = 0, per_task = rows_of_task(node, n_rows), queries = node->tile_heads * per_task;
#define TAKE(field, type, bytes) r->field = (type *)((uintptr_t)base + at), at += ld_round(bytes, 64)
    TAKE(rows, float, WINDOW * row_floats(op) * 4);
    TAKE(made, float, WINDOW * ld_round(op->w_rows[0], 16) * 4);
    TAKE(keys, float, op->head_dim * WINDOW * 4);
    TAKE(values, float, WINDOW * ld_v_pad(op->v_dim) * 4);
    TAKE(scores, float, TILE_ROWS * WINDOW * 4);
    TAKE(scales, float, ld_latent_groups(op) * LD_BLOCK * 4);
    for (int a = 0; a < LD_N_ACTS; a++) TAKE(acts[a], uint8_t, node->acts_mask >> a & 1 ? WINDOW * act_bytes(node, a) : 0);
    TAKE(unpacked, uint8_t, ld_many_scratch_bytes(op->width));
    TAKE(sums, float, queries * ld_v_pad(op->v_dim) * 4);
    TAKE(softmax.max, float, queries * 4);
    TAKE(softmax.total, float, queries * 4);
    TAKE(softmax.factor, float, queries * 4);
#undef TAKE
    return at;
}

int64_t ld_decompress_scratch(const ld_node *node, int64_t max_rows) {
    room r;
    return lay_out(node, max_rows, NULL, &r);
}

// The latent rows of n keys from `start` on, as f32 and in the layouts that the matrices take; the shared ends of the keys.
static void load_window(const ld_node *node, const ld_ctx *ctx, room *r, const int32_t *blocks, int64_t start, int64_t n) {
    const ld_op *op = &node->op;
    int64_t stride = row_floats(op), nope = op->head_dim - op->n_rot;
    for (int64_t b = 0; b < n; b += LD_BLOCK)
        ld_latent_load(node, ctx, blocks[(start + b) / LD_BLOCK], 0, ld_min(LD_BLOCK, n - b), r->rows + b * stride, stride, r->scales);
    for (int a = 0; a < LD_N_ACTS; a++)
        for (int64_t t = 0; t < n && node->acts_mask >> a & 1; t++) {
            uint8_t *to = r->acts[a] + t * act_bytes(node, a);
            if (a == LD_ACT_F32)
                memcpy(to, r->rows + t * stride, op->width * 4);
            else
                ctx->table->quantize[a](r->rows + t * stride, to, op->width);
        }
    for (int64_t d = 0; d < op->n_rot; d++)
        for (int64_t t = 0; t < n; t++) r->keys[(nope + d) * WINDOW + t] = r->rows[t * stride + op->width + d] * (float)op->scale;
}

static void make(const ld_node *node, room *r, int i, int64_t head, int64_t n, float *y, int64_t stride) {
    const ld_op *op = &node->op;
    const uint8_t *w = (const uint8_t *)(uintptr_t)op->w_data[i] + head * op->w_step[i];
    int64_t bytes = act_bytes(node, node->act[i]);
    if (n <= LD_FEW_MAX)
        node->few[i](w, op->w_stride[i], r->acts[node->act[i]], bytes, n, y, stride, op->width, op->w_rows[i]);
    else
        node->many[i](w, op->w_stride[i], r->acts[node->act[i]], bytes, n, y, stride, op->width, op->w_rows[i], r->unpacked,
                      w + op->w_rows[i] * op->w_stride[i]);
}

// Keys (scaled, transposed) and values of a head for the n keys of the window.
static void make_head(const ld_node *node, room *r, int64_t head, int64_t n) {
    const ld_op *op = &node->op;
    int64_t nope = op->w_rows[0], stride = ld_round(nope, 16);
    make(node, r, 0, head, n, r->made, stride);
    for (int64_t t = 0; t < n; t += 16) // in squares, so that both sides stay in the first cache
        for (int64_t d = 0; d < nope; d++)
            for (int64_t i = t; i < ld_min(t + 16, n); i++) r->keys[d * WINDOW + i] = r->made[i * stride + d] * (float)op->scale;
    make(node, r, 1, head, n, r->values, ld_v_pad(op->v_dim));
}

// Rows [first, end) against the n keys from `start` on. at: of the first row and the head in sums and softmax.
static void attend_window(const ld_node *node, const ld_ctx *ctx, room *r, int64_t first, int64_t end, int64_t head, int64_t start,
                          int64_t n, int64_t at) {
    const ld_op *op = &node->op;
    int64_t v_pad = ld_v_pad(op->v_dim);
    const int32_t *positions = ctx->state->positions;
    for (int64_t row = first; row < end; row += TILE_ROWS) {
        int64_t m = ld_min(TILE_ROWS, end - row), seen = 0;
        for (int64_t i = 0; i < m; i++)
            if (positions[row + i] + 1 - start > seen) seen = positions[row + i] + 1 - start;
        int64_t keys = ld_min(n, seen), tile = at + row - first;
        if (keys <= 0) continue;
        ctx->attn->tile[0](ld_row(ctx, op->q_offset, op->q_stride, row) + head * op->head_dim, op->q_stride, r->keys, WINDOW, r->scores,
                           WINDOW, NULL, m, op->head_dim, ld_round(keys, 16), 0);
        for (int64_t i = 0; i < m; i++) {
            ld_softmax one = {r->softmax.max + tile, r->softmax.total + tile, r->softmax.factor + tile};
            ld_softmax_weigh(ctx, &one, i, r->scores + i * WINDOW, keys, positions[row + i] + 1 - start);
        }
        ctx->attn->tile[0](r->scores, WINDOW, r->values, v_pad, r->sums + tile * v_pad, v_pad, r->softmax.factor + tile, m, keys, v_pad, 0);
    }
}

void ld_decompress_task(const ld_node *node, ld_ctx *ctx, int64_t task) {
    const ld_op *op = &node->op;
    const ld_step_state *s = ctx->state;
    int64_t per_task = rows_of_task(node, s->n_rows), parts = (s->n_rows + per_task - 1) / per_task, v_pad = ld_v_pad(op->v_dim);
    int64_t first = (parts - 1 - task / head_groups(node)) * per_task, last = ld_min(first + per_task, s->n_rows); // longest first
    int64_t head = task % head_groups(node) * node->tile_heads, heads = ld_min(node->tile_heads, op->n_heads - head);
    room r;
    lay_out(node, s->n_rows, ctx->scratch, &r);
    memset(r.values, 0, WINDOW * v_pad * 4);
    while (first < last) {
        int64_t end = first + 1, longest = s->positions[first] + 1, rows;
        for (; end < last && s->seq_of_row[end] == s->seq_of_row[first]; end++)
            if (s->positions[end] + 1 > longest) longest = s->positions[end] + 1;
        rows = end - first;
        memset(r.sums, 0, heads * rows * v_pad * 4);
        ld_softmax_start(&r.softmax, heads * rows);
        for (int64_t start = 0; start < longest; start += WINDOW) {
            int64_t n = ld_min(WINDOW, longest - start);
            load_window(node, ctx, &r, ld_blocks_of(ctx->state, op->cache_group, first), start, n);
            for (int64_t h = 0; h < heads; h++) {
                make_head(node, &r, head + h, n);
                attend_window(node, ctx, &r, first, end, head + h, start, n, h * rows);
            }
        }
        for (int64_t i = 0; i < heads * rows; i++) {
            float *y = ld_row(ctx, op->y_offset[0], op->y_stride[0], first + i % rows) + (head + i / rows) * op->v_dim;
            float scale = 1.0f / r.softmax.total[i];
            for (int64_t d = 0; d < op->v_dim; d++) y[d] = r.sums[i * v_pad + d] * scale;
        }
        first = end;
    }
}
