# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call, misc"
"""Experts of many rows: rows are put in the order of their experts, and each expert multiplies its own in tiles.

Nothing is read back: a launch has as many programs as there could be tiles, and each finds its expert from where the rows of each
begin. Sums over a row's experts are made in the order of the choice, so that they are always the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.arch.spec import Act
from engine.triton_kernels.activations import act_arguments, gated
from engine.triton_kernels.blocks import first_run, load_pairs
from engine.triton_kernels.dequantise import run_values
from engine.triton_kernels.experts import finish_row
from engine.triton_kernels.formats import BLOCKS
from engine.triton_kernels.gemm import SCRATCH_BYTES, room
from engine.triton_kernels.gemv import rows_of, weights_of
from engine.triton_kernels.products import float_pointer
from engine.triton_kernels.tensors import HALVED as _HALVED
from engine.triton_kernels.tensors import Acts, Choice, Matrix
from engine.triton_kernels.workspace import Workspace

HALVED = tl.constexpr(_HALVED)


@dataclass(frozen=True, slots=True)
class GroupTile:
    """rows x columns of products a program of `warps` warps, from `pairs` of 32 values at a time."""

    rows: int
    columns: int
    pairs: int
    warps: int


def group_tile(n_slots: int, n_experts: int) -> GroupTile:
    """Tiles of about as many rows as an expert has: smaller ones read its weights again, larger ones are mostly empty."""
    rows = 64 if n_slots > 24 * n_experts else 32 if n_slots > 8 * n_experts else 16
    return GroupTile(rows, 64, 2, 4)


@triton.jit
def _order(chosen, order, starts, n_slots, BLOCK: tl.constexpr):
    """A program an expert, and one for the end: starts, and the slots of that expert in ascending order."""
    expert = tl.program_id(0)
    j = tl.arange(0, BLOCK)
    before = tl.zeros([BLOCK], tl.int32)
    for start in range(0, n_slots, BLOCK):
        slot = tl.load(chosen + start + j, mask=start + j < n_slots, other=-1)
        before += ((slot >= 0) & (slot < expert)).to(tl.int32)
    place = tl.sum(before, 0)
    tl.store(starts + expert, place)
    for start in range(0, n_slots, BLOCK):
        hit = tl.load(chosen + start + j, mask=start + j < n_slots, other=-1) == expert
        count = hit.to(tl.int32)
        tl.store(order + place + tl.cumsum(count, 0) - 1, start + j, mask=hit)
        place += tl.sum(count, 0)


@triton.jit
def _tile(starts, N_EXPERTS: tl.constexpr, E: tl.constexpr, BM: tl.constexpr):
    """Expert, first place in the order, and end of the tile that this program computes; expert N_EXPERTS if none is left."""
    t = tl.program_id(1)
    e = tl.arange(0, E)
    begin = tl.load(starts + e, mask=e < N_EXPERTS, other=0)
    end = tl.load(starts + e + 1, mask=e < N_EXPERTS, other=0)
    tiles = (end - begin + BM - 1) // BM
    expert = tl.sum(((tl.cumsum(tiles, 0) <= t) & (e < N_EXPERTS)).to(tl.int32), 0)
    tile = t - tl.sum(tl.where(e < expert, tiles, 0), 0)
    return expert, tl.sum(tl.where(e == expert, begin, 0), 0) + tile * BM, tl.sum(tl.where(e == expert, end, 0), 0)


@triton.jit
def _weights(W, origin, p, r, FORMAT: tl.constexpr, HAS_MIN: tl.constexpr, RB: tl.constexpr, BN: tl.constexpr,
             P: tl.constexpr, ASM: tl.constexpr, DTYPE: tl.constexpr):  # fmt: skip
    """[P * 16, BN] each: the first and the second runs of P pairs of BN rows."""
    i = tl.arange(0, 4)[None, None, None, :]
    lo, hi, dl, dh, ml, mh = load_pairs(W, origin, r, p, i, r, p, FORMAT, RB, 0, False, ASM)
    first = tl.reshape(run_values(lo, dl, ml, HAS_MIN), (BN, P * 16)).to(DTYPE)
    second = tl.reshape(run_values(hi, dh, mh, HAS_MIN), (BN, P * 16)).to(DTYPE)
    return tl.trans(first), tl.trans(second)


@triton.jit
def _multiply(
    X, rows, W, origin, n_out, column, inside,
    FORMAT: tl.constexpr, SPAN: tl.constexpr, HAS_MIN: tl.constexpr, K: tl.constexpr, RB: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, P: tl.constexpr, PRECISION: tl.constexpr, ASM: tl.constexpr,
):  # fmt: skip
    """[BM, BN] f32: rows of X [.., K] times columns `column` on of a matrix."""
    acc = tl.zeros([BM, BN], tl.float32)
    x = X + rows[:, None] * K
    dtype: tl.constexpr = X.dtype.element_ty
    if FORMAT == "F32" or FORMAT == "F16" or FORMAT == "BF16":
        STRIDE: tl.constexpr = RB // 4 if FORMAT == "F32" else RB // 2
        n = tl.minimum(column + tl.arange(0, BN), n_out - 1)[None, :]
        weights = float_pointer(W, origin, FORMAT) + n * STRIDE
        for start in range(0, K, P * 32):
            k = start + tl.arange(0, P * 32)
            a = tl.load(x + k[None, :], mask=inside[:, None] & (k < K)[None, :], other=0.0)
            b = tl.load(weights + k[:, None], mask=(k < K)[:, None], other=0.0).to(dtype)
            acc = tl.dot(a, b, acc, input_precision=PRECISION)
    else:
        r = tl.minimum(column + tl.arange(0, BN), n_out - 1)[None, :, None, None]
        h, j = tl.arange(0, P * 16) // 16, tl.arange(0, P * 16) % 16
        for start in range(0, K // 32, P):
            p = tl.minimum(start + tl.arange(0, P), K // 32 - 1)[None, None, :, None]
            first, second = _weights(W, origin, p, r, FORMAT, HAS_MIN, RB, BN, P, ASM, dtype)
            k = first_run(start + h, SPAN) * 16 + j
            mask = inside[:, None] & (start + h < K // 32)[None, :]
            acc = tl.dot(tl.load(x + k[None, :], mask=mask, other=0.0), first, acc, input_precision=PRECISION)
            a = tl.load(x + k[None, :] + SPAN * 16, mask=mask, other=0.0)
            acc = tl.dot(a, second, acc, input_precision=PRECISION)
    return acc if dtype == tl.float32 else acc * HALVED


@triton.jit
def _grouped_up(
    X, order, starts, weights, WG, BG, WU, BU, out, n_ff, out_step, step_g, step_u,
    F_G: tl.constexpr, SPAN_G: tl.constexpr, MIN_G: tl.constexpr, RB_G: tl.constexpr, HAS_BG: tl.constexpr,
    F_U: tl.constexpr, SPAN_U: tl.constexpr, MIN_U: tl.constexpr, RB_U: tl.constexpr, HAS_BU: tl.constexpr,
    N_EXPERTS: tl.constexpr, E: tl.constexpr, N_USED: tl.constexpr, ACT: tl.constexpr, ALPHA: tl.constexpr,
    LIMIT: tl.constexpr, K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, P: tl.constexpr, PRECISION: tl.constexpr,
    ASM: tl.constexpr,
):  # fmt: skip
    expert, first, end = _tile(starts, N_EXPERTS, E, BM)
    if expert < N_EXPERTS:
        place = first + tl.arange(0, BM)
        inside = place < end
        slot = tl.load(order + place, mask=inside, other=0).to(tl.int64)
        column = tl.program_id(0) * BN
        e = expert.to(tl.int64)
        g = _multiply(
            X, slot // N_USED, WG, e * step_g, n_ff, column, inside, F_G, SPAN_G, MIN_G, K, RB_G, BM, BN, P, PRECISION, ASM
        )
        u = _multiply(
            X, slot // N_USED, WU, e * step_u, n_ff, column, inside, F_U, SPAN_U, MIN_U, K, RB_U, BM, BN, P, PRECISION, ASM
        )
        n = column + tl.arange(0, BN)
        if HAS_BG:
            g += tl.load(BG + e * n_ff + n, mask=n < n_ff, other=0.0)[None, :]
        if HAS_BU:
            u += tl.load(BU + e * n_ff + n, mask=n < n_ff, other=0.0)[None, :]
        y = gated(g, u, ACT, ALPHA, LIMIT) * tl.load(weights + slot, mask=inside, other=0.0)[:, None]
        tl.store(out + slot[:, None] * out_step + n[None, :], y, mask=inside[:, None] & (n < n_ff)[None, :])


@triton.jit
def _grouped_down(
    X, order, starts, W, out, n_out, column, out_step, step,
    FORMAT: tl.constexpr, SPAN: tl.constexpr, HAS_MIN: tl.constexpr, RB: tl.constexpr,
    N_EXPERTS: tl.constexpr, E: tl.constexpr, K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, P: tl.constexpr,
    PRECISION: tl.constexpr, ASM: tl.constexpr,
):  # fmt: skip
    """Columns `column` on, as many as out is wide, a row a slot."""
    expert, first, end = _tile(starts, N_EXPERTS, E, BM)
    if expert < N_EXPERTS:
        place = first + tl.arange(0, BM)
        inside = place < end
        slot = tl.load(order + place, mask=inside, other=0).to(tl.int64)
        n = tl.program_id(0) * BN
        y = _multiply(
            X, slot, W, expert.to(tl.int64) * step, n_out, column + n, inside, FORMAT, SPAN, HAS_MIN, K, RB, BM, BN, P,
            PRECISION, ASM,
        )  # fmt: skip
        n = n + tl.arange(0, BN)
        tl.store(out + slot[:, None] * out_step + n[None, :], y, mask=inside[:, None] & (n < out_step)[None, :])


@triton.jit
def _sum(
    y, chosen, weights, bias, beside, share, out, width, column, n_out, beside_step, share_step, out_step,
    N_USED: tl.constexpr, BIAS: tl.constexpr, BESIDE: tl.constexpr, SHARE: tl.constexpr, ADD: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = n < width
    total = tl.zeros([BLOCK], tl.float32)
    for j in tl.static_range(N_USED):
        here = tl.load(chosen + row * N_USED + j) >= 0
        total += tl.load(y + (row * N_USED + j) * width + n, mask=inside & here, other=0.0)
    finish_row(
        total, chosen, weights, bias, beside, share, out, row, column + n, inside, n_out, beside_step, share_step, out_step,
        N_USED, BIAS, BESIDE, SHARE, ADD,
    )  # fmt: skip


class Groups:
    """The rows of a choice by expert: slots in `order`, those of expert e from starts[e] to starts[e + 1]; made on the device."""

    def __init__(self, choice: Choice, n_experts: int, workspace: Workspace, tile: GroupTile | None) -> None:
        n_rows, n_used = choice.chosen.shape
        self.n_slots, self.n_experts = n_rows * n_used, n_experts
        self.order = workspace.of("order", (self.n_slots,), "int32")
        self.starts = workspace.of("starts", (n_experts + 1,), "int32")
        self.tile = tile or group_tile(self.n_slots, n_experts)
        _order[(n_experts + 1,)](choice.chosen, self.order, self.starts, self.n_slots, BLOCK=1024)

    @property
    def n_tiles(self) -> int:
        """Tiles that there may be at most: whole ones, and one that is not for each expert that has rows."""
        return self.n_slots // self.tile.rows + min(self.n_experts, self.n_slots)

    @property
    def constants(self) -> dict[str, int]:
        """What kernels take of it."""
        tile = self.tile
        shape = {"BM": tile.rows, "BN": tile.columns, "P": tile.pairs, "num_warps": tile.warps}
        return {"N_EXPERTS": self.n_experts, "E": triton.next_power_of_2(self.n_experts), **shape}


def _rows(acts: Acts) -> tuple[Tensor, str]:
    """The rows to multiply, and the precision of their products."""
    return (rows_of(acts), "ieee") if acts.halves is None else (acts.halves, "tf32")


def experts_up_of_many(
    acts: Acts,
    gate: Matrix,
    up: Matrix,
    gate_bias: Tensor | None,
    up_bias: Tensor | None,
    choice: Choice,
    act: Act,
    out: Tensor,
    workspace: Workspace,
    *,
    asm: bool,
    tile: GroupTile | None = None,
) -> None:
    """See `engine.triton_kernels.kernels.Kernels.experts_up`."""
    groups = Groups(choice, gate.n_matrices, workspace, tile)
    x, precision = _rows(acts)
    name, alpha, limit = act_arguments(act)
    g, u = BLOCKS[gate.format], BLOCKS[up.format]
    out.zero_()  # of slots that are computed elsewhere
    _grouped_up[(triton.cdiv(gate.n_out, groups.tile.columns), groups.n_tiles)](
        x, groups.order, groups.starts, choice.weights,
        weights_of(gate), out if gate_bias is None else gate_bias, weights_of(up), out if up_bias is None else up_bias,
        out, gate.n_out, out.stride(0), gate.step, up.step,
        F_G=gate.format, SPAN_G=g.span, MIN_G=g.has_min, RB_G=gate.row_bytes, HAS_BG=gate_bias is not None,
        F_U=up.format, SPAN_U=u.span, MIN_U=u.has_min, RB_U=up.row_bytes, HAS_BU=up_bias is not None,
        N_USED=choice.chosen.shape[1], ACT=name, ALPHA=alpha, LIMIT=limit, K=gate.n_in,
        PRECISION=precision, ASM=asm, **groups.constants,
    )  # fmt: skip


def experts_down_of_many(
    acts: Acts,
    down: Matrix,
    bias: Tensor | None,
    choice: Choice,
    out: Tensor,
    workspace: Workspace,
    *,
    add: bool,
    beside: Tensor | None,
    share: Tensor | None,
    asm: bool,
    tile: GroupTile | None = None,
) -> None:
    """See `engine.triton_kernels.kernels.Kernels.experts_down`. Columns are summed in slices, for the room of their products."""
    groups = Groups(choice, down.n_matrices, workspace, tile)
    (n_rows, n_used), (x, precision) = choice.chosen.shape, _rows(acts)
    given = [out if tensor is None else tensor for tensor in (bias, beside, share)]
    blocks = BLOCKS[down.format]
    columns = groups.tile.columns
    step = max(columns, SCRATCH_BYTES // (4 * groups.n_slots) // columns * columns)
    for column in range(0, down.n_out, step):
        width = min(step, down.n_out - column)
        products = room(workspace, "products", (groups.n_slots, width), torch.float32)
        _grouped_down[(triton.cdiv(width, groups.tile.columns), groups.n_tiles)](
            x, groups.order, groups.starts, weights_of(down), products, down.n_out, column, width, down.step,
            FORMAT=down.format, SPAN=blocks.span, HAS_MIN=blocks.has_min, RB=down.row_bytes, K=down.n_in,
            PRECISION=precision, ASM=asm, **groups.constants,
        )  # fmt: skip
        _sum[(n_rows, triton.cdiv(width, 512))](
            products, choice.chosen, choice.weights, *given, out, width, column, down.n_out, given[1].stride(0),
            given[2].stride(0), out.stride(0), N_USED=n_used, BIAS=bias is not None, BESIDE=beside is not None,
            SHARE=share is not None, ADD=add, BLOCK=512,
        )  # fmt: skip
