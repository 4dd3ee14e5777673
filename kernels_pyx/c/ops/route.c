// Mixtures of experts: picking experts for each row, and grouping the rows by expert.
#include <string.h>

#include "ops.h"

#define LEAST_SUM 0x1p-14f // that weights are divided by
#define TASK_ROWS_MIN 16   // of many rows, each of which is scored and picked for by one task
#define TASK_ROWS_MAX 64

ld_routes ld_routes_of(const ld_node *node, const ld_ctx *ctx) {
    int64_t rows = node->op.flags & LD_F_OUT_ROWS ? ctx->state->n_out : ctx->state->n_rows;
    return ld_routes_in(ctx->base + node->op.routes_offset, node->op.n_experts, rows * node->op.n_used);
}

// Scratch of picking: what is compared and groups of it, then per expert and per slot a few words.
int64_t ld_route_scratch(const ld_node *node, int64_t max_rows) {
    int64_t comparing = 12 * node->op.n_experts, grouping = ld_group_scratch(&node->op, max_rows);
    int64_t picking = comparing > grouping ? comparing : grouping, scores = ld_linear_scratch(node, max_rows);
    return picking > scores ? picking : scores;
}

// The n_used largest of n scores, largest first; of equals the lower id. Values that are no numbers still give valid ids.
static void pick(const float *scores, int64_t n, int64_t n_used, int32_t *ids) {
    int64_t held = 0;
    for (int64_t e = 0; e < n; e++) {
        if (held == n_used && !(scores[e] > scores[ids[held - 1]])) continue;
        int64_t at = held < n_used ? held++ : held - 1;
        for (; at > 0 && scores[e] > scores[ids[at - 1]]; at--) ids[at] = ids[at - 1];
        ids[at] = (int32_t)e;
    }
}

// Sigmoids in place.
static void sigmoids(const ld_ctx *ctx, float *x, int64_t n) {
    for (int64_t i = 0; i < n; i++) x[i] = -x[i];
    ctx->table->vec.exp_sum(x, 0.0f, n);
    for (int64_t i = 0; i < n; i++) x[i] = 1.0f / (1.0f + x[i]);
}

// -infinity for the scores of all groups but those whose two best add up to most.
static void keep_groups(const ld_op *op, float *scores, float *best, int32_t *ids) {
    int64_t n = op->n_experts / op->n_groups;
    for (int64_t g = 0; g < op->n_groups; g++) {
        float first = -INFINITY, second = -INFINITY;
        for (int64_t e = g * n; e < (g + 1) * n; e++) {
            float score = scores[e];
            if (score > first)
                second = first, first = score;
            else if (score > second)
                second = score;
        }
        best[g] = n > 1 ? first + second : first;
    }
    pick(best, op->n_groups, op->n_groups_used, ids);
    for (int64_t i = 0; i < op->n_groups_used; i++) best[ids[i]] = NAN; // kept
    for (int64_t g = 0; g < op->n_groups; g++)
        for (int64_t e = g * n; !isnan(best[g]) && e < (g + 1) * n; e++) scores[e] = -INFINITY;
}

// The experts of one row and their weights.
static void choose(const ld_node *node, ld_ctx *ctx, float *scores, int32_t *ids, float *weights) {
    const ld_op *op = &node->op;
    int64_t n = op->n_experts, used = op->n_used;
    const float *bias = (const float *)(uintptr_t)op->pick_bias, *likely = scores;
    float total = 1.0f, sum = 0.0f;
    if (!bias && op->n_groups <= 1) {
        // All gatings grow with the logit: compare those, then only softmax needs more than the chosen.
        pick(scores, n, used, ids);
        if (op->flags & LD_F_SIGMOID) {
            for (int64_t j = 0; j < used; j++) weights[j] = scores[ids[j]];
            sigmoids(ctx, weights, used);
        } else if (!(op->flags & LD_F_CHOSEN)) {
            total = ctx->table->vec.exp_sum(scores, scores[ids[0]], n);
            for (int64_t j = 0; j < used; j++) weights[j] = scores[ids[j]] / total;
        }
    } else {
        float *compared = (float *)ctx->scratch, *best = compared + n;
        if (op->flags & LD_F_SIGMOID)
            sigmoids(ctx, scores, n);
        else if (!(op->flags & LD_F_CHOSEN))
            total = ctx->table->vec.exp_sum(scores, ctx->table->vec.max(scores, n), n);
        for (int64_t e = 0; e < n; e++) compared[e] = scores[e] / total + (bias ? bias[e] : 0.0f);
        if (op->n_groups > 1) keep_groups(op, compared, best, (int32_t *)(best + op->n_groups));
        pick(compared, n, used, ids);
        for (int64_t j = 0; j < used; j++) weights[j] = likely[ids[j]] / total;
    }
    if (op->flags & LD_F_CHOSEN) {
        for (int64_t j = 0; j < used; j++) weights[j] = scores[ids[j]];
        total = ctx->table->vec.exp_sum(weights, ctx->table->vec.max(weights, used), used);
        for (int64_t j = 0; j < used; j++) weights[j] /= total;
    }
    for (int64_t j = 0; j < used; j++) sum += weights[j];
    if (!(op->flags & LD_F_SHARE)) sum = 1.0f;
    if (sum < LEAST_SUM) sum = LEAST_SUM;
    for (int64_t j = 0; j < used; j++) weights[j] = weights[j] / sum * (float)op->weight_scale;
}

