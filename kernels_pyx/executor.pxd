from libc.stdint cimport int32_t, int64_t

from kernels_pyx.arena cimport Arena
from kernels_pyx.handoff cimport ld_handoff
from kernels_pyx.pool cimport Pool


cdef extern from "op.h":
    ctypedef struct ld_op:
        pass

    ctypedef struct ld_step_state:
        int64_t n_rows
        int64_t n_out
        int64_t n_seqs
        int64_t n_groups
        const int32_t *token_ids
        const int32_t *positions
        const int32_t *seq_of_row
        const int32_t *block_table
        int64_t table_stride
        const int32_t *out_rows
        const int32_t *states
        float *logits
        int64_t logits_stride
        const int32_t *abort
        int64_t *op_ns
        int64_t *worker_ns
        int64_t first
        int64_t end
        const ld_handoff *handoff
        int32_t bad_op
        int32_t aborted


cdef extern from "program.h":
    ctypedef struct ld_program


cdef class AbortFlag:
    cdef int32_t value


cdef class CpuProgram:
    cdef ld_program *_program
    cdef Arena _arena
    cdef Pool _pool
    cdef object _keep
    cdef readonly int n_ops
    cdef readonly int max_rows
