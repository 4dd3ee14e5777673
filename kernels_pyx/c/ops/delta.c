// Gated DeltaNet, see ../delta.h and engine/graph/reference_delta.py. A slot holds, for each layer, the inputs of the last taps - 1
// tokens [taps - 1][channels] and then a matrix [dim][dim] a value head. A step reads one slot of a sequence and writes another, so
// that a step that was stopped can be repeated, and a slot that is not written any more is a snapshot.
//
// Decode does one value head of one row at a time. Prefill takes chunks of rows (https://arxiv.org/abs/2412.06464, section 3.3):
// with G the sums of the log decays within the chunk, M the matrix before it, D_ij = exp(G_i - G_j) and rows k_i, v_i,
//   V' solves V'_i = beta_i (v_i - exp(G_i) M^T k_i) - sum over j < i of beta_i (k_i . k_j) D_ij V'_j
//   o_i = exp(G_i) M^T q_i + sum over j <= i of (q_i . k_j) D_ij V'_j
//   M = exp(G_n) M + sum over j of exp(G_n - G_j) k_j V'_j^T
// which is all matrix products but for the 12 x 12 blocks on the diagonal of the solve.
#include <math.h>
#include <string.h>

#include "ops.h"

#define CHUNK 64
#define SOLVED 12 // rows solved at a time: as many as a tile of the kernel has

// The rows of one sequence in this step.
typedef struct {
    int64_t first, n;
    const float *before; // its state, NULL = none yet
    float *after, *marked;
    int64_t mark; // rows before `marked`
} segment;

// One value head and its key head: where their parts lie in a row of each input, and among the channels.
typedef struct {
    int64_t head, q, k, v, z, beta, alpha, q_channel, k_channel, v_channel;
} places;

static int64_t each(const ld_op *op) { return op->n_heads / op->n_kv_heads; }
static int64_t channels(const ld_op *op) { return ld_delta_channels(op->n_kv_heads, op->n_heads, op->head_dim); }
static int64_t conv_floats(const ld_op *op) { return (op->n_taps - 1) * channels(op); }

static places places_of(const ld_op *op, int64_t key_head, int64_t i) {
    int64_t n_k = op->n_kv_heads, dim = op->head_dim, e = each(op), group = (2 + 2 * e) * dim;
    places p = {.head = op->flags & LD_F_TILED ? key_head + n_k * i : key_head * e + i};
    p.q = p.q_channel = key_head * dim;
    p.k = p.k_channel = (n_k + key_head) * dim;
    p.v = p.v_channel = (2 * n_k + p.head) * dim;
    p.z = p.head * dim;
    p.beta = p.alpha = p.head;
    if (op->flags & LD_F_JOINED) {
        p.q = key_head * group;
        p.k = p.q + dim;
        p.v = p.q + (2 + i) * dim;
        p.z = p.q + (2 + e + i) * dim;
    }
    if (op->flags & LD_F_PAIRED) {
        p.beta = key_head * 2 * e + i;
        p.alpha = p.beta + e;
    }
    return p;
}

static float *slot_of(const ld_op *op, int64_t slot) { return (float *)(uintptr_t)(op->state + slot * op->state_stride); }
static float *matrix_of(const ld_op *op, float *state, int64_t head) {
    return state + conv_floats(op) + head * op->head_dim * op->head_dim;
}

static segment segment_of(const ld_op *op, const ld_ctx *ctx, int64_t seq, int64_t first) {
    const ld_step_state *s = ctx->state;
    const int32_t *use = s->states + 4 * seq;
    segment g = {.first = first, .mark = use[2] < 0 ? 0 : use[3]};
    while (g.first < s->n_rows && s->seq_of_row[g.first] != seq) g.first++;
    while (g.first + g.n < s->n_rows && s->seq_of_row[g.first + g.n] == seq) g.n++;
    if (!g.n) return g;
    if (s->positions[g.first] > 0) g.before = slot_of(op, use[0]);
    g.after = slot_of(op, use[1]);
    if (use[2] >= 0) g.marked = slot_of(op, use[2]);
    return g;
}

