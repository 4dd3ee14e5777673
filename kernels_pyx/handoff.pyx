"""Flags between the workers of a program and whoever computes beside them: see c/handoff.h, which is the contract."""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uintptr_t

import numpy as np


cdef extern from "handoff.h":
    int64_t ld_handoff_bytes(int64_t n_flags) noexcept nogil
    uint32_t ld_handoff_load(const ld_handoff *handoff, int64_t flag) noexcept nogil
    void ld_handoff_store(const ld_handoff *handoff, int64_t flag, uint32_t value) noexcept nogil
    void ld_handoff_stop(const ld_handoff *handoff, uint32_t why) noexcept nogil
    void ld_handoff_signal(const ld_handoff *handoff, int64_t flag) noexcept nogil
    int ld_handoff_wait(const ld_handoff *handoff, int64_t flag, const int32_t *abort) noexcept nogil

LINE_BYTES = LD_LINE_BYTES
STOPPED = LD_STOPPED
LATE = LD_LATE
FAR = LD_FAR


def handoff_bytes(int64_t n_flags):
    """Bytes of the words of so many flags."""
    return ld_handoff_bytes(n_flags)


@cython.final
cdef class Handoff:
    """n_flags flags in the first handoff_bytes(n_flags) bytes of `memory`, which is cleared. limit_s: how long a wait may take.

    stamps: int64 [n_flags, 2], CLOCK_MONOTONIC nanoseconds at which the calling thread of a program began and ended to wait for a
    flag, or sent it (twice the same).

    Raises:
        ValueError: memory that is too small or not aligned to a line.
    """

    def __cinit__(self, uint8_t[::1] memory not None, int64_t n_flags, *, double limit_s=2.0):
        if n_flags < 0 or memory.shape[0] < ld_handoff_bytes(n_flags):
            raise ValueError(f"{memory.shape[0]} bytes for {n_flags} flags; {ld_handoff_bytes(n_flags)} are needed")
        if <uintptr_t>&memory[0] % LD_LINE_BYTES:
            raise ValueError(f"flags at an address that is no multiple of {LD_LINE_BYTES}")
        if not 0.0 < limit_s < 3600.0:
            raise ValueError(f"a wait of at most {limit_s} seconds")
        room = np.zeros((max(n_flags, 1), 2), np.int64)
        self._memory, self._stamps, self.stamps = memory, room, room[:n_flags]
        self.handoff.words, self.handoff.n_flags = &memory[0], n_flags
        self.handoff.limit_ns, self.handoff.stamps = <int64_t>(limit_s * 1e9), &self._stamps[0, 0]
        self.reset()

    @property
    def n_flags(self):
        """How many flags there are."""
        return self.handoff.n_flags

    @property
    def epoch(self):
        """The step that is under way or was the last one; whoever runs a step sets it before. Counts modulo 2 ** 32."""
        return self.handoff.epoch

    @epoch.setter
    def epoch(self, uint32_t epoch):
        self.handoff.epoch = epoch

    @property
    def stopped(self):
        """The stop word: 0, or why the step was given up: STOPPED, LATE + flag, FAR + flag."""
        return ld_handoff_load(&self.handoff, -1)

    def reset(self, uint32_t epoch=0):
        """Every flag as after the step `epoch`, and no reason to stop. Only while nobody waits; the other side counts from there."""
        cdef int64_t flag
        self.handoff.epoch = epoch
        for flag in range(self.handoff.n_flags):
            ld_handoff_store(&self.handoff, flag, epoch)
        ld_handoff_store(&self.handoff, -1, 0)

    def stop(self, uint32_t why=LD_STOPPED):
        """Ends every wait of this step, on both sides."""
        ld_handoff_stop(&self.handoff, why)

    def flag(self, int64_t flag):
        """What a flag holds; what was written before is seen after."""
        self._known(flag)
        return ld_handoff_load(&self.handoff, flag)

    def signal(self, int64_t flag):
        """Says that the rows of an exchange are ready in this step: what another side does, in tests and where it is emulated."""
        self._known(flag)
        ld_handoff_signal(&self.handoff, flag)

    def wait(self, int64_t flag):
        """Whether the flag came before the wait was given up."""
        cdef int32_t never = 0
        cdef int came
        self._known(flag)
        with nogil:
            came = ld_handoff_wait(&self.handoff, flag, &never)
        return came != 0

    cdef int _known(self, int64_t flag) except -1:
        if not 0 <= flag < self.handoff.n_flags:
            raise IndexError(f"flag {flag} of {self.handoff.n_flags}")
        return 0
