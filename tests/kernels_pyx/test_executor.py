"""Descriptors: their layout is the C side's, and what C refuses is refused with the op's number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from engine.program.fuse import FEW_ROWS
from engine.program.fuse import MAX_WEIGHTS as FUSED_WEIGHTS
from engine.program.lower import DECODE_BUCKETS
from engine.runtime.descriptor import Flag, Kind
from kernels_pyx.arena import Arena
from kernels_pyx.executor import FEW_MAX, MAX_WEIGHTS, OP_DTYPE, AbortFlag, CpuProgram
from kernels_pyx.pool import Pool

K, N = 64, 48


class Toy:
    """Embedding and one linear op over an f32 matrix."""

    def __init__(self) -> None:
        rng = np.random.default_rng(1)
        self.table = rng.standard_normal((10, K)).astype(np.float32)
        self.weight = rng.standard_normal((N, K)).astype(np.float32)
        self.arena = Arena(8192)
        self.ops = np.zeros(2, OP_DTYPE)
        embed, linear = self.ops
        for op, kind, matrix in ((embed, Kind.EMBED, self.table), (linear, Kind.LINEAR, self.weight)):
            op["kind"], op["flags"], op["n_weights"], op["width"], op["act_offset"] = kind, Flag.SYNC, 1, K, -1
            op["w_data"][0], op["w_stride"][0], op["w_rows"][0] = matrix.ctypes.data, 4 * K, len(matrix)
        embed["y_stride"][0] = K
        linear["flags"] |= Flag.OUT_ROWS | Flag.GATHER
        linear["x_stride"], linear["y_offset"][0] = K, -2

    def program(self, pool: Pool) -> CpuProgram:
        return CpuProgram(self.ops, self.arena, pool, max_rows=4, max_position=100, n_blocks=4, keep=(self.table, self.weight))


def _run(program: CpuProgram, ids: list[int], wanted: list[int]) -> tuple[npt.NDArray[np.float32], tuple[bool, int]]:
    n = len(ids)
    zeros = np.zeros(n, np.int32)
    out = np.zeros((len(wanted), N), np.float32)
    table = np.zeros((1, 1, 4), np.int32)
    state = program.run(np.asarray(ids, np.int32), zeros, zeros, table, np.asarray(wanted, np.int32), out, AbortFlag())
    return out, state


def test_two_ops_by_hand() -> None:
    toy, pool = Toy(), Pool([-1, -1])
    out, state = _run(toy.program(pool), [3, 9, 0], [2, 0])
    np.testing.assert_allclose(out, toy.table[[0, 3]] @ toy.weight.T, atol=1e-4)
    assert state == (False, -1)


def test_bad_values_name_the_op() -> None:
    toy, pool = Toy(), Pool([-1])
    toy.weight[5, 7] = np.nan
    assert _run(toy.program(pool), [1], [0])[1] == (False, 1)


def test_python_and_c_agree_on_limits() -> None:
    assert (FEW_ROWS, DECODE_BUCKETS[-1], FUSED_WEIGHTS) == (FEW_MAX, FEW_MAX, MAX_WEIGHTS)
    assert OP_DTYPE["kind"] == np.int32 and OP_DTYPE["w_data"].shape == (MAX_WEIGHTS,)
    assert OP_DTYPE.itemsize % 8 == 0


def _set(op: int, name: str, value: Any) -> Callable[[npt.NDArray[np.void]], None]:
    def change(ops: npt.NDArray[np.void]) -> None:
        ops[op][name] = value

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_set(1, "kind", 77), r"op 1 \(kind 77\): unknown kind"),
        (_set(0, "y_offset", 8192), r"op 0 .*output outside"),
        (_set(0, "y_offset", -64), r"op 0 .*output outside"),
        (_set(0, "y_offset", 32), r"op 0 .*output outside"),
        (_set(0, "y_stride", 48), r"op 0 .*output outside"),
        (_set(1, "x_offset", 7936), r"op 1 .*input outside"),
        (_set(1, "x_stride", 1 << 60), r"op 1 .*input outside"),
        (_set(1, "width", 0), r"op 1"),
        (_set(1, "w_format", 9999), r"op 1 .*without kernels"),
        (_set(1, "w_format", -1), r"op 1 .*without kernels"),
        (_set(1, "w_stride", 8), r"op 1 .*overlap"),
        (_set(1, "w_data", 0), r"op 1 .*missing"),
        (_set(1, "n_weights", MAX_WEIGHTS + 1), r"op 1 .*number of weights"),
        (_set(1, "flags", Flag.PREPARED | Flag.OUT_ROWS), r"op 1 .*activations outside"),
        (_set(1, "flags", Flag.SYNC), r"op 1 .*logits of other rows"),
        (_set(1, "kind", Kind.ATTEND_ROWS), r"op 1 .*bad heads"),
    ],
)
def test_descriptors_that_would_go_astray_are_refused(change: Callable[[npt.NDArray[np.void]], None], words: str) -> None:
    toy, pool = Toy(), Pool([-1])
    change(toy.ops)
    with pytest.raises(ValueError, match=words):
        toy.program(pool)


def test_abort_flag_stops_before_the_first_op() -> None:
    toy, pool = Toy(), Pool([-1, -1])
    program, flag = toy.program(pool), AbortFlag()
    flag.set()
    one, out = np.zeros(1, np.int32), np.zeros((1, N), np.float32)
    assert flag.is_set
    assert program.run(one, one, one, np.zeros((1, 1, 1), np.int32), one, out, flag) == (True, -1)
    assert not out.any()
    flag.clear()
    assert program.run(one, one, one, np.zeros((1, 1, 1), np.int32), one, out, flag) == (False, -1)


def test_closed_pools_and_arenas_are_noticed() -> None:
    toy, pool = Toy(), Pool([-1])
    program = toy.program(pool)
    pool.close()
    with pytest.raises(ValueError, match="closed"):
        _run(program, [1], [0])
    with pytest.raises(ValueError, match="closed"):
        toy.program(pool)
