# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call, misc"
"""A matrix for each head: out[row, head] = W_head x[row, head]. Sums in f32, or in products of tensor cores that lose as little.

Numbers and Q8_0, what derived weights are stored as, are read as they lie; other formats become f16 in scratch first.
"""

from __future__ import annotations

from dataclasses import replace

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.triton_kernels.dequantise import dequantise
from engine.triton_kernels.paged import PRECISION, padded
from engine.triton_kernels.tensors import Matrix
from engine.triton_kernels.workspace import Workspace

FEW = 4
"""Rows that are multiplied one by one."""
PART = 64
"""Values of a row that are multiplied at a time where rows are many: 512 at once spill 5 KB a thread, for which the driver sets
aside 1.3 GB of an H200."""
_AS_THEY_LIE = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "Q8_0": torch.int16}


@triton.jit
def _weights(w, row, there, begin, N_IN: tl.constexpr, WIDE: tl.constexpr, ROW: tl.constexpr, QUANTISED: tl.constexpr):
    """[rows, WIDE] f32, from value `begin` on. ROW: elements of w from row to row; QUANTISED: blocks of Q8_0 as 17 words of 16
    bits, of which `begin` is the first of one."""
    if QUANTISED:
        g, i = begin // 32 + tl.arange(0, WIDE // 32), tl.arange(0, 16)
        block = w + row.to(tl.int64)[:, None] * ROW + g[None, :] * 17
        mask = there[:, None] & (g * 32 < N_IN)[None, :]
        scale = tl.load(block, mask=mask, other=0).to(tl.float16, bitcast=True).to(tl.float32)
        pair = tl.load(block[:, :, None] + 1 + i[None, None, :], mask=mask[:, :, None], other=0)
        low, high = (pair << 8) >> 8, pair >> 8
        both = tl.reshape(tl.join(low, high), [row.shape[0], WIDE // 32, 32]).to(tl.float32)
        return tl.reshape(both * scale[:, :, None], [row.shape[0], WIDE])
    k = begin + tl.arange(0, WIDE)
    mask = there[:, None] & (k < N_IN)[None, :]
    return tl.load(w + row.to(tl.int64)[:, None] * ROW + k[None, :], mask=mask, other=0).to(tl.float32)


@triton.jit(do_not_specialize=["n_rows"])
def _heads(
    x, w, out, n_rows, x_row, out_row, step,
    X_HEAD: tl.constexpr, OUT_HEAD: tl.constexpr, N_IN: tl.constexpr, N_OUT: tl.constexpr, WIDE: tl.constexpr,
    OUTS: tl.constexpr, ROWS: tl.constexpr, ROW: tl.constexpr, QUANTISED: tl.constexpr, ONE_BY_ONE: tl.constexpr,
    PART: tl.constexpr,
):  # fmt: skip
    """OUTS values of one head of ROWS rows; of many, PART values of a row at a time."""
    part, head, first = tl.program_id(0), tl.program_id(1), tl.program_id(2) * ROWS
    o = part * OUTS + tl.arange(0, OUTS)
    of_head, to = w + head.to(tl.int64) * step, out + head * OUT_HEAD + o
    if ONE_BY_ONE:
        k = tl.arange(0, WIDE)
        weights = _weights(of_head, o, o < N_OUT, 0, N_IN, WIDE, ROW, QUANTISED)
        from_x = x + head * X_HEAD + k
        for j in tl.static_range(ROWS):
            row = (first + j).to(tl.int64)
            value = tl.load(from_x + row * x_row, mask=(k < N_IN) & (row < n_rows), other=0)
            tl.store(to + row * out_row, tl.sum(weights * value[None, :], 1), mask=(o < N_OUT) & (row < n_rows))
    else:
        row = first + tl.arange(0, ROWS)
        mask = (row < n_rows)[:, None]
        from_x = x + head * X_HEAD + row.to(tl.int64)[:, None] * x_row
        found = tl.zeros([ROWS, OUTS], tl.float32)
        for begin in range(0, WIDE, PART):
            k = begin + tl.arange(0, PART)
            value = tl.load(from_x + k[None, :], mask=mask & (k < N_IN)[None, :], other=0)
            weights = _weights(of_head, o, o < N_OUT, begin, N_IN, PART, ROW, QUANTISED)
            found = tl.dot(value, tl.trans(weights), found, input_precision=PRECISION)
        tl.store(to[None, :] + row.to(tl.int64)[:, None] * out_row, found, mask=mask & (o < N_OUT)[None, :])


def heads(workspace: Workspace, x: Tensor, matrix: Matrix, x_head: int, out_head: int, out: Tensor, *, asm: bool) -> None:
    """See `engine.triton_kernels.kernels.Kernels.heads`."""
    weights, row, step = read(workspace, "heads", matrix, asm=asm)
    few, wide, n_rows = len(x) <= FEW, padded(matrix.n_in, 32), len(x)
    outs, rows = (max(16, min(64, 8192 // wide)), padded(n_rows, 1)) if few else (32, 16)
    _heads[triton.cdiv(matrix.n_out, outs), matrix.n_matrices, triton.cdiv(n_rows, rows)](
        x, weights, out, n_rows, x.stride(0), out.stride(0), step,
        X_HEAD=x_head, OUT_HEAD=out_head, N_IN=matrix.n_in, N_OUT=matrix.n_out, WIDE=wide, OUTS=outs, ROWS=rows, ROW=row,
        QUANTISED=weights.dtype == torch.int16, ONE_BY_ONE=few, PART=min(PART, wide), num_warps=4,
    )  # fmt: skip


def read(workspace: Workspace, name: str, matrix: Matrix, *, asm: bool) -> tuple[Tensor, int, int]:
    """The matrices as elements that `_weights` reads, and how many there are from row to row and from matrix to matrix."""
    if matrix.format in _AS_THEY_LIE:
        data = matrix.data[matrix.first :].view(torch.int8)
        kind = _AS_THEY_LIE[matrix.format]
        usable = data.numel() // kind.itemsize * kind.itemsize
        return data[:usable].view(kind), matrix.row_bytes // kind.itemsize, matrix.step // kind.itemsize
    made = floats(workspace, name, matrix, torch.float16, asm=asm)
    return made, matrix.n_in, matrix.step // matrix.row_bytes * matrix.n_in


def floats(workspace: Workspace, name: str, matrix: Matrix, kind: torch.dtype, *, asm: bool) -> Tensor:
    """All rows between the first of the first matrix and the last of the last one, [n_rows, n_in], in scratch."""
    n_rows = (matrix.n_matrices - 1) * (matrix.step // matrix.row_bytes) + matrix.n_out
    made = workspace.of(name, (n_rows, matrix.n_in), str(kind).removeprefix("torch."))
    dequantise(replace(matrix, n_out=n_rows, n_matrices=1, step=0), made, asm=asm)
    return made
