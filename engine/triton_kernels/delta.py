# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call, misc"
"""What the kernels of gated DeltaNet share, and the step of decode: convolution, gates, rule and norm of a head in one program.

A step reads the state of a sequence from one slot and writes it to another; a third may get it after some of the rows.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from engine.arch.spec import DeltaShape
from engine.triton_kernels.paged import LOG2E
from engine.triton_kernels.tensors import DeltaState, NormWeight, StepInputs


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
    x, z, beta, alpha, taps, dt, a, norm, inputs, matrices, positions, seqs, states, out, eps,
    x_row, z_row, beta_row, alpha_row, out_row, inputs_step, matrices_step,
    N_K: tl.constexpr, N_V: tl.constexpr, DIM: tl.constexpr, WIDE: tl.constexpr, TAPS: tl.constexpr, TILED: tl.constexpr,
    JOINED: tl.constexpr, PAIRED: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """One value head of one row, which is the only one of its sequence."""
    if EARLY:
        tl.extra.cuda.gdc_wait()
    head, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    use = states + tl.load(seqs + row) * 4
    source, target, mark = tl.load(use).to(tl.int64), tl.load(use + 1).to(tl.int64), tl.load(use + 2).to(tl.int64)
    before = tl.load(positions + row) > 0
    EACH: tl.constexpr = N_V // N_K
    CHANNELS: tl.constexpr = (2 * N_K + N_V) * DIM
    of, i, q_at, k_at, v_at, z_at, beta_at, alpha_at = places(head, N_K, EACH, DIM, TILED, JOINED, PAIRED)
    d = tl.arange(0, WIDE)
    mask = d < DIM
    past, own = inputs + source * inputs_step, x + row * x_row + d
    q_channel, k_channel, v_channel = of * DIM + d, (N_K + of) * DIM + d, (2 * N_K + head) * DIM + d
    q, q_own = _convolved(own + q_at, past, taps, q_channel, mask, before, TAPS, CHANNELS)
    k, k_own = _convolved(own + k_at, past, taps, k_channel, mask, before, TAPS, CHANNELS)
    v, v_own = _convolved(own + v_at, past, taps, v_channel, mask, before, TAPS, CHANNELS)
    q = q * tl.rsqrt(tl.sum(q * q, 0) + eps) * (DIM**-0.5)
    k = k * tl.rsqrt(tl.sum(k * k, 0) + eps)
    decay = tl.exp2(log_decay(tl.load(alpha + row * alpha_row + alpha_at), tl.load(dt + head), tl.load(a + head)))
    rate = sigmoid(tl.load(beta + row * beta_row + beta_at))

    at = head * DIM * DIM + d[:, None] * DIM + d[None, :]
    square = mask[:, None] & mask[None, :]
    matrix = tl.load(matrices + source * matrices_step + at, mask=square & before, other=0)
    # Both products are taken of the matrix as it was, so that it is gone through once.
    fresh = rate * (v - decay * tl.sum(matrix * k[:, None], 0))
    found = decay * tl.sum(matrix * q[:, None], 0) + tl.sum(k * q, 0) * fresh
    matrix = decay * matrix + k[:, None] * fresh[None, :]
    tl.store(matrices + target * matrices_step + at, matrix, mask=square)
    if mark >= 0:
        tl.store(matrices + mark * matrices_step + at, matrix, mask=square)
    for n in tl.static_range(2):
        slot = target if n == 0 else mark
        if slot >= 0:
            to = inputs + slot * inputs_step
            _remember(to, past, v_own, v_channel, mask, before, TAPS, CHANNELS)
            if i == 0:
                _remember(to, past, q_own, q_channel, mask, before, TAPS, CHANNELS)
                _remember(to, past, k_own, k_channel, mask, before, TAPS, CHANNELS)

    found = found * tl.rsqrt(tl.sum(found * found, 0) / DIM + eps) * tl.load(norm + d, mask=mask, other=0)
    gate = tl.load(z + row * z_row + z_at + d, mask=mask, other=0)
    tl.store(out + row * out_row + head * DIM + d, found * gate * sigmoid(gate), mask=mask)


def delta_step(
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
    warps: int = 4,
    early: bool = False,
) -> None:
    """Rows that are each of another sequence; see `engine.triton_kernels.kernels.Kernels.delta`."""
    _step[shape.n_v_heads, len(x)](
        x, z, beta, alpha, conv, dt, a, norm.weight, state.inputs, state.matrices, step.positions, step.seq_of_row, step.states,
        out, norm.eps, x.stride(0), z.stride(0), beta.stride(0), alpha.stride(0), out.stride(0), state.inputs.stride(0),
        state.matrices.stride(0),
        N_K=shape.n_k_heads, N_V=shape.n_v_heads, DIM=shape.dim, WIDE=triton.next_power_of_2(shape.dim), TAPS=shape.n_taps,
        TILED=shape.tiled, JOINED=shape.joined, PAIRED=shape.paired, EARLY=early, launch_pdl=early,
        num_warps=warps,
    )  # fmt: skip
