// What a descriptor must keep to: every offset, stride, format and head count against the arena. Checked once, trusted later.
#include <stdint.h>

#include "ops.h"

static int inside(int64_t offset, int64_t stride, int64_t width, int64_t rows, int64_t bytes) {
    return offset >= 0 && offset % 64 == 0 && stride >= width && stride % 16 == 0 && rows >= 1 &&
           offset / 4 + (rows - 1) * stride + width <= bytes / 4;
}

static const char *check_weight(const ld_op *op, int i, const ld_table *table) {
    int format = op->w_format[i];
    if (!op->w_data[i] || op->w_rows[i] < 1) return "a weight is missing";
    if (format < 0 || format >= table->n_formats || !table->formats[format].to_f32) return "a weight format without kernels";
    if (op->w_stride[i] < (int64_t)ld_row_bytes(format, op->width)) return "weight rows overlap";
    return NULL;
}

static int64_t q_width(const ld_op *op) { return (int64_t)op->n_heads * (op->q_step ? op->q_step : op->head_dim); }

// Gates lie behind the queries of each head, in the same buffer.
static const char *check_gate(const ld_op *op, int64_t rows, int64_t bytes) {
    if (!(op->flags & LD_F_GATE)) return NULL;
    if (op->v_dim != op->head_dim || op->q_step < 2 * op->head_dim) return "gates of another size than the heads";
    return inside(op->x2_offset, op->x2_stride, q_width(op), rows, bytes) ? NULL : "gates outside the arena";
}

static const char *check_input(const ld_op *op, int64_t rows, int64_t bytes) {
    if (op->width < 1) return "no width";
    if (op->flags & LD_F_MERGE) {
        if (op->width != (int64_t)op->n_heads * op->v_dim) return "merged heads do not make up the width";
        const char *wrong = check_gate(op, rows, bytes);
        if (wrong) return wrong;
        if (op->window < 0) return "a window without keys";
        int64_t floats = ld_partial_floats(op->n_heads, op->v_dim);
        return inside(op->x_offset, op->x_stride, floats, rows, bytes) ? NULL : "partials outside the arena";
    }
    return inside(op->x_offset, op->x_stride, op->width, rows, bytes) ? NULL : "input outside the arena";
}

static const char *check_acts(const ld_node *node, int64_t rows, int64_t bytes) {
    for (int a = 0; a < LD_N_ACTS; a++) {
        if (!(node->acts_mask >> a & 1)) continue;
        int64_t need = ld_act_row_bytes(a, node->op.width), offset = node->op.act_offset[a], stride = node->op.act_stride[a];
        if (offset < 0 || offset % 64 || stride < need || stride % 64 || offset + (rows - 1) * stride + need > bytes)
            return "activations outside the arena";
    }
    return NULL;
}

static const char *check_linear(const ld_node *node, int64_t rows, int64_t bytes, const ld_table *table) {
    const ld_op *op = &node->op;
    int gated = op->flags & LD_F_GATED;
    if (op->n_weights < 1 || op->n_weights > LD_MAX_WEIGHTS || (gated && op->n_weights != 2)) return "wrong number of weights";
    if (gated && op->w_rows[0] != op->w_rows[1]) return "gate and up differ in size";
    for (int i = 0; i < op->n_weights; i++) {
        const char *wrong = check_weight(op, i, table);
        if (wrong) return wrong;
        if (gated && i) break;
        if (op->y_first[i] < 0 || op->y_first[i] % 16) return "an output that begins off the grid";
        if (op->y_offset[i] != LD_LOGITS &&
            !inside(op->y_offset[i], op->y_stride[i], op->y_first[i] + op->w_rows[i], rows, bytes))
            return "output outside the arena";
        if (op->y_offset[i] == LD_LOGITS && !(op->flags & LD_F_OUT_ROWS)) return "logits of other rows than the wanted ones";
    }
    if (op->flags & LD_F_PREPARED) return check_acts(node, rows, bytes);
    if (rows > LD_FEW_MAX) return "too many rows for an input stage of each worker's own";
    return check_input(op, rows, bytes);
}

static int bad_row_gate(const ld_op *op, int64_t rows, int64_t bytes) {
    return op->flags & LD_F_ROW_GATE && !inside(op->share_offset, op->share_stride, 1, rows, bytes);
}

