# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call, misc"
"""Norms, sums, gated activations and gathered rows: one launch each."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from engine.arch.spec import Act
from engine.triton_kernels.activations import act_arguments, gated, sigmoid
from engine.triton_kernels.tensors import NormWeight

_CHUNK = 1024


@triton.jit
def _norm(x, weight, out, x_step, out_step, eps, n_heads, WIDTH: tl.constexpr, BLOCK: tl.constexpr, HEADS: tl.constexpr,
          ADD: tl.constexpr):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)[:, None]
    j = tl.arange(0, BLOCK)[None, :]
    inside = (head < n_heads) & (j < WIDTH)
    y = tl.load(x + row * x_step + head * WIDTH + j, mask=inside, other=0.0)
    y = y * (1.0 / tl.sqrt_rn(tl.sum(y * y, 1) / WIDTH + eps))[:, None] * tl.load(weight + j, mask=j < WIDTH, other=0.0)
    at = out + row * out_step + head * WIDTH + j
    if ADD:
        y += tl.load(at, mask=inside, other=0.0)
    tl.store(at, y, mask=inside)


def norm(x: Tensor, weight: NormWeight, n_heads: int, out: Tensor, *, add: bool) -> None:
    """out (+)= RMS norm of each of n_heads parts of rows of x."""
    n_rows, width = x.shape[0], x.shape[1] // n_heads
    block = triton.next_power_of_2(width)
    heads = max(1, min(triton.next_power_of_2(n_heads), _CHUNK // block))
    _norm[(n_rows, triton.cdiv(n_heads, heads))](
        x, weight.weight, out, x.stride(0), out.stride(0), weight.eps, n_heads, WIDTH=width, BLOCK=block, HEADS=heads, ADD=add,
        num_warps=max(1, min(16, block * heads // 256)),
    )  # fmt: skip


@triton.jit
def _add(x, y, share, x_step, y_step, share_step, width, BLOCK: tl.constexpr, SHARE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = j < width
    other = tl.load(y + row * y_step + j, mask=inside)
    if SHARE:
        other *= sigmoid(tl.load(share + row * share_step))
    tl.store(x + row * x_step + j, tl.load(x + row * x_step + j, mask=inside) + other, mask=inside)


def add(x: Tensor, y: Tensor, share: Tensor | None) -> None:
    """x += y, or x += sigmoid(share) * y."""
    n_rows, width = x.shape
    given = y if share is None else share
    _add[(n_rows, triton.cdiv(width, _CHUNK))](
        x, y, given, x.stride(0), y.stride(0), given.stride(0), width, BLOCK=_CHUNK, SHARE=share is not None
    )


@triton.jit
def _gated_act(gate, up, out, gate_step, up_step, out_step, width, BLOCK: tl.constexpr, ACT: tl.constexpr,
               ALPHA: tl.constexpr, LIMIT: tl.constexpr):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    g, u = tl.load(gate + row * gate_step + j, mask=j < width), tl.load(up + row * up_step + j, mask=j < width)
    tl.store(out + row * out_step + j, gated(g, u, ACT, ALPHA, LIMIT), mask=j < width)


def gated_act(gate: Tensor, up: Tensor, act: Act, out: Tensor) -> None:
    """out = act(gate) * up."""
    n_rows, width = out.shape
    name, alpha, limit = act_arguments(act)
    _gated_act[(n_rows, triton.cdiv(width, _CHUNK))](
        gate, up, out, gate.stride(0), up.stride(0), out.stride(0), width, BLOCK=_CHUNK, ACT=name, ALPHA=alpha, LIMIT=limit
    )


@triton.jit
def _rows(x, rows, out, x_step, out_step, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    source = tl.load(rows + row).to(tl.int64)
    tl.store(out + row * out_step + j, tl.load(x + source * x_step + j, mask=j < width), mask=j < width)


def rows(x: Tensor, rows: Tensor, out: Tensor) -> None:
    """out[i] = x[rows[i]]."""
    n_rows, width = out.shape
    _rows[(n_rows, triton.cdiv(width, _CHUNK))](x, rows, out, x.stride(0), out.stride(0), width, BLOCK=_CHUNK)
