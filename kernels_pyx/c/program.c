#include "program.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ops/ops.h"
#include "pool.h"

// The tasks of an op are cut in one share a worker. A worker takes tasks from its own share, so that it reads weights in the order
// of memory, then from the shares of others. Tasks are counted when done. A worker that finds none left moves on; nobody waits for a
// worker that holds no task, so a core taken away between tasks delays nothing. A worker that loses its core within a task holds up
// the others for a whole time slice, a tenth of a token; so who waits long does that task again. Results lie in scratch until one of
// the two claims the task; the other, whose input may be gone by then, throws its own away.
typedef struct {
    _Alignas(64) _Atomic int64_t next;
    int64_t end;
} share;

typedef struct {
    _Alignas(64) _Atomic int64_t done;
    _Atomic int64_t finished; // ROUTE: tasks that are through but for the grouping
    int64_t tasks;
} counter;

// The task that a worker is at: (op + 1) << 32 | task, 0 = none that another may do.
typedef struct {
    _Alignas(64) uint64_t task;
} hold;

#define HELP_AFTER_NS 60000 // several tasks long, so that work is seldom done twice for nothing

struct ld_program {
    ld_node *nodes;
    counter *counters; // [n_ops]
    share *shares;     // [n_ops][n_workers]
    hold *holds;       // [n_workers]
    int64_t n_ops, max_rows, max_position, n_groups, n_states, n_vocab, n_flags, scratch_stride;
    int64_t n_blocks[LD_MAX_GROUPS];
    int64_t window[LD_MAX_GROUPS]; // the widest that an op of the group reads, 0 = all keys, -1 = no op reads any
    int n_workers;
    const ld_table *table;
    const ld_attn_kernels *attn;
    uint8_t *base, *scratch;
    ld_step_state *state;
    _Atomic int stopped;
};

const ld_field *ld_op_fields(int *n) {
#define LD_FIELD(type, code, name) {#name, code, offsetof(ld_op, name), 1},
#define LD_ARRAY(type, code, name, count) {#name, code, offsetof(ld_op, name), count},
    static const ld_field fields[] = {LD_OP_FIELDS(LD_FIELD, LD_ARRAY)};
#undef LD_FIELD
#undef LD_ARRAY
    *n = sizeof fields / sizeof *fields;
    return fields;
}

// ---- building ----

static void resolve(ld_node *node, const ld_table *table) {
    ld_op *op = &node->op;
    if (op->kind == LD_OP_PREPARE) {
        for (int a = 0; a < LD_N_ACTS; a++)
            if (op->act_offset[a] >= 0) node->acts_mask |= 1 << a;
        return;
    }
    for (int i = 0; i < op->n_weights && i < LD_MAX_WEIGHTS; i++) {
        if (op->w_format[i] < 0 || op->w_format[i] >= table->n_formats) continue; // the check that follows says so
        const ld_format_kernels *f = node->format[i] = &table->formats[op->w_format[i]];
        int exact = (op->flags & LD_F_F32) != 0;
        node->few[i] = exact ? f->few_f32 : f->few;
        node->many[i] = exact ? f->many_f32 : f->many;
        node->act[i] = exact ? LD_ACT_F32 : f->act;
        if (op->kind != LD_OP_EMBED) node->acts_mask |= 1 << node->act[i];
    }
}

static int64_t vocab_of(const ld_op *ops, int64_t n_ops) {
    int64_t n = INT32_MAX;
    for (int64_t i = 0; i < n_ops; i++)
        if (ops[i].kind == LD_OP_EMBED) n = ld_min(n, ops[i].w_rows[0]);
    return n;
}

