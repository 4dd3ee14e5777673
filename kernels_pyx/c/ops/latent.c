// Attention over latent rows, absorbed: every query head reads the same rows, as keys and then as values.
#include <math.h>
#include <string.h>

#include "absorbed.h"

#define GROUP_HEADS 32 // heads of a task of LATENT_ROWS
#define TILE_QUERIES 48 // queries (rows x heads) of a task of LATENT_TILES

int64_t ld_latent_groups(const ld_op *op) {
    int64_t group = ld_kv_group(op->k_type, ld_latent_of(op));
    return op->k_type <= LD_KV_F16 ? 0 : (ld_latent_of(op) + group - 1) / group;
}

void ld_latent_load(const ld_node *node, const ld_ctx *ctx, int64_t block, int64_t first, int64_t n, float *rows, int64_t stride,
                    float *scales) {
    const ld_op *op = &node->op;
    int64_t latent = ld_latent_of(op), groups = ld_latent_groups(op), group = ld_kv_group(op->k_type, latent);
    const uint8_t *from = ld_latent_block(op, block);
    if (groups) ctx->table->vec.f16_to_f32((const uint16_t *)(from + latent * LD_BLOCK), scales, groups * LD_BLOCK);
    for (int64_t t = first; t < first + n; t++, rows += stride) {
        if (op->k_type == LD_KV_F32)
            memcpy(rows, (const float *)from + t * latent, latent * sizeof *rows);
        else if (op->k_type == LD_KV_F16)
            ctx->table->vec.f16_to_f32((const uint16_t *)from + t * latent, rows, latent);
        for (int64_t g = 0; g < groups; g++)
            ctx->attn->widen((const int8_t *)from + t * latent + g * group, scales[g * LD_BLOCK + t], rows + g * group,
                             ld_min(group, latent - g * group));
    }
}

static void store(const ld_node *node, ld_ctx *ctx, int64_t row, const float *x) {
    const ld_op *op = &node->op;
    int64_t position = ctx->state->positions[row], slot = position % LD_BLOCK, latent = ld_latent_of(op);
    uint8_t *to = ld_latent_block(op, ld_blocks_of(ctx->state, op->cache_group, row)[position / LD_BLOCK]);
    if (op->k_type == LD_KV_F32)
        memcpy((float *)to + slot * latent, x, latent * sizeof *x);
    else if (op->k_type == LD_KV_F16)
        ctx->table->vec.f32_to_f16(x, (uint16_t *)to + slot * latent, latent);
    else
        ld_store_quants(ctx, x, latent, ld_kv_group(op->k_type, latent), (int8_t *)to + slot * latent, 2, 1,
                        (uint16_t *)(to + latent * LD_BLOCK) + slot);
}

void ld_latent_position_task(const ld_node *node, ld_ctx *ctx, int64_t task) {
    const ld_op *op = &node->op;
    int64_t first = task * LD_POINTWISE_ROWS, end = ld_min(first + LD_POINTWISE_ROWS, ld_node_rows(node, ctx->state));
    float *latent = (float *)ctx->scratch;
    for (int64_t r = first; r < end; r++) {
        int64_t position = ctx->state->positions[r];
        float *q = ld_row(ctx, op->q_offset, op->q_stride, r) + op->head_dim - op->n_rot;
        for (int64_t h = 0; h < op->n_heads; h++) ld_rotate(op, position, q + h * op->head_dim);
        memcpy(latent, ld_row(ctx, op->k_offset, op->k_stride, r), ld_latent_of(op) * sizeof *latent);
        ld_norm_row(node, ctx, latent, (const float *)(uintptr_t)op->k_norm_w, op->k_norm_eps, latent, op->width);
        if (!ctx->table->vec.all_finite(latent + op->width, op->n_rot)) ld_bad_value(ctx, node);
        ld_rotate(op, position, latent + op->width);
        store(node, ctx, r, latent);
    }
}

static int64_t tile_rows(const ld_op *op) { return op->n_heads > TILE_QUERIES ? 1 : TILE_QUERIES / op->n_heads; }
static int64_t group_heads(const ld_op *op) {
    return op->kind == LD_OP_LATENT_TILES && op->n_heads <= TILE_QUERIES ? op->n_heads : ld_min(op->n_heads, GROUP_HEADS);
}
static int64_t n_groups(const ld_op *op) { return (op->n_heads + group_heads(op) - 1) / group_heads(op); }
static int64_t queries_max(const ld_op *op) { return group_heads(op) * (op->kind == LD_OP_LATENT_TILES ? tile_rows(op) : 1); }

int64_t ld_latent_scratch(const ld_node *node) { return ld_absorbed_scratch(node, queries_max(&node->op)); }

