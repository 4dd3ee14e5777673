# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call, misc"
"""Experts of a few rows: each row's experts are read from the device's memory, one launch up and one down."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from engine.arch.spec import Act
from engine.triton_kernels.activations import act_arguments, gated, sigmoid
from engine.triton_kernels.formats import BLOCKS, WIDE
from engine.triton_kernels.gemv import Tile, few_rows, launched, weights_of
from engine.triton_kernels.products import awaited, partial_products, partial_products_of_two
from engine.triton_kernels.tensors import Acts, Choice, Matrix


def expert_tile(format: str, n_in: int) -> Tile:
    """The tile for experts' matrices of this shape."""
    if BLOCKS[format].is_float:
        return Tile(2, 64, 2)
    wide = format in WIDE
    if n_in >= 2048:
        return Tile(1, 64 if wide else 32, 2)
    return Tile(1, 32 if wide else 16, 1)


@triton.jit
def _up(
    V, X, S, T, chosen, weights, WG, BG, WU, BU, out, n_ff, out_step, step_g, step_u,
    F_G: tl.constexpr, RB_G: tl.constexpr, HAS_BG: tl.constexpr, F_U: tl.constexpr, RB_U: tl.constexpr, HAS_BU: tl.constexpr,
    N_USED: tl.constexpr, F32: tl.constexpr, ACT: tl.constexpr, ALPHA: tl.constexpr, LIMIT: tl.constexpr,
    K: tl.constexpr, R: tl.constexpr, H: tl.constexpr, EVEN: tl.constexpr, ASM: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """R values of one slot (row and place of an expert) a program. EARLY: launched before the choice is made."""
    slot = tl.program_id(1)
    row = tl.program_id(0) * R
    last = tl.minimum(n_ff - row, R) - 1
    awaited(EARLY)
    expert = tl.load(chosen + slot).to(tl.int64)
    weight = tl.load(weights + slot)
    r = tl.arange(0, R)[None, :]
    y = tl.zeros([1, R], tl.float32)
    if expert >= 0:
        at = row.to(tl.int64)
        x = slot // N_USED
        in_g, in_u = expert * step_g + at * RB_G, expert * step_u + at * RB_U
        if F_G == F_U:
            g, u = partial_products_of_two(WG, in_g, WU, in_u, last, V, X, S, T, x, 1, F_G, F32, K, RB_G, 1, R, H, EVEN, ASM)
        else:
            g = partial_products(WG, in_g, last, V, X, S, T, x, 1, F_G, F32, K, RB_G, 1, R, H, EVEN, ASM)
            u = partial_products(WU, in_u, last, V, X, S, T, x, 1, F_U, F32, K, RB_U, 1, R, H, EVEN, ASM)
        g, u = tl.sum(g, 2), tl.sum(u, 2)
        if HAS_BG:
            g += tl.load(BG + expert * n_ff + row + tl.minimum(r, last))
        if HAS_BU:
            u += tl.load(BU + expert * n_ff + row + tl.minimum(r, last))
        y = gated(g, u, ACT, ALPHA, LIMIT) * weight
    tl.store(out + slot.to(tl.int64) * out_step + row + r, y, mask=r <= last)


def experts_up_of_few(
    acts: Acts,
    gate: Matrix,
    up: Matrix,
    gate_bias: Tensor | None,
    up_bias: Tensor | None,
    choice: Choice,
    act: Act,
    out: Tensor,
    *,
    asm: bool,
    early: int = 0,
    tile: Tile | None = None,
) -> None:
    """See `engine.triton_kernels.kernels.Kernels.experts_up`. early: the device can launch it before its input is complete."""
    n_rows, n_used = choice.chosen.shape
    tile = tile or expert_tile(gate.format, gate.n_in)
    name, alpha, limit = act_arguments(act)
    _up[(triton.cdiv(gate.n_out, tile.rows), n_rows * n_used)](
        *few_rows(acts), choice.chosen, choice.weights,
        weights_of(gate), out if gate_bias is None else gate_bias, weights_of(up), out if up_bias is None else up_bias,
        out, gate.n_out, out.stride(0), gate.step, up.step,
        F_G=gate.format, RB_G=gate.row_bytes, HAS_BG=gate_bias is not None,
        F_U=up.format, RB_U=up.row_bytes, HAS_BU=up_bias is not None, N_USED=n_used, F32=acts.codes is None,
        ACT=name, ALPHA=alpha, LIMIT=limit, K=gate.n_in, R=tile.rows, H=tile.pairs, EVEN=gate.n_out % tile.rows == 0,
        ASM=asm, EARLY=early, num_warps=tile.warps, **launched(early),
    )  # fmt: skip


@triton.jit
def finish_row(
    y, chosen, weights, bias, beside, share, out, row, column, inside, n_out, beside_step, share_step, out_step,
    N_USED: tl.constexpr, BIAS: tl.constexpr, BESIDE: tl.constexpr, SHARE: tl.constexpr, ADD: tl.constexpr,
):  # fmt: skip
    """Stores y, columns of one row: plus the experts' biases, plus what stands beside the experts, plus what is there."""
    if BIAS:
        for j in tl.static_range(N_USED):
            expert = tl.load(chosen + row * N_USED + j).to(tl.int64)
            part = tl.load(bias + tl.maximum(expert, 0) * n_out + column, mask=inside & (expert >= 0), other=0.0)
            y += tl.load(weights + row * N_USED + j) * part
    if BESIDE:
        other = tl.load(beside + row * beside_step + column, mask=inside, other=0.0)
        if SHARE:
            other *= sigmoid(tl.load(share + row * share_step))
        y += other
    at = out + row * out_step + column
    if ADD:
        y += tl.load(at, mask=inside, other=0.0)
    tl.store(at, y, mask=inside)


@triton.jit
def _down(
    V, X, S, T, chosen, weights, W, bias, beside, share, out, n_out, step, beside_step, share_step, out_step,
    FORMAT: tl.constexpr, RB: tl.constexpr, N_USED: tl.constexpr, F32: tl.constexpr,
    BIAS: tl.constexpr, BESIDE: tl.constexpr, SHARE: tl.constexpr, ADD: tl.constexpr,
    K: tl.constexpr, R: tl.constexpr, H: tl.constexpr, EVEN: tl.constexpr, ASM: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """R values of one row a program, over all experts of the row in their order, so that sums are always the same.

    The activations of a slot without an expert here are 0: it multiplies the weights of expert 0, without effect. EARLY: launched
    before the activations are complete. The choice is: whoever prepares them waited for the launch that was given it.
    """
    row = tl.program_id(1)
    first = tl.program_id(0) * R
    last = tl.minimum(n_out - first, R) - 1
    at = first.to(tl.int64) * RB
    slot = row * N_USED
    expert = tl.maximum(tl.load(chosen + slot), 0).to(tl.int64)
    acc = partial_products(W, expert * step + at, last, V, X, S, T, slot, 1, FORMAT, F32, K, RB, 1, R, H, EVEN, ASM, EARLY)
    for j in tl.static_range(1, N_USED):
        expert = tl.maximum(tl.load(chosen + slot + j), 0).to(tl.int64)
        acc += partial_products(W, expert * step + at, last, V, X, S, T, slot + j, 1, FORMAT, F32, K, RB, 1, R, H, EVEN, ASM)
    r = tl.arange(0, R)[None, :]
    finish_row(
        tl.sum(acc, 2), chosen, weights, bias, beside, share, out, row.to(tl.int64), first + tl.minimum(r, last), r <= last,
        n_out, beside_step, share_step, out_step, N_USED, BIAS, BESIDE, SHARE, ADD,
    )  # fmt: skip


def experts_down_of_few(
    acts: Acts,
    down: Matrix,
    bias: Tensor | None,
    choice: Choice,
    out: Tensor,
    *,
    add: bool,
    beside: Tensor | None,
    share: Tensor | None,
    asm: bool,
    early: int = 0,
    tile: Tile | None = None,
) -> None:
    """See `engine.triton_kernels.kernels.Kernels.experts_down`. early: the device can launch it before its input is complete."""
    n_rows, n_used = choice.chosen.shape
    tile = tile or expert_tile(down.format, down.n_in)
    given = [out if tensor is None else tensor for tensor in (bias, beside, share)]
    _down[(triton.cdiv(down.n_out, tile.rows), n_rows)](
        *few_rows(acts), choice.chosen, choice.weights, weights_of(down), *given, out, down.n_out, down.step,
        given[1].stride(0), given[2].stride(0), out.stride(0), FORMAT=down.format, RB=down.row_bytes, N_USED=n_used,
        F32=acts.codes is None, BIAS=bias is not None, BESIDE=beside is not None, SHARE=share is not None, ADD=add,
        K=down.n_in, R=tile.rows, H=tile.pairs, EVEN=down.n_out % tile.rows == 0, ASM=asm, EARLY=early, num_warps=tile.warps,
        **launched(early),
    )  # fmt: skip