// Takes note of how far back the op reads its group's cache.
static const char *widen(ld_program *p, const ld_op *op) {
    switch (op->kind) {
    case LD_OP_POSITION: case LD_OP_ATTEND_ROWS: case LD_OP_ATTEND_TILES: break;
    case LD_OP_LATENT_POSITION: case LD_OP_LATENT_ROWS: case LD_OP_LATENT_TILES: case LD_OP_LATENT_HEADS: break;
    default: return NULL;
    }
    if (op->cache_group < 0 || op->cache_group >= p->n_groups) return "a cache group that does not exist";
    int64_t *widest = &p->window[op->cache_group], window = op->kind == LD_OP_POSITION ? 1 : op->window;
    if (*widest != 0 && (window == 0 || window > *widest)) *widest = window;
    return NULL;
}

// What is sent is there: no task of the ops before is still under way.
static const char *check_meeting(ld_program *p, const ld_op *op, int *open) {
    int crosses = op->kind == LD_OP_SEND || op->kind == LD_OP_RECV;
    if (crosses && op->flag >= p->n_flags) p->n_flags = op->flag + 1;
    if (op->kind == LD_OP_SEND && *open) return "workers do not meet before a send";
    *open = op->flags & LD_F_SYNC ? 0 : *open || !crosses;
    return NULL;
}

ld_program *ld_program_new(const ld_op *ops, int64_t n_ops, uint8_t *base, int64_t bytes, int64_t max_rows, int64_t max_position,
                           const int64_t *n_blocks, int64_t n_groups, int64_t n_states, int n_workers, const ld_table *table, char *message,
                           size_t message_size) {
    ld_program *p = calloc(1, sizeof *p);
    const char *wrong = p ? NULL : "no memory";
    int64_t at = 0, scratch = 0;
    int open = 0; // tasks since the workers met
    if (p) {
        *p = (ld_program){.n_ops = n_ops, .max_rows = max_rows, .max_position = max_position, .n_groups = n_groups, .n_states = n_states,
                          .n_workers = n_workers, .table = table, .attn = ld_attn_for(table->isa), .base = base,
                          .n_vocab = vocab_of(ops, n_ops)};
        p->nodes = calloc(n_ops, sizeof *p->nodes);
        p->counters = aligned_alloc(64, n_ops * sizeof *p->counters);
        p->shares = aligned_alloc(64, n_ops * n_workers * sizeof *p->shares);
        p->holds = aligned_alloc(64, n_workers * sizeof *p->holds);
        if (!p->nodes || !p->counters || !p->shares || !p->holds) wrong = "no memory";
        if (n_groups < 1 || n_groups > LD_MAX_GROUPS) wrong = "too many cache groups";
        for (int64_t g = 0; !wrong && g < n_groups; g++) p->n_blocks[g] = n_blocks[g], p->window[g] = -1;
    }
    for (; !wrong && at < n_ops; at++) {
        ld_node *node = &p->nodes[at];
        node->op = ops[at];
        node->index = (int)at;
        resolve(node, table);
        node->own_rows = ops[at].kind == LD_OP_EXPERTS_DOWN ? max_rows * ops[at].n_used : LD_FEW_MAX;
        wrong = ld_node_check(node, max_rows, bytes, table);
        if (!wrong) wrong = widen(p, &node->op);
        if (!wrong) wrong = check_meeting(p, &node->op, &open);
        if (wrong) break;
        if (node->op.kind == LD_OP_LINEAR) ld_linear_split(node, n_workers);
        if (node->op.kind == LD_OP_ROUTE) ld_route_split(node, max_rows, n_workers);
        if (node->op.kind == LD_OP_EXPERTS_UP || node->op.kind == LD_OP_EXPERTS_DOWN) ld_experts_split(node, n_workers);
        if (node->op.kind == LD_OP_HEADS) ld_heads_split(node, n_workers);
        if (node->op.kind == LD_OP_LATENT_HEADS) ld_decompress_split(node, n_workers);
        if (node->op.kind == LD_OP_DELTA_CHUNKS) ld_delta_split(node, n_workers);
        if (node->op.kind == LD_OP_ATTEND_TILES) node->tile_rows = ld_attend_tile_rows(&node->op);
        int64_t need = ld_node_scratch(node, max_rows);
        if (need > scratch) scratch = need;
    }
    if (!wrong) {
        p->scratch_stride = ld_round(scratch, 4096) + 64; // workers do not meet on one set of cache lines
        p->scratch = aligned_alloc(64, p->scratch_stride * n_workers);
        if (!p->scratch) wrong = "no memory";
    }
    if (!wrong) return p;
    snprintf(message, message_size, "op %lld (kind %d): %s", (long long)at, at < n_ops ? ops[at].kind : -1, wrong);
    ld_program_free(p);
    return NULL;
}