static const float *input(const ld_op *op, const ld_ctx *ctx, const segment *g, int64_t t) {
    return ld_row(ctx, op->x_offset, op->x_stride, g->first + t);
}

// The convolution of row t: dim channels from `channel` on, which lie at `place` in the row.
static void convolve(const ld_op *op, const ld_ctx *ctx, const segment *g, int64_t t, int64_t channel, int64_t place, float *y) {
    const float *x[LD_MAX_TAPS], *w = (const float *)(uintptr_t)op->conv_w + channel;
    int64_t taps = 0, c = channels(op);
    for (int64_t j = 0; j < op->n_taps; j++) {
        int64_t from = t - op->n_taps + 1 + j;
        if (from < 0 && !g->before) continue; // zeros before the first token
        if (!taps) w += j * c;
        x[taps++] = from >= 0 ? input(op, ctx, g, from) + place : g->before + (op->n_taps - 1 + from) * c + channel;
    }
    ctx->table->delta.conv(x, w, c, taps, y, op->head_dim);
}

// The inputs of the last taps - 1 of n rows, into a state.
static void remember(const ld_op *op, const ld_ctx *ctx, const segment *g, int64_t n, int64_t channel, int64_t place, float *to) {
    int64_t c = channels(op), past = op->n_taps - 1, bytes = op->head_dim * 4;
    for (int64_t j = 0; j < past; j++) {
        int64_t from = n - past + j;
        float *row = to + j * c + channel;
        if (from >= 0)
            memcpy(row, input(op, ctx, g, from) + place, bytes);
        else if (g->before)
            memcpy(row, g->before + (past + from) * c + channel, bytes);
        else
            memset(row, 0, bytes);
    }
}

static void unit(const ld_node *node, ld_ctx *ctx, float *x, float scale) {
    int64_t n = node->op.head_dim;
    float squares = ctx->table->vec.sum_squares(x, n);
    if (!isfinite(squares)) ld_bad_value(ctx, node);
    ctx->table->vec.norm(x, NULL, (float)(scale / sqrt((double)squares + node->op.norm_eps)), x, n);
}

static float log_decay(const ld_op *op, const ld_ctx *ctx, const places *p, int64_t row) {
    float x = ld_row(ctx, op->k_offset, op->k_stride, row)[p->alpha] + ((const float *)(uintptr_t)op->dt)[p->head];
    float softplus = x > 20.0f ? x : log1pf(expf(x));
    return fminf(0.0f, ((const float *)(uintptr_t)op->decay)[p->head]) * softplus;
}

static float rate_of(const ld_op *op, const ld_ctx *ctx, const places *p, int64_t row) {
    return 1.0f / (1.0f + expf(-ld_row(ctx, op->q_offset, op->q_stride, row)[p->beta]));
}

static void finish(const ld_node *node, ld_ctx *ctx, const places *p, int64_t row, float *o) {
    const ld_op *op = &node->op;
    const float *z = (op->flags & LD_F_JOINED ? ld_row(ctx, op->x_offset, op->x_stride, row)
                                              : ld_row(ctx, op->x2_offset, op->x2_stride, row)) + p->z;
    float *y = ld_row(ctx, op->y_offset[0], op->y_stride[0], row) + p->head * op->head_dim;
    ld_norm_row(node, ctx, o, (const float *)(uintptr_t)op->norm_w, op->norm_eps, o, op->head_dim);
    ctx->table->vec.silu_mul(z, o, y, op->head_dim);
}

static void remember_head(const ld_op *op, const ld_ctx *ctx, const segment *g, int64_t n, const places *p, int keys, float *to) {
    remember(op, ctx, g, n, p->v_channel, p->v, to);
    if (!keys) return;
    remember(op, ctx, g, n, p->q_channel, p->q, to);
    remember(op, ctx, g, n, p->k_channel, p->k, to);
}

