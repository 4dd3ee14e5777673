"""Model files mapped read-only and guarded: a file truncated under us is counted, not fatal; see c/guard.h."""

cimport cython
from libc.errno cimport errno
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t, uintptr_t

from kernels_pyx.executor cimport AbortFlag

import os


cdef extern from "guard.h":
    uint8_t *ld_guard_map(int fd, size_t size, int *slot) nogil
    void ld_guard_unmap(int slot) noexcept nogil
    int64_t ld_guard_lost(int slot) noexcept nogil
    void ld_guard_touch(const uint8_t *at, size_t n, const int32_t *abort) noexcept nogil
    size_t LD_GUARD_UNIT
    int ld_guard_own(int fd, uint8_t *at, size_t n, int64_t offset, int drop) noexcept nogil
    int ld_guard_disown(int fd, uint8_t *at, size_t n, int64_t offset) noexcept nogil
    int64_t ld_guard_populate(const uint8_t *at, size_t n) noexcept nogil


@cython.final
cdef class MappedFile:
    """The whole file at `path`, read-only, shared with the page cache; kept open so that `stat` speaks of this very file.

    Raises:
        OSError: it cannot be opened or mapped, or is empty.
    """

    cdef uint8_t *_base
    cdef int _slot
    cdef int _fd
    cdef readonly size_t nbytes
    cdef readonly object path

    def __cinit__(self, path):
        self._fd = -1
        self.path = path
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.nbytes = os.fstat(self._fd).st_size
        if self.nbytes == 0:
            raise OSError(f"{path}: an empty file")
        self._base = ld_guard_map(self._fd, self.nbytes, &self._slot)
        if self._base == NULL:
            raise OSError(errno, os.strerror(errno), str(path))

    def __dealloc__(self):
        self.close()

    @property
    def address(self):
        """Where the first byte lies."""
        return <uintptr_t>self._base

    @property
    def lost(self):
        """Faults met: not 0 when part of the file was gone when it was read."""
        return 0 if self._base == NULL else ld_guard_lost(self._slot)

    def stat(self):
        """`os.stat_result` of the mapped file, wherever its name points now."""
        return os.fstat(self._fd)

    def read(self, size_t offset, size_t n):
        """n bytes from offset, by reading, not through the mapping.

        Raises:
            OSError: the file has become shorter, or cannot be read.
        """
        data = os.pread(self._fd, n, offset)
        if <size_t>len(data) != n:
            raise OSError(f"{self.path}: {len(data)} of {n} bytes at {offset}")
        return data

    def read_into(self, size_t offset, uint8_t[::1] into not None):
        """Fills `into` with the bytes from offset on, by reading, not through the mapping.

        Raises:
            OSError: the file has become shorter, or cannot be read.
        """
        cdef Py_ssize_t done = 0, n
        while done < into.shape[0]:
            n = os.preadv(self._fd, [into[done:]], offset + done)
            if n <= 0:
                raise OSError(f"{self.path}: {done} of {into.shape[0]} bytes at {offset}")
            done += n

    def forget(self, size_t offset, size_t n):
        """The system's cache of the file may let go of n bytes from offset, where no mapping has brought them in."""
        os.posix_fadvise(self._fd, offset, n, os.POSIX_FADV_DONTNEED)

    def touch(self, size_t offset, size_t n, AbortFlag abort not None):
        """Brings n bytes from offset into memory, unless they are there; returns early once the flag is set."""
        if self._base == NULL or offset > self.nbytes or n > self.nbytes - offset:
            raise ValueError("touched beyond the file")
        if n == 0:
            return
        with nogil:
            ld_guard_touch(self._base + offset, n, &abort.value)

    def whole_units(self, size_t offset, size_t n):
        """(offset, bytes) of the part of [offset, offset + n) that `own` can take: whole units of 2 MiB in the address space."""
        cdef size_t first = (<uintptr_t>self._base + offset + LD_GUARD_UNIT - 1) // LD_GUARD_UNIT * LD_GUARD_UNIT
        cdef size_t end = (<uintptr_t>self._base + offset + n) // LD_GUARD_UNIT * LD_GUARD_UNIT
        return first - <uintptr_t>self._base, max(end, first) - first

    def in_huge_pages(self, size_t offset, size_t n):
        """How many of the n bytes from offset are mapped in huge pages, after bringing them in; None where the system cannot tell."""
        cdef int64_t found
        self._check(offset, n)
        with nogil:
            found = ld_guard_populate(self._base + offset, n)
        return None if found < 0 else found

    def own(self, size_t offset, size_t n, *, bint drop=False):
        """Puts memory of our own with the file's n bytes from offset in the place of its pages: read faster, safe from truncation.

        offset and n as `whole_units` gives them. drop: the file's pages then leave the system's cache. Nobody may read these bytes
        meanwhile.

        Raises:
            OSError: no memory, or the file has become shorter or cannot be read; nothing has changed.
        """
        cdef int wrong
        self._check(offset, n)
        with nogil:
            wrong = ld_guard_own(self._fd, self._base + offset, n, offset, drop)
        if wrong:
            raise OSError(wrong, os.strerror(wrong), str(self.path))

    def disown(self, size_t offset, size_t n):
        """Gives owned memory back: from now on the n bytes from offset are the file's pages again. Nobody may read them meanwhile.

        Raises:
            OSError: the system maps no more; nothing has changed.
        """
        cdef int wrong
        self._check(offset, n)
        with nogil:
            wrong = ld_guard_disown(self._fd, self._base + offset, n, offset)
        if wrong:
            raise OSError(wrong, os.strerror(wrong), str(self.path))

    cdef _check(self, size_t offset, size_t n):
        if self._base == NULL or offset > self.nbytes or n > self.nbytes - offset:
            raise ValueError("owned beyond the file")
        if (<uintptr_t>self._base + offset) % LD_GUARD_UNIT or n % LD_GUARD_UNIT:
            raise ValueError("owned in parts of units")

    def close(self):
        """Unmaps and closes; addresses into it are dead."""
        if self._base != NULL:
            ld_guard_unmap(self._slot)
            self._base = NULL
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