void ld_program_free(ld_program *p) {
    if (!p) return;
    free(p->nodes);
    free(p->counters);
    free(p->shares);
    free(p->holds);
    free(p->scratch);
    free(p);
}

int64_t ld_program_scratch_bytes(const ld_program *p) { return p->scratch_stride * p->n_workers; }

// ---- running ----

// Every sequence has one run of rows, and nobody writes a slot that another reads or writes.
static const char *check_states(const ld_program *p, const ld_step_state *s) {
    if (!s->states) return "a model with states was given none";
    for (int64_t r = 1; r < s->n_rows; r++)
        if (s->seq_of_row[r] == s->seq_of_row[r - 1] ? s->positions[r] != s->positions[r - 1] + 1
                                                    : s->seq_of_row[r] < s->seq_of_row[r - 1])
            return "the rows of a sequence are not in order";
    for (int64_t r = 0; r < s->n_rows; r++) {
        if (r && s->seq_of_row[r] == s->seq_of_row[r - 1]) continue;
        int64_t seq = s->seq_of_row[r], n = 1;
        const int32_t *use = s->states + 4 * seq;
        while (r + n < s->n_rows && s->seq_of_row[r + n] == seq) n++;
        int reads = s->positions[r] > 0;
        if ((reads && (use[0] < 0 || use[0] >= p->n_states)) || use[1] < 0 || use[1] >= p->n_states || use[2] >= p->n_states)
            return "a state slot is out of range";
        if (use[2] >= 0 && (use[3] < 1 || use[3] > n || use[2] == use[1])) return "a state is wanted that the step does not reach";
        for (int64_t other = 0; other < s->n_seqs; other++) {
            const int32_t *theirs = s->states + 4 * other;
            for (int i = 1; i < 3; i++)
                if (use[i] >= 0 && (use[i] == theirs[0] || (other != seq && (use[i] == theirs[1] || use[i] == theirs[2]))))
                    return "a state slot is written that is still needed";
        }
    }
    return NULL;
}

const char *ld_program_check(const ld_program *p, const ld_step_state *s) {
    if (s->n_rows < 1 || s->n_rows > p->max_rows) return "the number of rows does not fit the program";
    if (s->n_out < 0 || s->n_out > p->max_rows || s->n_seqs < 1) return "the number of wanted rows or sequences is wrong";
    if (s->n_groups != p->n_groups) return "the number of cache groups is wrong";
    if (s->first < 0 || s->first > s->end || s->end > p->n_ops) return "there are no such ops";
    if (s->handoff && s->handoff->n_flags < p->n_flags) return "the handoff has too few flags";
    if (s->handoff && ld_handoff_load(s->handoff, -1)) return "the handoff was stopped and not reset";
    for (int64_t r = 0; r < s->n_rows; r++) {
        if (s->token_ids[r] < 0 || s->token_ids[r] >= p->n_vocab) return "a token id is out of range";
        if (s->positions[r] < 0 || s->positions[r] >= p->max_position) return "a position is beyond the context";
        if (s->seq_of_row[r] < 0 || s->seq_of_row[r] >= s->n_seqs) return "a row belongs to no sequence";
        if (s->positions[r] / LD_BLOCK >= s->table_stride) return "a block table is too short";
        int64_t last = s->positions[r] / LD_BLOCK;
        if (r && s->seq_of_row[r] == s->seq_of_row[r - 1] && s->positions[r] > s->positions[r - 1] &&
            s->positions[r - 1] / LD_BLOCK == last)
            continue; // seen just now
        for (int64_t g = 0; g < p->n_groups; g++) {
            const int32_t *table = ld_blocks_of(s, g, r);
            for (int64_t b = p->window[g] < 0 ? last + 1 : ld_first_block(p->window[g], s->positions[r]); b <= last; b++)
                if (table[b] < 0 || table[b] >= p->n_blocks[g]) return "a block id is out of range";
        }
    }
    for (int64_t i = 0; i < s->n_out; i++)
        if (s->out_rows[i] < 0 || s->out_rows[i] >= s->n_rows) return "a wanted row is not in the batch";
    return p->n_states ? check_states(p, s) : NULL;
}

