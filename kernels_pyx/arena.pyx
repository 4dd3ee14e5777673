"""Zeroed memory from the system, aligned to a page or to 2 MiB, given back at close; a writable buffer of bytes for numpy."""

cimport cython
from cpython.buffer cimport PyBUF_FORMAT
from libc.errno cimport errno
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uintptr_t


cdef extern from "<sys/mman.h>":
    int PROT_READ, PROT_WRITE, MAP_PRIVATE, MAP_ANONYMOUS, MAP_NORESERVE, MADV_HUGEPAGE
    void *MAP_FAILED
    void *mmap(void *addr, size_t length, int prot, int flags, int fd, long offset) nogil
    int munmap(void *addr, size_t length) nogil
    int madvise(void *addr, size_t length, int advice) nogil

cdef size_t HUGE = 2 << 20


@cython.final
cdef class Arena:
    """nbytes of zeroed memory. huge: aligned to 2 MiB and offered to the system for huge pages (which it may refuse).

    Pages cost memory when first touched. address: where memory lies that somebody gave, who takes it back after `close`; as it is.

    Raises:
        MemoryError: the system does not map so much. ValueError: no bytes, or an address that is no multiple of 4096.
    """

    def __cinit__(self, size_t nbytes, *, bint huge=False, uintptr_t address=0):
        cdef size_t align = HUGE if huge else 4096
        cdef uintptr_t start
        if nbytes == 0:
            raise ValueError("an arena of no bytes")
        if address % 4096:
            raise ValueError(f"an arena at {address:#x}, which is no multiple of 4096")
        if address:
            self._mapping = self.base = <uint8_t *>address
            self._mapped, self.nbytes = 0, nbytes
            return
        self._mapped = (nbytes + align - 1) // align * align + (align if huge else 0)
        self._mapping = <uint8_t *>mmap(NULL, self._mapped, PROT_READ | PROT_WRITE,
                                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
        if <void *>self._mapping == MAP_FAILED:
            self._mapping = NULL
            raise MemoryError(f"cannot map {nbytes} bytes (error {errno})")
        start = (<uintptr_t>self._mapping + align - 1) // align * align
        self.base = <uint8_t *>start
        self.nbytes = nbytes
        if huge:
            madvise(self.base, (nbytes + align - 1) // align * align, MADV_HUGEPAGE)

    def __dealloc__(self):
        if self._mapping != NULL and self._mapped:
            munmap(self._mapping, self._mapped)

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        if self._mapping == NULL:
            raise BufferError("the arena is closed")
        buffer.buf = self.base
        buffer.len = self.nbytes
        buffer.itemsize = 1
        buffer.readonly = 0
        buffer.format = <char *>b"B" if flags & PyBUF_FORMAT else <char *>NULL
        buffer.ndim = 1
        buffer.shape = <Py_ssize_t *>&self.nbytes
        buffer.strides = &buffer.itemsize
        buffer.suboffsets = NULL
        buffer.internal = NULL
        buffer.obj = self
        self._exports += 1

    def __releasebuffer__(self, Py_buffer *buffer):
        self._exports -= 1

    @property
    def address(self):
        """Where it lies."""
        return <uintptr_t>self.base

    def close(self):
        """Gives the memory back.

        Raises:
            BufferError: somebody still holds a buffer of it.
        """
        if self._exports:
            raise BufferError(f"{self._exports} buffers of the arena are in use")
        if self._mapping != NULL:
            if self._mapped:
                munmap(self._mapping, self._mapped)
            self._mapping = self.base = NULL
