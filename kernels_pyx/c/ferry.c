#define _GNU_SOURCE
#include "ferry.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PART ((size_t)1 << 20) // what a thread copies at a time: some 100 us, small beside a chunk

struct ld_ferry {
    uint8_t *ring;
    size_t chunk;
    int n_chunks, n_threads;
    pthread_t *threads;
    pthread_mutex_t lock;
    pthread_cond_t work, there;
    const ld_load *loads;
    int64_t n_loads, taken, freed; // taken: the load of which parts are given out
    size_t offset;                 // where its next part begins
    size_t *left;                  // by chunk: bytes of its load that are not there yet
    int copying, ending;
    pid_t owner;
};

static int has_work(const ld_ferry *f) { return f->taken < f->n_loads && f->taken < f->freed + f->n_chunks; }

static void *carry(void *at) {
    ld_ferry *f = at;
    pthread_mutex_lock(&f->lock);
    for (;;) {
        while (!f->ending && !has_work(f)) pthread_cond_wait(&f->work, &f->lock);
        if (f->ending) break;
        int64_t i = f->taken;
        int slot = (int)(i % f->n_chunks);
        size_t start = f->offset, all = f->loads[i].n, n = all - start < PART ? all - start : PART;
        const uint8_t *from = f->loads[i].from + start;
        if (start == 0) f->left[slot] = all;
        f->offset += n;
        if (f->offset == all) f->taken++, f->offset = 0;
        f->copying++;
        pthread_mutex_unlock(&f->lock);
        memcpy(f->ring + (size_t)slot * f->chunk + start, from, n);
        pthread_mutex_lock(&f->lock);
        f->left[slot] -= n;
        if (--f->copying == 0 || f->left[slot] == 0) pthread_cond_broadcast(&f->there);
    }
    pthread_mutex_unlock(&f->lock);
    return NULL;
}

ld_ferry *ld_ferry_new(uint8_t *ring, size_t chunk, int n_chunks, int n_threads) {
    ld_ferry *f = calloc(1, sizeof *f);
    if (f == NULL) return NULL;
    f->ring = ring, f->chunk = chunk, f->n_chunks = n_chunks, f->owner = getpid();
    f->left = calloc((size_t)n_chunks, sizeof *f->left);
    f->threads = calloc((size_t)n_threads, sizeof *f->threads);
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->work, NULL);
    pthread_cond_init(&f->there, &clock);
    pthread_condattr_destroy(&clock);
    sigset_t all, before; // signals are for the threads of the interpreter; faults of a mapping come to whoever meets them
    sigfillset(&all);
    sigdelset(&all, SIGBUS), sigdelset(&all, SIGSEGV), sigdelset(&all, SIGFPE), sigdelset(&all, SIGILL);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (f->left != NULL && f->threads != NULL)
        while (f->n_threads < n_threads && pthread_create(&f->threads[f->n_threads], NULL, carry, f) == 0) f->n_threads++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (f->n_threads > 0) return f; // fewer than asked for are slower, no more
    ld_ferry_free(f);
    return NULL;
}

void ld_ferry_free(ld_ferry *f) {
    if (f->owner != getpid()) return; // a forked child has none of the threads
    pthread_mutex_lock(&f->lock);
    f->ending = 1;
    pthread_cond_broadcast(&f->work);
    pthread_mutex_unlock(&f->lock);
    for (int i = 0; i < f->n_threads; i++) pthread_join(f->threads[i], NULL);
    pthread_cond_destroy(&f->there);
    pthread_cond_destroy(&f->work);
    pthread_mutex_destroy(&f->lock);
    free(f->threads);
    free(f->left);
    free(f);
}

void ld_ferry_begin(ld_ferry *f, const ld_load *loads, int64_t n_loads) {
    pthread_mutex_lock(&f->lock);
    f->loads = loads, f->n_loads = n_loads;
    f->taken = f->freed = 0;
    f->offset = 0;
    pthread_cond_broadcast(&f->work);
    pthread_mutex_unlock(&f->lock);
}

static int is_there(const ld_ferry *f, int64_t i) { return i < f->taken && f->left[i % f->n_chunks] == 0; }

int ld_ferry_wait(ld_ferry *f, int64_t i, double seconds) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    int64_t ns = until.tv_nsec + (int64_t)(seconds * 1e9);
    until.tv_sec += ns / 1000000000, until.tv_nsec = ns % 1000000000;
    pthread_mutex_lock(&f->lock);
    while (i < f->n_loads && !is_there(f, i) && pthread_cond_timedwait(&f->there, &f->lock, &until) == 0) {}
    int found = i < f->n_loads && is_there(f, i);
    pthread_mutex_unlock(&f->lock);
    return found;
}

void ld_ferry_freed(ld_ferry *f, int64_t n) {
    pthread_mutex_lock(&f->lock);
    if (n > f->freed) {
        f->freed = n;
        pthread_cond_broadcast(&f->work);
    }
    pthread_mutex_unlock(&f->lock);
}

void ld_ferry_stop(ld_ferry *f) {
    pthread_mutex_lock(&f->lock);
    f->n_loads = f->taken = 0;
    f->offset = 0;
    pthread_cond_broadcast(&f->there);
    while (f->copying > 0) pthread_cond_wait(&f->there, &f->lock);
    pthread_mutex_unlock(&f->lock);
}