// Few rows: tasks are rows of the router, and the last one picks. Many: tasks are rows of activations, and each picks for its own.
void ld_route_split(ld_node *node, int64_t max_rows, int n_workers) {
    int64_t rows = ld_round(max_rows / (4 * n_workers), 8);
    ld_linear_split(node, n_workers);
    node->tile_rows = rows < TASK_ROWS_MIN ? TASK_ROWS_MIN : ld_min(rows, TASK_ROWS_MAX);
}

int64_t ld_route_tasks(const ld_node *node, int64_t n_rows) {
    return n_rows <= LD_FEW_MAX ? ld_linear_tasks(node, n_rows) : (n_rows + node->tile_rows - 1) / node->tile_rows;
}

static void choose_rows(const ld_node *node, ld_ctx *ctx, int64_t first, int64_t end) {
    const ld_op *op = &node->op;
    ld_routes to = ld_routes_of(node, ctx);
    for (int64_t r = first; r < end; r++) // in the places of slots; ld_route groups them
        choose(node, ctx, ld_row(ctx, op->y_offset[0], op->y_stride[0], r), to.row + r * op->n_used, to.weight + r * op->n_used);
}

void ld_route_task(const ld_node *node, ld_ctx *ctx, int64_t task) {
    int64_t n_rows = ld_node_rows(node, ctx->state), first = task * node->tile_rows;
    if (n_rows <= LD_FEW_MAX) {
        ld_linear_task(node, ctx, task);
        return;
    }
    int64_t end = ld_min(first + node->tile_rows, n_rows);
    ld_linear_rows(node, ctx, first, end);
    choose_rows(node, ctx, first, end);
}

void ld_route(const ld_node *node, ld_ctx *ctx) {
    int64_t n_rows = ld_node_rows(node, ctx->state);
    ld_routes to = ld_routes_of(node, ctx);
    const ld_op *op = &node->op;
    if (n_rows <= LD_FEW_MAX) choose_rows(node, ctx, 0, n_rows);
    int few = ctx->state->n_rows <= LD_FEW_MAX && ctx->state->n_out <= LD_FEW_MAX; // the same for every layer of a step
    if (few && op->tally_ids) memcpy((void *)(uintptr_t)op->tally_ids, to.row, n_rows * op->n_used * sizeof(int32_t));
    ld_group(op, &to, n_rows, few ? NULL : (int32_t *)(uintptr_t)op->tally_counts, ctx->scratch);
}

int64_t ld_group_scratch(const ld_op *op, int64_t max_rows) { return 4 * op->n_experts + 8 * max_rows * op->n_used; }

void ld_group(const ld_op *op, ld_routes *routes, int64_t n_rows, int32_t *counts, uint8_t *scratch) {
    int64_t n = op->n_experts, used = op->n_used;
    ld_routes to = *routes;
    for (int64_t i = 0; i <= n; i++) to.start[i] = 0;
    for (int64_t s = 0; s < n_rows * used; s++)
        if (to.row[s] >= 0) to.start[to.row[s] + 1]++;
    int32_t *next = (int32_t *)scratch, *ids = next + n, groups = 0, at = 0; // next: first free slot of each expert
    float *weights = (float *)(ids + n_rows * used);
    for (int64_t e = 0; e < n; e++) {
        int32_t count = to.start[e + 1];
        next[e] = at;
        if (counts) counts[e] = count;
        if (count) {
            to.expert[groups] = (int32_t)e;
            to.start[groups++] = at; // groups <= e: counts still to be read lie behind
        }
        at += count;
    }
    to.start[groups] = at;
    *to.n_groups = groups;
    memcpy(ids, to.row, n_rows * used * sizeof *ids);
    memcpy(weights, to.weight, n_rows * used * sizeof *weights);
    for (int64_t s = 0; s < n_rows * used; s++) {
        if (ids[s] < 0) continue;
        int32_t slot = next[ids[s]]++;
        to.row[slot] = (int32_t)(s / used);
        to.weight[slot] = weights[s];
    }
}