// Query i: [absorbed | rotated] of a row's head, scaled; both parts as in ld_latent_floats where narrow, side by side where wide.
static void load_query(const ld_node *node, const ld_ctx *ctx, const ld_absorbed *r, int64_t i, int64_t row, int64_t head) {
    const ld_op *op = &node->op;
    const float *absorbed = ld_row(ctx, op->x_offset, op->x_stride, row) + head * op->width;
    const float *turned = ld_row(ctx, op->q_offset, op->q_stride, row) + (head + 1) * op->head_dim - op->n_rot;
    float *to = r->q + i * ld_latent_floats(op), scale = (float)op->scale;
    memset(to, 0, ld_latent_floats(op) * sizeof *to);
    for (int64_t d = 0; d < op->width; d++) to[d] = absorbed[d] * scale;
    for (int64_t d = 0; d < op->n_rot; d++) to[ld_latent_end(op) + d] = turned[d] * scale;
}

int64_t ld_latent_tasks(const ld_node *node, const ld_step_state *state) {
    const ld_op *op = &node->op;
    if (op->kind == LD_OP_LATENT_ROWS) return state->n_rows * n_groups(op) * state->max_chunks;
    return (state->n_rows + tile_rows(op) - 1) / tile_rows(op) * n_groups(op);
}

void ld_latent_rows_task(const ld_node *node, ld_ctx *ctx, int64_t task) {
    const ld_op *op = &node->op;
    int64_t chunks = ctx->state->max_chunks, chunk = task % chunks, group = task / chunks % n_groups(op);
    int64_t row = task / chunks / n_groups(op), len = ctx->state->positions[row] + 1, keys = ld_attn_chunk(len);
    int64_t from = chunk * keys, to = ld_min(from + keys, len), first = group * group_heads(op);
    int64_t m = ld_min(group_heads(op), op->n_heads - first);
    if (from >= len) return;
    ld_absorbed r = ld_absorbed_room(node, ctx, m);
    for (int64_t i = 0; i < m; i++) {
        load_query(node, ctx, &r, i, row, first + i);
        r.limit[i] = len;
    }
    ld_absorbed_attend(node, ctx, &r, ld_blocks_of(ctx->state, op->cache_group, row), m, from, to);
    float *partials = ld_row(ctx, op->y_offset[0], op->y_stride[0], row);
    for (int64_t i = 0; i < m; i++) {
        float *scales = ld_chunk_scales(op, partials, chunk, first + i);
        memcpy(ld_chunk_sums(op, partials, chunk, first + i), r.sums + i * ld_v_pad(op->width), op->width * sizeof(float));
        scales[0] = r.softmax.max[i], scales[1] = r.softmax.total[i];
    }
}

// Rows [first, end) of one sequence, heads [head, head + n).
static void attend_tile(const ld_node *node, ld_ctx *ctx, int64_t first, int64_t end, int64_t head, int64_t n) {
    const ld_op *op = &node->op;
    int64_t m = (end - first) * n, longest = 0;
    ld_absorbed r = ld_absorbed_room(node, ctx, m);
    for (int64_t i = 0; i < m; i++) {
        int64_t row = first + i / n;
        load_query(node, ctx, &r, i, row, head + i % n);
        r.limit[i] = ctx->state->positions[row] + 1;
        if (r.limit[i] > longest) longest = r.limit[i];
    }
    ld_absorbed_attend(node, ctx, &r, ld_blocks_of(ctx->state, op->cache_group, first), m, 0, longest);
    for (int64_t i = 0; i < m; i++) {
        float *y = ld_row(ctx, op->y_offset[0], op->y_stride[0], first + i / n) + (head + i % n) * op->width;
        float scale = 1.0f / r.softmax.total[i], *sums = r.sums + i * ld_v_pad(op->width);
        for (int64_t d = 0; d < op->width; d++) y[d] = sums[d] * scale;
    }
}

void ld_latent_tiles_task(const ld_node *node, ld_ctx *ctx, int64_t task) {
    const ld_op *op = &node->op;
    const ld_step_state *s = ctx->state;
    int64_t rows = tile_rows(op), tiles = (s->n_rows + rows - 1) / rows, head = task % n_groups(op) * group_heads(op);
    int64_t first = (tiles - 1 - task / n_groups(op)) * rows, last = ld_min(first + rows, s->n_rows); // the longest pasts first
    while (first < last) {
        int64_t end = first + 1;
        while (end < last && s->seq_of_row[end] == s->seq_of_row[first]) end++;
        attend_tile(node, ctx, first, end, head, ld_min(group_heads(op), op->n_heads - head));
        first = end;
    }
}
