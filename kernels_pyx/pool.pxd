cdef extern from "pool.h":
    ctypedef struct ld_pool
    ctypedef void (*ld_job)(void *arg, int worker) noexcept nogil


cdef class Pool:
    cdef ld_pool *_pool
    cdef readonly int n_workers
    cdef readonly tuple cores
    cdef bint busy
    cdef void run(self, ld_job job, void *arg) noexcept nogil
