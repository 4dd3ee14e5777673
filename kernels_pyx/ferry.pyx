"""Threads that copy to a ring of pinned chunks, ahead of whoever sends these on to a device: see c/ferry.h, which is the contract."""

cimport cython
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint64_t, uintptr_t

import numpy as np


cdef extern from "ferry.h":
    ctypedef struct ld_ferry:
        pass
    ctypedef struct ld_load:
        const uint8_t *from_ "from"
        size_t n
    ld_ferry *ld_ferry_new(uint8_t *ring, size_t chunk, int n_chunks, int n_threads) nogil
    void ld_ferry_free(ld_ferry *ferry) noexcept nogil
    void ld_ferry_begin(ld_ferry *ferry, const ld_load *loads, int64_t n_loads) noexcept nogil
    int ld_ferry_wait(ld_ferry *ferry, int64_t i, double seconds) noexcept nogil
    void ld_ferry_freed(ld_ferry *ferry, int64_t n) noexcept nogil
    void ld_ferry_stop(ld_ferry *ferry) noexcept nogil


@cython.final
cdef class Ferry:
    """n_threads threads that fill chunks of `chunk` bytes in `ring`, as many as it has room for.

    Raises:
        ValueError: no room for two chunks. MemoryError: no thread could be started.
    """

    cdef ld_ferry *_ferry
    cdef uint8_t[::1] _ring
    cdef uint64_t[:, ::1] _loads
    cdef readonly size_t chunk
    cdef readonly int n_chunks

    def __cinit__(self, uint8_t[::1] ring not None, size_t chunk, int n_threads):
        if chunk == 0 or <size_t>ring.shape[0] < 2 * chunk or n_threads < 1:
            raise ValueError(f"{n_threads} threads for chunks of {chunk} bytes in {ring.shape[0]}")
        self._ring, self.chunk, self.n_chunks = ring, chunk, <int>(<size_t>ring.shape[0] // chunk)
        self._ferry = ld_ferry_new(&ring[0], chunk, self.n_chunks, n_threads)
        if self._ferry == NULL:
            raise MemoryError("no thread could be started to copy weights")

    def __dealloc__(self):
        if self._ferry != NULL:
            ld_ferry_free(self._ferry)

    def begin(self, loads not None):
        """Carries `loads`, uint64 [n, 2]: addresses and bytes. Load i comes to chunk i % n_chunks. What was under way is stopped.

        Raises:
            ValueError: a load of no bytes, or of more than a chunk.
        """
        cdef uint64_t[:, ::1] table = np.ascontiguousarray(loads, np.uint64)
        if table.shape[1] != 2 or any(not 0 < int(n) <= self.chunk for n in table[:, 1]):
            raise ValueError(f"loads are addresses with 1 to {self.chunk} bytes")
        self.stop()
        self._loads = table
        if table.shape[0]:
            ld_ferry_begin(self._ferry, <const ld_load *>&table[0, 0], table.shape[0])

    def wait(self, int64_t i, double seconds):
        """Whether load i is in its chunk, after waiting for so long at most; False at once when stopped."""
        cdef int there
        with nogil:
            there = ld_ferry_wait(self._ferry, i, seconds)
        return there != 0

    def freed(self, int64_t n):
        """The first n loads have been read: their chunks may be overwritten."""
        ld_ferry_freed(self._ferry, n)

    def stop(self):
        """Takes no more loads, and returns when no thread reads or writes any more. Idempotent; for any thread."""
        with nogil:
            ld_ferry_stop(self._ferry)
