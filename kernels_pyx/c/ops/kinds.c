// Which function serves which kind of op.
#include "ops.h"

int64_t ld_node_scratch(const ld_node *node, int64_t max_rows) {
    switch (node->op.kind) {
    case LD_OP_LINEAR: return ld_linear_scratch(node, max_rows);
    case LD_OP_ROUTE: return ld_route_scratch(node, max_rows);
    case LD_OP_EXPERTS_UP:
    case LD_OP_EXPERTS_DOWN: return ld_experts_scratch(node, max_rows);
    case LD_OP_PREPARE: return node->op.width * 4 + 64;
    case LD_OP_NORM: return node->op.flags & LD_F_ADD ? node->op.width * 4 : 0;
    case LD_OP_POSITION: return ld_round(node->op.head_dim, 16) * 4 + ld_v_pad(node->op.v_dim) * 4;
    case LD_OP_ATTEND_ROWS:
    case LD_OP_ATTEND_TILES: return ld_attend_scratch(node);
    case LD_OP_HEADS: return ld_heads_scratch(node, max_rows);
    case LD_OP_LATENT_POSITION: return (node->op.width + node->op.n_rot) * 4 + 64;
    case LD_OP_LATENT_ROWS:
    case LD_OP_LATENT_TILES: return ld_latent_scratch(node);
    case LD_OP_LATENT_HEADS: return ld_decompress_scratch(node, max_rows);
    case LD_OP_DELTA_ROWS:
    case LD_OP_DELTA_CHUNKS: return ld_delta_scratch(node);
    case LD_OP_CHOSEN:
    case LD_OP_TELL: return ld_exchange_scratch(node, max_rows);
    default: return 0;
    }
}

int64_t ld_node_tasks(const ld_node *node, const ld_step_state *state) {
    int64_t rows = ld_node_rows(node, state);
    switch (node->op.kind) {
    case LD_OP_LINEAR: return ld_linear_tasks(node, rows);
    case LD_OP_ROUTE: return ld_route_tasks(node, rows);
    case LD_OP_EXPERTS_UP:
    case LD_OP_EXPERTS_DOWN: return ld_experts_tasks(node, rows);
    case LD_OP_ATTEND_ROWS:
    case LD_OP_ATTEND_TILES: return ld_attend_tasks(node, state);
    case LD_OP_HEADS: return ld_heads_tasks(node, rows);
    case LD_OP_LATENT_ROWS:
    case LD_OP_LATENT_TILES: return ld_latent_tasks(node, state);
    case LD_OP_LATENT_HEADS: return ld_decompress_tasks(node, rows);
    case LD_OP_DELTA_ROWS:
    case LD_OP_DELTA_CHUNKS: return ld_delta_tasks(node, state);
    case LD_OP_RECV:
    case LD_OP_SEND: return 0;
    case LD_OP_CHOSEN:
    case LD_OP_TELL: return ld_exchange_tasks(node, state);
    default: return (rows + LD_POINTWISE_ROWS - 1) / LD_POINTWISE_ROWS;
    }
}

void ld_node_task(const ld_node *node, ld_ctx *ctx, int64_t task) {
    switch (node->op.kind) {
    case LD_OP_EMBED: ld_embed_task(node, ctx, task); break;
    case LD_OP_NORM: ld_norm_task(node, ctx, task); break;
    case LD_OP_PREPARE: ld_prepare_task(node, ctx, task); break;
    case LD_OP_LINEAR: ld_linear_task(node, ctx, task); break;
    case LD_OP_ROUTE: ld_route_task(node, ctx, task); break;
    case LD_OP_EXPERTS_UP: ld_experts_up_task(node, ctx, task); break;
    case LD_OP_EXPERTS_DOWN: ld_experts_down_task(node, ctx, task); break;
    case LD_OP_POSITION: ld_position_task(node, ctx, task); break;
    case LD_OP_ATTEND_ROWS: ld_attend_rows_task(node, ctx, task); break;
    case LD_OP_ATTEND_TILES: ld_attend_tiles_task(node, ctx, task); break;
    case LD_OP_HEADS: ld_heads_task(node, ctx, task); break;
    case LD_OP_LATENT_POSITION: ld_latent_position_task(node, ctx, task); break;
    case LD_OP_LATENT_ROWS: ld_latent_rows_task(node, ctx, task); break;
    case LD_OP_LATENT_TILES: ld_latent_tiles_task(node, ctx, task); break;
    case LD_OP_LATENT_HEADS: ld_decompress_task(node, ctx, task); break;
    case LD_OP_DELTA_ROWS: ld_delta_rows_task(node, ctx, task); break;
    case LD_OP_DELTA_CHUNKS: ld_delta_chunks_task(node, ctx, task); break;
    case LD_OP_ADD: ld_add_task(node, ctx, task); break;
    case LD_OP_GATED_ACT: ld_gated_act_task(node, ctx, task); break;
    case LD_OP_ROWS: ld_rows_task(node, ctx, task); break;
    case LD_OP_CHOSEN: ld_chosen_task(node, ctx, task); break;
    case LD_OP_TELL: ld_tell_task(node, ctx, task); break;
    }
}
