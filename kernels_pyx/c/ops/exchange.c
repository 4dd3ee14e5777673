// What experts need that were chosen elsewhere, and what is told of those chosen here.
#include <string.h>

#include "ops.h"

int64_t ld_exchange_scratch(const ld_node *node, int64_t max_rows) {
    return node->op.kind == LD_OP_CHOSEN ? ld_group_scratch(&node->op, max_rows) : ld_round(4 * max_rows, 64);
}

// One task: what is grouped is a few words a row.
int64_t ld_exchange_tasks(const ld_node *node, const ld_step_state *state) { return ld_node_rows(node, state) > 0; }

// Ids come from outside: those that name no expert are left out, and those that should not occur make the step a bad one.
void ld_chosen_task(const ld_node *node, ld_ctx *ctx, int64_t task) {
    const ld_op *op = &node->op;
    int64_t n_rows = ld_node_rows(node, ctx->state), used = op->n_used;
    ld_routes to = ld_routes_of(node, ctx);
    (void)task;
    for (int64_t r = 0; r < n_rows; r++) {
        const int32_t *ids = (const int32_t *)ld_row(ctx, op->x_offset, op->x_stride, r);
        memcpy(to.weight + r * used, ld_row(ctx, op->x2_offset, op->x2_stride, r), used * sizeof *to.weight);
        for (int64_t j = 0; j < used; j++) {
            int known = ids[j] >= 0 && ids[j] < op->n_experts;
            to.row[r * used + j] = known ? ids[j] : -1;
            if (!known && ids[j] != -1) ld_bad_value(ctx, node);
        }
    }
    ld_group(op, &to, n_rows, NULL, ctx->scratch);
}

void ld_tell_task(const ld_node *node, ld_ctx *ctx, int64_t task) {
    const ld_op *op = &node->op;
    int64_t n_rows = ld_node_rows(node, ctx->state), used = op->n_used;
    ld_routes from = ld_routes_of(node, ctx);
    int32_t *told = (int32_t *)ctx->scratch; // of each row
    (void)task;
    memset(told, 0, n_rows * sizeof *told);
    for (int64_t group = 0; group < *from.n_groups; group++)
        for (int64_t slot = from.start[group]; slot < from.start[group + 1]; slot++) {
            int64_t r = from.row[slot], j = told[r]++;
            ((int32_t *)ld_row(ctx, op->y_offset[0], op->y_stride[0], r))[j] = from.expert[group];
            ld_row(ctx, op->y_offset[1], op->y_stride[1], r)[j] = from.weight[slot];
        }
    for (int64_t r = 0; r < n_rows; r++)
        for (int64_t j = told[r]; j < used; j++) {
            ((int32_t *)ld_row(ctx, op->y_offset[0], op->y_stride[0], r))[j] = -1;
            ld_row(ctx, op->y_offset[1], op->y_stride[1], r)[j] = 0.0f;
        }
}
