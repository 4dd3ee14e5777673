// Mixtures of experts: the products of each group of rows that pass one expert. Who passes whom is in route.c.
#include <string.h>

#include "ops.h"

#define FEW_BYTES (512 << 10)   // weights per task of few rows: each expert's part of it is a stream of its own
#define FEW_CHUNK_MAX 128        // weight rows
#define UP_CHUNK LD_PANEL_ROWS  // weight rows per task of many rows
#define DOWN_CHUNK (2 * LD_PANEL_ROWS) // more here: a task goes through the activations of all groups

static int64_t groups_max(const ld_node *node, int64_t n_rows) { return ld_min(node->op.n_experts, n_rows * node->op.n_used); }

void ld_experts_split(ld_node *node, int n_workers) {
    const ld_op *op = &node->op;
    int up = op->kind == LD_OP_EXPERTS_UP;
    int64_t row_bytes = up ? op->w_stride[0] + op->w_stride[1] : op->w_stride[0] * op->n_used;
    int64_t total = row_bytes * op->w_rows[0] * (up ? op->n_used : 1), bytes = ld_min(FEW_BYTES, total / (8 * n_workers));
    int64_t rows = bytes / row_bytes / 8 * 8;
    node->chunk_few[0] = rows < 8 ? 8 : ld_min(rows, FEW_CHUNK_MAX);
    node->chunk_many[0] = up ? UP_CHUNK : DOWN_CHUNK;
    node->tasks_few[0] = (op->w_rows[0] + node->chunk_few[0] - 1) / node->chunk_few[0];
    node->tasks_many[0] = (op->w_rows[0] + node->chunk_many[0] - 1) / node->chunk_many[0];
}

// Tasks of UP: a chunk of weight rows of one group, with room for as many groups as there can be. Of DOWN: a chunk of outputs.
int64_t ld_experts_tasks(const ld_node *node, int64_t n_rows) {
    int64_t chunks = n_rows <= LD_FEW_MAX ? node->tasks_few[0] : node->tasks_many[0];
    return n_rows ? chunks * (node->op.kind == LD_OP_EXPERTS_UP ? groups_max(node, n_rows) : 1) : 0;
}

static int64_t act_bytes(int act, int64_t width) { return ld_round(ld_act_row_bytes(act, width), 64); }

static int64_t gather_bytes(const ld_node *node, int64_t max_rows) {
    int64_t bytes = 0;
    for (int a = 0; node->op.kind == LD_OP_EXPERTS_UP && a < LD_N_ACTS; a++)
        if (node->acts_mask >> a & 1) bytes += max_rows * act_bytes(a, node->op.width);
    return bytes;
}

static int64_t chunk_max(const ld_node *node) {
    return node->chunk_few[0] > node->chunk_many[0] ? node->chunk_few[0] : node->chunk_many[0];
}

static int64_t product_bytes(const ld_node *node, int64_t max_rows) {
    return ld_round(node->op.n_weights * max_rows * chunk_max(node) * 4, 64);
}

// Scratch: [input stage][rows of one group, for UP][products before the epilogue][unpacked weights]
int64_t ld_experts_scratch(const ld_node *node, int64_t max_rows) {
    int64_t before = ld_input_bytes(node) + gather_bytes(node, max_rows) + product_bytes(node, max_rows);
    return before + ld_round(ld_many_scratch_bytes(node->op.width), 64);
}

static uint8_t *unpack_room(const ld_node *node, const ld_ctx *ctx, int64_t n_rows) {
    return ctx->scratch + ld_input_bytes(node) + gather_bytes(node, n_rows) + product_bytes(node, n_rows);
}

// The activations of the rows of a group, side by side: copied once for all tasks of the group that this worker does.
static const uint8_t *group_rows(const ld_node *node, ld_ctx *ctx, const ld_routes *routes, int64_t group, int act, int64_t n_rows,
                                 size_t *stride) {
    const uint8_t *from = ld_input_of(node, ctx, n_rows, act, stride), *found = NULL;
    int64_t first = routes->start[group], m = routes->start[group + 1] - first;
    if (m == 1) return from + routes->row[first] * *stride;
    int64_t wanted = ((int64_t)node->index + 1) << 16 | group;
    uint8_t *to = ctx->scratch + ld_input_bytes(node);
    for (int a = 0; a < LD_N_ACTS; a++) {
        if (!(node->acts_mask >> a & 1)) continue;
        int64_t bytes = act_bytes(a, node->op.width);
        from = ld_input_of(node, ctx, n_rows, a, stride);
        for (int64_t i = 0; i < m && ctx->gathered != wanted; i++)
            memcpy(to + i * bytes, from + routes->row[first + i] * *stride, ld_act_row_bytes(a, node->op.width));
        if (a == act) found = to;
        to += n_rows * bytes;
    }
    ctx->gathered = wanted;
    *stride = act_bytes(act, node->op.width);
    return found;
}

static const float *bias_of(const ld_op *op, int i, int64_t expert) {
    const float *bias = (const float *)(uintptr_t)op->w_bias[i];
    return bias ? bias + expert * op->w_rows[i] : NULL;
}

