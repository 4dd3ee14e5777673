from libc.stddef cimport size_t
from libc.stdint cimport uint8_t


cdef class Arena:
    cdef uint8_t *base
    cdef readonly size_t nbytes
    cdef size_t _mapped
    cdef uint8_t *_mapping
    cdef int _exports
