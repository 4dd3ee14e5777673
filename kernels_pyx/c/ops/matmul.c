// Linear ops and their input stage: gather, merge, norm, quantise once; then rows of weights by task; then the epilogue.
#include <string.h>

#include "ops.h"

#define FEW_BYTES_MAX (256 << 10) // weights per task: small enough that a lost core holds up little (20 us), large enough to stream
#define FEW_BYTES_MIN (8 << 10)
#define FEW_ROWS_MAX 256
#define AHEAD 8        // output rows prefetched before the epilogue reaches them
#define MANY_ROWS LD_PANEL_ROWS // weight rows per task when there are many activations

static int64_t act_stride(int act, int64_t width) { return ld_round(ld_act_row_bytes(act, width), 64); }

static int64_t temp_floats(const ld_node *node, int64_t max_rows) {
    int64_t few = 2 * LD_FEW_MAX * FEW_ROWS_MAX, many = max_rows > LD_FEW_MAX ? 2 * max_rows * MANY_ROWS : 0;
    return node->op.flags & (LD_F_ADD | LD_F_GATED) ? (few > many ? few : many) : few / 2;
}

// Scratch: [one f32 row][acts of own_rows rows, unless PREPARED][outputs before the epilogue][unpacked weights]
static int64_t acts_at(const ld_node *node) { return ld_round(node->op.width * 4, 64); }

int64_t ld_input_bytes(const ld_node *node) {
    int64_t at = acts_at(node);
    if (node->op.flags & LD_F_PREPARED) return at;
    for (int a = 0; a < LD_N_ACTS; a++)
        if (node->acts_mask >> a & 1) at += node->own_rows * act_stride(a, node->op.width);
    return at;
}

int64_t ld_linear_scratch(const ld_node *node, int64_t max_rows) {
    int64_t unpacked = max_rows > LD_FEW_MAX ? ld_many_scratch_bytes(node->op.width) : 0;
    return ld_input_bytes(node) + temp_floats(node, max_rows) * 4 + ld_round(unpacked, 64);
}

void ld_linear_split(ld_node *node, int n_workers) {
    const ld_op *op = &node->op;
    int gated = (op->flags & LD_F_GATED) != 0;
    int64_t total = 0;
    for (int i = 0; i < op->n_weights; i++) total += op->w_rows[i] * op->w_stride[i];
    int64_t bytes = total / (8 * n_workers);
    bytes = bytes < FEW_BYTES_MIN ? FEW_BYTES_MIN : bytes > FEW_BYTES_MAX ? FEW_BYTES_MAX : bytes;
    for (int i = 0; i < op->n_weights; i++) {
        int64_t rows = bytes / (op->w_stride[i] * (gated ? 2 : 1)) / 8 * 8;
        node->chunk_few[i] = rows < 8 ? 8 : rows > FEW_ROWS_MAX ? FEW_ROWS_MAX : rows;
        node->chunk_many[i] = MANY_ROWS;
        node->tasks_few[i] = gated && i ? 0 : (op->w_rows[i] + node->chunk_few[i] - 1) / node->chunk_few[i];
        node->tasks_many[i] = gated && i ? 0 : (op->w_rows[i] + MANY_ROWS - 1) / MANY_ROWS;
    }
}

int64_t ld_linear_tasks(const ld_node *node, int64_t n_rows) {
    const int64_t *tasks = n_rows <= LD_FEW_MAX ? node->tasks_few : node->tasks_many;
    return n_rows ? tasks[0] + tasks[1] + tasks[2] + tasks[3] : 0;
}

// The activations of one row, in each wanted layout. `row_f32` is room for one f32 row.
static void make_input(const ld_node *node, ld_ctx *ctx, int64_t row, float *row_f32, uint8_t *const *acts) {
    const ld_op *op = &node->op;
    float *own = acts[LD_ACT_F32] ? (float *)acts[LD_ACT_F32] : row_f32;
    const float *x = own;
    if (op->flags & LD_F_MERGE)
        ld_merge(node, ctx, row, own);
    else
        x = ld_row(ctx, op->x_offset, op->x_stride, op->flags & LD_F_GATHER ? ctx->state->out_rows[row] : row);
    if (op->flags & LD_F_NORM) {
        ld_norm_row(node, ctx, x, (const float *)(uintptr_t)op->norm_w, op->norm_eps, own, op->width);
        x = own;
    }
    if (acts[LD_ACT_F32] && x != own) memcpy(own, x, op->width * sizeof *x);
    for (int a = LD_ACT_F32 + 1; a < LD_N_ACTS; a++)
        if (acts[a]) ctx->table->quantize[a](x, acts[a], op->width);
}

void ld_prepare_task(const ld_node *node, ld_ctx *ctx, int64_t task) {
    int64_t first = task * LD_POINTWISE_ROWS, rows = ld_min(LD_POINTWISE_ROWS, ld_node_rows(node, ctx->state) - first);
    for (int64_t r = first; r < first + rows; r++) {
        uint8_t *acts[LD_N_ACTS] = {0};
        for (int a = 0; a < LD_N_ACTS; a++)
            if (node->acts_mask >> a & 1) acts[a] = ctx->base + node->op.act_offset[a] + r * node->op.act_stride[a];
        make_input(node, ctx, r, (float *)ctx->scratch, acts);
    }
}

