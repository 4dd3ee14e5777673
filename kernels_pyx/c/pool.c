#define _GNU_SOURCE
#include "pool.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

// gate: generation << 16 | workers inside. The generation is odd while a job is open.
#define INSIDE_MASK 0xffffll
#define GENERATION 0x10000ll

typedef struct {
    ld_pool *pool;
    pthread_t thread;
    int index;
    int32_t core;
    int refused; // errno
    _Atomic pid_t tid;
} worker;

struct ld_pool {
    _Alignas(64) _Atomic int64_t gate;
    _Alignas(64) _Atomic uint32_t wake; // futex word: counts jobs
    _Atomic int parked, stop;
    ld_job job;
    void *arg;
    int64_t spin_ns;
    int n_workers, n_started;
    pid_t owner;
    worker *workers;
};

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ll + t.tv_nsec;
}

// Denormals would slow sums a hundredfold and change nothing that can be seen.
static void run_flushed(ld_job job, void *arg, int index) {
    unsigned saved = _mm_getcsr();
    _mm_setcsr(saved | 0x8040);
    job(arg, index);
    _mm_setcsr(saved);
}

static int enter(ld_pool *p, int64_t *last) {
    int64_t gate = atomic_load(&p->gate);
    while (((gate / GENERATION) & 1) && gate / GENERATION != *last)
        if (atomic_compare_exchange_weak(&p->gate, &gate, gate + 1)) {
            *last = gate / GENERATION;
            return 1;
        }
    return 0;
}

// Until a job may be there: spin first, then sleep. Returns 0 when the team ends.
static int await_job(ld_pool *p, int64_t last) {
    int64_t until = now_ns() + p->spin_ns;
    for (;;) {
        if (atomic_load(&p->stop)) return 0;
        int64_t generation = atomic_load(&p->gate) / GENERATION;
        if ((generation & 1) && generation != last) return 1;
        if (now_ns() < until) {
            for (int i = 0; i < 8; i++) _mm_pause();
            continue;
        }
        uint32_t seen = atomic_load(&p->wake);
        atomic_fetch_add(&p->parked, 1);
        generation = atomic_load(&p->gate) / GENERATION;
        if (!atomic_load(&p->stop) && !((generation & 1) && generation != last))
            syscall(SYS_futex, &p->wake, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
        atomic_fetch_sub(&p->parked, 1);
        until = now_ns() + p->spin_ns;
    }
}

// By whoever makes the team: so that it knows at once what was refused. Returns an errno.
static int pin(pthread_t thread, int32_t core) {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (core < 0) return 0;
    if (core >= CPU_SETSIZE) return EINVAL;
    CPU_SET(core, &set);
    return pthread_setaffinity_np(thread, sizeof set, &set);
}

// Whether the calling thread might be pinned there: an errno. Its mask stays as it is.
static int try_core(int32_t core) {
    cpu_set_t own;
    if (core < 0 || sched_getaffinity(0, sizeof own, &own)) return 0;
    int refused = pin(pthread_self(), core);
    if (!refused) sched_setaffinity(0, sizeof own, &own);
    return refused;
}

static void *worker_main(void *self) {
    worker *w = self;
    ld_pool *p = w->pool;
    int64_t last = 0;
    atomic_store(&w->tid, (pid_t)syscall(SYS_gettid));
    while (await_job(p, last))
        if (enter(p, &last)) {
            run_flushed(p->job, p->arg, w->index);
            atomic_fetch_sub(&p->gate, 1);
        }
    return NULL;
}

static void wake_all(ld_pool *p) {
    atomic_fetch_add(&p->wake, 1);
    if (atomic_load(&p->parked)) syscall(SYS_futex, &p->wake, FUTEX_WAKE_PRIVATE, p->n_workers, NULL, NULL, 0);
}

ld_pool *ld_pool_new(int n_workers, const int32_t *cores, int64_t spin_us) {
    ld_pool *p = aligned_alloc(64, (sizeof *p + 63) & ~63ull);
    if (!p) return NULL;
    *p = (ld_pool){.n_workers = n_workers, .spin_ns = spin_us * 1000, .owner = getpid()};
    p->workers = calloc(n_workers, sizeof *p->workers);
    if (!p->workers) {
        free(p);
        errno = ENOMEM;
        return NULL;
    }
    sigset_t all, before; // signals are the business of the application's own threads; faults still arrive
    sigfillset(&all);
    sigdelset(&all, SIGBUS);
    sigdelset(&all, SIGSEGV);
    sigdelset(&all, SIGILL);
    sigdelset(&all, SIGFPE);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    p->workers[0] = (worker){.pool = p, .core = cores[0], .refused = try_core(cores[0])};
    int error = 0;
    for (int i = 1; i < n_workers; i++) {
        p->workers[i] = (worker){.pool = p, .index = i, .core = cores[i]};
        error = pthread_create(&p->workers[i].thread, NULL, worker_main, &p->workers[i]);
        if (error) break;
        p->n_started++;
        p->workers[i].refused = pin(p->workers[i].thread, cores[i]);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error) {
        ld_pool_free(p);
        errno = error;
        return NULL;
    }
    return p;
}

// The mask of the caller is its own between jobs: threads that it starts inherit it, and others ask it for what may be used.
// Returns 1 when it was changed.
static int pin_caller(const ld_pool *p, cpu_set_t *own) {
    const worker *caller = &p->workers[0];
    return caller->core >= 0 && !caller->refused && !sched_getaffinity(0, sizeof *own, own) && !pin(pthread_self(), caller->core);
}

void ld_pool_run(ld_pool *p, ld_job job, void *arg) {
    cpu_set_t own;
    int pinned = pin_caller(p, &own);
    p->job = job;
    p->arg = arg;
    atomic_fetch_add(&p->gate, GENERATION);
    if (p->n_started) wake_all(p);
    run_flushed(job, arg, 0);
    atomic_fetch_add(&p->gate, GENERATION);
    if (getpid() == p->owner) // else forked: nobody else is here
        for (int64_t spins = 0; atomic_load(&p->gate) & INSIDE_MASK;) ld_relax(&spins);
    if (pinned) sched_setaffinity(0, sizeof own, &own);
}

int ld_pool_refused(const ld_pool *p, int worker) { return p->workers[worker].refused; }
pid_t ld_pool_thread(const ld_pool *p, int worker) { return atomic_load(&p->workers[worker].tid); }

void ld_pool_free(ld_pool *p) {
    if (getpid() == p->owner) {
        atomic_store(&p->stop, 1);
        wake_all(p);
        for (int i = 1; i <= p->n_started; i++) pthread_join(p->workers[i].thread, NULL);
    }
    free(p->workers);
    free(p);
}

int ld_pool_parked(const ld_pool *p) { return atomic_load(&((ld_pool *)p)->parked); }
