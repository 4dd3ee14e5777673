# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call, misc"
"""Linears of a few rows, straight on the blocks of the file: one launch for all matrices of an input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.arch.spec import Act
from engine.triton_kernels.activations import act_arguments, capped, gated
from engine.triton_kernels.formats import BLOCKS, WIDE
from engine.triton_kernels.products import partial_products, partial_products_of_two
from engine.triton_kernels.tensors import Acts, Matrix

FEW_ROWS = 8
"""Rows that these kernels take at most."""
MOST_MATRICES = 4


@dataclass(frozen=True, slots=True)
class Tile:
    """How a matrix is cut: `rows` of it a program of `warps` warps, which takes `pairs` of 32 values at a time."""

    rows: int
    pairs: int
    warps: int


def tile_of(format: str, n_in: int, n_out: int, n_rows: int) -> Tile:
    """The tile for a matrix of this shape and n_rows rows of activations."""
    if BLOCKS[format].is_float:
        return Tile(2 if n_rows <= 2 else 1, 128, 4)  # 512 columns at a time
    warps = 4 if n_in >= 4096 else 2 if n_in >= 2048 else 1
    if format in WIDE:
        # One row a program, all of it at once: on an H200, more rows a program leave fewer loads under way, and are slower.
        return Tile(1, 32 * warps, warps)
    # Threads hold single words of these: two rows share what is loaded of the activations.
    warps = min(warps, 2)
    return Tile(2 if n_rows <= 4 else 1, 32 * warps, warps)


@triton.jit
def _place(out, bias, y, row, last, n_rows, out_step, HAS_BIAS: tl.constexpr, ADD: tl.constexpr, SOFTCAP: tl.constexpr,
           M: tl.constexpr, R: tl.constexpr):  # fmt: skip
    r, m = tl.arange(0, R)[None, :], tl.arange(0, M)[:, None]
    inside = (r <= last) & (m < n_rows)
    if HAS_BIAS:
        y += tl.load(bias + row + tl.minimum(r, last))
    if SOFTCAP != 0.0:
        y = capped(y, SOFTCAP)
    at = out + m * out_step + row + r
    if ADD:
        y += tl.load(at, mask=inside, other=0.0)
    tl.store(at, y, mask=inside)


@triton.jit
def _one(
    W, B, out, n_out, out_step, tile, V, X, S, T, n_rows,
    FORMAT: tl.constexpr, RB: tl.constexpr, HAS_BIAS: tl.constexpr, F32: tl.constexpr, ADD: tl.constexpr,
    SOFTCAP: tl.constexpr, K: tl.constexpr, M: tl.constexpr, R: tl.constexpr, H: tl.constexpr, EVEN: tl.constexpr,
    ASM: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    row, last = tile * R, tl.minimum(n_out - tile * R, R) - 1
    acc = partial_products(W, row.to(tl.int64) * RB, last, V, X, S, T, 0, n_rows, FORMAT, F32, K, RB, M, R, H, EVEN, ASM, EARLY)
    _place(out, B, tl.sum(acc, 2), row, last, n_rows, out_step, HAS_BIAS, ADD, SOFTCAP, M, R)


@triton.jit
def _linear(
    V, X, S, T, n_rows,
    W0, B0, O0, n0, s0, W1, B1, O1, n1, s1, W2, B2, O2, n2, s2, W3, B3, O3, n3, s3,
    F_0: tl.constexpr, RB_0: tl.constexpr, HAS_B0: tl.constexpr, F_1: tl.constexpr, RB_1: tl.constexpr, HAS_B1: tl.constexpr,
    F_2: tl.constexpr, RB_2: tl.constexpr, HAS_B2: tl.constexpr, F_3: tl.constexpr, RB_3: tl.constexpr, HAS_B3: tl.constexpr,
    N_MATRICES: tl.constexpr, F32: tl.constexpr, ADD: tl.constexpr, SOFTCAP: tl.constexpr,
    K: tl.constexpr, M: tl.constexpr, R: tl.constexpr, H: tl.constexpr, EVEN: tl.constexpr, ASM: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    """Each program computes R rows of one of the matrices, which lie one behind the other in the grid."""
    tile = tl.program_id(0)
    t0 = tl.cdiv(n0, R)
    if N_MATRICES == 1:
        _one(W0, B0, O0, n0, s0, tile, V, X, S, T, n_rows, F_0, RB_0, HAS_B0, F32, ADD, SOFTCAP, K, M, R, H, EVEN, ASM, EARLY)
    else:
        t1 = t0 + tl.cdiv(n1, R)
        if tile < t0:
            _one(W0, B0, O0, n0, s0, tile, V, X, S, T, n_rows, F_0, RB_0, HAS_B0, F32, ADD, SOFTCAP, K, M, R, H, EVEN, ASM, EARLY)
        elif tile < t1:
            _one(
                W1,
                B1,
                O1,
                n1,
                s1,
                tile - t0,
                V,
                X,
                S,
                T,
                n_rows,
                F_1,
                RB_1,
                HAS_B1,
                F32,
                ADD,
                SOFTCAP,
                K,
                M,
                R,
                H,
                EVEN,
                ASM,
                EARLY,
            )
        if N_MATRICES > 2:
            t2 = t1 + tl.cdiv(n2, R)
            if (tile >= t1) & (tile < t2):
                _one(
                    W2, B2, O2, n2, s2, tile - t1, V, X, S, T, n_rows, F_2, RB_2, HAS_B2, F32, ADD, SOFTCAP, K, M, R, H,
                    EVEN, ASM, EARLY,
                )  # fmt: skip
            if N_MATRICES > 3:  # noqa: SIM102 - a constant and a value
                if tile >= t2:
                    _one(
                        W3, B3, O3, n3, s3, tile - t2, V, X, S, T, n_rows, F_3, RB_3, HAS_B3, F32, ADD, SOFTCAP, K, M, R, H,
                        EVEN, ASM, EARLY,
                    )  # fmt: skip


@triton.jit
def _gated_linear(
    V, X, S, T, n_rows, W0, B0, W1, B1, out, n_out, out_step,
    F_0: tl.constexpr, RB_0: tl.constexpr, HAS_B0: tl.constexpr, F_1: tl.constexpr, RB_1: tl.constexpr, HAS_B1: tl.constexpr,
    F32: tl.constexpr, ACT: tl.constexpr, ALPHA: tl.constexpr, LIMIT: tl.constexpr,
    K: tl.constexpr, M: tl.constexpr, R: tl.constexpr, H: tl.constexpr, EVEN: tl.constexpr, ASM: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(0)
    row, last = tile * R, tl.minimum(n_out - tile * R, R) - 1
    at = row.to(tl.int64)
    if F_0 == F_1:
        g, u = partial_products_of_two(
            W0, at * RB_0, W1, at * RB_0, last, V, X, S, T, 0, n_rows, F_0, F32, K, RB_0, M, R, H, EVEN, ASM, EARLY
        )
    else:
        g = partial_products(W0, at * RB_0, last, V, X, S, T, 0, n_rows, F_0, F32, K, RB_0, M, R, H, EVEN, ASM, EARLY)
        u = partial_products(W1, at * RB_1, last, V, X, S, T, 0, n_rows, F_1, F32, K, RB_1, M, R, H, EVEN, ASM)
    g, u = tl.sum(g, 2), tl.sum(u, 2)
    r = tl.minimum(tl.arange(0, R)[None, :], last)
    if HAS_B0:
        g += tl.load(B0 + row + r)
    if HAS_B1:
        u += tl.load(B1 + row + r)
    _place(out, out, gated(g, u, ACT, ALPHA, LIMIT), row, last, n_rows, out_step, False, False, 0.0, M, R)


def linear_of_few(
    acts: Acts,
    matrices: Sequence[Matrix],
    biases: Sequence[Tensor | None],
    outs: Sequence[Tensor],
    *,
    add: bool,
    softcap: float,
    asm: bool,
    early: int = 0,
    tile: Tile | None = None,
) -> None:
    """outs = (or +=) products of acts with each matrix, at most MOST_MATRICES, plus biases; capped where softcap is not 0.

    early: the device can launch it before its input is complete; 2: and what comes behind it before it has ended.
    """
    n_rows, k = outs[0].shape[0], matrices[0].n_in
    largest = max(matrices, key=lambda matrix: matrix.n_out)
    tile = tile or tile_of(largest.format, k, sum(matrix.n_out for matrix in matrices), n_rows)
    m = triton.next_power_of_2(n_rows)
    even = m == n_rows and all(matrix.n_out % tile.rows == 0 for matrix in matrices)
    tensors: list[Tensor | int] = []
    constants: dict[str, str | int | bool] = {}
    for i in range(MOST_MATRICES):
        at = min(i, len(matrices) - 1)
        matrix, bias, out = matrices[at], biases[at], outs[at]
        tensors += [weights_of(matrix), out if bias is None else bias, out, matrix.n_out, out.stride(0)]
        constants |= {f"F_{i}": matrix.format, f"RB_{i}": matrix.row_bytes, f"HAS_B{i}": bias is not None}
    grid = (sum(triton.cdiv(matrix.n_out, tile.rows) for matrix in matrices),)
    _linear[grid](
        *few_rows(acts), n_rows, *tensors, **constants, N_MATRICES=len(matrices), F32=acts.codes is None, ADD=add,
        SOFTCAP=softcap, K=k, M=m, R=tile.rows, H=tile.pairs, EVEN=even, ASM=asm, EARLY=early, num_warps=tile.warps,
        **launched(early),
    )  # fmt: skip


def gated_linear_of_few(
    acts: Acts,
    gate: Matrix,
    up: Matrix,
    biases: Sequence[Tensor | None],
    out: Tensor,
    act: Act,
    *,
    asm: bool,
    early: int = 0,
    tile: Tile | None = None,
) -> None:
    """out = act(gate x) * up x."""
    n_rows = out.shape[0]
    tile = tile or tile_of(gate.format, gate.n_in, 2 * gate.n_out, n_rows)
    m = triton.next_power_of_2(n_rows)
    name, alpha, limit = act_arguments(act)
    pointers = (weights_of(gate), _or(biases[0], out), weights_of(up), _or(biases[1], out))
    _gated_linear[(triton.cdiv(gate.n_out, tile.rows),)](
        *few_rows(acts), n_rows, *pointers, out, gate.n_out, out.stride(0),
        F_0=gate.format, RB_0=gate.row_bytes, HAS_B0=biases[0] is not None,
        F_1=up.format, RB_1=up.row_bytes, HAS_B1=biases[1] is not None, F32=acts.codes is None,
        ACT=name, ALPHA=alpha, LIMIT=limit, K=gate.n_in, M=m, R=tile.rows, H=tile.pairs,
        EVEN=m == n_rows and gate.n_out % tile.rows == 0, ASM=asm, EARLY=early,
        num_warps=tile.warps, **launched(early),
    )  # fmt: skip


def launched(early: int) -> dict[str, bool]:
    """How: `launch_pdl` is an option of NVIDIA's devices only."""
    return {"launch_pdl": True} if early else {}


