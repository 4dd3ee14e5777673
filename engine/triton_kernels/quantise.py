# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call, misc"
"""What linears multiply: rows that are gathered, normed, and stored as f32, as f16, and as 8-bit codes, in one launch."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from engine.triton_kernels.gemv import launched
from engine.triton_kernels.tensors import HALVED, Acts, NormWeight

_CHUNK = 1024  # values a program stores where no norm needs the whole row


@triton.jit
def codes_of(parts):
    """(codes [n, 32] f32, scales [n], sums of 16 codes times their scale [n, 2]) of n groups of 32 values; see `Acts`."""
    scale = tl.max(tl.abs(parts), 1) / 127.0
    inverse = 1.0 / tl.where(scale > 0.0, scale, 1.0)
    q = tl.floor(parts * inverse[:, None] + 0.5)
    return q, scale, tl.sum(tl.reshape(q, (parts.shape[0], 2, 16)), 2) * scale[:, None]


@triton.jit
def store_acts(
    y, values, halves, codes, scales, sums, row, begin,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, VALUES: tl.constexpr, HALVES: tl.constexpr, CODES: tl.constexpr,
    HALVED: tl.constexpr,
):  # fmt: skip
    """Stores y, BLOCK values of a row from `begin`, a multiple of 32, on, in every form that is wanted."""
    j = begin + tl.arange(0, BLOCK)
    inside = j < WIDTH
    if VALUES:
        tl.store(values + row * WIDTH + j, y, mask=inside)
    if HALVES:
        small = tl.minimum(tl.maximum(y / HALVED, -65504.0), 65504.0)
        tl.store(halves + row * WIDTH + j, small.to(tl.float16), mask=inside)
    if CODES:
        group = begin // 32 + tl.arange(0, BLOCK // 32)
        q, scale, total = codes_of(tl.reshape(y, (BLOCK // 32, 32)))
        tl.store(codes + row * WIDTH + j, tl.reshape(q, (BLOCK,)).to(tl.int8), mask=inside)
        tl.store(scales + row * (WIDTH // 32) + group, scale, mask=group < WIDTH // 32)
        at = sums + row * (WIDTH // 16) + group[:, None] * 2 + tl.arange(0, 2)[None, :]
        tl.store(at, total, mask=(group < WIDTH // 32)[:, None])


@triton.jit
def _prepare(
    x, rows, weight, values, halves, codes, scales, sums, x_step, eps,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, GATHER: tl.constexpr, NORM: tl.constexpr,
    VALUES: tl.constexpr, HALVES: tl.constexpr, CODES: tl.constexpr, EARLY: tl.constexpr, HALVED: tl.constexpr,
):  # fmt: skip
    """codes: x / scale, rounded, of 32 values with the scale max |x| / 127; sums: of 16 codes, times the scale.

    EARLY: launched before the launch before it has ended, whose end it waits for; that takes half a microsecond off the 2.0 that
    a row of 4096 takes on an H200.
    """
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = j < WIDTH
    if NORM:
        w = tl.load(weight + j, mask=inside, other=0.0)
    if EARLY:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()  # which may load weights meanwhile
    row = tl.program_id(0).to(tl.int64)
    source = tl.load(rows + row).to(tl.int64) if GATHER else row
    y = tl.load(x + source * x_step + j, mask=inside, other=0.0)
    if NORM:
        y = y * (1.0 / tl.sqrt_rn(tl.sum(y * y, 0) / WIDTH + eps)) * w
    begin = tl.program_id(1) * BLOCK
    store_acts(y, values, halves, codes, scales, sums, row, begin, WIDTH, BLOCK, VALUES, HALVES, CODES, HALVED)


def prepare(x: Tensor, acts: Acts, rows: Tensor | None, norm: NormWeight | None, *, early: bool = False) -> None:
    """Fills what acts has. early: the device can launch it before what is before it has ended."""
    n_rows, width = acts.shape
    block = triton.next_power_of_2(width) if norm is not None else min(_CHUNK, triton.next_power_of_2(width))
    given = [x if tensor is None else tensor for tensor in (acts.values, acts.halves, acts.codes, acts.scales, acts.sums)]
    _prepare[(n_rows, triton.cdiv(width, block))](
        x, x if rows is None else rows, x if norm is None else norm.weight, *given, x.stride(0),
        0.0 if norm is None else norm.eps, WIDTH=width, BLOCK=block, GATHER=rows is not None, NORM=norm is not None,
        VALUES=acts.values is not None, HALVES=acts.halves is not None, CODES=acts.codes is not None,
        EARLY=early, HALVED=HALVED, num_warps=max(1, min(16, block // 256)),
        **launched(early),
    )  # fmt: skip
