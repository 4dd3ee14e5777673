# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call, misc"
"""Rows of a matrix as numbers: embeddings, and the weights of long products in the type that these want."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from engine.triton_kernels.blocks import first_run, load_pairs
from engine.triton_kernels.formats import BLOCKS
from engine.triton_kernels.gemv import weights_of
from engine.triton_kernels.products import float_pointer
from engine.triton_kernels.tensors import Matrix
from engine.triton_kernels.words import byte


@triton.jit
def run_values(words, d, m, HAS_MIN: tl.constexpr):
    """[1, R, H, 16] f32: the values of runs of which words are [1, R, H, 4], d and m [1, R, H, 1]."""
    # Bytes 0 and 2 joined, 1 and 3 joined, and both joined, are 0, 1, 2, 3.
    even, odd = tl.join(byte(words, 0), byte(words, 2)), tl.join(byte(words, 1), byte(words, 3))
    codes = tl.reshape(tl.join(even, odd), (words.shape[0], words.shape[1], words.shape[2], 16)).to(tl.float32)
    return d * codes - m if HAS_MIN else d * codes


@triton.jit
def _quantised_rows(
    W, ids, out, out_step, n_rows, scale,
    FORMAT: tl.constexpr, SPAN: tl.constexpr, HAS_MIN: tl.constexpr, K: tl.constexpr, RB: tl.constexpr,
    R: tl.constexpr, H: tl.constexpr, IDS: tl.constexpr, ASM: tl.constexpr,
):  # fmt: skip
    """R rows and H pairs of them a program; IDS: R is 1, and the row is that of the id."""
    first = tl.program_id(0) * R
    row = (tl.load(ids + first) if IDS else first).to(tl.int64)
    r, p = tl.arange(0, R)[None, :, None, None], tl.program_id(1) * H + tl.arange(0, H)[None, None, :, None]
    inside = (first + r < n_rows) & (p < K // 32)
    r, p = tl.minimum(r, n_rows - 1 - first), tl.minimum(p, K // 32 - 1)
    i, j = tl.arange(0, 4)[None, None, None, :], tl.arange(0, 16)[None, None, None, :]
    lo, hi, dl, dh, ml, mh = load_pairs(W, row * RB, r, p, i, r, p, FORMAT, RB, 0, False, ASM)
    at = out + (first + r).to(tl.int64) * out_step + first_run(p, SPAN) * 16 + j
    tl.store(at, (run_values(lo, dl, ml, HAS_MIN) * scale).to(out.dtype.element_ty), mask=inside)
    tl.store(at + SPAN * 16, (run_values(hi, dh, mh, HAS_MIN) * scale).to(out.dtype.element_ty), mask=inside)


@triton.jit
def _float_rows(
    W, ids, out, out_step, scale, FORMAT: tl.constexpr, K: tl.constexpr, RB: tl.constexpr, C: tl.constexpr, IDS: tl.constexpr
):
    first = tl.program_id(0)
    row = (tl.load(ids + first) if IDS else first).to(tl.int64)
    k = tl.program_id(1) * C + tl.arange(0, C)
    value = tl.load(float_pointer(W, row * RB, FORMAT) + k, mask=k < K, other=0.0).to(tl.float32) * scale
    tl.store(out + first.to(tl.int64) * out_step + k, value.to(out.dtype.element_ty), mask=k < K)


def dequantise(matrix: Matrix, out: Tensor, *, ids: Tensor | None = None, first: int = 0, scale: float = 1.0, asm: bool) -> None:
    """out, f32 or 16-bit [n_rows, n_in]: the rows from `first` on, or those of `ids` (int32 [n_rows]), times scale."""
    n_rows, k = out.shape
    weights = weights_of(matrix)[first * matrix.row_bytes :]
    given = out if ids is None else ids
    blocks = BLOCKS[matrix.format]
    if blocks.is_float:
        c = min(1024, triton.next_power_of_2(k))
        _float_rows[(n_rows, triton.cdiv(k, c))](
            weights, given, out, out.stride(0), scale, FORMAT=matrix.format, K=k, RB=matrix.row_bytes, C=c, IDS=ids is not None
        )
        return
    h = min(64, triton.next_power_of_2(k // 32))
    r = 1 if ids is not None else max(1, 256 // h)
    _quantised_rows[(triton.cdiv(n_rows, r), triton.cdiv(k // 32, h))](
        weights, given, out, out.stride(0), n_rows, scale, FORMAT=matrix.format, SPAN=blocks.span, HAS_MIN=blocks.has_min,
        K=k, RB=matrix.row_bytes, R=r, H=h, IDS=ids is not None, ASM=asm, num_warps=2 if ids is not None else 4,
    )  # fmt: skip
