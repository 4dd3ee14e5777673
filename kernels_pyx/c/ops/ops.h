// What program.c asks of each op kind: how many tasks it has for a step, and one task done by one worker.
#pragma once
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
    int64_t tile_rows;                   // ATTEND_TILES: rows per task
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
} ld_ctx;

// NULL, or what is wrong with the op in an arena of so many bytes, for steps of up to max_rows rows.
const char *ld_node_check(const ld_node *node, int64_t max_rows, int64_t bytes, const ld_table *table);
// Scratch of one worker for this op, for steps of up to max_rows rows.
int64_t ld_node_scratch(const ld_node *node, int64_t max_rows);
// Tasks of this op in a step.
int64_t ld_node_tasks(const ld_node *node, const ld_step_state *state);
void ld_node_task(const ld_node *node, ld_ctx *ctx, int64_t task);

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
void ld_bad_value(ld_ctx *ctx, const ld_node *node); // records the first op that met a value that is not finite

// matmul.c
int64_t ld_input_bytes(const ld_node *node); // scratch that the input stage of a worker's own takes
// Where the activations of this op lie for this worker; makes them first if they are its own and not there yet.
const uint8_t *ld_input_of(const ld_node *node, ld_ctx *ctx, int64_t n_rows, int act, size_t *stride);
int64_t ld_linear_scratch(const ld_node *node, int64_t max_rows);
int64_t ld_linear_tasks(const ld_node *node, int64_t n_rows);
void ld_linear_task(const ld_node *node, ld_ctx *ctx, int64_t task);
void ld_prepare_task(const ld_node *node, ld_ctx *ctx, int64_t task);
void ld_linear_split(ld_node *node, int n_workers);

// experts.c
void ld_experts_split(ld_node *node, int n_workers);
int64_t ld_route_scratch(const ld_node *node, int64_t max_rows);
int64_t ld_experts_scratch(const ld_node *node, int64_t max_rows);
int64_t ld_experts_tasks(const ld_node *node, int64_t n_rows);
void ld_route(const ld_node *node, ld_ctx *ctx); // after the last task of ROUTE: picks and groups
void ld_experts_up_task(const ld_node *node, ld_ctx *ctx, int64_t task);
void ld_experts_down_task(const ld_node *node, ld_ctx *ctx, int64_t task);

// attention.c
int64_t ld_attend_tile_rows(const ld_op *op);
int64_t ld_attend_scratch(const ld_node *node);
int64_t ld_attend_tasks(const ld_node *node, const ld_step_state *state);
void ld_attend_rows_task(const ld_node *node, ld_ctx *ctx, int64_t task);
void ld_attend_tiles_task(const ld_node *node, ld_ctx *ctx, int64_t task);
void ld_merge(const ld_node *node, const ld_ctx *ctx, int64_t row, float *out); // partials of a row -> [n_heads * v_dim]

// pointwise.c
void ld_embed_task(const ld_node *node, ld_ctx *ctx, int64_t task);
void ld_norm_task(const ld_node *node, ld_ctx *ctx, int64_t task);
void ld_add_task(const ld_node *node, ld_ctx *ctx, int64_t task);
void ld_gated_act_task(const ld_node *node, ld_ctx *ctx, int64_t task);
void ld_rows_task(const ld_node *node, ld_ctx *ctx, int64_t task);
void ld_position_task(const ld_node *node, ld_ctx *ctx, int64_t task);
void ld_norm_row(const ld_node *node, ld_ctx *ctx, const float *x, const float *w, double eps, float *y, int64_t n);
void ld_gated_act(const ld_node *node, const ld_ctx *ctx, const float *gate, const float *up, float *y, int64_t n);
void ld_turn_head(const ld_node *node, ld_ctx *ctx, int64_t row, float *head, int is_key);
void ld_store_row(const ld_node *node, ld_ctx *ctx, int64_t row, int64_t kv_head, const float *k, uint16_t *halves);

#define LD_POINTWISE_ROWS 8 // rows per task of pointwise ops