static const uint8_t *rows_of(const ld_op *op, int i, int64_t expert, int64_t row) {
    return (const uint8_t *)(uintptr_t)op->w_data[i] + expert * op->w_step[i] + row * op->w_stride[i];
}

// Rows [first, first + n) of matrix i of an expert times m activations. next: the rows that are multiplied after them.
static void multiply(const ld_node *node, ld_ctx *ctx, int i, int64_t expert, int64_t first, int64_t n, const uint8_t *act,
                     size_t act_stride, int64_t m, float *y, uint8_t *unpacked, const uint8_t *next) {
    const ld_op *op = &node->op;
    const uint8_t *w = rows_of(op, i, expert, first);
    if (m <= LD_FEW_MAX)
        node->few[i](w, op->w_stride[i], act, act_stride, m, y, n, op->width, n);
    else
        node->many[i](w, op->w_stride[i], act, act_stride, m, y, n, op->width, n, unpacked, next);
}

void ld_experts_up_task(const ld_node *node, ld_ctx *ctx, int64_t task) {
    const ld_op *op = &node->op;
    int64_t n_rows = ld_node_rows(node, ctx->state), few = n_rows <= LD_FEW_MAX;
    int64_t chunk = few ? node->chunk_few[0] : node->chunk_many[0], chunks = few ? node->tasks_few[0] : node->tasks_many[0];
    int64_t group = task / chunks, first = task % chunks * chunk, n = ld_min(chunk, op->w_rows[0] - first);
    ld_routes routes = ld_routes_of(node, ctx);
    if (group >= *routes.n_groups) return;
    int64_t slot = routes.start[group], m = routes.start[group + 1] - slot;
    float *gate = (float *)(ctx->scratch + ld_input_bytes(node) + gather_bytes(node, n_rows)), *up = gate + m * n;
    int64_t expert = routes.expert[group], row = first + n < op->w_rows[0] ? first + n : 0;
    const uint8_t *next[2] = {rows_of(op, 1, expert, first), // of the task that comes next
                              rows_of(op, 0, row || group + 1 == *routes.n_groups ? expert : routes.expert[group + 1], row)};
    for (int i = 0; i < 2; i++) {
        size_t stride;
        const uint8_t *act = group_rows(node, ctx, &routes, group, node->act[i], n_rows, &stride);
        multiply(node, ctx, i, expert, first, n, act, stride, m, i ? up : gate, unpack_room(node, ctx, n_rows), next[i]);
        const float *bias = bias_of(op, i, expert);
        for (int64_t j = 0; bias && j < m; j++) ctx->table->vec.add((i ? up : gate) + j * n, bias + first, n);
    }
    for (int64_t i = 0; i < m; i++) {
        float *y = ld_row(ctx, op->y_offset[0], op->y_stride[0], slot + i) + first, weight = routes.weight[slot + i];
        ld_gated_act(node, ctx, gate + i * n, up + i * n, y, n);
        for (int64_t j = 0; j < n; j++) y[j] *= weight; // here, where rows are short; DOWN only adds
    }
}

void ld_experts_down_task(const ld_node *node, ld_ctx *ctx, int64_t task) {
    const ld_op *op = &node->op;
    int64_t n_rows = ld_node_rows(node, ctx->state), few = n_rows <= LD_FEW_MAX;
    int64_t chunk = few ? node->chunk_few[0] : node->chunk_many[0], first = task * chunk;
    int64_t n = ld_min(chunk, op->w_rows[0] - first);
    ld_routes routes = ld_routes_of(node, ctx);
    size_t stride;
    const uint8_t *act = ld_input_of(node, ctx, n_rows * op->n_used, node->act[0], &stride);
    float *product = (float *)(ctx->scratch + ld_input_bytes(node));
    for (int64_t r = 0; r < n_rows && !(op->flags & LD_F_ADD); r++)
        memset(ld_row(ctx, op->y_offset[0], op->y_stride[0], r) + first, 0, n * sizeof(float));
    for (int64_t group = 0; group < *routes.n_groups; group++) { // in the order of ids, whoever else is in the batch
        int64_t slot = routes.start[group], m = routes.start[group + 1] - slot;
        int64_t last = group + 1 == *routes.n_groups;
        multiply(node, ctx, 0, routes.expert[group], first, n, act + slot * stride, stride, m, product,
                 unpack_room(node, ctx, n_rows), rows_of(op, 0, routes.expert[last ? 0 : group + 1], last ? first + n : first));
        const float *bias = bias_of(op, 0, routes.expert[group]);
        for (int64_t i = 0; i < m; i++) {
            float *y = ld_row(ctx, op->y_offset[0], op->y_stride[0], routes.row[slot + i]) + first;
            ctx->table->vec.add(y, product + i * n, n);
            if (bias) ld_add_scaled(y, bias + first, routes.weight[slot + i], n);
        }
    }
    for (int64_t r = 0; r < n_rows && op->flags & LD_F_BESIDE; r++)
        ld_add_scaled(ld_row(ctx, op->y_offset[0], op->y_stride[0], r) + first, ld_row(ctx, op->x2_offset, op->x2_stride, r) + first,
                      ld_row_gate(node, ctx, r), n);
}
