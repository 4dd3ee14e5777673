from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t


cdef extern from "handoff.h":
    ctypedef struct ld_handoff:
        uint8_t *words
        int64_t n_flags
        uint32_t epoch
        int64_t limit_ns
        int64_t *stamps

    enum:
        LD_LINE_BYTES
        LD_STOPPED
        LD_LATE
        LD_FAR


cdef class Handoff:
    cdef ld_handoff handoff
    cdef uint8_t[::1] _memory
    cdef readonly object stamps
    cdef int64_t[:, ::1] _stamps
    cdef int _known(self, int64_t flag) except -1
