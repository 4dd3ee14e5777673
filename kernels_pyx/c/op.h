// The ABI between Python and C: an op descriptor and the state of one step.
//
// Python fills an array of ld_op (a numpy structured array whose dtype is generated from LD_OP_FIELDS, so the two cannot drift
// apart); program.c checks it once, resolves kernels, and every worker walks the same array. Offsets are bytes into the
// program's arena, 64-byte aligned, -1 = absent. Strides of f32 buffers are in floats and a multiple of 16. Pointers are u64.
#pragma once
#include <stdint.h>

#include "handoff.h"

#define LD_MAX_WEIGHTS 4
#define LD_BLOCK 32           // tokens per KV block
#define LD_LOGITS (-2)        // as y_offset: the output is step_state.logits
#define LD_MAX_CHUNKS 16      // key chunks of one row in decode attention
#define LD_MAX_TAPS 16        // of a convolution over tokens
#define LD_MIN_CHUNK 128     // keys of such a chunk, the last one's apart
#define LD_MAX_GROUPS 8       // cache groups: pools of blocks with block tables of their own

typedef enum {
    LD_OP_EMBED = 0,      // y[r] = row token_ids[r] of weight 0, as f32
    LD_OP_NORM = 1,       // y[r] = RMS norm of x[r], over `parts` equal parts with one weight; with ADD y[r] += it
    LD_OP_PREPARE = 2,    // the input stage alone: acts of x, shared by later linears; rows split over workers
    LD_OP_LINEAR = 3,     // y_i = W_i x (+ bias_i), with an epilogue
    LD_OP_POSITION = 4,   // norm and rotate q and k, store k and v in the cache; each part by flag
    LD_OP_ATTEND_ROWS = 5,  // decode: a row a sequence, split over KV heads x key chunks -> partials; may do POSITION's work
    LD_OP_ATTEND_TILES = 6, // prefill: tiles of rows x KV heads -> y, final
    LD_OP_ADD = 7,        // y[r] += x[r]; with BESIDE y[r] += x2[r] too
    LD_OP_GATED_ACT = 8,  // y[r] = act(x[r]) * x2[r]
    LD_OP_ROWS = 9,       // y[r] = x[out_rows[r]]
    LD_OP_ROUTE = 10,     // LINEAR of a router into y; experts are picked for each row, grouped after the last task -> routes
    LD_OP_EXPERTS_UP = 11,   // y[s] = act(G_e x[r]) * (U_e x[r]) * weight of slot s, its row r and expert e (+ biases before act)
    LD_OP_EXPERTS_DOWN = 12, // y[r] = sum over the slots s of row r of D_e x[s] (+ weight of s * bias_e)
    LD_OP_HEADS = 13,     // y[r][h] = W_h x[r][h], a matrix for each of n_heads heads
    LD_OP_LATENT_POSITION = 14, // rotate the ends of queries; norm, rotate and store latent rows, see `The latent cache`
    LD_OP_LATENT_ROWS = 15,  // decode, absorbed: a row a sequence, split over groups of heads x key chunks -> partials
    LD_OP_LATENT_TILES = 16, // a few rows, absorbed -> y, final: n_heads sums of latent rows
    LD_OP_LATENT_HEADS = 17, // many rows: keys W_0 c and values W_1 c of each head are made on the way -> y, final
    LD_OP_DELTA_ROWS = 20,   // decode: gated DeltaNet, a row a sequence, split over value heads
    LD_OP_DELTA_CHUNKS = 21, // prefill: the same for chunks of rows, split over key heads
    LD_OP_RECV = 22,      // rows that come from elsewhere, see handoff.h: every worker waits for them
    LD_OP_SEND = 23,      // rows that go elsewhere: who first comes here, where all are done with what was before, says so
    LD_OP_CHOSEN = 24,    // routes from ids of experts x[r] (int32, -1 = none of ours) and their weights x2[r]
    LD_OP_TELL = 25,      // y_0[r] = ids of experts (int32), y_1[r] = their weights, from routes
    LD_N_OPS = 26
} ld_op_kind;

