// Ops on rows: embedding, norms, rotation and cache writes, gated activation, addition, picking rows.
#include <math.h>
#include <string.h>

#include "ops.h"

typedef struct {
    int64_t first, end;
} span;

static span rows_of(const ld_node *node, const ld_ctx *ctx, int64_t task) {
    int64_t first = task * LD_POINTWISE_ROWS;
    return (span){first, ld_min(first + LD_POINTWISE_ROWS, ld_node_rows(node, ctx->state))};
}

static float *out_row(const ld_node *node, const ld_ctx *ctx, int64_t row) {
    return ld_row(ctx, node->op.y_offset[0], node->op.y_stride[0], row);
}

static const float *in_row(const ld_node *node, const ld_ctx *ctx, int64_t row) {
    return ld_row(ctx, node->op.x_offset, node->op.x_stride, row);
}

void ld_embed_task(const ld_node *node, ld_ctx *ctx, int64_t task) {
    const ld_op *op = &node->op;
    span rows = rows_of(node, ctx, task);
    for (int64_t r = rows.first; r < rows.end; r++) {
        const uint8_t *w = (const uint8_t *)(uintptr_t)op->w_data[0] + ctx->state->token_ids[r] * op->w_stride[0];
        float *y = out_row(node, ctx, r);
        node->format[0]->to_f32(w, y, op->width);
        for (int64_t i = 0; op->scale != 0.0 && i < op->width; i++) y[i] *= (float)op->scale;
    }
}

// The sum of squares shows every value that is not finite: the check costs nothing here.
void ld_norm_row(const ld_node *node, ld_ctx *ctx, const float *x, const float *w, double eps, float *y, int64_t n) {
    float squares = ctx->table->vec.sum_squares(x, n);
    if (!isfinite(squares)) ld_bad_value(ctx, node);
    ctx->table->vec.norm(x, w, (float)(1.0 / sqrt((double)squares / (double)n + eps)), y, n);
}

void ld_norm_task(const ld_node *node, ld_ctx *ctx, int64_t task) {
    const ld_op *op = &node->op;
    span rows = rows_of(node, ctx, task);
    int64_t part = op->width / op->parts;
    for (int64_t r = rows.first; r < rows.end; r++) {
        if (op->flags & LD_F_ADD) {
            float *normed = (float *)ctx->scratch;
            ld_norm_row(node, ctx, in_row(node, ctx, r), (const float *)(uintptr_t)op->norm_w, op->norm_eps, normed, part);
            ctx->table->vec.add(out_row(node, ctx, r), normed, part);
            continue;
        }
        for (int64_t i = 0; i < op->width; i += part)
            ld_norm_row(node, ctx, in_row(node, ctx, r) + i, (const float *)(uintptr_t)op->norm_w, op->norm_eps,
                        out_row(node, ctx, r) + i, part);
    }
}

void ld_add_task(const ld_node *node, ld_ctx *ctx, int64_t task) {
    span rows = rows_of(node, ctx, task);
    for (int64_t r = rows.first; r < rows.end; r++)
        if (node->op.flags & LD_F_ROW_GATE)
            ld_add_scaled(out_row(node, ctx, r), in_row(node, ctx, r), ld_row_gate(node, ctx, r), node->op.width);
        else
            ctx->table->vec.add(out_row(node, ctx, r), in_row(node, ctx, r), node->op.width);
    for (int64_t r = rows.first; r < rows.end && node->op.flags & LD_F_BESIDE; r++)
        ctx->table->vec.add(out_row(node, ctx, r), ld_row(ctx, node->op.x2_offset, node->op.x2_stride, r), node->op.width);
}

void ld_gated_act(const ld_node *node, const ld_ctx *ctx, const float *gate, const float *up, float *y, int64_t n) {
    if (node->op.flags & LD_F_CLAMPED)
        ctx->table->vec.swiglu_clamped(gate, up, y, n, (float)node->op.act_alpha, (float)node->op.act_limit);
    else
        (node->op.flags & LD_F_GELU ? ctx->table->vec.gelu_tanh_mul : ctx->table->vec.silu_mul)(gate, up, y, n);
}

void ld_gated_act_task(const ld_node *node, ld_ctx *ctx, int64_t task) {
    const ld_op *op = &node->op;
    span rows = rows_of(node, ctx, task);
    for (int64_t r = rows.first; r < rows.end; r++) {
        const float *up = ld_row(ctx, op->x2_offset, op->x2_stride, r);
        ld_gated_act(node, ctx, in_row(node, ctx, r), up, out_row(node, ctx, r), op->width);
    }
}