const uint8_t *ld_input_of(const ld_node *node, ld_ctx *ctx, int64_t n_rows, int act, size_t *stride) {
    if (node->op.flags & LD_F_PREPARED) {
        *stride = node->op.act_stride[act];
        return ctx->base + node->op.act_offset[act];
    }
    uint8_t *base[LD_N_ACTS] = {0}, *at = ctx->scratch + acts_at(node);
    for (int a = 0; a < LD_N_ACTS; a++)
        if (node->acts_mask >> a & 1) {
            base[a] = at;
            at += node->own_rows * act_stride(a, node->op.width);
        }
    *stride = act_stride(act, node->op.width);
    if (ctx->input_made == node->index + 1) return base[act];
    for (int64_t r = 0; r < n_rows; r++) {
        uint8_t *acts[LD_N_ACTS] = {0};
        for (int a = 0; a < LD_N_ACTS; a++)
            if (base[a]) acts[a] = base[a] + r * act_stride(a, node->op.width);
        make_input(node, ctx, r, (float *)ctx->scratch, acts);
    }
    ctx->input_made = node->index + 1;
    return base[act];
}

// next: the matrix that is read next.
static void multiply(const ld_node *node, ld_ctx *ctx, int i, int64_t first, int64_t n, int64_t n_rows, float *y, int64_t stride,
                     int next) {
    const ld_op *op = &node->op;
    size_t from_stride;
    const uint8_t *act = ld_input_of(node, ctx, n_rows, node->act[i], &from_stride);
    const uint8_t *w = (const uint8_t *)(uintptr_t)op->w_data[i] + first * op->w_stride[i];
    if (n_rows <= LD_FEW_MAX) {
        node->few[i](w, op->w_stride[i], act, from_stride, n_rows, y, stride, op->width, n);
    } else {
        uint8_t *unpacked = ctx->scratch + ld_input_bytes(node) + temp_floats(node, n_rows) * 4;
        int64_t row = next > i ? first : first + n;
        const uint8_t *after = (const uint8_t *)(uintptr_t)op->w_data[next] + row * op->w_stride[next];
        node->many[i](w, op->w_stride[i], act, from_stride, n_rows, y, stride, op->width, n, unpacked, after);
    }
    const float *bias = (const float *)(uintptr_t)op->w_bias[i];
    for (int64_t r = 0; bias && r < n_rows; r++) ctx->table->vec.add(y + r * stride, bias + first, n);
}

void ld_linear_rows(const ld_node *node, ld_ctx *ctx, int64_t first, int64_t end) {
    const ld_op *op = &node->op;
    size_t stride;
    const uint8_t *act = ld_input_of(node, ctx, end, node->act[0], &stride) + first * stride;
    const float *bias = (const float *)(uintptr_t)op->w_bias[0];
    float *y = ld_row(ctx, op->y_offset[0], op->y_stride[0], first);
    node->many[0]((const uint8_t *)(uintptr_t)op->w_data[0], op->w_stride[0], act, stride, end - first, y, op->y_stride[0], op->width,
                  op->w_rows[0], ctx->scratch + ld_input_bytes(node), (const uint8_t *)(uintptr_t)op->w_data[0]);
    for (int64_t r = first; bias && r < end; r++, y += op->y_stride[0]) ctx->table->vec.add(y, bias, op->w_rows[0]);
}

static void finish(const ld_node *node, ld_ctx *ctx, int logits, float *y, int64_t n) {
    if (node->op.softcap > 0.0) ld_softcap(y, node->op.softcap, n);
    if (logits && !ctx->table->vec.all_finite(y, n)) ld_bad_value(ctx, node);
}

// Few rows are computed in scratch and claimed before anything is written: the task may be done by two workers.
void ld_linear_task(const ld_node *node, ld_ctx *ctx, int64_t task) {
    const ld_op *op = &node->op;
    int64_t n_rows = ld_node_rows(node, ctx->state);
    int few = n_rows <= LD_FEW_MAX, i = 0;
    const int64_t *tasks = few ? node->tasks_few : node->tasks_many;
    while (task >= tasks[i]) task -= tasks[i++];
    int64_t chunk = few ? node->chunk_few[i] : node->chunk_many[i], first = task * chunk;
    int64_t n = ld_min(chunk, op->w_rows[i] - first);
    if (!few && !(op->flags & (LD_F_ADD | LD_F_GATED))) {
        int logits = op->y_offset[i] == LD_LOGITS;
        int64_t stride = logits ? ctx->state->logits_stride : op->y_stride[i];
        float *y = ld_row(ctx, op->y_offset[i], op->y_stride[i], 0) + op->y_first[i] + first;
        multiply(node, ctx, i, first, n, n_rows, y, stride, i);
        for (int64_t r = 0; r < n_rows; r++) finish(node, ctx, logits, y + r * stride, n);
        return;
    }
    float *temp = (float *)(ctx->scratch + ld_input_bytes(node)), *second = temp + n_rows * chunk;
    int gated = (op->flags & LD_F_GATED) != 0;
    multiply(node, ctx, i, first, n, n_rows, temp, chunk, gated ? 1 : i);
    if (gated) multiply(node, ctx, 1, first, n, n_rows, second, chunk, 0);
    if (few && !ld_claim(ctx)) return;
    for (int64_t r = 0; r < n_rows; r++) {
        float *y = ld_row(ctx, op->y_offset[i], op->y_stride[i], r) + op->y_first[i] + first;
        if (r + AHEAD < n_rows) // rows are far apart: no hardware prefetcher follows
            for (int64_t j = 0; j < n; j += 16) __builtin_prefetch(y + AHEAD * op->y_stride[i] + j, 1);
        if (op->flags & LD_F_ADD)
            ctx->table->vec.add(y, temp + r * chunk, n);
        else if (!(op->flags & LD_F_GATED)) {
            memcpy(y, temp + r * chunk, n * sizeof *y);
            finish(node, ctx, op->y_offset[i] == LD_LOGITS, y, n);
        } else
            ld_gated_act(node, ctx, temp + r * chunk, second + r * chunk, y, n);
    }
}