enum {
    LD_F_SYNC = 1,        // workers pass only when every task since the last SYNC is done
    LD_F_OUT_ROWS = 2,    // the op has n_out rows, else n_rows
    LD_F_GATHER = 4,      // input stage: row r is x[out_rows[r]]
    LD_F_NORM = 8,        // input stage: RMS norm with norm_w, norm_eps
    LD_F_MERGE = 16,      // input stage: x holds attention partials, merged by log-sum-exp
    LD_F_PREPARED = 32,   // LINEAR: acts already lie in the arena at act_offset; else each worker makes its own
    LD_F_ADD = 64,        // LINEAR epilogue: y += W x; NORM: y += norm
    LD_F_GATED = 128,     // LINEAR epilogue: y = act(W_0 x) * (W_1 x)
    LD_F_F32 = 256,       // LINEAR, PREPARE: f32 activations
    LD_F_ROPE_Q = 512,    // POSITION, ATTEND_ROWS
    LD_F_ROPE_K = 1024,
    LD_F_STORE = 2048,
    LD_F_NEOX = 4096,     // rotate pairs (j, j + n_rot/2), else (2j, 2j+1)
    LD_F_GELU = 8192,     // gated act: gelu-tanh, else silu
    LD_F_SLOTS = 16384,   // the op has a row a slot: n_used times as many
    LD_F_SHARE = 32768,   // ROUTE: weights are divided by their sum
    LD_F_SIGMOID = 1 << 16,  // ROUTE: an expert's likelihood is the sigmoid of its logit, else the softmax over all
    LD_F_CHOSEN = 1 << 17,   // ROUTE: it is the logit, and weights are the softmax over the chosen
    LD_F_CLAMPED = 1 << 18,  // gated act: min(g, limit) * sigmoid(alpha min(g, limit)) * (clamp(u, limit) + 1)
    LD_F_BESIDE = 1 << 19,   // EXPERTS_DOWN, ADD: y += x2 too, what an expert that every row passes has made, or another node
    LD_F_WHOLE_NORM = 1 << 21, // POSITION, ATTEND_ROWS: q_norm, k_norm are over all heads of a row; weights for each of their values
    LD_F_NORM_LAST = 1 << 22,  // they come after the rotation
    LD_F_ROW_GATE = 1 << 20, // ADD, BESIDE: x or x2 counts times the sigmoid of the row's one value at share_offset
    LD_F_GATE = 1 << 24,     // MERGE, ATTEND_TILES: head h counts times the sigmoids of x2, from h * q_step + head_dim of its row on
    LD_F_TILED = 1 << 25,    // DELTA: value head h reads key head h % n_kv_heads, else h / (n_heads / n_kv_heads)
    LD_F_JOINED = 1 << 26,   // DELTA: x holds by key head its query, key, values and gates; else x q, k, v and x2 the gates
    LD_F_PAIRED = 1 << 27,   // DELTA: beta and alpha are one buffer, by key head its betas, then its alphas
    LD_F_TEAM_SYNC = 1 << 28, // workers of the op's team pass only when all tasks of the team's ops since the last SYNC are done
};

// Q8_0 has an f16 scale for every 32 values of a token and KV head, INT8 one for all of them; x ~ scale * q, |q| <= 127.
typedef enum { LD_KV_F32 = 0, LD_KV_F16 = 1, LD_KV_Q8_0 = 2, LD_KV_INT8 = 3, LD_N_KV_TYPES = 4 } ld_kv_type;

