#include "program.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "parts.h"
#include "pool.h"

const ld_field *ld_op_fields(int *n) {
#define LD_FIELD(type, code, name) {#name, code, offsetof(ld_op, name), 1},
#define LD_ARRAY(type, code, name, count) {#name, code, offsetof(ld_op, name), count},
    static const ld_field fields[] = {LD_OP_FIELDS(LD_FIELD, LD_ARRAY)};
#undef LD_FIELD
#undef LD_ARRAY
    *n = sizeof fields / sizeof *fields;
    return fields;
}

#define HELP_AFTER_NS 60000 // several tasks long, so that work is seldom done twice for nothing

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

static int in_team(const ld_program *p, const ld_op *op, int worker) { return !op->team || op->team == p->team_of[worker] + 1; }

static int team_size(const ld_program *p, const ld_op *op) {
    int n = 0;
    for (int w = 0; w < p->n_workers; w++) n += in_team(p, op, w);
    return n;
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
                           const int64_t *n_blocks, int64_t n_groups, int64_t n_states, const int32_t *team_of, const int16_t *order,
                           int n_workers, const ld_table *table, char *message, size_t message_size) {
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
        p->team_of = malloc(n_workers * sizeof *p->team_of);
        p->order = malloc((size_t)n_workers * n_workers * sizeof *p->order);
        if (!p->nodes || !p->counters || !p->shares || !p->holds || !p->team_of || !p->order) wrong = "no memory";
        if (p->order) memcpy(p->order, order, (size_t)n_workers * n_workers * sizeof *p->order);
        for (int w = 0; p->team_of && w < n_workers; w++) {
            p->team_of[w] = team_of[w];
            if (team_of[w] < 0 || (w && team_of[w] < team_of[w - 1])) wrong = "teams out of order";
        }
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
        int working = team_size(p, &node->op);
        if (!wrong && !working) wrong = "a team without workers";
        if (wrong) break;
        if (node->op.kind == LD_OP_LINEAR) ld_linear_split(node, working);
        if (node->op.kind == LD_OP_ROUTE) ld_route_split(node, max_rows, working);
        if (node->op.kind == LD_OP_EXPERTS_UP || node->op.kind == LD_OP_EXPERTS_DOWN) ld_experts_split(node, working);
        if (node->op.kind == LD_OP_HEADS) ld_heads_split(node, working);
        if (node->op.kind == LD_OP_LATENT_HEADS) ld_decompress_split(node, working);
        if (node->op.kind == LD_OP_DELTA_CHUNKS) ld_delta_split(node, working);
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
    free(p->team_of);
    free(p->order);
    free(p->scratch);
    free(p);
}

int64_t ld_program_scratch_bytes(const ld_program *p) { return p->scratch_stride * p->n_workers; }

// ---- running ----

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
        const ld_op *op = &p->nodes[i].op;
        int working = op->team ? team_size(p, op) : p->n_workers, at = 0;
        for (int w = 0; w < p->n_workers; w++) {
            share *mine = &p->shares[i * p->n_workers + w];
            int works = in_team(p, op, w);
            atomic_store_explicit(&mine->next, works ? tasks * at / working : 0, memory_order_relaxed);
            mine->end = works ? tasks * (at + 1) / working : 0;
            at += works;
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

// Does one of the tasks [from, to] that another worker is at, unless its weights lie with another team.
static void help(ld_program *p, ld_ctx *ctx, int worker, int64_t from, int64_t to) {
    for (int w = 0; w < p->n_workers; w++) {
        uint64_t held = w == worker ? 0 : __atomic_load_n(&p->holds[w].task, __ATOMIC_ACQUIRE);
        int64_t i = (int64_t)(held >> 32) - 1;
        if (i >= from && i <= to && in_team(p, &p->nodes[i].op, worker)) {
            do_task(p, ctx, i, held & UINT32_MAX, &p->holds[w]);
            return;
        }
    }
}

// Until the tasks of the ops [from, to] are done; of one team's ops alone unless `team` is 0.
static int wait_done(ld_program *p, ld_ctx *ctx, int worker, int64_t from, int64_t to, int team) {
    int64_t since = 0;
    for (int64_t i = from; i <= to; i++) {
        counter *c = &p->counters[i];
        if (team && p->nodes[i].op.team != team) continue;
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

static int64_t take_from(share *from) {
    if (atomic_load_explicit(&from->next, memory_order_relaxed) >= from->end) return -1;
    int64_t task = atomic_fetch_add(&from->next, 1);
    return task < from->end ? task : -1;
}

// A task of op i for this worker, -1 when none is left: of its own share, then of the others' from near to far. Of an op of a team
// only the team's workers have shares.
static int64_t take(ld_program *p, int64_t i, int worker) {
    share *shares = &p->shares[i * p->n_workers];
    const int16_t *order = p->order + (int64_t)worker * p->n_workers;
    if (!in_team(p, &p->nodes[i].op, worker)) return -1;
    for (int w = 0; w < p->n_workers; w++) {
        int64_t task = take_from(&shares[order[w]]);
        if (task >= 0) return task;
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
    int64_t *spent = p->state->worker_ns, mine_ns = 0;
    for (int64_t i = since; i < p->state->end; i++) {
        const ld_node *node = &p->nodes[i];
        int crosses = p->state->handoff && (node->op.kind == LD_OP_SEND || node->op.kind == LD_OP_RECV);
        if (crosses && !cross(p, &node->op, worker)) {
            give_up(p);
            return;
        }
        hold *mine = ld_node_claims(node, ld_node_rows(node, p->state)) ? &p->holds[worker] : NULL;
        int64_t began = spent ? now_ns() : 0;
        for (int64_t task; (task = take(p, i, worker)) >= 0;) {
            if (stopped(p)) {
                give_up(p);
                return;
            }
            if (mine) __atomic_store_n(&mine->task, (uint64_t)(i + 1) << 32 | (uint64_t)task, __ATOMIC_RELEASE);
            do_task(p, &ctx, i, task, mine);
        }
        if (spent) mine_ns += now_ns() - began;
        if (p->nodes[i].op.flags & LD_F_SYNC) {
            if (!wait_done(p, &ctx, worker, since, i, 0)) {
                give_up(p);
                return;
            }
            since = i + 1;
        } else if (node->op.flags & LD_F_TEAM_SYNC && in_team(p, &node->op, worker)) {
            if (!wait_done(p, &ctx, worker, since, i, node->op.team)) {
                give_up(p);
                return;
            }
        }
        if (times) {
            int64_t now = now_ns();
            times[i] = now - before;
            before = now;
        }
    }
    if (spent) spent[worker] += mine_ns;
}

void ld_bad_value(ld_ctx *ctx, const ld_node *node) {
    (void)node;
    ctx->bad = 1;
}
