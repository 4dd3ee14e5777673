"""The compiled program of one CPU lane: checks descriptors once, owns them, and runs a step in one call without the GIL."""

cimport cython
from libc.stddef cimport size_t
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from kernels_pyx.arena cimport Arena
from kernels_pyx.dispatch cimport active_table, ld_isa, ld_table, table_for
from kernels_pyx.handoff cimport Handoff
from kernels_pyx.pool cimport Pool, ld_job

import numpy as np

from kernels_pyx.isas import ISAS


cdef extern from "op.h":
    ctypedef struct ld_field:
        const char *name
        const char *code
        int64_t offset
        int64_t count

    const ld_field *ld_op_fields(int *n) nogil
    int64_t ld_v_pad(int64_t v_dim) nogil
    int64_t ld_partial_floats(int64_t n_heads, int64_t v_dim) nogil
    int64_t ld_kv_head_bytes(int type, int64_t dim) nogil
    int64_t ld_routes_bytes(int64_t n_experts, int64_t slots) nogil
    int LD_BLOCK, LD_LOGITS, LD_MAX_WEIGHTS


cdef extern from "dispatch.h":
    size_t ld_act_row_bytes(int act, int64_t k) nogil
    int LD_FEW_MAX


cdef extern from "program.h":
    ld_program *ld_program_new(const ld_op *ops, int64_t n_ops, uint8_t *base, int64_t bytes, int64_t max_rows,
                               int64_t max_position, const int64_t *n_blocks, int64_t n_groups, int64_t n_states,
                               const int32_t *team_of, const int16_t *order, int n_workers, const ld_table *table, char *message,
                               size_t message_size) nogil
    void ld_program_free(ld_program *program) noexcept nogil
    const char *ld_program_check(const ld_program *program, const ld_step_state *state) nogil
    void ld_program_start(ld_program *program, ld_step_state *state) nogil
    void ld_program_worker(void *program, int worker) noexcept nogil
    int64_t ld_program_scratch_bytes(const ld_program *program) nogil


cdef _op_dtype():
    cdef int n, i
    cdef const ld_field *fields = ld_op_fields(&n)
    names, formats, offsets = [], [], []
    for i in range(n):
        code = fields[i].code.decode()
        names.append(fields[i].name.decode())
        formats.append(code if fields[i].count == 1 else (code, (fields[i].count,)))
        offsets.append(fields[i].offset)
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": sizeof(ld_op)})


OP_DTYPE = _op_dtype()
BLOCK = LD_BLOCK
FEW_MAX = LD_FEW_MAX
LOGITS = LD_LOGITS
MAX_WEIGHTS = LD_MAX_WEIGHTS


def act_row_bytes(int act, int64_t k):
    """Bytes of one activation row of k values in the layout `act` (index into formats.ACTS), a multiple of 64."""
    return (ld_act_row_bytes(act, k) + 63) // 64 * 64


def v_pad(int64_t v_dim):
    """Values that one token takes in a block of the value cache."""
    return ld_v_pad(v_dim)


def partial_floats(int64_t n_heads, int64_t v_dim):
    """Floats of one row of attention partials."""
    return ld_partial_floats(n_heads, v_dim)


def kv_head_bytes(int type, int64_t dim):
    """Bytes of one KV head in a block of the cache: keys of dim = head_dim, or values of dim = v_pad(v_dim)."""
    return ld_kv_head_bytes(type, dim)


def routes_bytes(int64_t n_experts, int64_t slots):
    """Bytes of the table of which row passes which expert."""
    return ld_routes_bytes(n_experts, slots)


@cython.final
cdef class AbortFlag:
    """A flag that running programs poll: set it from any thread to stop the step."""

    def set(self):
        """Stops the running step at its next task, and every later one until `clear`."""
        self.value = 1

    def clear(self):
        """Lets steps run again."""
        self.value = 0

    @property
    def is_set(self):
        """Whether steps stop."""
        return self.value != 0


def _in_a_ring(int n):
    return ((np.arange(n)[:, None] + np.arange(n)) % n).astype(np.int16)