void ld_program_start(ld_program *p, ld_step_state *s) {
    s->bad_op = s->aborted = 0;
    s->max_chunks = 1;
    for (int64_t r = 0; r < s->n_rows; r++) {
        int64_t len = s->positions[r] + 1, chunk = ld_attn_chunk(len), n = (len + chunk - 1) / chunk;
        if (n > s->max_chunks) s->max_chunks = n;
    }
    p->state = s;
    atomic_store(&p->stopped, 0);
    for (int64_t i = s->first; i < s->end; i++) {
        int64_t tasks = p->counters[i].tasks = ld_node_tasks(&p->nodes[i], s);
        atomic_store_explicit(&p->counters[i].done, 0, memory_order_relaxed);
        atomic_store_explicit(&p->counters[i].finished, 0, memory_order_relaxed);
        for (int w = 0; w < p->n_workers; w++) {
            share *mine = &p->shares[i * p->n_workers + w];
            atomic_store_explicit(&mine->next, tasks * w / p->n_workers, memory_order_relaxed);
            mine->end = tasks * (w + 1) / p->n_workers;
        }
    }
    for (int w = 0; w < p->n_workers; w++) p->holds[w].task = 0;
    atomic_thread_fence(memory_order_seq_cst);
}

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static int stopped(ld_program *p) {
    if (__atomic_load_n(p->state->abort, __ATOMIC_RELAXED)) atomic_store(&p->stopped, 1);
    return atomic_load_explicit(&p->stopped, memory_order_relaxed);
}

static void give_up(ld_program *p) {
    p->state->aborted = 1;
    atomic_store(&p->stopped, 1);
    if (p->state->handoff) ld_handoff_stop(p->state->handoff, LD_STOPPED);
}