static void step_head(const ld_node *node, ld_ctx *ctx, int64_t row, int64_t head) {
    const ld_op *op = &node->op;
    int64_t dim = op->head_dim, tiled = op->flags & LD_F_TILED, n_k = op->n_kv_heads;
    int64_t i = tiled ? head / n_k : head % each(op);
    places p = places_of(op, tiled ? head % n_k : head / each(op), i);
    segment g = segment_of(op, ctx, ctx->state->seq_of_row[row], row);
    float *q = (float *)ctx->scratch, *k = q + dim, *v = k + dim, *o = v + dim, *to = matrix_of(op, g.after, head);
    convolve(op, ctx, &g, 0, p.q_channel, p.q, q);
    convolve(op, ctx, &g, 0, p.k_channel, p.k, k);
    convolve(op, ctx, &g, 0, p.v_channel, p.v, v);
    unit(node, ctx, q, 1.0f / sqrtf((float)dim));
    unit(node, ctx, k, 1.0f);
    const float *from = g.before ? matrix_of(op, (float *)g.before, head) : NULL;
    ctx->table->delta.step(from, to, k, q, v, expf(log_decay(op, ctx, &p, row)), rate_of(op, ctx, &p, row), o, dim);
    finish(node, ctx, &p, row, o);
    remember_head(op, ctx, &g, 1, &p, i == 0, g.after);
    if (!g.marked) return;
    memcpy(matrix_of(op, g.marked, head), to, dim * dim * sizeof *to);
    remember_head(op, ctx, &g, 1, &p, i == 0, g.marked);
}

void ld_delta_rows_task(const ld_node *node, ld_ctx *ctx, int64_t task) {
    step_head(node, ctx, task / node->op.n_heads, task % node->op.n_heads);
}

// ---- chunks ----

// One worker's memory for a chunk: keys then queries; keys transposed; products of both with the keys; of both with the matrix;
// values; the two triangles; and by row the sums of log decays, their exponentials, the rates; ones; one factor for each key.
typedef struct {
    float *kq, *kt, *dots, *p, *v, *solve, *weigh, *decay, *rate, *ones, *last;
    double *sums;
} chunk_room;

static chunk_room chunk_rooms(const ld_op *op, float *at) {
    int64_t dim = op->head_dim;
    chunk_room r;
    r.kq = at, at += 2 * CHUNK * dim;
    r.kt = at, at += CHUNK * dim;
    r.p = at, at += 2 * CHUNK * dim;
    r.v = at, at += CHUNK * dim;
    r.dots = at, at += 2 * CHUNK * CHUNK;
    r.solve = at, at += CHUNK * CHUNK;
    r.weigh = at, at += CHUNK * CHUNK;
    r.sums = (double *)at, at += 2 * CHUNK;
    r.decay = at, at += CHUNK;
    r.rate = at, at += CHUNK;
    r.ones = at, at += CHUNK;
    r.last = at;
    return r;
}

int64_t ld_delta_scratch(const ld_node *node) {
    int64_t dim = node->op.head_dim;
    if (node->op.kind == LD_OP_DELTA_ROWS) return 4 * dim * 4;
    return (6 * CHUNK * dim + 4 * CHUNK * CHUNK + 5 * CHUNK + dim) * 4;
}

// As many value heads of a key head in a task as leave two tasks a worker: they share the products of its keys and queries.
void ld_delta_split(ld_node *node, int n_workers) {
    int64_t e = each(&node->op);
    node->heads = e;
    while (node->heads > 1 && (e % node->heads || node->op.n_kv_heads * (e / node->heads) < 2 * n_workers)) node->heads--;
}

int64_t ld_delta_tasks(const ld_node *node, const ld_step_state *state) {
    if (node->op.kind == LD_OP_DELTA_ROWS) return state->n_rows * node->op.n_heads;
    return state->n_seqs * (node->op.n_heads / node->heads);
}

