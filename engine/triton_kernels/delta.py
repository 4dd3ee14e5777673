# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call, misc"
"""What the kernels of gated DeltaNet share, and the step of decode: convolution, gates, rule and norm of a head in one program.

A step reads the state of a sequence from one slot and writes it to another; a third may get it after some of the rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import triton
import triton.language as tl
from torch import Tensor

from engine.arch.spec import DeltaShape
from engine.triton_kernels.paged import LOG2E
from engine.triton_kernels.tensors import DeltaState, NormWeight, StepInputs
from engine.triton_kernels.workspace import Workspace


@triton.jit
def places(
    head, N_K: tl.constexpr, EACH: tl.constexpr, DIM: tl.constexpr, TILED: tl.constexpr, JOINED: tl.constexpr,
    PAIRED: tl.constexpr,
):  # fmt: skip
    """(key head, which of its value heads, and where the head's query, key, values, gates, beta and alpha lie in their rows)."""
    if TILED:
        of, i = head % N_K, head // N_K
    else:
        of, i = head // EACH, head % EACH
    if JOINED:
        q = of * (2 + 2 * EACH) * DIM
        k, v, z = q + DIM, q + (2 + i) * DIM, q + (2 + EACH + i) * DIM
    else:
        q, k, v, z = of * DIM, (N_K + of) * DIM, (2 * N_K + head) * DIM, head * DIM
    if PAIRED:
        beta = of * 2 * EACH + i
        alpha = beta + EACH
    else:
        beta, alpha = head, head
    return of, i, q, k, v, z, beta, alpha


@triton.jit
def sigmoid(x):
    return 1 / (1 + tl.exp2(x * -LOG2E))


@triton.jit
def log_decay(alpha, dt, a):
    """min(0, a) softplus(alpha + dt), to base 2."""
    x = alpha + dt
    # log(1 + e^x) = max(x, 0) + log(1 + e^-|x|), which cannot overflow.
    return tl.minimum(a, 0) * (tl.maximum(x, 0) * LOG2E + tl.log2(1 + tl.exp2(-tl.abs(x) * LOG2E)))


@triton.jit
def _convolved(x, past, taps, channels, mask, before, TAPS: tl.constexpr, CHANNELS: tl.constexpr):
    """(silu of the convolution, the row's own inputs). past: inputs of the tokens before; before: whether there are any."""
    own = tl.load(x, mask=mask, other=0)
    y = own * tl.load(taps + (TAPS - 1) * CHANNELS + channels, mask=mask, other=0)
    for j in tl.static_range(TAPS - 1):
        seen = tl.load(past + j * CHANNELS + channels, mask=mask & before, other=0)
        y += seen * tl.load(taps + j * CHANNELS + channels, mask=mask, other=0)
    return y * sigmoid(y), own


@triton.jit
def _remember(to, past, own, channels, mask, before, TAPS: tl.constexpr, CHANNELS: tl.constexpr):
    """The inputs of the last TAPS - 1 tokens after one more."""
    for j in tl.static_range(TAPS - 2):
        moved = tl.load(past + (j + 1) * CHANNELS + channels, mask=mask & before, other=0)
        tl.store(to + j * CHANNELS + channels, moved, mask=mask)
    tl.store(to + (TAPS - 2) * CHANNELS + channels, own, mask=mask)


@triton.jit
def _step(
    x, z, beta, alpha, taps, dt, a, norm, inputs, matrices, positions, seqs, states, out,
    counters, eps,
    x_row, z_row, beta_row, alpha_row, out_row, inputs_step, matrices_step,
    N_K: tl.constexpr, N_V: tl.constexpr, DIM: tl.constexpr, WIDE: tl.constexpr, TAPS: tl.constexpr, TILED: tl.constexpr,
    JOINED: tl.constexpr, PAIRED: tl.constexpr, COLUMNS: tl.constexpr, SLICES: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """COLUMNS columns of one value head of one row, which is the only one of its sequence."""
    if EARLY:
        tl.extra.cuda.gdc_wait()
    head, slice, row = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    use = states + tl.load(seqs + row) * 4
    source, target, mark = tl.load(use).to(tl.int64), tl.load(use + 1).to(tl.int64), tl.load(use + 2).to(tl.int64)
    before = tl.load(positions + row) > 0
    EACH: tl.constexpr = N_V // N_K
    CHANNELS: tl.constexpr = (2 * N_K + N_V) * DIM
    of, i, q_at, k_at, v_at, z_at, beta_at, alpha_at = places(head, N_K, EACH, DIM, TILED, JOINED, PAIRED)
    d, c = tl.arange(0, WIDE), slice * COLUMNS + tl.arange(0, COLUMNS)
    mask, some = d < DIM, c < DIM
    past, own = inputs + source * inputs_step, x + row * x_row
    q_channel, k_channel, v_channel = of * DIM + d, (N_K + of) * DIM + d, (2 * N_K + head) * DIM + c
    q, q_own = _convolved(own + q_at + d, past, taps, q_channel, mask, before, TAPS, CHANNELS)
    k, k_own = _convolved(own + k_at + d, past, taps, k_channel, mask, before, TAPS, CHANNELS)
    v, v_own = _convolved(own + v_at + c, past, taps, v_channel, some, before, TAPS, CHANNELS)
    q = q * tl.rsqrt(tl.sum(q * q, 0) + eps) * (DIM**-0.5)
    k = k * tl.rsqrt(tl.sum(k * k, 0) + eps)
    decay = tl.exp2(log_decay(tl.load(alpha + row * alpha_row + alpha_at), tl.load(dt + head), tl.load(a + head)))
    rate = sigmoid(tl.load(beta + row * beta_row + beta_at))

    at = head * DIM * DIM + d[:, None] * DIM + c[None, :]
    part = mask[:, None] & some[None, :]
    matrix = tl.load(matrices + source * matrices_step + at, mask=part & before, other=0)
    # Both products are taken of the matrix as it was, so that it is gone through once.
    fresh = rate * (v - decay * tl.sum(matrix * k[:, None], 0))
    found = decay * tl.sum(matrix * q[:, None], 0) + tl.sum(k * q, 0) * fresh
    matrix = decay * matrix + k[:, None] * fresh[None, :]
    tl.store(matrices + target * matrices_step + at, matrix, mask=part)
    if mark >= 0:
        tl.store(matrices + mark * matrices_step + at, matrix, mask=part)
    for n in tl.static_range(2):
        slot = target if n == 0 else mark
        if slot >= 0:
            to = inputs + slot * inputs_step
            _remember(to, past, v_own, v_channel, some, before, TAPS, CHANNELS)
            if (i == 0) & (slice == 0):
                _remember(to, past, q_own, q_channel, mask, before, TAPS, CHANNELS)
                _remember(to, past, k_own, k_channel, mask, before, TAPS, CHANNELS)

    head_out = out + row * out_row + head * DIM
    tl.store(head_out + c, found, mask=some)
    # The norm is over all columns: the slice that ends last does it.
    tl.debug_barrier()
    counter = counters + row * N_V + head
    if tl.atomic_add(counter, 1, sem="acq_rel") == SLICES - 1:
        tl.store(counter, 0)
        whole = tl.load(head_out + d, mask=mask, other=0, cache_modifier=".cg")
        whole = whole * tl.rsqrt(tl.sum(whole * whole, 0) / DIM + eps) * tl.load(norm + d, mask=mask, other=0)
        gate = tl.load(z + row * z_row + z_at + d, mask=mask, other=0)
        tl.store(head_out + d, whole * gate * sigmoid(gate), mask=mask)


@dataclass(frozen=True, slots=True)
class StepConfig:
    """columns: of a matrix in a program."""

    columns: int = 32
    warps: int = 4


def delta_step(
    workspace: Workspace,
    config: StepConfig,
    step: StepInputs,
    x: Tensor,
    z: Tensor,
    beta: Tensor,
    alpha: Tensor,
    conv: Tensor,
    dt: Tensor,
    a: Tensor,
    norm: NormWeight,
    shape: DeltaShape,
    state: DeltaState,
    out: Tensor,
    *,
    early: bool = False,
) -> None:
    """Rows that are each of another sequence; see `engine.triton_kernels.kernels.Kernels.delta`."""
    wide = int(triton.next_power_of_2(shape.dim))
    columns = min(config.columns, wide)
    slices = -(-shape.dim // columns)
    counters = workspace.zeros("delta.counters", len(x) * shape.n_v_heads)
    _step[shape.n_v_heads, slices, len(x)](
        x, z, beta, alpha, conv, dt, a, norm.weight, state.inputs, state.matrices, step.positions, step.seq_of_row, step.states,
        out, counters, norm.eps, x.stride(0), z.stride(0), beta.stride(0), alpha.stride(0), out.stride(0), state.inputs.stride(0),
        state.matrices.stride(0),
        N_K=shape.n_k_heads, N_V=shape.n_v_heads, DIM=shape.dim, WIDE=wide, TAPS=shape.n_taps,
        TILED=shape.tiled, JOINED=shape.joined, PAIRED=shape.paired, COLUMNS=columns, SLICES=slices,
        EARLY=early, launch_pdl=early, num_warps=config.warps,
    )  # fmt: skip