// F(C type, numpy code, name), A(..., count) for arrays. Fields that the kind does not read are 0.
#define LD_OP_FIELDS(F, A)                                                                                                       \
    F(int32_t, "i4", kind)            /* ld_op_kind */                                                                           \
    F(int32_t, "i4", flags)           /* LD_F_* */                                                                               \
    F(int32_t, "i4", n_weights)       /* EMBED, ROUTE, DOWN 1, UP 2, LINEAR 1..4 */                                               \
    F(int32_t, "i4", parts)           /* NORM: equal parts of a row, each normed alone */                                        \
    F(int32_t, "i4", team)            /* 1 + the team whose workers alone do it, 0 = all workers do */                            \
    F(int64_t, "i8", x_offset)        /* input buffer; MERGE: partials */                                                        \
    F(int64_t, "i8", x_stride)        /* floats from row to row */                                                               \
    F(int64_t, "i8", x2_offset)       /* GATED_ACT: up; BESIDE: what is added; DELTA, GATE: gates */                             \
    F(int64_t, "i8", x2_stride)                                                                                                  \
    F(int64_t, "i8", x_head)          /* HEADS: floats from head to head, of the input and of the output */                      \
    F(int64_t, "i8", y_head)                                                                                                     \
    F(int64_t, "i8", width)           /* values per input row (k of the linears; width of pointwise ops); LATENT: the rank */    \
    F(uint64_t, "u8", norm_w)         /* const float*, `width / parts` values, 0 = ones */                                       \
    F(double, "f8", norm_eps)                                                                                                    \
    A(int64_t, "i8", act_offset, 3)      /* per ld_act: shared activations in the arena; PREPARE writes those >= 0 */            \
    A(int64_t, "i8", act_stride, 3)      /* bytes from row to row */                                                             \
    A(uint64_t, "u8", w_data, 4)         /* const uint8_t*: weight matrices, all of `width` columns */                           \
    A(int64_t, "i8", w_stride, 4)        /* bytes from row to row */                                                             \
    A(int64_t, "i8", w_rows, 4)          /* rows; EMBED: n_vocab; EXPERTS: of one expert */                                      \
    A(int32_t, "i4", w_format, 4)        /* ggml type id */                                                                      \
    A(uint64_t, "u8", w_bias, 4)         /* const float*, w_rows values (EXPERTS: of each), 0 = none */                           \
    A(int64_t, "i8", w_step, 4)          /* bytes from the matrix of one expert or head to that of the next */                   \
    A(int64_t, "i8", y_offset, 4)        /* output per weight, or the one output; LD_LOGITS */                                   \
    A(int64_t, "i8", y_stride, 4)        /* floats */                                                                            \
    A(int64_t, "i8", y_first, 4)         /* LINEAR: where in a row of the output the values of weight i begin */                 \
    F(int64_t, "i8", q_offset)        /* POSITION, ATTEND: q, k, v buffers; DELTA: beta, alpha */                                \
    F(int64_t, "i8", q_stride)                                                                                                   \
    F(int64_t, "i8", k_offset)                                                                                                   \
    F(int64_t, "i8", k_stride)                                                                                                   \
    F(int64_t, "i8", v_offset)                                                                                                   \
    F(int64_t, "i8", v_stride)                                                                                                   \
    F(int32_t, "i4", n_heads)                                                                                                    \
    F(int32_t, "i4", n_kv_heads)                                                                                                 \
    F(int32_t, "i4", head_dim)                                                                                                   \
    F(int32_t, "i4", v_dim)                                                                                                      \
    F(int32_t, "i4", n_rot)                                                                                                      \
    F(int32_t, "i4", k_type)          /* ld_kv_type */                                                                           \
    F(int32_t, "i4", v_type)                                                                                                     \
    F(int32_t, "i4", n_experts)       /* ROUTE, EXPERTS */                                                                       \
    F(int32_t, "i4", n_used)          /* experts that a row passes */                                                            \
    F(int32_t, "i4", n_groups)        /* ROUTE: equal groups of experts; > 1: only experts of the best groups are chosen */      \
    F(int32_t, "i4", n_groups_used)                                                                                              \
    F(int32_t, "i4", flag)            /* RECV, SEND: which flag of the handoff */                                                \
    F(int64_t, "i8", routes_offset)   /* ld_routes in the arena */                                                               \
    F(uint64_t, "u8", pick_bias)      /* ROUTE: const float*, added to the likelihoods that are compared, 0 = none */            \
    F(uint64_t, "u8", tally_ids)      /* ROUTE: int32_t* [LD_FEW_MAX][n_used]: what was chosen in a step of few rows; 0 = none */ \
    F(uint64_t, "u8", tally_counts)   /* ROUTE: int32_t* [n_experts]: how often, in a step of more rows; 0 = none */             \
    F(double, "f8", weight_scale)     /* ROUTE: factor of the weights */                                                         \
    F(int64_t, "i8", share_offset)    /* ROW_GATE: one value a row */                                                            \
    F(int64_t, "i8", share_stride)                                                                                               \
    F(double, "f8", act_alpha)        /* CLAMPED */                                                                              \
    F(double, "f8", act_limit)                                                                                                   \
    F(double, "f8", scale)            /* of the scores; EMBED: of the row, 0 = 1 */                                              \
    F(double, "f8", softcap)          /* s = softcap tanh(s / softcap) of scores, of what LINEAR stores; 0 = none */             \
    F(int64_t, "i8", window)          /* ATTEND, MERGE: a row sees its own key and window - 1 before it; 0 = all */              \
    F(uint64_t, "u8", sinks)          /* ATTEND_TILES, MERGE: const float*, a logit per head in the softmax's sum; 0 = none */   \
    F(uint64_t, "u8", rope_table)     /* const float*: per position n_rot/2 cosines, then n_rot/2 sines */                       \
    F(uint64_t, "u8", q_norm_w)       /* const float*, head_dim values (WHOLE_NORM: of all heads), 0 = no norm */                \
    F(uint64_t, "u8", k_norm_w)                                                                                                  \
    F(uint64_t, "u8", q_scale)        /* const float*, per position what queries are multiplied with, 0 = nothing */             \
    F(double, "f8", q_norm_eps)                                                                                                  \
    F(double, "f8", k_norm_eps)                                                                                                  \
    F(uint64_t, "u8", k_cache)        /* keys of the layer in block 0: per KV head [head_dim][LD_BLOCK] (transposed) */          \
    F(uint64_t, "u8", v_cache)        /* values of the layer in block 0: per KV head [LD_BLOCK][ld_v_pad(v_dim)] */              \
    F(int64_t, "i8", block_bytes)     /* from block to block: the keys and values of a block of the layer lie side by side */    \
    F(int64_t, "i8", cache_group)     /* POSITION, ATTEND: which of the step's block tables */                                   \
    F(int32_t, "i4", q_step)          /* floats from head to head of q, 0 = head_dim */                                          \
    F(int32_t, "i4", n_taps)          /* DELTA; its n_heads are of values, n_kv_heads of keys, all head_dim wide */              \
    F(uint64_t, "u8", conv_w)         /* DELTA: const float*, [n_taps][channels] */                                              \
    F(uint64_t, "u8", dt)             /* DELTA: const float*, n_heads values: exp(min(0, decay) softplus(alpha + dt)) fades */   \
    F(uint64_t, "u8", decay)                                                                                                     \
    F(uint64_t, "u8", state)          /* DELTA: the layer's part of slot 0: inputs [n_taps - 1][channels], then matrices */      \
    F(int64_t, "i8", state_stride)    /* bytes from slot to slot */

