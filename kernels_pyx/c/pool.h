// A team of threads that help the calling thread through one job at a time.
//
// The caller always works too. A job is open while the caller is inside it; workers enter and leave on their own and the caller
// waits only for those inside, so a worker that sleeps or has lost its core never delays a job it did not enter. Between jobs
// workers spin for some microseconds, then park on a futex: an idle team uses no CPU.
#pragma once
#include <immintrin.h>
#include <sched.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct ld_pool ld_pool;
typedef void (*ld_job)(void *arg, int worker);

// n_workers >= 1 counts the caller, who is worker 0. cores[i] is the core worker i is pinned to, -1 = not pinned; the caller is
// pinned while it is inside a job. spin_us: how long a worker spins before it parks. NULL with errno set when threads cannot be made.
ld_pool *ld_pool_new(int n_workers, const int32_t *cores, int64_t spin_us);
// 0, or the errno with which the system refused the core of a worker, who then runs where the system likes.
int ld_pool_refused(const ld_pool *pool, int worker);
pid_t ld_pool_thread(const ld_pool *pool, int worker); // its thread id; 0 = the caller, or it has not begun yet
void ld_pool_run(ld_pool *pool, ld_job job, void *arg);
// Ends and joins the threads. In a forked child, which has none of them, only frees the memory.
void ld_pool_free(ld_pool *pool);

int ld_pool_parked(const ld_pool *pool); // workers asleep at this moment

// Called in loops that wait for another worker: pause, and from time to time give the core away.
static inline void ld_relax(int64_t *spins) {
    _mm_pause();
    if ((++*spins & 1023) == 0) sched_yield();
}
