// Attention over latent rows, absorbed: every query head reads the same rows, as keys and then as values.
#include <string.h>

#include "ops.h"
#include "softmax.h"

#define KEYS 64        // keys scored before their values are summed: their f32 rows stay in the second cache
#define GROUP_HEADS 32 // heads of a task of LATENT_ROWS
#define TILE_QUERIES 48 // queries (rows x heads) of a task of LATENT_TILES

static int64_t latent_of(const ld_op *op) { return op->width + op->n_rot; }
static int64_t row_floats(const ld_op *op) { return ld_round(latent_of(op), 16); }

int64_t ld_latent_groups(const ld_op *op) {
    int64_t group = ld_kv_group(op->k_type, latent_of(op));
    return op->k_type <= LD_KV_F16 ? 0 : (latent_of(op) + group - 1) / group;
}

static uint8_t *block_at(const ld_op *op, int64_t block) { return (uint8_t *)(uintptr_t)op->k_cache + block * op->block_bytes; }

void ld_latent_load(const ld_node *node, const ld_ctx *ctx, int64_t block, int64_t first, int64_t n, float *rows, int64_t stride,
                    float *scales) {
    const ld_op *op = &node->op;
    int64_t latent = latent_of(op), groups = ld_latent_groups(op), group = ld_kv_group(op->k_type, latent);
    const uint8_t *from = block_at(op, block);
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
    int64_t position = ctx->state->positions[row], slot = position % LD_BLOCK, latent = latent_of(op);
    uint8_t *to = block_at(op, ld_blocks_of(ctx->state, op->cache_group, row)[position / LD_BLOCK]);
    if (op->k_type == LD_KV_F32)
        memcpy((float *)to + slot * latent, x, latent * sizeof *x);
    else if (op->k_type == LD_KV_F16)
        ctx->table->vec.f32_to_f16(x, (uint16_t *)to + slot * latent, latent);
    else
        ld_store_quants(ctx, x, latent, ld_kv_group(op->k_type, latent), (int8_t *)to + slot * latent, 1,
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
        memcpy(latent, ld_row(ctx, op->k_offset, op->k_stride, r), latent_of(op) * sizeof *latent);
        ld_norm_row(node, ctx, latent, (const float *)(uintptr_t)op->k_norm_w, op->k_norm_eps, latent, op->width);
        ld_rotate(op, position, latent + op->width);
        store(node, ctx, r, latent);
    }
}

// One worker's memory for m queries: [limit][queries, transposed][f32 rows][scores of a block, transposed][scores][sums][softmax]
typedef struct {
    int64_t *limit; // keys < limit count for the query
    float *q, *rows, *crossed, *scores, *sums, *ones, *scales;
    ld_softmax softmax;
} room;

static int64_t tile_rows(const ld_op *op) { return op->n_heads > TILE_QUERIES ? 1 : TILE_QUERIES / op->n_heads; }
static int64_t group_heads(const ld_op *op) {
    return op->kind == LD_OP_LATENT_TILES && op->n_heads <= TILE_QUERIES ? op->n_heads : ld_min(op->n_heads, GROUP_HEADS);
}
static int64_t n_groups(const ld_op *op) { return (op->n_heads + group_heads(op) - 1) / group_heads(op); }
static int64_t queries_max(const ld_op *op) {
    return ld_round(group_heads(op) * (op->kind == LD_OP_LATENT_TILES ? tile_rows(op) : 1), 16);
}

int64_t ld_latent_scratch(const ld_node *node) {
    const ld_op *op = &node->op;
    int64_t m = queries_max(op), latent = row_floats(op);
    return m * 8 + 4 * (latent * m + KEYS * latent + LD_BLOCK * m + m * KEYS + m * ld_v_pad(op->width) + 4 * m +
                        ld_latent_groups(op) * LD_BLOCK);
}

static room rooms(const ld_node *node, const ld_ctx *ctx) {
    const ld_op *op = &node->op;
    int64_t m = queries_max(op), latent = row_floats(op);
    float *at = (float *)ctx->scratch;
    room r;
    r.limit = (int64_t *)at, at += 2 * m;
    r.q = at, at += latent * m;
    r.rows = at, at += KEYS * latent;
    r.crossed = at, at += LD_BLOCK * m;
    r.scores = at, at += m * KEYS;
    r.sums = at, at += m * ld_v_pad(op->width);
    r.softmax.max = at, at += m;
    r.softmax.total = at, at += m;
    r.softmax.factor = at, at += m;
    r.ones = at, at += m;
    r.scales = at;
    return r;
}

// Query i of m_pad: [absorbed | rotated] of a row's head, scaled, as a column.
static void load_query(const ld_node *node, const ld_ctx *ctx, const room *r, int64_t i, int64_t m_pad, int64_t row, int64_t head) {
    const ld_op *op = &node->op;
    const float *absorbed = ld_row(ctx, op->x_offset, op->x_stride, row) + head * op->width;
    const float *turned = ld_row(ctx, op->q_offset, op->q_stride, row) + (head + 1) * op->head_dim - op->n_rot;
    float scale = (float)op->scale;
    for (int64_t d = 0; d < op->width; d++) r->q[d * m_pad + i] = absorbed[d] * scale;
    for (int64_t d = 0; d < op->n_rot; d++) r->q[(op->width + d) * m_pad + i] = turned[d] * scale;
}