static void note_bad_op(ld_program *p, int64_t i) {
    int32_t mine = (int32_t)i + 1, seen = __atomic_load_n(&p->state->bad_op, __ATOMIC_RELAXED);
    while ((seen == 0 || mine < seen) &&
           !__atomic_compare_exchange_n(&p->state->bad_op, &seen, mine, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
}

// Does a task that the owner of `at` has taken; counts it unless somebody else was faster.
static void do_task(ld_program *p, ld_ctx *ctx, int64_t i, int64_t task, hold *at) {
    const ld_node *node = &p->nodes[i];
    ctx->hold = at ? &at->task : NULL;
    ctx->held = (uint64_t)(i + 1) << 32 | (uint64_t)task;
    ctx->lost = ctx->bad = 0;
    ld_node_task(node, ctx, task);
    if (ctx->lost) return;
    if (ctx->bad) note_bad_op(p, i);
    if (node->op.kind == LD_OP_ROUTE && atomic_fetch_add(&p->counters[i].finished, 1) + 1 == p->counters[i].tasks)
        ld_route(node, ctx);
    atomic_fetch_add(&p->counters[i].done, 1);
}

// Does one of the tasks [from, to] that another worker is at.
static void help(ld_program *p, ld_ctx *ctx, int worker, int64_t from, int64_t to) {
    for (int w = 0; w < p->n_workers; w++) {
        uint64_t held = w == worker ? 0 : __atomic_load_n(&p->holds[w].task, __ATOMIC_ACQUIRE);
        int64_t i = (int64_t)(held >> 32) - 1;
        if (i >= from && i <= to) {
            do_task(p, ctx, i, held & UINT32_MAX, &p->holds[w]);
            return;
        }
    }
}

static int wait_done(ld_program *p, ld_ctx *ctx, int worker, int64_t from, int64_t to) {
    int64_t since = 0;
    for (int64_t i = from; i <= to; i++) {
        counter *c = &p->counters[i];
        for (int64_t spins = 0; atomic_load_explicit(&c->done, memory_order_acquire) < c->tasks;) {
            if (stopped(p)) return 0;
            ld_relax(&spins);
            if (spins % 128) continue;
            int64_t now = now_ns();
            if (!since) since = now;
            if (now - since < HELP_AFTER_NS) continue;
            help(p, ctx, worker, from, to);
            since = 0;
        }
    }
    return 1;
}

// A task of op i for this worker, -1 when none is left.
static int64_t take(ld_program *p, int64_t i, int worker) {
    for (int w = 0; w < p->n_workers; w++) {
        int owner = worker + w < p->n_workers ? worker + w : worker + w - p->n_workers;
        share *from = &p->shares[i * p->n_workers + owner];
        if (atomic_load_explicit(&from->next, memory_order_relaxed) >= from->end) continue;
        int64_t task = atomic_fetch_add(&from->next, 1);
        if (task < from->end) return task;
    }
    return -1;
}

// Tells others, or waits for them: each worker for itself. 0 when the step was stopped.
static int cross(ld_program *p, const ld_op *op, int worker) {
    const ld_handoff *handoff = p->state->handoff;
    int64_t began = worker ? 0 : now_ns();
    if (op->kind == LD_OP_SEND)
        ld_handoff_signal(handoff, op->flag);
    else if (!ld_handoff_wait(handoff, op->flag, p->state->abort))
        return 0;
    if (!worker) ld_handoff_stamp(handoff, op->flag, began, op->kind == LD_OP_SEND ? began : now_ns());
    return 1;
}

void ld_program_worker(void *program, int worker) {
    ld_program *p = program;
    ld_ctx ctx = {.table = p->table, .attn = p->attn, .words = p->table->words, .state = p->state, .base = p->base,
                  .scratch = p->scratch + worker * p->scratch_stride};
    int64_t since = p->state->first, *times = worker ? NULL : p->state->op_ns, before = times ? now_ns() : 0;
    for (int64_t i = since; i < p->state->end; i++) {
        const ld_node *node = &p->nodes[i];
        int crosses = p->state->handoff && (node->op.kind == LD_OP_SEND || node->op.kind == LD_OP_RECV);
        if (crosses && !cross(p, &node->op, worker)) {
            give_up(p);
            return;
        }
        hold *mine = ld_node_claims(node, ld_node_rows(node, p->state)) ? &p->holds[worker] : NULL;
        for (int64_t task; (task = take(p, i, worker)) >= 0;) {
            if (stopped(p)) {
                give_up(p);
                return;
            }
            if (mine) __atomic_store_n(&mine->task, (uint64_t)(i + 1) << 32 | (uint64_t)task, __ATOMIC_RELEASE);
            do_task(p, &ctx, i, task, mine);
        }
        if (p->nodes[i].op.flags & LD_F_SYNC) {
            if (!wait_done(p, &ctx, worker, since, i)) {
                give_up(p);
                return;
            }
            since = i + 1;
        }
        if (times) {
            int64_t now = now_ns();
            times[i] = now - before;
            before = now;
        }
    }
}

void ld_bad_value(ld_ctx *ctx, const ld_node *node) {
    (void)node;
    ctx->bad = 1;
}
