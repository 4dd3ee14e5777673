// Read-only file mappings that survive a file truncated, or a disk gone, under them.
//
// The SIGBUS handler knows only ranges mapped here: it puts zero pages over what is lost, counts, and lets the kernels finish;
// the caller sees the count and throws the step's results away. Any other SIGBUS goes to the handler that was there before.
#pragma once
#include <stddef.h>
#include <stdint.h>

#define LD_GUARD_MAX 1024

// Maps size > 0 bytes of fd; the slot (>= 0) goes to *slot. NULL with errno set on failure.
uint8_t *ld_guard_map(int fd, size_t size, int *slot);
void ld_guard_unmap(int slot);
int64_t ld_guard_lost(int slot); // faults met so far

// Brings [at, at + n) of a guarded mapping into memory. Stops early when *abort is not 0.
void ld_guard_touch(const uint8_t *at, size_t n, const int32_t *abort);

// Puts memory of the process's own, in huge pages where the system has them, in the place of n mapped bytes at `at`, with the same
// content, read from `offset` of the file; both ends are multiples of LD_GUARD_UNIT. drop: the file's pages behind it leave the
// system's cache, unless another process has them mapped. 0, or an errno with the mapping as it was; EIO: the file has become
// shorter. Nobody may read [at, at + n) meanwhile.
#define LD_GUARD_UNIT ((size_t)2 << 20)
int ld_guard_own(int fd, uint8_t *at, size_t n, int64_t offset, int drop);

// The file's pages again in the place of owned memory, which is freed. 0, or an errno with the memory as it was.
int ld_guard_disown(int fd, uint8_t *at, size_t n, int64_t offset);

// How many of n bytes at `at` are mapped in huge pages, ours or the file's; -1 where the system cannot tell (before Linux 6.7).
int64_t ld_guard_huge(const uint8_t *at, size_t n);
// The same after mapping what is in memory and bringing in what is not.
int64_t ld_guard_populate(const uint8_t *at, size_t n);