static void tile(const ld_ctx *ctx, const float *a, int64_t a_stride, const float *b, int64_t b_stride, float *c, int64_t c_stride,
                 const float *scale, int64_t m, int64_t k, int64_t n) {
    ctx->attn->tile[0](a, a_stride, b, b_stride, c, c_stride, scale, m, k, n, 0);
}

// Keys and queries of rows [t, t + n) of the segment, and all products of them that do not need the matrix.
static void chunk_keys(const ld_node *node, ld_ctx *ctx, const segment *g, const chunk_room *r, const places *p, int64_t t,
                       int64_t n) {
    const ld_op *op = &node->op;
    int64_t dim = op->head_dim;
    for (int64_t i = 0; i < n; i++) {
        float *k = r->kq + i * dim, *q = r->kq + (n + i) * dim;
        convolve(op, ctx, g, t + i, p->k_channel, p->k, k);
        convolve(op, ctx, g, t + i, p->q_channel, p->q, q);
        unit(node, ctx, k, 1.0f);
        unit(node, ctx, q, 1.0f / sqrtf((float)dim));
        for (int64_t d = 0; d < dim; d++) r->kt[d * CHUNK + i] = k[d];
    }
    // Columns beyond n hold what an earlier chunk left; nobody reads them.
    tile(ctx, r->kq, dim, r->kt, CHUNK, r->dots, CHUNK, NULL, 2 * n, dim, ld_round(n, 16));
}

// The triangles of one value head: solve = -beta_i (k_i . k_j) D_ij below the diagonal, weigh = (q_i . k_j) D_ij up to it. Log decays are
// summed in f64: after 64 rows they are large, and D would have the rounding of the large sum where their difference is small.
static void triangles(const ld_node *node, ld_ctx *ctx, const segment *g, const chunk_room *r, const places *p, int64_t t,
                      int64_t n) {
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        r->sums[i] = sum += log_decay(&node->op, ctx, p, g->first + t + i);
        r->rate[i] = rate_of(&node->op, ctx, p, g->first + t + i);
    }
    for (int64_t i = 0; i < n; i++) r->decay[i] = (float)r->sums[i];
    ctx->table->vec.exp_sum(r->decay, 0.0f, n);
    for (int64_t i = 0; i < n; i++) {
        float *weigh = r->weigh + i * CHUNK, *solve = r->solve + i * CHUNK;
        const float *kk = r->dots + i * CHUNK, *qk = r->dots + (n + i) * CHUNK, beta = r->rate[i];
        for (int64_t j = 0; j <= i; j++) weigh[j] = (float)(r->sums[i] - r->sums[j]);
        ctx->table->vec.exp_sum(weigh, 0.0f, i + 1);
        for (int64_t j = 0; j <= i; j++) {
            solve[j] = -beta * kk[j] * weigh[j];
            weigh[j] *= qk[j];
        }
        memset(weigh + i + 1, 0, (CHUNK - i - 1) * sizeof(float));
    }
}

