// Attention over the paged cache: all query heads of one KV head in one pass over its keys, online softmax, f32 sums.
#include <immintrin.h>

#include <math.h>
#include <string.h>

#include "ops.h"

#include "../half.h"

#include "../attn/scalar.h"
#include "../attn/avx2.h"
#include "../attn/avx512.h"

#define KEYS 256     // keys scored before their values are summed
#define TILE_QUERIES 48 // queries (rows x heads of one KV head) of a prefill task

const ld_attn_kernels *ld_attn_for(ld_isa isa) {
    static const ld_attn_kernels scalar = {{tile_f32_scalar, tile_f16_scalar}, widen_scalar, LD_ISA_SCALAR};
    static const ld_attn_kernels avx2 = {{tile_f32_avx2, tile_f16_avx2}, widen_avx2, LD_ISA_AVX2};
    static const ld_attn_kernels avx512 = {{tile_f32_avx512, tile_f16_avx512}, widen_avx2, LD_ISA_AVX512};
    return isa >= LD_ISA_AVX512 ? &avx512 : isa >= LD_ISA_AVX2 ? &avx2 : &scalar;
}

// One worker's memory for m queries: scaled queries, scores, weighted sums, and per query what the online softmax keeps.
typedef struct {
    float *q, *scores, *sums, *max, *total, *factor, *ones, *unit; // unit and words: queries for keys of 8 bits, see words.h
    int16_t *words;
    int64_t *first, *limit; // the query sees the keys first <= key < limit
} room;

static int64_t queries_of(const ld_node *node) {
    int64_t per_kv = node->op.n_heads / node->op.n_kv_heads;
    return node->op.kind == LD_OP_ATTEND_TILES ? per_kv * node->tile_rows : per_kv;
}

static int64_t padded_head(const ld_op *op) { return ld_round(op->head_dim, 16); }

int64_t ld_attend_scratch(const ld_node *node) {
    int64_t m = ld_round(queries_of(node), 16), head = padded_head(&node->op);
    return m * (head + KEYS + ld_v_pad(node->op.v_dim) + 5) * 4 + m * head * 2 + m * 16;
}

static room rooms(const ld_node *node, const ld_ctx *ctx) {
    int64_t m = ld_round(queries_of(node), 16);
    float *at = (float *)ctx->scratch;
    room r;
    r.limit = (int64_t *)at, at += 2 * m;
    r.first = (int64_t *)at, at += 2 * m;
    r.q = at, at += m * padded_head(&node->op);
    r.scores = at, at += m * KEYS;
    r.sums = at, at += m * ld_v_pad(node->op.v_dim);
    r.max = at, at += m;
    r.total = at, at += m;
    r.factor = at, at += m;
    r.ones = at, at += m;
    r.unit = at, at += m;
    r.words = (int16_t *)at;
    return r;
}

static const uint8_t *keys_at(const ld_op *op, int64_t block, int64_t kv_head) {
    return (const uint8_t *)(uintptr_t)op->k_cache + block * op->block_bytes + kv_head * ld_kv_head_bytes(op->k_type, op->head_dim);
}

static const uint8_t *values_at(const ld_op *op, int64_t block, int64_t kv_head) {
    int64_t bytes = ld_kv_head_bytes(op->v_type, ld_v_pad(op->v_dim));
    return (const uint8_t *)(uintptr_t)op->v_cache + block * op->block_bytes + kv_head * bytes;
}