@cython.final
cdef class CpuProgram:
    """Descriptors [n_ops] of OP_DTYPE over an arena, run by a pool.

    max_rows: rows of the largest step; max_position: first position beyond the rope tables and caches; n_blocks: blocks of each
    cache group, or of the only one; n_states: slots for states of sequences; keep: what owns the memory that the descriptors
    point to; isa: caps the kernels, None = as dispatched. teams: the team of each worker, ascending from 0; None: all are one.
    order: [n_workers, n_workers] whose tasks each takes when its own are done, itself first; None: around from itself.

    Raises:
        ValueError: a descriptor that the C side refuses; the message names the op.
    """

    def __cinit__(self, ops, Arena arena not None, Pool pool not None, *, int64_t max_rows, int64_t max_position,
                  n_blocks, int64_t n_states=0, keep=None, isa=None, teams=None, order=None):
        cdef char message[256]
        cdef const ld_table *table = active_table() if isa is None else table_for(<ld_isa><int>ISAS.index(isa))
        cdef const uint8_t[::1] raw
        cdef const int64_t[::1] sizes = np.atleast_1d(np.asarray(n_blocks, np.int64))
        cdef const int32_t[::1] team_of = np.asarray((0,) * pool.n_workers if teams is None else teams, np.int32)
        cdef const int16_t[:, ::1] steals = _in_a_ring(pool.n_workers) if order is None else np.ascontiguousarray(order, np.int16)
        if team_of.shape[0] != pool.n_workers:
            raise ValueError("teams and workers differ in number")
        if steals.shape[0] != pool.n_workers or steals.shape[1] != pool.n_workers:
            raise ValueError("the order and the workers differ in number")
        if not (np.sort(steals, axis=1) == np.arange(pool.n_workers)).all():
            raise ValueError("the order does not name each worker once")
        if table == NULL:
            raise ValueError(f"this machine has no {isa}")
        if ops.dtype != OP_DTYPE or ops.ndim != 1 or len(ops) == 0:
            raise ValueError("ops must be a one-dimensional array of OP_DTYPE")
        if arena.base == NULL or pool._pool == NULL:
            raise ValueError("the arena or the pool is closed")
        raw = np.ascontiguousarray(ops).view(np.uint8)
        self._arena, self._pool, self._keep = arena, pool, keep
        self.n_ops, self.max_rows = len(ops), max_rows
        self._program = ld_program_new(<const ld_op *>&raw[0], self.n_ops, arena.base, arena.nbytes, max_rows, max_position,
                                       &sizes[0], sizes.shape[0], n_states, &team_of[0], &steals[0, 0], pool.n_workers, table, message,
                                       sizeof(message))
        if self._program == NULL:
            raise ValueError((<bytes>message).decode())

    def __dealloc__(self):
        ld_program_free(self._program)

    @property
    def scratch_bytes(self):
        """Memory of the workers' own, beside the arena."""
        return ld_program_scratch_bytes(self._program)

    def run(self, const int32_t[::1] token_ids, const int32_t[::1] positions, const int32_t[::1] seq_of_row,
            const int32_t[:, :, ::1] block_tables, const int32_t[::1] out_rows, float[:, ::1] logits, AbortFlag abort not None,
            int64_t[::1] op_ns=None, const int32_t[:, ::1] states=None, *, int64_t first=0, int64_t end=-1,
            Handoff handoff=None, let_go=None, int64_t[::1] worker_ns=None):
        """One step: fills logits [n_out, n_vocab] and returns (aborted, bad_op): -1 or the first op that met a bad value.

        first, end: only the ops of this piece, which goes on where the one before it of the same step ended; end -1: to the last.
        handoff: how sends and receives meet whoever computes beside, its epoch that of this step; None: they do nothing, for the
        caller runs pieces and copies between them. A step that is given up writes its stop word.

        let_go: a lock, which is released as the interpreter's own is: whoever takes it finds the program at work.

        block_tables: [n_groups, n_seqs, blocks] block ids; those outside the group's windows may be anything. op_ns: [n_ops],
        receives the wall time of each op. worker_ns: [n_workers], to which is added how long each worker was at tasks, without waits for
        others. states: [n_seqs, 4], see ld_step_state.

        Raises:
            ValueError: the batch does not fit the program.
        """
        cdef ld_step_state state
        cdef const char *wrong
        cdef Arena arena = self._arena
        if positions.shape[0] != token_ids.shape[0] or seq_of_row.shape[0] != token_ids.shape[0]:
            raise ValueError("token_ids, positions and seq_of_row differ in length")
        if token_ids.shape[0] == 0 or 0 in (block_tables.shape[0], block_tables.shape[1], block_tables.shape[2]):
            raise ValueError("a batch without rows or sequences")
        if logits.shape[0] != out_rows.shape[0]:
            raise ValueError("logits and out_rows differ in length")
        if op_ns is not None and op_ns.shape[0] != self.n_ops:
            raise ValueError("op_ns and ops differ in length")
        if worker_ns is not None and worker_ns.shape[0] != self._pool.n_workers:
            raise ValueError("worker_ns and workers differ in number")
        if arena.base == NULL or self._pool._pool == NULL:
            raise ValueError("the arena or the pool is closed")
        if self._pool.busy:
            raise ValueError("the pool is at work for another thread")
        state.n_rows, state.n_out, state.n_seqs = token_ids.shape[0], out_rows.shape[0], block_tables.shape[1]
        state.n_groups = block_tables.shape[0]
        state.token_ids, state.positions, state.seq_of_row = &token_ids[0], &positions[0], &seq_of_row[0]
        state.block_table, state.table_stride = &block_tables[0, 0, 0], block_tables.shape[2]
        if states is not None and (states.shape[0] != state.n_seqs or states.shape[1] != 4):
            raise ValueError("states and sequences differ in number")
        state.states = NULL
        if states is not None:
            state.states = &states[0, 0]
        state.out_rows = &out_rows[0] if state.n_out else NULL
        state.logits = &logits[0, 0] if state.n_out else NULL
        state.logits_stride = logits.shape[1]
        state.abort = &abort.value
        state.op_ns = NULL if op_ns is None else &op_ns[0]
        state.worker_ns = NULL if worker_ns is None else &worker_ns[0]
        state.first, state.end = first, self.n_ops if end == -1 else end
        state.handoff = NULL if handoff is None else &handoff.handoff
        wrong = ld_program_check(self._program, &state)
        if wrong != NULL:
            raise ValueError(wrong.decode())
        if let_go is not None:
            let_go.release()
        self._pool.busy = True
        with nogil:
            _run(self._program, &state, self._pool)
        self._pool.busy = False
        return state.aborted != 0, state.bad_op - 1


cdef void _run(ld_program *program, ld_step_state *state, Pool pool) noexcept nogil:
    ld_program_start(program, state)
    pool.run(<ld_job>ld_program_worker, program)