typedef struct {
#define LD_FIELD(type, code, name) type name;
#define LD_ARRAY(type, code, name, count) type name[count];
    LD_OP_FIELDS(LD_FIELD, LD_ARRAY)
#undef LD_FIELD
#undef LD_ARRAY
} ld_op;

typedef struct {
    const char *name, *code;
    int64_t offset, count;
} ld_field;

const ld_field *ld_op_fields(int *n);

// What varies from step to step. The first part is filled by the caller, the second by the program.
typedef struct {
    int64_t n_rows, n_out, n_seqs, n_groups;
    const int32_t *token_ids;   // [n_rows]
    const int32_t *positions;   // [n_rows]
    const int32_t *seq_of_row;  // [n_rows]
    const int32_t *block_table; // [n_groups][n_seqs][table_stride]: block ids; outside a group's window they are not read
    int64_t table_stride;
    const int32_t *out_rows;    // [n_out]
    const int32_t *states;      // [n_seqs][4]: slot to read, to write, another or -1, rows after which that one is written; or NULL
    float *logits;              // [n_out][logits_stride]
    int64_t logits_stride;
    const int32_t *abort;       // not 0: stop at the next op
    int64_t *op_ns;             // NULL, or [n_ops]: wall nanoseconds of each op as the caller's thread saw it
    int64_t *worker_ns;         // NULL, or [n_workers]: nanoseconds that each worker spent on tasks are added here
    int64_t first, end;         // the ops to run: a piece of the step, which goes on where the piece before left the arena
    const ld_handoff *handoff;  // how RECV and SEND meet others; NULL: the caller has seen to it and they do nothing

    int64_t max_chunks;         // over the rows, for ATTEND_ROWS without a window
    int32_t bad_op;             // 1 + index of the first op whose input was not finite, 0 = none
    int32_t aborted;            // 1: the step was stopped and its output means nothing
} ld_step_state;