// The first block of a stream, asked for at once.
static void fetch(const uint8_t *block, int64_t bytes) {
    for (int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(block + at, 0, 2);
}

// Softmax weights of the scores of query i for the keys [start, start + n), against the running maximum; factor[i] brings earlier
// sums to the new maximum. Keys that the query does not see weigh nothing.
static void weigh(const ld_op *op, const ld_ctx *ctx, room *r, int64_t i, int64_t start, int64_t n) {
    float *s = r->scores + i * KEYS;
    int64_t from = r->first[i] > start ? ld_min(r->first[i] - start, n) : 0, to = ld_min(n, r->limit[i] - start);
    if (to > from) {
        if (op->softcap > 0.0) ld_softcap(s + from, op->softcap, to - from);
        float max = fmaxf(r->max[i], ctx->table->vec.max(s + from, to - from));
        r->factor[i] = expf(r->max[i] - max); // the first time exp(-inf) = 0
        r->total[i] = r->total[i] * r->factor[i] + ctx->table->vec.exp_sum(s + from, max, to - from);
        r->max[i] = max;
    } else {
        r->factor[i] = 1.0f;
        from = to = 0;
    }
    memset(s, 0, from * sizeof *s);
    memset(s + to, 0, (n - to) * sizeof *s);
}

// scores[m][LD_BLOCK] of the keys of one block.
static void score(const ld_node *node, const ld_ctx *ctx, room *r, const uint8_t *keys, int64_t ahead, float *scores,
                  int64_t m) {
    const ld_op *op = &node->op;
    int64_t pad = padded_head(op), dim = op->head_dim;
    if (op->k_type <= LD_KV_F16)
        ctx->attn->tile[op->k_type](r->q, pad, keys, LD_BLOCK, scores, KEYS, NULL, m, dim, LD_BLOCK, ahead);
    else
        ctx->words->scores(r->words, pad, r->unit, (const int8_t *)keys, (const uint16_t *)(keys + dim * LD_BLOCK), scores, KEYS, m,
                           dim, ld_kv_group(op->k_type, dim), ahead);
}

// sums = sums * factor + weights[m][n] values[n].
static void add_values(const ld_node *node, const ld_ctx *ctx, room *r, const uint8_t *values, int64_t ahead,
                       const float *weights, const float *factor, int64_t m, int64_t n) {
    const ld_op *op = &node->op;
    int64_t dim = ld_v_pad(op->v_dim);
    if (op->v_type <= LD_KV_F16)
        ctx->attn->tile[op->v_type](weights, KEYS, values, dim, r->sums, dim, factor, m, n, dim, ahead);
    else
        ctx->words->values(weights, KEYS, (const int8_t *)values, (const uint16_t *)(values + dim * LD_BLOCK), r->sums, factor, m, n,
                           dim, ld_kv_group(op->v_type, dim), ahead);
}

// m queries over the keys [from, to) of one sequence, from a block's first; query i sees keys first[i] <= key < limit[i]. Leaves
// sums, max and total in the room.
static void attend(const ld_node *node, const ld_ctx *ctx, room *r, const int32_t *blocks, int64_t kv_head, int64_t m,
                   int64_t from, int64_t to) {
    const ld_op *op = &node->op;
    int64_t v_pad = ld_v_pad(op->v_dim);
    int64_t key_bytes = ld_kv_head_bytes(op->k_type, op->head_dim), value_bytes = ld_kv_head_bytes(op->v_type, v_pad);
    memset(r->sums, 0, m * v_pad * sizeof *r->sums);
    for (int64_t i = 0, pad = padded_head(op); op->k_type > LD_KV_F16 && i < m; i++)
        ctx->words->to_words(r->q + i * pad, op->head_dim, r->words + i * pad, r->unit + i);
    for (int64_t i = 0; i < m; i++) r->max[i] = -INFINITY, r->total[i] = 0.0f, r->ones[i] = 1.0f;
    // The two streams, of keys and of values, jump from block to block; each asks for its next block while it reads this one.
    fetch(keys_at(op, blocks[from / LD_BLOCK], kv_head), key_bytes);
    fetch(values_at(op, blocks[from / LD_BLOCK], kv_head), value_bytes);
    int64_t last = (to - 1) / LD_BLOCK;
    for (int64_t start = from; start < to; start += KEYS) {
        int64_t n = ld_min(KEYS, to - start);
        for (int64_t b = 0; b < n; b += LD_BLOCK) {
            int64_t at = (start + b) / LD_BLOCK, ahead = at < last ? (blocks[at + 1] - blocks[at]) * op->block_bytes : 0;
            score(node, ctx, r, keys_at(op, blocks[at], kv_head), ahead, r->scores + b, m);
        }
        for (int64_t i = 0; i < m; i++) weigh(op, ctx, r, i, start, n);
        for (int64_t b = 0; b < n; b += LD_BLOCK) {
            int64_t at = (start + b) / LD_BLOCK, ahead = at < last ? (blocks[at + 1] - blocks[at]) * op->block_bytes : 0;
            add_values(node, ctx, r, values_at(op, blocks[at], kv_head), ahead, r->scores + b, b ? r->ones : r->factor, m,
                       ld_min(LD_BLOCK, n - b));
        }
    }
}

// The queries of one KV head of one row, scaled, at q[0..per_kv).
static void load_queries(const ld_node *node, ld_ctx *ctx, int64_t row, int64_t kv_head, float *q, int turn) {
    const ld_op *op = &node->op;
    int64_t per_kv = op->n_heads / op->n_kv_heads, pad = padded_head(op);
    int64_t step = op->q_step ? op->q_step : op->head_dim;
    const float *from = ld_row(ctx, op->q_offset, op->q_stride, row) + kv_head * per_kv * step;
    float row_norm = turn ? ld_row_norm(node, ctx, row, 0) : 0.0f;
    for (int64_t h = 0; h < per_kv; h++) {
        float *head = q + h * pad;
        memcpy(head, from + h * step, op->head_dim * sizeof *head);
        if (turn) ld_turn_head(node, ctx, row, kv_head * per_kv + h, row_norm, head, 0);
        for (int64_t d = 0; d < op->head_dim; d++) head[d] *= (float)op->scale;
    }
}

// The keys that a row reads: from the block of the first that it sees, in chunks.
typedef struct {
    int64_t start, len, keys, chunks; // [start, len), keys in a chunk
} past;

static past past_of(const ld_op *op, const ld_ctx *ctx, int64_t row) {
    int64_t position = ctx->state->positions[row], start = ld_first_block(op->window, position) * LD_BLOCK, len = position + 1;
    int64_t keys = ld_attn_chunk(len - start);
    return (past){start, len, keys, (len - start + keys - 1) / keys};
}

// Chunks of the rows of a step at most. A window of any alignment reaches over LD_BLOCK - 1 keys that are not seen.
static int64_t chunks_of(const ld_op *op, const ld_step_state *state) {
    if (!op->window) return state->max_chunks;
    return ld_min(LD_MAX_CHUNKS, (op->window + LD_BLOCK - 1 + LD_MIN_CHUNK - 1) / LD_MIN_CHUNK);
}

// What a head's sink changes: the sum of exp(score - max) to `total` against the larger of maximum and sink, sums by the factor.
static float with_sink(const ld_op *op, int64_t head, float max, float *total) {
    if (!op->sinks) return 1.0f;
    float sink = ((const float *)(uintptr_t)op->sinks)[head], top = fmaxf(max, sink), factor = expf(max - top);
    *total = *total * factor + expf(sink - top);
    return factor;
}

int64_t ld_attend_tile_rows(const ld_op *op) {
    int64_t rows = TILE_QUERIES / (op->n_heads / op->n_kv_heads);
    return rows < 1 ? 1 : rows;
}

int64_t ld_attend_tasks(const ld_node *node, const ld_step_state *state) {
    int64_t heads = node->op.n_kv_heads;
    if (node->op.kind == LD_OP_ATTEND_ROWS) return state->n_rows * heads * chunks_of(&node->op, state);
    return (state->n_rows + node->tile_rows - 1) / node->tile_rows * heads;
}

void ld_attend_rows_task(const ld_node *node, ld_ctx *ctx, int64_t task) {
    const ld_op *op = &node->op;
    int64_t chunks = chunks_of(op, ctx->state), chunk = task % chunks, kv_head = task / chunks % op->n_kv_heads;
    int64_t row = task / chunks / op->n_kv_heads, per_kv = op->n_heads / op->n_kv_heads;
    past seen = past_of(op, ctx, row);
    int64_t from = seen.start + chunk * seen.keys, to = ld_min(from + seen.keys, seen.len);
    if (from >= seen.len) return;
    room r = rooms(node, ctx);
    if (to == seen.len && (op->flags & LD_F_STORE)) { // only this task of the row and head reads the row's own key
        float *k = r.scores;
        memcpy(k, ld_row(ctx, op->k_offset, op->k_stride, row) + kv_head * op->head_dim, op->head_dim * sizeof *k);
        ld_turn_head(node, ctx, row, kv_head, ld_row_norm(node, ctx, row, 1), k, 1);
        ld_store_row(node, ctx, row, kv_head, k, (uint16_t *)(k + padded_head(op)));
    }
    load_queries(node, ctx, row, kv_head, r.q, 1);
    for (int64_t i = 0; i < per_kv; i++) r.limit[i] = seen.len, r.first[i] = ld_first_key(op->window, seen.len - 1);
    attend(node, ctx, &r, ld_blocks_of(ctx->state, op->cache_group, row), kv_head, per_kv, from, to);
    float *partials = ld_row(ctx, op->y_offset[0], op->y_stride[0], row);
    for (int64_t i = 0; i < per_kv; i++) {
        int64_t head = kv_head * per_kv + i;
        memcpy(ld_chunk_sums(op, partials, chunk, head), r.sums + i * ld_v_pad(op->v_dim), op->v_dim * sizeof(float));
        ld_chunk_scales(op, partials, chunk, head)[0] = r.max[i];
        ld_chunk_scales(op, partials, chunk, head)[1] = r.total[i];
    }
}

// Multiplies the output of a head with the sigmoids of its gates, where it has any.
static void gate_head(const ld_node *node, const ld_ctx *ctx, int64_t row, int64_t head, float *y) {
    const ld_op *op = &node->op;
    if (op->flags & LD_F_GATE)
        ctx->table->vec.sigmoid_mul(y, ld_row(ctx, op->x2_offset, op->x2_stride, row) + head * op->q_step + op->head_dim, op->v_dim);
}

void ld_merge_head(const ld_node *node, const ld_ctx *ctx, int64_t row, int64_t head, float *y) {
    const ld_op *op = &node->op;
    float *partials = ld_row(ctx, op->x_offset, op->x_stride, row), max = -INFINITY, total = 0.0f;
    int64_t chunks = past_of(op, ctx, row).chunks;
    for (int64_t c = 0; c < chunks; c++) max = fmaxf(max, ld_chunk_scales(op, partials, c, head)[0]);
    for (int64_t c = 0; c < chunks; c++) {
        const float *sums = ld_chunk_sums(op, partials, c, head), *scales = ld_chunk_scales(op, partials, c, head);
        float weight = expf(scales[0] - max);
        total += scales[1] * weight;
        for (int64_t d = 0; d < op->v_dim; d++) y[d] = c ? y[d] + weight * sums[d] : weight * sums[d];
    }
    float factor = with_sink(op, head, max, &total);
    for (int64_t d = 0; d < op->v_dim; d++) y[d] = y[d] * factor / total;
    gate_head(node, ctx, row, head, y);
}

void ld_merge(const ld_node *node, const ld_ctx *ctx, int64_t row, float *out) {
    for (int64_t head = 0; head < node->op.n_heads; head++) ld_merge_head(node, ctx, row, head, out + head * node->op.v_dim);
}

// Rows [first, end) of one sequence, one KV head.
static void attend_tile(const ld_node *node, ld_ctx *ctx, room *r, int64_t first, int64_t end, int64_t kv_head) {
    const ld_op *op = &node->op;
    int64_t per_kv = op->n_heads / op->n_kv_heads, longest = 0, from = INT64_MAX;
    for (int64_t row = first; row < end; row++) {
        int64_t at = (row - first) * per_kv, len = ctx->state->positions[row] + 1;
        load_queries(node, ctx, row, kv_head, r->q + at * padded_head(op), 0);
        int64_t start = ld_first_key(op->window, len - 1);
        for (int64_t i = 0; i < per_kv; i++) r->limit[at + i] = len, r->first[at + i] = start;
        if (len > longest) longest = len;
        from = ld_min(from, start / LD_BLOCK * LD_BLOCK);
    }
    const int32_t *blocks = ld_blocks_of(ctx->state, op->cache_group, first);
    attend(node, ctx, r, blocks, kv_head, (end - first) * per_kv, from, longest);
    for (int64_t row = first; row < end; row++)
        for (int64_t i = 0; i < per_kv; i++) {
            int64_t at = (row - first) * per_kv + i;
            int64_t head = kv_head * per_kv + i;
            float *y = ld_row(ctx, op->y_offset[0], op->y_stride[0], row) + head * op->v_dim;
            float *sums = r->sums + at * ld_v_pad(op->v_dim), factor = with_sink(op, head, r->max[at], &r->total[at]);
            float scale = factor / r->total[at];
            for (int64_t d = 0; d < op->v_dim; d++) y[d] = sums[d] * scale;
            gate_head(node, ctx, row, head, y);
        }
}

void ld_attend_tiles_task(const ld_node *node, ld_ctx *ctx, int64_t task) {
    const ld_step_state *s = ctx->state;
    int64_t tiles = (s->n_rows + node->tile_rows - 1) / node->tile_rows;
    int64_t tile = tiles - 1 - task / node->op.n_kv_heads, kv_head = task % node->op.n_kv_heads; // the longest pasts first
    int64_t first = tile * node->tile_rows, last = ld_min(first + node->tile_rows, s->n_rows);
    room r = rooms(node, ctx);
    while (first < last) {
        int64_t end = first + 1;
        while (end < last && s->seq_of_row[end] == s->seq_of_row[first]) end++;
        attend_tile(node, ctx, &r, first, end, kv_head);
        first = end;
    }
}