static const char *check_routes(const ld_op *op, int64_t rows, int64_t bytes) {
    if (op->n_used < 1 || op->n_used > op->n_experts || op->n_used > LD_MAX_USED || op->n_experts > 1 << 16) return "bad experts";
    if (op->routes_offset < 0 || op->routes_offset % 64 ||
        op->routes_offset + ld_routes_bytes(op->n_experts, rows * op->n_used) > bytes)
        return "routes outside the arena";
    return NULL;
}

static const char *check_exchange(const ld_op *op, int64_t rows, int64_t bytes) {
    const char *wrong = check_routes(op, rows, bytes);
    if (wrong) return wrong;
    int tells = op->kind == LD_OP_TELL;
    int64_t ids = tells ? op->y_offset[0] : op->x_offset, weights = tells ? op->y_offset[1] : op->x2_offset;
    int64_t strides[] = {tells ? op->y_stride[0] : op->x_stride, tells ? op->y_stride[1] : op->x2_stride};
    return inside(ids, strides[0], op->n_used, rows, bytes) && inside(weights, strides[1], op->n_used, rows, bytes)
               ? NULL
               : "a choice outside the arena";
}

static const char *check_experts(const ld_node *node, int64_t rows, int64_t bytes, const ld_table *table) {
    const ld_op *op = &node->op;
    const char *bad = check_routes(op, rows, bytes);
    if (bad) return bad;
    int64_t slots = rows * op->n_used;
    if (op->kind == LD_OP_ROUTE) {
        if (op->n_weights != 1 || op->w_rows[0] != op->n_experts || op->y_offset[0] == LD_LOGITS) return "a router of another size";
        if (op->n_groups > 1 && (op->n_experts % op->n_groups || op->n_groups_used < 1 || op->n_groups_used > op->n_groups ||
                                 op->n_groups_used * (op->n_experts / op->n_groups) < op->n_used))
            return "bad groups of experts";
        return check_linear(node, rows, bytes, table);
    }
    int up = op->kind == LD_OP_EXPERTS_UP;
    if (op->n_weights != (up ? 2 : 1) || (up && op->w_rows[0] != op->w_rows[1])) return "wrong weights";
    for (int i = 0; i < op->n_weights; i++) {
        const char *wrong = check_weight(op, i, table);
        if (wrong) return wrong;
        if (op->w_step[i] < op->w_rows[i] * op->w_stride[i]) return "experts overlap";
    }
    if (op->flags & LD_F_BESIDE && (up || !inside(op->x2_offset, op->x2_stride, op->w_rows[0], rows, bytes)))
        return "what is added lies outside the arena";
    if (bad_row_gate(op, rows, bytes)) return "gates outside the arena";
    if (!inside(op->y_offset[0], op->y_stride[0], op->w_rows[0], up ? slots : rows, bytes)) return "output outside the arena";
    int64_t inputs = up ? rows : slots;
    if (op->flags & LD_F_PREPARED) return check_acts(node, inputs, bytes);
    if (inputs > (up ? LD_FEW_MAX : LD_OWN_SLOTS)) return "too many rows for an input stage of each worker's own";
    return check_input(op, inputs, bytes);
}

static int bad_types(const ld_op *op) {
    return op->k_type < 0 || op->k_type >= LD_N_KV_TYPES || op->v_type < 0 || op->v_type >= LD_N_KV_TYPES;
}

static const char *check_position(const ld_op *op, int64_t rows, int64_t bytes) {
    if (op->n_kv_heads < 1 || op->head_dim < 2 || op->head_dim % 2 || op->head_dim > 2048) return "bad heads";
    int q = op->kind != LD_OP_POSITION || (op->flags & LD_F_ROPE_Q) || op->q_norm_w || op->q_scale;
    int k = (op->flags & (LD_F_ROPE_K | LD_F_STORE)) || op->k_norm_w;
    if (q && (op->n_heads < op->n_kv_heads || op->n_heads % op->n_kv_heads || (op->q_step && op->q_step < op->head_dim) ||
              !inside(op->q_offset, op->q_stride, q_width(op), rows, bytes)))
        return "queries outside the arena";
    if (k && !inside(op->k_offset, op->k_stride, (int64_t)op->n_kv_heads * op->head_dim, rows, bytes))
        return "keys outside the arena";
    if (op->flags & LD_F_STORE) {
        if (op->v_dim < 1 || !inside(op->v_offset, op->v_stride, (int64_t)op->n_kv_heads * op->v_dim, rows, bytes))
            return "values outside the arena";
        if (!op->k_cache || !op->v_cache || op->block_bytes < 1 || bad_types(op)) return "no cache";
    }
    int rotates = op->flags & (LD_F_ROPE_Q | LD_F_ROPE_K);
    if (rotates && (!op->rope_table || op->n_rot < 2 || op->n_rot % 2 || op->n_rot > op->head_dim))
        return "bad rotation";
    return NULL;
}

