"""Linears of many rows: slices of the matrix are dequantised into scratch, to f16, and multiplied by the library's GEMM.

On Hopper that beats 8-bit products of blocks; slices are so small that what was written is still in the second cache when it is
read, where the cache is as large. With exact settings the scratch and the products are f32.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from engine.arch.spec import Act
from engine.triton_kernels.dequantise import dequantise
from engine.triton_kernels.gemv import rows_of, weights_of
from engine.triton_kernels.pointwise import gated_act
from engine.triton_kernels.tensors import HALVED, Acts, Matrix
from engine.triton_kernels.workspace import Workspace

SCRATCH_BYTES = 64 << 20
"""Of dequantised weights, and as much again of products that wait for what makes one value of them."""
_GRAIN = 256  # rows of a matrix that slices are a multiple of, so that the GEMM's tiles are whole


def room(workspace: Workspace, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """A tensor in a piece of SCRATCH_BYTES, or more if that is too little: one piece, however the sizes of steps vary."""
    nbytes = math.prod(shape) * dtype.itemsize
    return workspace.of(name, (max(SCRATCH_BYTES, nbytes),), "uint8")[:nbytes].view(dtype).view(shape)


def linear_of_many(
    acts: Acts,
    matrices: Sequence[Matrix],
    biases: Sequence[Tensor | None],
    outs: Sequence[Tensor],
    workspace: Workspace,
    *,
    add: bool,
    softcap: float,
    asm: bool,
) -> None:
    """outs = (or +=) products of acts with each matrix, plus biases; capped where softcap is not 0."""
    for matrix, bias, out in zip(matrices, biases, outs, strict=True):
        for rows, weights, x in _slices(acts, matrix, matrix.n_out, workspace, asm=asm):
            _multiply(x, weights, out[:, rows], add=add)
        if bias is not None:
            out += bias
        if softcap:
            out.div_(softcap).tanh_().mul_(softcap)


def gated_linear_of_many(
    acts: Acts,
    gate: Matrix,
    up: Matrix,
    biases: Sequence[Tensor | None],
    out: Tensor,
    act: Act,
    workspace: Workspace,
    *,
    asm: bool,
) -> None:
    """out = act(gate x) * up x."""
    n_rows, n_out = out.shape
    step = max(_GRAIN, SCRATCH_BYTES // (2 * 4 * n_rows) // _GRAIN * _GRAIN)
    for start in range(0, n_out, step):
        rows = slice(start, min(start + step, n_out))
        products = room(workspace, "products", (2, n_rows, rows.stop - rows.start), torch.float32)
        parts = [_part(gate, rows), _part(up, rows)]
        some = [None if bias is None else bias[rows] for bias in biases]
        linear_of_many(acts, parts, some, list(products), workspace, add=False, softcap=0.0, asm=asm)
        gated_act(products[0], products[1], act, out[:, rows])


def _part(matrix: Matrix, rows: slice) -> Matrix:
    """Some rows of a matrix, as a matrix."""
    first = matrix.first + rows.start * matrix.row_bytes
    return Matrix(matrix.data, matrix.format, matrix.n_in, rows.stop - rows.start, matrix.row_bytes, first)


def _slices(acts: Acts, matrix: Matrix, n_out: int, workspace: Workspace, *, asm: bool) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Rows of the matrix, their values [n, n_in], and the activations of the same type."""
    exact = acts.halves is None or matrix.format == "F32"
    x = rows_of(acts) if exact else acts.halves
    assert x is not None
    if matrix.format == ("F32" if exact else "F16"):
        stored = weights_of(matrix)[: n_out * matrix.row_bytes].view(x.dtype).view(n_out, -1)
        yield slice(0, n_out), stored, x
        return
    step = max(_GRAIN, SCRATCH_BYTES // (matrix.n_in * x.element_size()) // _GRAIN * _GRAIN)
    for start in range(0, n_out, step):
        rows = slice(start, min(start + step, n_out))
        scratch = room(workspace, "weights", (rows.stop - rows.start, matrix.n_in), x.dtype)
        dequantise(matrix, scratch, first=start, asm=asm)
        yield rows, scratch, x


def _multiply(x: Tensor, weights: Tensor, out: Tensor, *, add: bool) -> None:
    """out (+)= x times the transpose of weights, summed in f32; f16 x are of `Acts.halves`."""
    if x.dtype == torch.float32:
        if add:
            torch.addmm(out, x, weights.T, out=out)
        else:
            torch.mm(x, weights.T, out=out)
    elif x.is_cuda:
        torch.addmm(out, x, weights.T, torch.float32, beta=1 if add else 0, alpha=HALVED, out=out)
    else:  # torch multiplies 16-bit numbers into f32 on cards only
        product = HALVED * (x.float() @ weights.float().T)
        out.copy_(out + product if add else product)
