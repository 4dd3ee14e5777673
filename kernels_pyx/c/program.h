// A checked, immutable array of ops that all workers walk together.
#pragma once
#include <stddef.h>

#include "dispatch.h"
#include "op.h"

typedef struct ld_program ld_program;

// Copies and checks ops against the arena [base, base + bytes) for at most max_rows rows; resolves kernels from `table`.
// max_position: first position that no rope table and no cache holds; n_blocks: [n_groups] blocks of each cache group; n_states: slots
// for the states of sequences, 0 where no op has any. team_of: [n_workers] the team of each, ascending from 0.
// On error returns NULL and writes one sentence (which op, what) to message.
ld_program *ld_program_new(const ld_op *ops, int64_t n_ops, uint8_t *base, int64_t bytes, int64_t max_rows, int64_t max_position,
                           const int64_t *n_blocks, int64_t n_groups, int64_t n_states, const int32_t *team_of, int n_workers,
                           const ld_table *table, char *message, size_t message_size);
void ld_program_free(ld_program *program);

// NULL when the step fits the program, else what is wrong with it. Must be asked before each run: the ops trust the state.
const char *ld_program_check(const ld_program *program, const ld_step_state *state);
// Arms the program for the ops [first, end) of one step; then every worker of the team calls ld_program_worker once.
void ld_program_start(ld_program *program, ld_step_state *state);
void ld_program_worker(void *program, int worker);

int64_t ld_program_scratch_bytes(const ld_program *program); // of all workers together
