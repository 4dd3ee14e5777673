// Bytes from memory that a device cannot read by itself to a ring of pinned chunks, by threads of their own.
//
// Load i goes to chunk i % n_chunks, in parts that all threads take in order, as soon as the load that was there before has been
// freed. One thread begins, waits, frees and stops; the threads only copy.
#pragma once
#include <stddef.h>
#include <stdint.h>

typedef struct ld_ferry ld_ferry;

typedef struct {
    const uint8_t *from;
    size_t n; // bytes, 1 to the size of a chunk
} ld_load;

// NULL: no memory or no threads. ring: n_chunks * chunk bytes, alive until ld_ferry_free.
ld_ferry *ld_ferry_new(uint8_t *ring, size_t chunk, int n_chunks, int n_threads);
void ld_ferry_free(ld_ferry *ferry); // ends the threads

// From now on these loads are carried, which must live until they are done or stopped. Nothing may be under way.
void ld_ferry_begin(ld_ferry *ferry, const ld_load *loads, int64_t n_loads);
// Until load i is there: 1. 0: stopped, or seconds have passed.
int ld_ferry_wait(ld_ferry *ferry, int64_t i, double seconds);
// The first n loads have been read: their chunks may be overwritten.
void ld_ferry_freed(ld_ferry *ferry, int64_t n);
// No more loads are taken; returns when nobody copies any more. Waits return. For any thread.
void ld_ferry_stop(ld_ferry *ferry);
