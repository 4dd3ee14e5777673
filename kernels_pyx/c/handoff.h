// Flags between the workers of a program and whoever computes beside them, a GPU most of all.
//
// The memory is the caller's (pinned, so that a GPU can read and write it). Each word has a cache line of its own, of which it is the
// first four bytes: the stop word, then the flags. A flag holds the number of the last step (the epoch) whose rows are ready, and is
// written by one side only, by a plain store that releases what was written before. Epochs count steps, modulo 2^32; both sides count
// for themselves. Who waits gives up when the stop word is not 0, and who gives up writes it, so that a step that is cancelled or
// a side that has died holds nobody for ever. Only loads and stores: devices need no atomic operations on memory of the host.
#pragma once
#include <stdint.h>

#define LD_LINE_BYTES 64
#define LD_STOPPED 1u        // stop word: the step was cancelled
#define LD_LATE 0x10000000u  // + flag: a worker waited for it in vain
#define LD_FAR 0x20000000u   // + flag: the other side did

typedef struct {
    uint8_t *words;   // (1 + n_flags) lines
    int64_t n_flags;
    uint32_t epoch;   // of this step
    int64_t limit_ns; // a wait that takes longer is given up
    int64_t *stamps;  // [n_flags][2]: CLOCK_MONOTONIC at which the caller's thread began and ended to wait; of a send twice the same
} ld_handoff;

int64_t ld_handoff_bytes(int64_t n_flags);
uint32_t ld_handoff_load(const ld_handoff *handoff, int64_t flag); // acquires; flag -1: the stop word
void ld_handoff_store(const ld_handoff *handoff, int64_t flag, uint32_t value); // releases
// Writes the stop word unless it is written.
void ld_handoff_stop(const ld_handoff *handoff, uint32_t why);
// Says that what was written before is ready. Does nothing when it has been said.
void ld_handoff_signal(const ld_handoff *handoff, int64_t flag);
// Until the flag holds the epoch, or a later one. 0 when the wait was given up: *abort not 0, the stop word, or too long.
int ld_handoff_wait(const ld_handoff *handoff, int64_t flag, const int32_t *abort);
// Keeps when a wait began and when it ended.
void ld_handoff_stamp(const ld_handoff *handoff, int64_t flag, int64_t began, int64_t ended);