static void chunk_head(const ld_node *node, ld_ctx *ctx, const segment *g, const chunk_room *r, const places *p, int64_t t,
                       int64_t n, float *m) {
    const ld_op *op = &node->op;
    int64_t dim = op->head_dim;
    float *out = r->p + n * dim;
    triangles(node, ctx, g, r, p, t, n);
    tile(ctx, r->kq, dim, m, dim, r->p, dim, NULL, 2 * n, dim, dim);
    for (int64_t i = 0; i < n; i++) {
        float *v = r->v + i * dim, *known = r->p + i * dim;
        convolve(op, ctx, g, t + i, p->v_channel, p->v, v);
        for (int64_t d = 0; d < dim; d++) v[d] = r->rate[i] * (v[d] - r->decay[i] * known[d]);
    }
    for (int64_t b = 0; b < n; b += SOLVED) {
        int64_t rows = ld_min(SOLVED, n - b);
        if (b) tile(ctx, r->solve + b * CHUNK, CHUNK, r->v, dim, r->v + b * dim, dim, r->ones, rows, b, dim);
        for (int64_t i = 1; i < rows; i++)
            tile(ctx, r->solve + (b + i) * CHUNK + b, CHUNK, r->v + b * dim, dim, r->v + (b + i) * dim, dim, r->ones, 1, i, dim);
        tile(ctx, r->weigh + b * CHUNK, CHUNK, r->v, dim, out + b * dim, dim, r->decay + b, rows, b + rows, dim);
    }
    for (int64_t i = 0; i < n; i++) finish(node, ctx, p, g->first + t + i, out + i * dim);
    for (int64_t i = 0; i < n; i++) {
        float rest = expf((float)(r->sums[n - 1] - r->sums[i])), *v = r->v + i * dim;
        for (int64_t d = 0; d < dim; d++) v[d] *= rest;
    }
    for (int64_t d = 0; d < dim; d++) r->last[d] = r->decay[n - 1];
    tile(ctx, r->kt, CHUNK, r->v, dim, m, dim, r->last, dim, n, dim);
}

void ld_delta_chunks_task(const ld_node *node, ld_ctx *ctx, int64_t task) {
    const ld_op *op = &node->op;
    int64_t parts = each(op) / node->heads, tasks = op->n_kv_heads * parts, size = op->head_dim * op->head_dim * (int64_t)sizeof(float);
    int64_t key_head = task % tasks / parts, begin = task % parts * node->heads, end = begin + node->heads;
    segment g = segment_of(op, ctx, task / tasks, 0);
    if (!g.n) return;
    chunk_room r = chunk_rooms(op, (float *)ctx->scratch);
    for (int64_t i = 0; i < CHUNK; i++) r.ones[i] = 1.0f;
    for (int64_t i = begin; i < end; i++) {
        int64_t head = places_of(op, key_head, i).head;
        float *m = matrix_of(op, g.after, head);
        if (g.before) memcpy(m, matrix_of(op, (float *)g.before, head), size);
        else memset(m, 0, size);
    }
    for (int64_t t = 0; t < g.n;) {
        int64_t n = ld_min(CHUNK, (t < g.mark ? g.mark : g.n) - t);
        places keys = places_of(op, key_head, begin);
        chunk_keys(node, ctx, &g, &r, &keys, t, n);
        for (int64_t i = begin; i < end; i++) {
            places p = places_of(op, key_head, i);
            chunk_head(node, ctx, &g, &r, &p, t, n, matrix_of(op, g.after, p.head));
        }
        t += n;
        for (int64_t i = begin; i < end && (t == g.n || (g.marked && t == g.mark)); i++) {
            places p = places_of(op, key_head, i);
            if (g.marked && t == g.mark) {
                memcpy(matrix_of(op, g.marked, p.head), matrix_of(op, g.after, p.head), size);
                remember_head(op, ctx, &g, t, &p, i == 0, g.marked);
            }
            if (t == g.n) remember_head(op, ctx, &g, t, &p, i == 0, g.after);
        }
    }
}

const char *ld_delta_check(const ld_op *op) {
    if (op->n_kv_heads < 1 || op->n_heads < op->n_kv_heads || op->n_heads % op->n_kv_heads) return "bad heads";
    if (op->head_dim < 16 || op->head_dim % 16 || op->head_dim > 512) return "heads of a width that is not run";
    if (op->n_taps < 2 || op->n_taps > LD_MAX_TAPS) return "bad convolution";
    if (!op->conv_w || !op->dt || !op->decay || !op->norm_w) return "a weight is missing";
    int64_t bytes = (conv_floats(op) + (int64_t)op->n_heads * op->head_dim * op->head_dim) * 4;
    return op->state && op->state % 64 == 0 && op->state_stride % 64 == 0 && op->state_stride >= bytes ? NULL : "no state";
}