void ld_rows_task(const ld_node *node, ld_ctx *ctx, int64_t task) {
    span rows = rows_of(node, ctx, task);
    for (int64_t r = rows.first; r < rows.end; r++)
        memcpy(out_row(node, ctx, r), in_row(node, ctx, ctx->state->out_rows[r]), node->op.width * sizeof(float));
}

void ld_softcap(float *x, double cap, int64_t n) {
    float by = (float)(1.0 / cap), times = (float)cap;
    for (int64_t i = 0; i < n; i++) x[i] = times * tanhf(x[i] * by);
}

void ld_rotate(const ld_op *op, int64_t position, float *head) {
    int64_t half = op->n_rot / 2;
    const float *cosine = (const float *)(uintptr_t)op->rope_table + position * op->n_rot, *sine = cosine + half;
    int64_t step = op->flags & LD_F_NEOX ? 1 : 2;
    float *a = head, *b = op->flags & LD_F_NEOX ? head + half : head + 1;
    for (int64_t j = 0; j < half; j++) {
        float u = a[j * step], v = b[j * step];
        a[j * step] = u * cosine[j] - v * sine[j];
        b[j * step] = u * sine[j] + v * cosine[j];
    }
}

// The scale is rounded to f16 first, so that values are divided by what they will be multiplied with. A group with a value that is
// not finite has the scale NaN.
void ld_store_quants(const ld_ctx *ctx, const float *x, int64_t n, int64_t group, int8_t *q, int64_t pair, int64_t step,
                     uint16_t *scales) {
    for (int64_t g = 0; g * group < n; g++) {
        const float *from = x + g * group;
        int64_t count = ld_min(group, n - g * group);
        float max = 0.0f, scale;
        int finite = 1;
        for (int64_t j = 0; j < count; j++) {
            float size = fabsf(from[j]);
            finite &= size <= 3e38f;
            max = size > max ? size : max;
        }
        scale = finite ? max / 127.0f : NAN;
        ctx->table->vec.f32_to_f16(&scale, scales + g * LD_BLOCK, 1);
        ctx->table->vec.f16_to_f32(scales + g * LD_BLOCK, &scale, 1);
        float factor = scale > 0.0f ? 1.0f / scale : 0.0f;
        for (int64_t j = 0; j < count; j++) {
            float value = from[j] * factor;
            value = value > 127.0f ? 127.0f : value < -127.0f ? -127.0f : value;
            int64_t at = g * group + j;
            q[at / 2 * pair + at % 2 * step] = finite ? (int8_t)lrintf(value) : 0;
        }
    }
}

void ld_store_row(const ld_node *node, ld_ctx *ctx, int64_t row, int64_t kv_head, const float *k, uint16_t *halves) {
    const ld_op *op = &node->op;
    int64_t position = ctx->state->positions[row], slot = position % LD_BLOCK, v_pad = ld_v_pad(op->v_dim);
    int64_t block = ld_blocks_of(ctx->state, op->cache_group, row)[position / LD_BLOCK];
    uint8_t *keys = (uint8_t *)(uintptr_t)op->k_cache + block * op->block_bytes + kv_head * ld_kv_head_bytes(op->k_type, op->head_dim);
    uint8_t *values = (uint8_t *)(uintptr_t)op->v_cache + block * op->block_bytes + kv_head * ld_kv_head_bytes(op->v_type, v_pad);
    const float *v = ld_row(ctx, op->v_offset, op->v_stride, row) + kv_head * op->v_dim;
    if (op->k_type == LD_KV_F16) {
        uint16_t *to = (uint16_t *)keys + slot;
        ctx->table->vec.f32_to_f16(k, halves, op->head_dim);
        for (int64_t d = 0; d < op->head_dim; d++) to[d * LD_BLOCK] = halves[d];
    } else if (op->k_type == LD_KV_F32) {
        float *to = (float *)keys + slot;
        for (int64_t d = 0; d < op->head_dim; d++) to[d * LD_BLOCK] = k[d];
    } else {
        ld_store_quants(ctx, k, op->head_dim, ld_kv_group(op->k_type, op->head_dim), (int8_t *)keys + 2 * slot,
                     2 * LD_BLOCK, 1, (uint16_t *)(keys + op->head_dim * LD_BLOCK) + slot);
    }
    if (op->v_type == LD_KV_F16)
        ctx->table->vec.f32_to_f16(v, (uint16_t *)values + slot * v_pad, op->v_dim);
    else if (op->v_type == LD_KV_F32)
        memcpy((float *)values + slot * v_pad, v, op->v_dim * sizeof *v);
    else
        ld_store_quants(ctx, v, op->v_dim, ld_kv_group(op->v_type, v_pad), (int8_t *)values + slot / 2 * v_pad * 2 + slot % 2, 4, 2,
                     (uint16_t *)(values + v_pad * LD_BLOCK) + slot);
}

