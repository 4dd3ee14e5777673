#define _GNU_SOURCE
#include "guard.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096ul
#define REPLACED (1ul << 20) // zero pages laid down by one fault: a truncated file has lost everything that follows
#define TOUCH_STEP (1ul << 20)

typedef struct {
    _Atomic uintptr_t base, end;
    _Atomic int64_t lost;
    _Atomic int used;
} range;

static range ranges[LD_GUARD_MAX];
static struct sigaction previous;
static _Atomic int chaining;

static range *range_of(uintptr_t at) {
    for (int i = 0; i < LD_GUARD_MAX; i++)
        if (at >= atomic_load(&ranges[i].base) && at < atomic_load(&ranges[i].end)) return &ranges[i];
    return NULL;
}

static void chain(int number, siginfo_t *info, void *context) {
    // A handler that reports and raises again comes back here: then it is time to end.
    int again = atomic_fetch_add(&chaining, 1);
    if (!again && (previous.sa_flags & SA_SIGINFO)) {
        previous.sa_sigaction(number, info, context);
    } else if (!again && previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
        previous.sa_handler(number);
    } else {
        signal(number, SIG_DFL);
        raise(number);
    }
    atomic_fetch_sub(&chaining, 1);
}

static void on_bus_error(int number, siginfo_t *info, void *context) {
    int saved = errno;
    uintptr_t at = (uintptr_t)info->si_addr, page = at & ~(PAGE - 1);
    range *r = range_of(at);
    if (!r) {
        chain(number, info, context);
    } else {
        uintptr_t end = (atomic_load(&r->end) + PAGE - 1) & ~(PAGE - 1), n = end - page < REPLACED ? end - page : REPLACED;
        atomic_fetch_add(&r->lost, 1);
        void *zeros = mmap((void *)page, n, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        if (zeros == MAP_FAILED) chain(number, info, context);
    }
    errno = saved;
}

// At each mapping anew: another library may have put its own handler in front since.
static int install(void) {
    struct sigaction now, ours;
    memset(&ours, 0, sizeof ours);
    ours.sa_sigaction = on_bus_error;
    ours.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
    if (sigaction(SIGBUS, NULL, &now)) return -1;
    if ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_bus_error) return 0;
    previous = now;
    return sigaction(SIGBUS, &ours, NULL);
}

uint8_t *ld_guard_map(int fd, size_t size, int *slot) {
    int i = 0, unused = 0;
    while (i < LD_GUARD_MAX && !atomic_compare_exchange_strong(&ranges[i].used, &unused, 1)) unused = 0, i++;
    if (i == LD_GUARD_MAX) {
        errno = EMFILE;
        return NULL;
    }
    uint8_t *base = install() ? MAP_FAILED : mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) {
        atomic_store(&ranges[i].used, 0);
        return NULL;
    }
    atomic_store(&ranges[i].lost, 0);
    atomic_store(&ranges[i].base, (uintptr_t)base);
    atomic_store(&ranges[i].end, (uintptr_t)base + size);
    *slot = i;
    return base;
}

void ld_guard_unmap(int slot) {
    range *r = &ranges[slot];
    uintptr_t base = atomic_load(&r->base), end = atomic_load(&r->end);
    atomic_store(&r->end, 0);
    atomic_store(&r->base, 0);
    munmap((void *)base, end - base);
    atomic_store(&r->used, 0);
}

int64_t ld_guard_lost(int slot) { return atomic_load(&ranges[slot].lost); }

// Asking costs a tenth of mapping a page. Of a file that this user may not write, the system says that all of it is there.
static int all_resident(uintptr_t from, uintptr_t end) {
    unsigned char there[TOUCH_STEP / PAGE + 2];
    size_t pages = (end - from + PAGE - 1) / PAGE;
    if (mincore((void *)from, end - from, there)) return 0;
    for (size_t i = 0; i < pages; i++)
        if (!(there[i] & 1)) return 0;
    return 1;
}

void ld_guard_touch(const uint8_t *at, size_t n, const int32_t *abort) {
    volatile uint8_t sink = 0;
    for (size_t done = 0; done < n && !__atomic_load_n(abort, __ATOMIC_RELAXED); done += TOUCH_STEP) {
        size_t step = n - done < TOUCH_STEP ? n - done : TOUCH_STEP;
        uintptr_t from = (uintptr_t)(at + done) & ~(PAGE - 1);
        if (all_resident(from, (uintptr_t)(at + done) + step)) continue;
        madvise((void *)from, (uintptr_t)(at + done) + step - from, MADV_WILLNEED); // advice: failing is fine
        for (size_t i = 0; i < step; i += PAGE) sink += at[done + i];
        sink += at[done + step - 1];
    }
    (void)sink;
}

int ld_guard_own(int fd, uint8_t *at, size_t n, int64_t offset) {
    size_t all = n + LD_GUARD_UNIT, done = 0;
    uint8_t *room = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED) return errno;
    uint8_t *from = (uint8_t *)(((uintptr_t)room + LD_GUARD_UNIT - 1) / LD_GUARD_UNIT * LD_GUARD_UNIT);
    madvise(from, n, MADV_HUGEPAGE);
    int wrong = 0;
    while (done < n && !wrong) {
        ssize_t got = pread(fd, from + done, n - done, offset + (int64_t)done);
        if (got > 0)
            done += (size_t)got;
        else if (got == 0)
            wrong = EIO;
        else if (errno != EINTR)
            wrong = errno;
    }
    if (!wrong && (mprotect(from, n, PROT_READ) || mremap(from, n, n, MREMAP_MAYMOVE | MREMAP_FIXED, at) == MAP_FAILED)) wrong = errno;
    if (wrong) {
        munmap(room, all);
        return wrong;
    }
    if (from > room) munmap(room, (size_t)(from - room));
    if (room + all > from + n) munmap(from + n, (size_t)(room + all - (from + n)));
    return 0;
}
