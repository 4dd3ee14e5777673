// What a program is made of, for the files that build, check and run it.
#pragma once
#include <stdatomic.h>

#include "ops/ops.h"
#include "program.h"

// The tasks of an op are cut in one share a worker. A worker takes tasks from its own share, so that it reads weights in the order
// of memory, then from the shares of others. Tasks are counted when done. A worker that finds none left moves on; nobody waits for a
// worker that holds no task, so a core taken away between tasks delays nothing. A worker that loses its core within a task holds up
// the others for a whole time slice, a tenth of a token; so who waits long does that task again. Results lie in scratch until one of
// the two claims the task; the other, whose input may be gone by then, throws its own away.
//
// Workers come in teams, one a NUMA node, side by side in their numbers. An op of a team, whose weights lie in the memory of the
// team's node, has shares for its workers alone: the others go on to their own. All other tasks are taken within the team first.
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

struct ld_program {
    ld_node *nodes;
    counter *counters; // [n_ops]
    share *shares;     // [n_ops][n_workers]
    hold *holds;       // [n_workers]
    int64_t n_ops, max_rows, max_position, n_groups, n_states, n_vocab, n_flags, scratch_stride;
    int64_t n_blocks[LD_MAX_GROUPS];
    int64_t window[LD_MAX_GROUPS]; // the widest that an op of the group reads, 0 = all keys, -1 = no op reads any
    int n_workers;
    int32_t *team_of; // [n_workers]
    const ld_table *table;
    const ld_attn_kernels *attn;
    uint8_t *base, *scratch;
    ld_step_state *state;
    _Atomic int stopped;
};