static const char *check_attention(const ld_op *op, int64_t rows, int64_t bytes) {
    const char *wrong = check_position(op, rows, bytes);
    if (!wrong) wrong = check_gate(op, rows, bytes);
    if (wrong) return wrong;
    if (op->v_dim < 1 || !op->k_cache || !op->v_cache || op->block_bytes < 1 || bad_types(op)) return "no cache";
    if (op->window < 0) return "a window without keys";
    int64_t width = op->kind == LD_OP_ATTEND_ROWS ? ld_partial_floats(op->n_heads, op->v_dim) : (int64_t)op->n_heads * op->v_dim;
    return inside(op->y_offset[0], op->y_stride[0], width, rows, bytes) ? NULL : "output outside the arena";
}

static const char *check_heads(const ld_node *node, int64_t rows, int64_t bytes, const ld_table *table) {
    const ld_op *op = &node->op;
    if (op->n_weights != 1 || op->n_heads < 1 || op->width < 1) return "bad heads";
    const char *wrong = check_weight(op, 0, table);
    if (wrong) return wrong;
    if (op->w_step[0] < op->w_rows[0] * op->w_stride[0]) return "matrices of heads overlap";
    if (op->y_head < op->w_rows[0] || op->y_offset[0] == LD_LOGITS ||
        !inside(op->y_offset[0], op->y_stride[0], (op->n_heads - 1) * op->y_head + op->w_rows[0], rows, bytes))
        return "output outside the arena";
    if (op->flags & LD_F_MERGE)
        return op->width == op->v_dim && inside(op->x_offset, op->x_stride, ld_partial_floats(op->n_heads, op->v_dim), rows, bytes)
                   ? NULL
                   : "partials outside the arena";
    return op->x_head >= 0 && inside(op->x_offset, op->x_stride, (op->n_heads - 1) * op->x_head + op->width, rows, bytes)
               ? NULL
               : "input outside the arena";
}

static const char *check_latent(const ld_op *op, int64_t rows, int64_t bytes, const ld_table *table) {
    if (op->n_heads < 1 || op->head_dim < 4 || op->head_dim > 2048 || op->width < 1 || op->width > 8192) return "bad heads";
    if (op->n_rot < 2 || op->n_rot % 2 || op->n_rot >= op->head_dim) return "bad rotation";
    if (!op->k_cache || op->block_bytes < 1 || bad_types(op)) return "no cache";
    if (!inside(op->q_offset, op->q_stride, (int64_t)op->n_heads * op->head_dim, rows, bytes)) return "queries outside the arena";
    if (op->kind == LD_OP_LATENT_POSITION) {
        if (!op->rope_table) return "bad rotation";
        return inside(op->k_offset, op->k_stride, op->width + op->n_rot, rows, bytes) ? NULL : "latent rows outside the arena";
    }
    if (op->kind == LD_OP_LATENT_HEADS) {
        if (op->n_weights != 2 || op->w_rows[0] != op->head_dim - op->n_rot || op->w_rows[1] != op->v_dim) return "wrong weights";
        for (int i = 0; i < 2; i++) {
            const char *wrong = check_weight(op, i, table);
            if (wrong) return wrong;
            if (op->w_step[i] < op->w_rows[i] * op->w_stride[i]) return "matrices of heads overlap";
        }
    } else if (op->v_dim != op->width || !inside(op->x_offset, op->x_stride, op->n_heads * op->width, rows, bytes)) {
        return "absorbed queries outside the arena";
    }
    int64_t width = op->kind == LD_OP_LATENT_ROWS ? ld_partial_floats(op->n_heads, op->v_dim) : (int64_t)op->n_heads * op->v_dim;
    return inside(op->y_offset[0], op->y_stride[0], width, rows, bytes) ? NULL : "output outside the arena";
}

