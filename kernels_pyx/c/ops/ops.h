// What program.c asks of each op kind: how many tasks it has for a step, and one task done by one worker.
#pragma once
#include <math.h>

#include "../attn.h"
#include "../dispatch.h"
#include "../op.h"
#include "../words.h"

// An op with everything resolved that does not change from step to step.
typedef struct {
    ld_op op;
    int index;
    const ld_format_kernels *format[LD_MAX_WEIGHTS];
    ld_linear_few few[LD_MAX_WEIGHTS];   // kernel for up to LD_FEW_MAX rows
    ld_linear_many many[LD_MAX_WEIGHTS]; // kernel for more
    int act[LD_MAX_WEIGHTS];             // ld_act each weight reads
    int acts_mask;                       // union of those
    int64_t chunk_few[LD_MAX_WEIGHTS], chunk_many[LD_MAX_WEIGHTS]; // weight rows per task
    int64_t tasks_few[LD_MAX_WEIGHTS], tasks_many[LD_MAX_WEIGHTS];
    int64_t tile_rows;                   // ATTEND_TILES, LATENT_HEADS, ROUTE of many rows: rows per task
    int64_t tile_heads;                  // LATENT_HEADS: heads per task
    int64_t heads;                       // DELTA_CHUNKS: value heads per task
    int64_t own_rows;                    // rows of an input stage of each worker's own
} ld_node;

// One worker's view of a running step.
typedef struct {
    const ld_table *table;
    const ld_attn_kernels *attn;
    const ld_words_kernels *words;
    ld_step_state *state;
    uint8_t *base;    // arena
    uint8_t *scratch; // this worker's own memory, 64-byte aligned
    int input_made;   // index + 1 of the op whose input stage lies in scratch
    int64_t gathered; // which group of which op has its rows in scratch, see experts.c
    uint64_t *hold;   // of the worker that took the task; NULL for tasks that nobody else may do
    uint64_t held;    // the task, as the hold names it
    int lost;         // 1: somebody else has done the task meanwhile
    int bad;          // 1: the task met a value that is not finite
} ld_ctx;

