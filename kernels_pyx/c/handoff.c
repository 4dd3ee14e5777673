#include "handoff.h"

#include <time.h>

#include "pool.h"

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static uint32_t *word(const ld_handoff *h, int64_t flag) { return (uint32_t *)(h->words + (1 + flag) * LD_LINE_BYTES); }

int64_t ld_handoff_bytes(int64_t n_flags) { return (1 + n_flags) * LD_LINE_BYTES; }

uint32_t ld_handoff_load(const ld_handoff *h, int64_t flag) { return __atomic_load_n(word(h, flag), __ATOMIC_ACQUIRE); }

void ld_handoff_store(const ld_handoff *h, int64_t flag, uint32_t value) { __atomic_store_n(word(h, flag), value, __ATOMIC_RELEASE); }

// Two sides that give up at once both leave a reason; the later one stays. Either is true.
void ld_handoff_stop(const ld_handoff *h, uint32_t why) {
    if (!ld_handoff_load(h, -1)) ld_handoff_store(h, -1, why);
}

static int reached(const ld_handoff *h, int64_t flag) { return (int32_t)(ld_handoff_load(h, flag) - h->epoch) >= 0; }

// Every worker comes here: the first says it, so that none that has lost its core is waited for.
void ld_handoff_signal(const ld_handoff *h, int64_t flag) {
    if (!reached(h, flag)) ld_handoff_store(h, flag, h->epoch);
}

int ld_handoff_wait(const ld_handoff *h, int64_t flag, const int32_t *abort) {
    int64_t until = 0;
    for (int64_t spins = 0; !reached(h, flag);) {
        if (__atomic_load_n(abort, __ATOMIC_RELAXED) || ld_handoff_load(h, -1)) return 0;
        ld_relax(&spins);
        if (spins % 256) continue;
        int64_t now = now_ns();
        if (!until) until = now + h->limit_ns;
        if (now < until) continue;
        ld_handoff_stop(h, LD_LATE + (uint32_t)flag);
        return 0;
    }
    return 1;
}

void ld_handoff_stamp(const ld_handoff *h, int64_t flag, int64_t began, int64_t ended) {
    h->stamps[2 * flag] = began;
    h->stamps[2 * flag + 1] = ended;
}