def _or(tensor: Tensor | None, other: Tensor) -> Tensor:
    return other if tensor is None else tensor


def weights_of(matrix: Matrix) -> Tensor:
    """The bytes from the first matrix on.

    Raises:
        ValueError: they are not aligned as kernels read them.
    """
    weights = matrix.data[matrix.first :]
    size = BLOCKS[matrix.format].type_size
    # 4 for 17 bytes too, which are taken from aligned words.
    alignment = 16 if matrix.format.endswith("_PADDED") else 2 if size % 4 == 2 else 4
    if weights.data_ptr() % alignment:
        raise ValueError(f"{matrix.format} weights at byte {matrix.first} of their tensor are not {alignment}-byte aligned")
    return weights


def few_rows(acts: Acts) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """f32 rows, words of codes, scales and sums, as `partial_products` takes them; one for another that is not there."""
    if acts.codes is None or acts.scales is None or acts.sums is None:
        values = rows_of(acts)
        return values, values, values, values
    return _or(acts.values, acts.scales), acts.codes.view(torch.int32), acts.scales, acts.sums


def rows_of(acts: Acts) -> Tensor:
    """The f32 rows.

    Raises:
        ValueError: there are none, `acts` was not told of a format that needs them.
    """
    if acts.values is None:
        raise ValueError("these activations were made for quantised weights only")
    return acts.values
