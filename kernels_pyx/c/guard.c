#define _GNU_SOURCE
#include "guard.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

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
    // Where files may lie in huge pages (ext4 since Linux 6.16, XFS, btrfs), what is read through this mapping does.
    madvise(base, size, MADV_HUGEPAGE);
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
        // MADV_WILLNEED, for before Linux 5.14, reads into small pages. Where the file has ended both fail, and the loop meets it.
        size_t length = (uintptr_t)(at + done) + step - from;
        if (madvise((void *)from, length, MADV_POPULATE_READ)) madvise((void *)from, length, MADV_WILLNEED);
        for (size_t i = 0; i < step; i += PAGE) sink += at[done + i];
        sink += at[done + step - 1];
    }
    (void)sink;
}

// The file's own pages again, from the system's cache or from the disk.
static int map_again(int fd, uint8_t *at, size_t n, int64_t offset) {
    return mmap(at, n, PROT_READ, MAP_SHARED | MAP_FIXED, fd, offset) == MAP_FAILED ? errno : 0;
}

static int fill(int fd, uint8_t *to, size_t n, int64_t offset) {
    for (size_t done = 0; done < n;) {
        ssize_t got = pread(fd, to + done, n - done, offset + (int64_t)done);
        if (got == 0) return EIO;
        if (got < 0 && errno != EINTR) return errno;
        done += got > 0 ? (size_t)got : 0;
    }
    return 0;
}

int ld_guard_own(int fd, uint8_t *at, size_t n, int64_t offset, int drop) {
    size_t all = n + LD_GUARD_UNIT;
    uint8_t *room = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED) return errno;
    uint8_t *from = (uint8_t *)(((uintptr_t)room + LD_GUARD_UNIT - 1) / LD_GUARD_UNIT * LD_GUARD_UNIT);
    madvise(from, n, MADV_HUGEPAGE);
    int wrong = fill(fd, from, n, offset);
    if (!wrong && mprotect(from, n, PROT_READ)) wrong = errno;
    if (!wrong && mremap(from, n, n, MREMAP_MAYMOVE | MREMAP_FIXED, at) == MAP_FAILED) {
        wrong = errno;
        map_again(fd, at, n, offset); // it may have been unmapped before the move failed
    }
    if (wrong) {
        munmap(room, all);
        return wrong;
    }
    if (from > room) munmap(room, (size_t)(from - room));
    if (room + all > from + n) munmap(from + n, (size_t)(room + all - (from + n)));
    if (drop) posix_fadvise(fd, offset, (off_t)n, POSIX_FADV_DONTNEED); // only now: what is mapped is not given up
    // Where no huge page was free, the system can still copy small ones together: now more is free.
    int64_t huge = ld_guard_huge(at, n);
    if (huge >= 0 && (size_t)huge < n) madvise(at, n, MADV_COLLAPSE);
    return 0;
}

int ld_guard_disown(int fd, uint8_t *at, size_t n, int64_t offset) { return map_again(fd, at, n, offset); }

// ioctl PAGEMAP_SCAN of Linux 6.7, Documentation/admin-guide/mm/pagemap.rst: not in the headers of every system that we build on.
typedef struct {
    uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
    uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
} scan_request;
typedef struct {
    uint64_t start, end, categories;
} scan_region;
#define SCAN _IOWR('f', 16, scan_request)
#define SCAN_HUGE (1ul << 6)
#define SCAN_REGIONS 64

int64_t ld_guard_huge(const uint8_t *at, size_t n) {
    int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    scan_region found[SCAN_REGIONS];
    scan_request ask = {.size = sizeof ask, .start = (uintptr_t)at, .end = (uintptr_t)at + n, .vec = (uintptr_t)found,
                        .vec_len = SCAN_REGIONS, .category_mask = SCAN_HUGE, .return_mask = SCAN_HUGE};
    int64_t bytes = 0;
    while (ask.start < ask.end) {
        int regions = ioctl(fd, SCAN, &ask);
        if (regions < 0) {
            bytes = -1;
            break;
        }
        for (int i = 0; i < regions; i++) bytes += (int64_t)(found[i].end - found[i].start);
        ask.start = ask.walk_end;
    }
    close(fd);
    return bytes;
}

int64_t ld_guard_populate(const uint8_t *at, size_t n) {
    madvise((void *)at, n, MADV_POPULATE_READ); // Linux 5.14; without it, and where the file has ended, there is less to find
    return ld_guard_huge(at, n);
}