static const char *check_delta(const ld_op *op, int64_t rows, int64_t bytes) {
    const char *wrong = ld_delta_check(op);
    if (wrong) return wrong;
    int64_t inner = (int64_t)op->n_heads * op->head_dim, all = ld_delta_channels(op->n_kv_heads, op->n_heads, op->head_dim);
    int joined = op->flags & LD_F_JOINED, paired = op->flags & LD_F_PAIRED;
    if (!inside(op->x_offset, op->x_stride, joined ? all + inner : all, rows, bytes) ||
        (!joined && !inside(op->x2_offset, op->x2_stride, inner, rows, bytes)) ||
        !inside(op->q_offset, op->q_stride, paired ? 2 * op->n_heads : op->n_heads, rows, bytes) ||
        !inside(op->k_offset, op->k_stride, paired ? 2 * op->n_heads : op->n_heads, rows, bytes))
        return "input outside the arena";
    return inside(op->y_offset[0], op->y_stride[0], inner, rows, bytes) ? NULL : "output outside the arena";
}

static const char *check_pointwise(const ld_op *op, int64_t rows, int64_t bytes) {
    if (op->width < 1 || !inside(op->y_offset[0], op->y_stride[0], op->width, rows, bytes)) return "output outside the arena";
    if (!inside(op->x_offset, op->x_stride, op->width, rows, bytes)) return "input outside the arena";
    int beside = op->kind == LD_OP_GATED_ACT || (op->kind == LD_OP_ADD && op->flags & LD_F_BESIDE);
    if (beside && !inside(op->x2_offset, op->x2_stride, op->width, rows, bytes))
        return "second input outside the arena";
    if (op->kind == LD_OP_ADD && bad_row_gate(op, rows, bytes)) return "gates outside the arena";
    if (op->kind == LD_OP_NORM && (op->parts < 1 || op->width % op->parts)) return "unequal parts";
    if (op->kind == LD_OP_NORM && (op->flags & LD_F_ADD) && op->parts != 1) return "parts cannot be added";
    return NULL;
}

const char *ld_node_check(const ld_node *node, int64_t rows, int64_t bytes, const ld_table *table) {
    const ld_op *op = &node->op;
    switch (op->kind) {
    case LD_OP_EMBED: {
        const char *wrong = op->n_weights == 1 ? check_weight(op, 0, table) : "wrong number of weights";
        if (wrong) return wrong;
        return inside(op->y_offset[0], op->y_stride[0], op->width, rows, bytes) ? NULL : "output outside the arena";
    }
    case LD_OP_PREPARE: {
        if (op->flags & LD_F_SLOTS) rows *= op->n_used;
        const char *wrong = op->n_used < 0 || op->n_used > LD_MAX_USED ? "bad experts" : check_input(op, rows, bytes);
        return wrong ? wrong : check_acts(node, rows, bytes);
    }
    case LD_OP_LINEAR: return check_linear(node, rows, bytes, table);
    case LD_OP_ROUTE:
    case LD_OP_EXPERTS_UP:
    case LD_OP_EXPERTS_DOWN: return check_experts(node, rows, bytes, table);
    case LD_OP_POSITION: return check_position(op, rows, bytes);
    case LD_OP_ATTEND_ROWS:
    case LD_OP_ATTEND_TILES: return check_attention(op, rows, bytes);
    case LD_OP_HEADS: return check_heads(node, rows, bytes, table);
    case LD_OP_LATENT_POSITION:
    case LD_OP_LATENT_ROWS:
    case LD_OP_LATENT_TILES:
    case LD_OP_LATENT_HEADS: return check_latent(op, rows, bytes, table);
    case LD_OP_DELTA_ROWS:
    case LD_OP_DELTA_CHUNKS: return check_delta(op, rows, bytes);
    case LD_OP_RECV:
    case LD_OP_SEND: return op->flag >= 0 && op->flag < 1 << 16 ? NULL : "a flag that cannot be";
    case LD_OP_CHOSEN:
    case LD_OP_TELL: return check_exchange(op, rows, bytes);
    case LD_OP_NORM:
    case LD_OP_ADD:
    case LD_OP_GATED_ACT:
    case LD_OP_ROWS: return check_pointwise(op, rows, bytes);
    default: return "unknown kind";
    }
}