// Asked once by a task that may be done twice, before it writes anything but scratch: whether it is the first to come so far.
static inline int ld_claim(ld_ctx *ctx) {
    uint64_t held = ctx->held;
    if (ctx->hold && !__atomic_compare_exchange_n(ctx->hold, &held, 0, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) ctx->lost = 1;
    return !ctx->lost;
}

// NULL, or what is wrong with the op in an arena of so many bytes, for steps of up to max_rows rows.
const char *ld_node_check(const ld_node *node, int64_t max_rows, int64_t bytes, const ld_table *table);
// Scratch of one worker for this op, for steps of up to max_rows rows.
int64_t ld_node_scratch(const ld_node *node, int64_t max_rows);
// Tasks of this op in a step.
int64_t ld_node_tasks(const ld_node *node, const ld_step_state *state);
void ld_node_task(const ld_node *node, ld_ctx *ctx, int64_t task);
// Whether its tasks ask ld_claim in a step of so many rows, so that another worker may do one that is held up.
static inline int ld_node_claims(const ld_node *node, int64_t n_rows) {
    return node->op.kind == LD_OP_LINEAR && n_rows <= LD_FEW_MAX;
}

static inline int64_t ld_node_rows(const ld_node *node, const ld_step_state *state) {
    int64_t rows = node->op.flags & LD_F_OUT_ROWS ? state->n_out : state->n_rows;
    return node->op.flags & LD_F_SLOTS ? rows * node->op.n_used : rows;
}
static inline int64_t ld_round(int64_t n, int64_t to) { return (n + to - 1) / to * to; }
static inline int64_t ld_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline float *ld_row(const ld_ctx *ctx, int64_t offset, int64_t stride, int64_t row) {
    return offset == LD_LOGITS ? ctx->state->logits + row * ctx->state->logits_stride
                               : (float *)(ctx->base + offset) + row * stride;
}
static inline const int32_t *ld_blocks_of(const ld_step_state *s, int64_t group, int64_t row) {
    return s->block_table + (group * s->n_seqs + s->seq_of_row[row]) * s->table_stride;
}
void ld_softcap(float *x, double cap, int64_t n); // x = cap tanh(x / cap)
// Where the partials of a chunk and head lie: v_dim sums; (max, total).
static inline float *ld_chunk_sums(const ld_op *op, float *partials, int64_t chunk, int64_t head) {
    return partials + (chunk * op->n_heads + head) * ld_v_pad(op->v_dim);
}
static inline float *ld_chunk_scales(const ld_op *op, float *partials, int64_t chunk, int64_t head) {
    return partials + LD_MAX_CHUNKS * op->n_heads * ld_v_pad(op->v_dim) + (chunk * op->n_heads + head) * 2;
}
static inline float ld_sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
static inline void ld_add_scaled(float *y, const float *x, float scale, int64_t n) {
    for (int64_t i = 0; i < n; i++) y[i] += scale * x[i];
}
// What the values that an op adds count for in row r: LD_F_ROW_GATE.
static inline float ld_row_gate(const ld_node *node, const ld_ctx *ctx, int64_t row) {
    return node->op.flags & LD_F_ROW_GATE ? ld_sigmoid(*ld_row(ctx, node->op.share_offset, node->op.share_stride, row)) : 1.0f;
}
void ld_bad_value(ld_ctx *ctx, const ld_node *node); // the task met a value that is not finite

// matmul.c
int64_t ld_input_bytes(const ld_node *node); // scratch that the input stage of a worker's own takes
// Where the activations of this op lie for this worker; makes them first if they are its own and not there yet.
const uint8_t *ld_input_of(const ld_node *node, ld_ctx *ctx, int64_t n_rows, int act, size_t *stride);
int64_t ld_linear_scratch(const ld_node *node, int64_t max_rows);
int64_t ld_linear_tasks(const ld_node *node, int64_t n_rows);
void ld_linear_task(const ld_node *node, ld_ctx *ctx, int64_t task);
void ld_linear_rows(const ld_node *node, ld_ctx *ctx, int64_t first, int64_t end); // whole rows of y 0, PREPARED, of many
void ld_prepare_task(const ld_node *node, ld_ctx *ctx, int64_t task);
void ld_linear_split(ld_node *node, int n_workers);

// route.c
void ld_route_split(ld_node *node, int64_t max_rows, int n_workers);
int64_t ld_route_tasks(const ld_node *node, int64_t n_rows);
void ld_route_task(const ld_node *node, ld_ctx *ctx, int64_t task);
int64_t ld_route_scratch(const ld_node *node, int64_t max_rows);
void ld_route(const ld_node *node, ld_ctx *ctx); // after the last task of ROUTE: groups
ld_routes ld_routes_of(const ld_node *node, const ld_ctx *ctx);
// Ids of experts in the places of rows, n_used a row, become slots grouped by expert; -1 gets none.
void ld_group(const ld_op *op, ld_routes *to, int64_t n_rows, int32_t *counts, uint8_t *scratch);
int64_t ld_group_scratch(const ld_op *op, int64_t max_rows);

// exchange.c
int64_t ld_exchange_scratch(const ld_node *node, int64_t max_rows);
int64_t ld_exchange_tasks(const ld_node *node, const ld_step_state *state);
void ld_chosen_task(const ld_node *node, ld_ctx *ctx, int64_t task);
void ld_tell_task(const ld_node *node, ld_ctx *ctx, int64_t task);

// experts.c
void ld_experts_split(ld_node *node, int n_workers);
int64_t ld_experts_scratch(const ld_node *node, int64_t max_rows);
int64_t ld_experts_tasks(const ld_node *node, int64_t n_rows);
void ld_experts_up_task(const ld_node *node, ld_ctx *ctx, int64_t task);
void ld_experts_down_task(const ld_node *node, ld_ctx *ctx, int64_t task);

// attention.c
int64_t ld_attend_tile_rows(const ld_op *op);
int64_t ld_attend_scratch(const ld_node *node);
int64_t ld_attend_tasks(const ld_node *node, const ld_step_state *state);
void ld_attend_rows_task(const ld_node *node, ld_ctx *ctx, int64_t task);
void ld_attend_tiles_task(const ld_node *node, ld_ctx *ctx, int64_t task);
void ld_merge(const ld_node *node, const ld_ctx *ctx, int64_t row, float *out); // partials of a row -> [n_heads * v_dim]
void ld_merge_head(const ld_node *node, const ld_ctx *ctx, int64_t row, int64_t head, float *out); // of one head -> [v_dim]

// heads.c
void ld_heads_split(ld_node *node, int n_workers);
int64_t ld_heads_scratch(const ld_node *node, int64_t max_rows);
int64_t ld_heads_tasks(const ld_node *node, int64_t n_rows);
void ld_heads_task(const ld_node *node, ld_ctx *ctx, int64_t task);

// latent.c
void ld_latent_load(const ld_node *node, const ld_ctx *ctx, int64_t block, int64_t first, int64_t n, float *rows, int64_t stride,
                    float *scales); // rows [first, first + n) of a cached block as f32; scales: room for ld_latent_groups * LD_BLOCK
int64_t ld_latent_groups(const ld_op *op);
int64_t ld_latent_scratch(const ld_node *node);
int64_t ld_latent_tasks(const ld_node *node, const ld_step_state *state);
void ld_latent_position_task(const ld_node *node, ld_ctx *ctx, int64_t task);
void ld_latent_rows_task(const ld_node *node, ld_ctx *ctx, int64_t task);
void ld_latent_tiles_task(const ld_node *node, ld_ctx *ctx, int64_t task);

// decompress.c
void ld_decompress_split(ld_node *node, int n_workers);
int64_t ld_decompress_scratch(const ld_node *node, int64_t max_rows);
int64_t ld_decompress_tasks(const ld_node *node, int64_t n_rows);
void ld_decompress_task(const ld_node *node, ld_ctx *ctx, int64_t task);

// delta.c
const char *ld_delta_check(const ld_op *op); // all but its buffers
void ld_delta_split(ld_node *node, int n_workers);
int64_t ld_delta_scratch(const ld_node *node);
int64_t ld_delta_tasks(const ld_node *node, const ld_step_state *state);
void ld_delta_rows_task(const ld_node *node, ld_ctx *ctx, int64_t task);
void ld_delta_chunks_task(const ld_node *node, ld_ctx *ctx, int64_t task);

// pointwise.c
void ld_rotate(const ld_op *op, int64_t position, float *head); // its first n_rot values
// n values to 8 bits: value j at q[j / 2 * pair + j % 2 * step], and a scale for each group at scales[g * LD_BLOCK].
void ld_store_quants(const ld_ctx *ctx, const float *x, int64_t n, int64_t group, int8_t *q, int64_t pair, int64_t step,
                     uint16_t *scales);
void ld_embed_task(const ld_node *node, ld_ctx *ctx, int64_t task);
void ld_norm_task(const ld_node *node, ld_ctx *ctx, int64_t task);
void ld_add_task(const ld_node *node, ld_ctx *ctx, int64_t task);
void ld_gated_act_task(const ld_node *node, ld_ctx *ctx, int64_t task);
void ld_rows_task(const ld_node *node, ld_ctx *ctx, int64_t task);
void ld_position_task(const ld_node *node, ld_ctx *ctx, int64_t task);
void ld_norm_row(const ld_node *node, ld_ctx *ctx, const float *x, const float *w, double eps, float *y, int64_t n);
void ld_gated_act(const ld_node *node, const ld_ctx *ctx, const float *gate, const float *up, float *y, int64_t n);
// 1 / root mean square over all heads of a row of queries or keys, not yet turned; 0 where each head is normed alone.
float ld_row_norm(const ld_node *node, ld_ctx *ctx, int64_t row, int is_key);
void ld_turn_head(const ld_node *node, ld_ctx *ctx, int64_t row, int64_t index, float row_norm, float *head, int is_key);
void ld_store_row(const ld_node *node, ld_ctx *ctx, int64_t row, int64_t kv_head, const float *k, uint16_t *halves);

#define LD_OWN_SLOTS LD_MAX_USED // rows of an EXPERTS_DOWN's own input stage, at most
#define LD_POINTWISE_ROWS 8 // rows per task of pointwise ops
