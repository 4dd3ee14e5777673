"""A team of pinned worker threads that help the calling thread through one job at a time; see c/pool.h."""

cimport cython
from libc.errno cimport errno
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, malloc

import os


cdef extern from "pool.h":
    ld_pool *ld_pool_new(int n_workers, const int32_t *cores, int64_t spin_us) nogil
    void ld_pool_run(ld_pool *pool, ld_job job, void *arg) noexcept nogil
    void ld_pool_free(ld_pool *pool) noexcept nogil
    int ld_pool_parked(const ld_pool *pool) noexcept nogil
    int ld_pool_refused(const ld_pool *pool, int worker) noexcept nogil
    int ld_pool_thread(const ld_pool *pool, int worker) noexcept nogil


cdef extern from *:
    """
    typedef struct { int64_t next, end, taken; } ld_tally;
    static void ld_tally_job(void *arg, int worker) {
        ld_tally *t = arg;
        (void)worker;
        while (__atomic_fetch_add(&t->next, 1, __ATOMIC_RELAXED) < t->end) __atomic_fetch_add(&t->taken, 1, __ATOMIC_RELAXED);
    }
    """
    ctypedef struct ld_tally:
        int64_t next
        int64_t end
        int64_t taken
    void ld_tally_job(void *arg, int worker) noexcept nogil


@cython.final
cdef class Pool:
    """n_workers counts the calling thread. cores: one per worker, -1 = not pinned; the first is the caller's while a job lasts.

    One job at a time, from one thread at a time. `close` joins the threads; the object is of no use after it.

    Raises:
        OSError: the system gives no more threads.
    """

    def __cinit__(self, cores, *, int64_t spin_us=50):
        cdef int32_t *wanted
        cdef int i
        self.cores = tuple(cores)
        self.n_workers = len(self.cores)
        if not 1 <= self.n_workers <= 1024:
            raise ValueError(f"{self.n_workers} workers; a team has 1 to 1024")
        wanted = <int32_t *>malloc(self.n_workers * sizeof(int32_t))
        if wanted == NULL:
            raise MemoryError
        for i in range(self.n_workers):
            wanted[i] = self.cores[i]
        with nogil:
            self._pool = ld_pool_new(self.n_workers, wanted, spin_us)
        free(wanted)
        if self._pool == NULL:
            raise OSError(errno, f"cannot start {self.n_workers} worker threads: {os.strerror(errno)}")

    def __dealloc__(self):
        if self._pool != NULL:
            with nogil:
                ld_pool_free(self._pool)

    cdef void run(self, ld_job job, void *arg) noexcept nogil:
        ld_pool_run(self._pool, job, arg)

    @property
    def parked(self):
        """Workers asleep at this moment."""
        return 0 if self._pool == NULL else ld_pool_parked(self._pool)

    @property
    def refused(self):
        """(core, errno) of each worker that the system does not let run on its core alone; it works wherever it may."""
        if self._pool == NULL:
            return ()
        found = ((core, ld_pool_refused(self._pool, i)) for i, core in enumerate(self.cores))
        return tuple((core, error) for core, error in found if error)

    @property
    def threads(self):
        """The thread ids of the workers, without the caller's; 0 of one that has not begun yet."""
        return () if self._pool == NULL else tuple(ld_pool_thread(self._pool, i) for i in range(1, self.n_workers))

    def tally(self, int64_t n):
        """Lets the team count to n together and returns the count: a job that shows that the team works."""
        cdef ld_tally count
        if self._pool == NULL:
            raise ValueError("the team is closed")
        count.next, count.end, count.taken = 0, n, 0
        with nogil:
            ld_pool_run(self._pool, ld_tally_job, &count)
        return count.taken

    def close(self):
        """Ends and joins the threads."""
        cdef ld_pool *pool = self._pool
        if self.busy:
            raise RuntimeError("the team is at work")
        self._pool = NULL
        if pool != NULL:
            with nogil:
                ld_pool_free(pool)