// Which row passes which expert: n_rows * n_used slots, grouped by expert in the order of ids, by row within a group. A slot is a
// row of its own between EXPERTS_UP and EXPERTS_DOWN, so that an expert's rows lie side by side.
#define LD_MAX_USED 64
typedef struct {
    int32_t *n_groups; // experts that any row passes
    int32_t *expert;   // [n_groups]
    int32_t *start;    // [n_groups + 1]: first slot of each group
    int32_t *row;      // [slots]
    float *weight;     // [slots]
} ld_routes;

static inline ld_routes ld_routes_in(uint8_t *at, int64_t n_experts, int64_t slots) {
    int32_t *words = (int32_t *)at, *row = words + 16 + 2 * n_experts + 1;
    return (ld_routes){words, words + 16, words + 16 + n_experts, row, (float *)(row + slots)};
}
static inline int64_t ld_routes_bytes(int64_t n_experts, int64_t slots) { return 4 * (16 + 2 * n_experts + 1 + 2 * slots); }

// Channels of the convolution of a gated DeltaNet: queries, keys, values.
static inline int64_t ld_delta_channels(int64_t n_keys, int64_t n_values, int64_t dim) { return (2 * n_keys + n_values) * dim; }

static inline int64_t ld_v_pad(int64_t v_dim) { return (v_dim + 15) & ~(int64_t)15; }

// The cache of one KV head in a block: LD_BLOCK * dim values, dim = head_dim of keys, ld_v_pad(v_dim) of values; for the 8-bit
// types in pairs, keys [head_dim / 2][LD_BLOCK][2] and values [LD_BLOCK / 2][ld_v_pad][2], then f16 scales [group][LD_BLOCK].
static inline int64_t ld_kv_group(int type, int64_t dim) { return type == LD_KV_Q8_0 ? 32 : dim; }
static inline int64_t ld_kv_head_bytes(int type, int64_t dim) {
    if (type <= LD_KV_F16) return dim * LD_BLOCK * (type == LD_KV_F16 ? 2 : 4);
    return dim * LD_BLOCK + (dim + ld_kv_group(type, dim) - 1) / ld_kv_group(type, dim) * LD_BLOCK * 2;
}

// The latent cache of a layer: per block [LD_BLOCK][width + n_rot] values, c then k_pe of a token; for the 8-bit types then f16
// scales [group][LD_BLOCK]. Bytes are ld_kv_head_bytes(k_type, width + n_rot). There are no values besides.

// Decode attention cuts a past of `len` tokens in at most LD_MAX_CHUNKS chunks of this many keys: a function of len alone, so
// that the result depends neither on the number of workers nor on who else is in the batch. With a window, `len` counts from the
// block of the first key that is seen.
static inline int64_t ld_attn_chunk(int64_t len) {
    int64_t chunk = ((len + LD_MAX_CHUNKS - 1) / LD_MAX_CHUNKS + LD_BLOCK - 1) / LD_BLOCK * LD_BLOCK;
    return chunk < LD_MIN_CHUNK ? LD_MIN_CHUNK : chunk;
}

// The first key that a row at `position` sees, and the block boundary at or before it.
static inline int64_t ld_first_key(int64_t window, int64_t position) {
    return window > 0 && position >= window ? position - window + 1 : 0;
}
static inline int64_t ld_first_block(int64_t window, int64_t position) { return ld_first_key(window, position) / LD_BLOCK; }

// Floats of one row of partials: per chunk and head v_pad sums, then per chunk and head (max, sum).
static inline int64_t ld_partial_floats(int64_t n_heads, int64_t v_dim) {
    return (LD_MAX_CHUNKS * n_heads * (ld_v_pad(v_dim) + 2) + 15) & ~(int64_t)15;
}
