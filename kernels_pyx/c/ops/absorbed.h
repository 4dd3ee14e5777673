// Absorbed queries over latent rows: what latent.c asks of absorbed.c.
#pragma once
#include "ops.h"
#include "softmax.h"

// One worker's memory for m queries. Before: q rows, scaled, and limit. After: sums and softmax.
typedef struct {
    int64_t *limit; // keys < limit count for the query
    float *q;       // [m][ld_latent_floats]
    float *sums;    // [m rounded up to 16][ld_v_pad(width)]
    ld_softmax softmax;
    uint8_t *rest;   // for narrow.c
} ld_absorbed;

static inline int64_t ld_latent_of(const ld_op *op) { return op->width + op->n_rot; }
static inline uint8_t *ld_latent_block(const ld_op *op, int64_t block) {
    return (uint8_t *)(uintptr_t)op->k_cache + block * op->block_bytes;
}
static inline int64_t ld_latent_floats(const ld_op *op) { return ld_round(op->width, 32) + ld_round(op->n_rot, 32); }

static inline int ld_latent_narrow(const ld_op *op) { return op->k_type != LD_KV_F32 && !(op->flags & LD_F_F32); } // exact runs are not
// Where the rotated part of a query begins: narrow ones have parts of whole registers.
static inline int64_t ld_latent_end(const ld_op *op) { return ld_latent_narrow(op) ? ld_round(op->width, 32) : op->width; }

int64_t ld_absorbed_scratch(const ld_node *node, int64_t m);
ld_absorbed ld_absorbed_room(const ld_node *node, const ld_ctx *ctx, int64_t m);
// m queries over the keys [from, to) of one sequence; from is a multiple of LD_BLOCK.
void ld_absorbed_attend(const ld_node *node, ld_ctx *ctx, ld_absorbed *room, const int32_t *blocks, int64_t m, int64_t from, int64_t to);

// narrow.c
int64_t ld_narrow_scratch(const ld_op *op, int64_t m);
void ld_narrow_attend(const ld_node *node, ld_ctx *ctx, ld_absorbed *room, const int32_t *blocks, int64_t m, int64_t from, int64_t to);