float ld_row_norm(const ld_node *node, ld_ctx *ctx, int64_t row, int is_key) {
    const ld_op *op = &node->op;
    if (!(op->flags & LD_F_WHOLE_NORM) || !(is_key ? op->k_norm_w : op->q_norm_w)) return 0.0f;
    int64_t n = (is_key ? op->n_kv_heads : op->n_heads) * (int64_t)op->head_dim;
    const float *x = is_key ? ld_row(ctx, op->k_offset, op->k_stride, row) : ld_row(ctx, op->q_offset, op->q_stride, row);
    float squares = ctx->table->vec.sum_squares(x, n);
    if (!isfinite(squares)) ld_bad_value(ctx, node);
    return (float)(1.0 / sqrt((double)squares / (double)n + (is_key ? op->k_norm_eps : op->q_norm_eps)));
}

static void norm_head(const ld_node *node, ld_ctx *ctx, int64_t index, float row_norm, float *head, int is_key) {
    const ld_op *op = &node->op;
    const float *w = (const float *)(uintptr_t)(is_key ? op->k_norm_w : op->q_norm_w);
    if (row_norm != 0.0f)
        ctx->table->vec.norm(head, w + index * op->head_dim, row_norm, head, op->head_dim);
    else if (w)
        ld_norm_row(node, ctx, head, w, is_key ? op->k_norm_eps : op->q_norm_eps, head, op->head_dim);
}

// Head `index` of queries or keys: norm if it has a weight, rotate if flagged, scale queries if they have factors. In place.
void ld_turn_head(const ld_node *node, ld_ctx *ctx, int64_t row, int64_t index, float row_norm, float *head, int is_key) {
    const ld_op *op = &node->op;
    int64_t position = ctx->state->positions[row];
    const float *factors = (const float *)(uintptr_t)op->q_scale;
    if (!(op->flags & LD_F_NORM_LAST)) norm_head(node, ctx, index, row_norm, head, is_key);
    if (op->flags & (is_key ? LD_F_ROPE_K : LD_F_ROPE_Q)) ld_rotate(op, position, head);
    if (op->flags & LD_F_NORM_LAST) norm_head(node, ctx, index, row_norm, head, is_key);
    for (int64_t d = 0; factors && !is_key && d < op->head_dim; d++) head[d] *= factors[position];
}

void ld_position_task(const ld_node *node, ld_ctx *ctx, int64_t task) {
    const ld_op *op = &node->op;
    span rows = rows_of(node, ctx, task);
    int64_t step = op->q_step ? op->q_step : op->head_dim;
    int queries = (op->flags & LD_F_ROPE_Q) || op->q_norm_w || op->q_scale, keys = (op->flags & (LD_F_ROPE_K | LD_F_STORE)) || op->k_norm_w;
    for (int64_t r = rows.first; r < rows.end; r++) {
        float q_norm = queries ? ld_row_norm(node, ctx, r, 0) : 0.0f, k_norm = keys ? ld_row_norm(node, ctx, r, 1) : 0.0f;
        for (int64_t h = 0; queries && h < op->n_heads; h++)
            ld_turn_head(node, ctx, r, h, q_norm, ld_row(ctx, op->q_offset, op->q_stride, r) + h * step, 0);
        for (int64_t h = 0; keys && h < op->n_kv_heads; h++) {
            float *k = ld_row(ctx, op->k_offset, op->k_stride, r) + h * op->head_dim;
            ld_turn_head(node, ctx, r, h, k_norm, k, 1);
            if (op->flags & LD_F_STORE) ld_store_row(node, ctx, r, h, k, (uint16_t *)ctx->scratch);
        }
    }
}