// m queries over the keys [from, to) of one sequence; query i sees keys < limit[i]. from is a multiple of LD_BLOCK. Leaves sums and
// softmax in the room.
static void attend(const ld_node *node, const ld_ctx *ctx, room *r, const int32_t *blocks, int64_t m, int64_t from, int64_t to) {
    const ld_op *op = &node->op;
    int64_t latent = latent_of(op), stride = row_floats(op), v_pad = ld_v_pad(op->width), m_pad = ld_round(m, 16);
    memset(r->sums, 0, m * v_pad * sizeof *r->sums);
    for (int64_t i = 0; i < m; i++) r->ones[i] = 1.0f;
    ld_softmax_start(&r->softmax, m);
    for (int64_t start = from; start < to; start += KEYS) {
        int64_t n = ld_min(KEYS, to - start);
        for (int64_t b = 0; b < n; b += LD_BLOCK) {
            int64_t in_block = ld_min(LD_BLOCK, n - b);
            float *rows = r->rows + b * stride;
            ld_latent_load(node, ctx, blocks[(start + b) / LD_BLOCK], 0, in_block, rows, stride, r->scales);
            ctx->attn->tile[0](rows, stride, r->q, m_pad, r->crossed, m_pad, NULL, in_block, latent, m_pad, 0);
            for (int64_t i = 0; i < m; i++)
                for (int64_t t = 0; t < in_block; t++) r->scores[i * KEYS + b + t] = r->crossed[t * m_pad + i];
        }
        for (int64_t i = 0; i < m; i++) ld_softmax_weigh(ctx, &r->softmax, i, r->scores + i * KEYS, n, r->limit[i] - start);
        ctx->attn->tile[0](r->scores, KEYS, r->rows, stride, r->sums, v_pad, r->softmax.factor, m, n, v_pad, 0);
    }
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
    room r = rooms(node, ctx);
    memset(r.q, 0, row_floats(op) * ld_round(m, 16) * sizeof *r.q);
    for (int64_t i = 0; i < m; i++) {
        load_query(node, ctx, &r, i, ld_round(m, 16), row, first + i);
        r.limit[i] = len;
    }
    attend(node, ctx, &r, ld_blocks_of(ctx->state, op->cache_group, row), m, from, to);
    float *partials = ld_row(ctx, op->y_offset[0], op->y_stride[0], row);
    for (int64_t i = 0; i < m; i++) {
        float *scales = ld_chunk_scales(op, partials, chunk, first + i);
        memcpy(ld_chunk_sums(op, partials, chunk, first + i), r.sums + i * ld_v_pad(op->width), op->width * sizeof(float));
        scales[0] = r.softmax.max[i], scales[1] = r.softmax.total[i];
    }
}

// Rows [first, end) of one sequence, heads [head, head + n).
static void attend_tile(const ld_node *node, ld_ctx *ctx, room *r, int64_t first, int64_t end, int64_t head, int64_t n) {
    const ld_op *op = &node->op;
    int64_t m = (end - first) * n, m_pad = ld_round(m, 16), longest = 0;
    memset(r->q, 0, row_floats(op) * m_pad * sizeof *r->q);
    for (int64_t i = 0; i < m; i++) {
        int64_t row = first + i / n;
        load_query(node, ctx, r, i, m_pad, row, head + i % n);
        r->limit[i] = ctx->state->positions[row] + 1;
        if (r->limit[i] > longest) longest = r->limit[i];
    }
    attend(node, ctx, r, ld_blocks_of(ctx->state, op->cache_group, first), m, 0, longest);
    for (int64_t i = 0; i < m; i++) {
        float *y = ld_row(ctx, op->y_offset[0], op->y_stride[0], first + i / n) + (head + i % n) * op->width;
        float scale = 1.0f / r->softmax.total[i], *sums = r->sums + i * ld_v_pad(op->width);
        for (int64_t d = 0; d < op->width; d++) y[d] = sums[d] * scale;
    }
}

void ld_latent_tiles_task(const ld_node *node, ld_ctx *ctx, int64_t task) {
    const ld_op *op = &node->op;
    const ld_step_state *s = ctx->state;
    int64_t rows = tile_rows(op), tiles = (s->n_rows + rows - 1) / rows, head = task % n_groups(op) * group_heads(op);
    int64_t first = (tiles - 1 - task / n_groups(op)) * rows, last = ld_min(first + rows, s->n_rows); // the longest pasts first
    room r = rooms(node, ctx);
    while (first < last) {
        int64_t end = first + 1;
        while (end < last && s->seq_of_row[end] == s->seq_of_row[first]) end++;
        attend_tile(node, ctx, &r, first, end, head, ld_min(group_heads(op), op->n_heads - head));
        first = end;
    }
}
