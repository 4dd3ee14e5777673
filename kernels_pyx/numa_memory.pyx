"""On which NUMA node memory lies and shall lie: the system calls for it, made in the thread that asks. No libnuma, no root.

A thread's policy and its processor are that thread's alone, so that whoever loads or faults calls here itself. What the system
refuses (EPERM in containers, ENOSYS without NUMA) is an OSError with its errno; nothing has changed then. Numbers are those of
Linux's own tables, see mbind(2), set_mempolicy(2), get_mempolicy(2), move_pages(2), getcpu(2).
"""


from libc.errno cimport EINVAL, errno
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint64_t, uintptr_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

import os


cdef extern from *:
    """
    #include <errno.h>
    #include <unistd.h>
    #if defined __x86_64__
    enum { LD_MBIND = 237, LD_SET_POLICY = 238, LD_GET_POLICY = 239, LD_MOVE_PAGES = 279, LD_GETCPU = 309 };
    #elif defined __aarch64__ || (defined __riscv && __riscv_xlen == 64) || defined __loongarch64
    enum { LD_MBIND = 235, LD_SET_POLICY = 237, LD_GET_POLICY = 236, LD_MOVE_PAGES = 239, LD_GETCPU = 168 };
    #else
    enum { LD_MBIND = -1, LD_SET_POLICY = -1, LD_GET_POLICY = -1, LD_MOVE_PAGES = -1, LD_GETCPU = -1 };
    #endif
    static long ld_call(long number, long a, long b, long c, long d, long e, long f) {
        if (number < 0) {
            errno = ENOSYS;
            return -1;
        }
        return syscall(number, a, b, c, d, e, f);
    }
    """
    int LD_MBIND, LD_SET_POLICY, LD_GET_POLICY, LD_MOVE_PAGES, LD_GETCPU
    long ld_call(long number, long a, long b, long c, long d, long e, long f) nogil

cdef enum:
    MASK_WORDS = 16  # 1024 nodes, as many as any kernel is built for
    MASK_BITS = 64 * MASK_WORDS
    LARGEST = 1 << 20  # pages that are asked for in one call

DEFAULT, PREFERRED, BIND, INTERLEAVE, LOCAL = range(5)
"""Policies: as usual; one node while it has room; one node or nothing; in turns over nodes; where the thread runs."""
cdef long MOVE = 2  # pages that are elsewhere go there, if no other process maps them


cdef struct Mask:
    uint64_t words[MASK_WORDS]


cdef Mask _mask(nodes) except *:
    cdef Mask made
    cdef int64_t node
    memset(&made, 0, sizeof(made))
    for node in nodes:
        if not 0 <= node < MASK_BITS:
            raise ValueError(f"node {node}; nodes are 0 to {MASK_BITS - 1}")
        made.words[node // 64] |= <uint64_t>1 << (node % 64)
    return made


cdef _refused(str what, int number):
    return OSError(number, f"{what}: {os.strerror(number)}")


def bind(uintptr_t address, size_t nbytes, int policy, nodes=(), *, bint move=False):
    """Where the pages of [address, address + nbytes) shall lie from now on; both ends are widened to whole pages.

    Pages that are there already stay, unless `move`: then those that no other process maps go where the policy wants them.

    Raises:
        OSError: EPERM: not allowed here; EINVAL: no such node; ENOSYS: a system without NUMA. ValueError: an absurd node.
    """
    cdef Mask mask = _mask(nodes)
    cdef uintptr_t first = address // 4096 * 4096
    cdef size_t whole = (address + nbytes - first + 4095) // 4096 * 4096
    cdef long outcome
    cdef int wrong = 0
    with nogil:
        # maxnode counts one more than the bits that are read.
        outcome = ld_call(LD_MBIND, <long>first, <long>whole, policy, <long>&mask, MASK_BITS + 1, MOVE if move else 0)
        if outcome < 0:
            wrong = errno
    if wrong:
        raise _refused("mbind", wrong)


def set_policy(int policy, nodes=()):
    """Where pages that this thread faults from now on shall lie, those of files that it reads first among them.

    Raises: see `bind`.
    """
    cdef Mask mask = _mask(nodes)
    cdef long outcome
    cdef int wrong = 0
    cdef bint bare = policy in (DEFAULT, LOCAL)
    with nogil:
        outcome = ld_call(LD_SET_POLICY, policy, 0 if bare else <long>&mask, 0 if bare else MASK_BITS + 1, 0, 0, 0)
        if outcome < 0:
            wrong = errno
    if wrong:
        raise _refused("set_mempolicy", wrong)


def policy(uintptr_t address=0):
    """(policy, nodes) of this thread, or of the memory at an address. Raises: see `bind`."""
    cdef Mask mask
    cdef int mode = 0, wrong = 0
    cdef long outcome
    memset(&mask, 0, sizeof(mask))
    with nogil:
        outcome = ld_call(LD_GET_POLICY, <long>&mode, <long>&mask, MASK_BITS + 1, <long>address, 2 if address else 0, 0)
        if outcome < 0:
            wrong = errno
    if wrong:
        raise _refused("get_mempolicy", wrong)
    return mode & 0xff, tuple(node for node in range(MASK_BITS) if mask.words[node // 64] >> (node % 64) & 1)


def move_pages(addresses, nodes=None):
    """What move_pages(2) says of the page at each address: its node, or a negative errno, -ENOENT where it is not in memory.

    nodes: where each is wanted; None: nothing is moved, this only asks. It needs no privilege for pages of this process alone.

    Raises: see `bind`. ValueError: nodes and addresses differ in number.
    """
    cdef Py_ssize_t n = len(addresses), i
    cdef void **pages
    cdef int *wanted = NULL
    cdef int *status
    cdef long outcome
    cdef int wrong = 0
    if nodes is not None and len(nodes) != n:
        raise ValueError("nodes and addresses differ in number")
    if n > LARGEST:
        raise ValueError(f"{n} pages; ask for at most {LARGEST} at a time")
    if n == 0:
        return []
    pages = <void **>calloc(n, sizeof(void *))
    status = <int *>calloc(n, sizeof(int))
    if nodes is not None:
        wanted = <int *>calloc(n, sizeof(int))
    try:
        if pages == NULL or status == NULL or (nodes is not None and wanted == NULL):
            raise MemoryError
        for i in range(n):
            pages[i] = <void *>(<uintptr_t>addresses[i] // 4096 * 4096)
            status[i] = -EINVAL
            if wanted != NULL:
                wanted[i] = nodes[i]
        with nogil:
            outcome = ld_call(LD_MOVE_PAGES, 0, n, <long>pages, <long>wanted, <long>status, MOVE)
            if outcome < 0:
                wrong = errno
        if wrong:
            raise _refused("move_pages", wrong)
        return [status[i] for i in range(n)]
    finally:
        free(pages)
        free(status)
        free(wanted)


def here():
    """(processor, node) that this thread runs on at this moment. Raises: OSError: ENOSYS."""
    cdef unsigned int cpu = 0, node = 0
    cdef long outcome
    cdef int wrong = 0
    with nogil:
        outcome = ld_call(LD_GETCPU, <long>&cpu, <long>&node, 0, 0, 0, 0)
        if outcome < 0:
            wrong = errno
    if wrong:
        raise _refused("getcpu", wrong)
    return cpu, node
