// A matrix for each head: each task makes the input of its head for itself, a few hundred values a row, and does some of its rows.
#include <string.h>

#include "ops.h"

#define CHUNK_MIN 32 // weight rows per task

static int64_t act_bytes(const ld_node *node) { return ld_round(ld_act_row_bytes(node->act[0], node->op.width), 64); }

// Scratch: [one f32 row][activations of all rows][unpacked weights]
int64_t ld_heads_scratch(const ld_node *node, int64_t max_rows) {
    int64_t unpacked = max_rows > LD_FEW_MAX ? ld_many_scratch_bytes(node->op.width) : 0;
    return ld_round(node->op.width * 4, 64) + max_rows * act_bytes(node) + ld_round(unpacked, 64);
}

void ld_heads_split(ld_node *node, int n_workers) {
    int64_t n = node->op.w_rows[0], chunks = (4 * n_workers + node->op.n_heads - 1) / node->op.n_heads;
    int64_t chunk = ld_round((n + chunks - 1) / chunks, CHUNK_MIN);
    node->chunk_few[0] = node->chunk_many[0] = chunk;
    node->tasks_few[0] = node->tasks_many[0] = (n + chunk - 1) / chunk;
}

int64_t ld_heads_tasks(const ld_node *node, int64_t n_rows) { return n_rows ? node->op.n_heads * node->tasks_few[0] : 0; }

void ld_heads_task(const ld_node *node, ld_ctx *ctx, int64_t task) {
    const ld_op *op = &node->op;
    int64_t n_rows = ld_node_rows(node, ctx->state), head = task / node->tasks_few[0];
    int64_t first = task % node->tasks_few[0] * node->chunk_few[0], n = ld_min(node->chunk_few[0], op->w_rows[0] - first);
    int64_t stride = act_bytes(node);
    float *merged = (float *)ctx->scratch;
    uint8_t *acts = ctx->scratch + ld_round(op->width * 4, 64), *unpacked = acts + n_rows * stride;
    for (int64_t r = 0; r < n_rows; r++) {
        const float *x = ld_row(ctx, op->x_offset, op->x_stride, r) + head * op->x_head;
        if (op->flags & LD_F_MERGE) {
            ld_merge_head(node, ctx, r, head, merged);
            x = merged;
        }
        if (node->act[0] == LD_ACT_F32)
            memcpy(acts + r * stride, x, op->width * sizeof *x);
        else
            ctx->table->quantize[node->act[0]](x, acts + r * stride, op->width);
    }
    const uint8_t *w = (const uint8_t *)(uintptr_t)op->w_data[0] + head * op->w_step[0] + first * op->w_stride[0];
    float *y = ld_row(ctx, op->y_offset[0], op->y_stride[0], 0) + head * op->y_head + first;
    if (n_rows <= LD_FEW_MAX)
        node->few[0](w, op->w_stride[0], acts, stride, n_rows, y, op->y_stride[0], op->width, n);
    else
        node->many[0](w, op->w_stride[0], acts, stride, n_rows, y, op->y_stride[0], op->width, n, unpacked, w + n * op->w_stride[0]);
}
