# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call, misc"
"""Gated DeltaNet for chunks of rows (https://arxiv.org/abs/2412.06464, section 3.3), in four launches.

With G the sums of log decays within a chunk, D_ij = exp(G_i - G_j) for i >= j and M the matrix before it:
  A_ij = beta_i (k_i . k_j) D_ij below the diagonal, T = (I + A)^-1, U = T (beta v), W = T (beta exp(G) k)
  V' = U - W M, O = exp(G) Q M + (Q K^T * D) V', M = exp(G_n) M + (exp(G_n - G) K)^T V'
What needs no matrix is made for all chunks at once; then each slice of a matrix's columns goes through the chunks alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import triton
import triton.language as tl
from torch import Tensor

from engine.arch.spec import DeltaShape
from engine.triton_kernels.delta import log_decay, places, sigmoid
from engine.triton_kernels.paged import PRECISION, padded
from engine.triton_kernels.tensors import DeltaState, NormWeight, StepInputs
from engine.triton_kernels.workspace import Workspace

CHUNK = tl.constexpr(64)
ROWS = 16
"""Rows of a program of the convolution and of the norm."""


@triton.jit
def _segment(seqs, seq, n_rows, N_SEQS: tl.constexpr):
    """(first row, number of rows) of a sequence; its rows lie together."""
    first = seq * 0
    n = first + n_rows
    if N_SEQS > 1:
        first, n = n, first
        for start in range(0, n_rows, 256):
            row = start + tl.arange(0, 256)
            mine = tl.load(seqs + row, mask=row < n_rows, other=-1) == seq
            first = tl.minimum(first, tl.min(tl.where(mine, row, n_rows), 0))
            n += tl.sum(mine.to(tl.int32), 0)
    return first, n


@triton.jit
def _marks(states, seq):
    """(slot to read, to write, another or -1, rows before that)."""
    use = states + seq * 4
    mark = tl.load(use + 2)
    after = tl.where(mark >= 0, tl.load(use + 3), 0)
    return tl.load(use).to(tl.int64), tl.load(use + 1).to(tl.int64), mark.to(tl.int64), after


@triton.jit
def _chunk_rows(chunk, n, after):
    """(first row, end) of a chunk: a chunk ends where a mark lies."""
    before = tl.cdiv(after, CHUNK)
    late = chunk >= before
    first = tl.where(late, after + (chunk - before) * CHUNK, chunk * CHUNK)
    return first, tl.minimum(first + CHUNK, tl.where(late, n, after))


@triton.jit(do_not_specialize=["n_rows"])
def _convolve(
    x, taps, inputs, positions, seqs, states, y, n_rows, eps, x_row, inputs_step,
    N_SEQS: tl.constexpr, N_K: tl.constexpr, N_V: tl.constexpr, DIM: tl.constexpr, WIDE: tl.constexpr, TAPS: tl.constexpr,
    TILED: tl.constexpr, JOINED: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """y [n_rows, channels]: queries and keys of unit length, values; some rows of one head. And what states remember of it."""
    tile, slot, seq = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    EACH: tl.constexpr = N_V // N_K
    CHANNELS: tl.constexpr = (2 * N_K + N_V) * DIM
    first, n = _segment(seqs, seq, n_rows, N_SEQS)
    if tile * ROWS >= n:
        return
    source, target, mark, after = _marks(states, seq)
    begins = tl.load(positions + first) == 0
    head = tl.where(slot < 2 * N_K, 0, slot - 2 * N_K)
    _, _, _, _, v_at, _, _, _ = places(head, N_K, EACH, DIM, TILED, JOINED, False)
    at = slot * DIM
    if JOINED:
        at = tl.where(slot < N_K, slot * (2 + 2 * EACH) * DIM, (slot - N_K) * (2 + 2 * EACH) * DIM + DIM)
        at = tl.where(slot < 2 * N_K, at, v_at)
    t, d = tile * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDE)
    inside, channel = (t < n)[:, None] & (d < DIM)[None, :], slot * DIM + d
    from_x, past = x + first.to(tl.int64) * x_row + at, inputs + source * inputs_step + channel
    sums = tl.zeros([ROWS, WIDE], tl.float32)
    for j in tl.static_range(TAPS):
        token = t - (TAPS - 1) + j
        new, old = inside & (token >= 0)[:, None], inside & ((token < 0) & (not begins))[:, None]
        seen = tl.load(from_x + token.to(tl.int64)[:, None] * x_row + d[None, :], mask=new, other=0)
        seen += tl.load(past[None, :] + (TAPS - 1 + token)[:, None] * CHANNELS, mask=old, other=0)
        sums += seen * tl.load(taps + j * CHANNELS + channel, mask=d < DIM, other=0)[None, :]
    value = sums * sigmoid(sums)
    if slot < 2 * N_K:
        value = value * tl.rsqrt(tl.sum(value * value, 1) + eps)[:, None]
        value = value * tl.where(slot < N_K, DIM**-0.5, 1.0)
    tl.store(y + (first + t).to(tl.int64)[:, None] * CHANNELS + channel[None, :], value, mask=inside)
    if tile == 0:
        for j in tl.static_range(TAPS - 1):
            for which in tl.static_range(2):
                to, end = (target, n) if which == 0 else (mark, after)
                if to >= 0:
                    last = end - (TAPS - 1) + j
                    kept = tl.load(from_x + last.to(tl.int64) * x_row + d, mask=(d < DIM) & (last >= 0), other=0)
                    older = (d < DIM) & (last < 0) & (not begins)
                    kept += tl.load(past + (TAPS - 1 + last) * CHANNELS, mask=older, other=0)
                    tl.store(inputs + to * inputs_step + j * CHANNELS + channel, kept, mask=d < DIM)


@triton.jit(do_not_specialize=["n_rows"])
def _chunk(
    y, beta, alpha, dt, a, seqs, states, u, w, weigh, sums, n_rows, beta_row, alpha_row,
    N_SEQS: tl.constexpr, N_K: tl.constexpr, N_V: tl.constexpr, DIM: tl.constexpr, WIDE: tl.constexpr, TILED: tl.constexpr,
    PAIRED: tl.constexpr,
):  # fmt: skip
    """U, W, (Q K^T * D) and G of one chunk of one value head."""
    chunk, head, seq = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    EACH: tl.constexpr = N_V // N_K
    CHANNELS: tl.constexpr = (2 * N_K + N_V) * DIM
    first, n = _segment(seqs, seq, n_rows, N_SEQS)
    _, _, _, after = _marks(states, seq)
    begin, end = _chunk_rows(chunk, n, after)
    if begin >= n:
        return
    of, _, _, _, _, _, beta_at, alpha_at = places(head, N_K, EACH, DIM, TILED, False, PAIRED)
    i, d = tl.arange(0, CHUNK), tl.arange(0, WIDE)
    there = begin + i < end
    row = (first + begin + i).to(tl.int64)
    mask = there[:, None] & (d < DIM)[None, :]
    from_y = y + row[:, None] * CHANNELS + d[None, :]
    k = tl.load(from_y + (N_K + of) * DIM, mask=mask, other=0)
    fade = log_decay(tl.load(alpha + row * alpha_row + alpha_at, mask=there, other=0), tl.load(dt + head), tl.load(a + head))
    total = tl.cumsum(tl.where(there, fade, 0), 0)
    rate = tl.where(there, sigmoid(tl.load(beta + row * beta_row + beta_at, mask=there, other=0)), 0)
    lower = i[:, None] >= i[None, :]
    fades = tl.where(lower, tl.exp2(tl.where(lower, total[:, None] - total[None, :], 0)), 0)
    q = tl.load(from_y + of * DIM, mask=mask, other=0)
    dots = tl.dot(q, tl.trans(k), input_precision=PRECISION) * fades
    tl.store(weigh + (row * N_V + head)[:, None] * CHUNK + i[None, :], dots, mask=there[:, None])
    tl.store(sums + row * N_V + head, total, mask=there)
    below = tl.dot(k, tl.trans(k), input_precision=PRECISION) * fades * rate[:, None]
    below = tl.where(i[:, None] > i[None, :], below, 0)
    # The inverse of blocks on the diagonal, twice as large each time: [[L, 0], [B, L']]^-1 = [[L^-1, 0], [-L'^-1 B L^-1, L'^-1]].
    inverse = tl.where(i[:, None] == i[None, :], 1.0, 0.0)
    for power in range(6):  # not unrolled: it would take compilers minutes
        pair = (i[:, None] >> (power + 1)) == (i[None, :] >> (power + 1))
        pair = pair & ((i[:, None] >> power) != (i[None, :] >> power))
        part = tl.dot(tl.where(pair, below, 0), inverse, input_precision=PRECISION)
        inverse -= tl.dot(inverse, part, input_precision=PRECISION)
    at = (row * N_V + head)[:, None] * DIM + d[None, :]
    # Loaded again: there are no registers for it meanwhile.
    scaled = tl.load(from_y + (N_K + of) * DIM, mask=mask, other=0) * (rate * tl.exp2(total))[:, None]
    tl.store(w + at, tl.dot(inverse, scaled, input_precision=PRECISION), mask=mask)
    v = tl.load(from_y + (2 * N_K + head) * DIM, mask=mask, other=0) * rate[:, None]
    tl.store(u + at, tl.dot(inverse, v, input_precision=PRECISION), mask=mask)


@triton.jit(do_not_specialize=["n_rows"])
def _go(
    y, u, w, weigh, sums, matrices, positions, seqs, states, out, n_rows, out_row, matrices_step,
    N_SEQS: tl.constexpr, N_K: tl.constexpr, N_V: tl.constexpr, DIM: tl.constexpr, WIDE: tl.constexpr, COLUMNS: tl.constexpr,
    TILED: tl.constexpr,
):  # fmt: skip
    """COLUMNS columns of one matrix through all chunks of a sequence."""
    head, slice, seq = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    EACH: tl.constexpr = N_V // N_K
    CHANNELS: tl.constexpr = (2 * N_K + N_V) * DIM
    first, n = _segment(seqs, seq, n_rows, N_SEQS)
    if n == 0:
        return
    source, target, mark, after = _marks(states, seq)
    of, _, _, _, _, _, _, _ = places(head, N_K, EACH, DIM, TILED, False, False)
    i, d, c = tl.arange(0, CHUNK), tl.arange(0, WIDE), slice * COLUMNS + tl.arange(0, COLUMNS)
    at = head * DIM * DIM + d[:, None] * DIM + c[None, :]
    square = (d < DIM)[:, None] & (c < DIM)[None, :]
    before = tl.load(positions + first) > 0
    matrix = tl.load(matrices + source * matrices_step + at, mask=square & before, other=0)
    for chunk in range(tl.cdiv(after, CHUNK) + tl.cdiv(n - after, CHUNK)):
        begin, end = _chunk_rows(chunk, n, after)
        there = begin + i < end
        row = (first + begin + i).to(tl.int64)
        mask, part = there[:, None] & (d < DIM)[None, :], there[:, None] & (c < DIM)[None, :]
        place = row * N_V + head
        total = tl.load(sums + place, mask=there, other=0)
        last = tl.load(sums + (first + end - 1).to(tl.int64) * N_V + head)
        from_w = tl.load(w + place[:, None] * DIM + d[None, :], mask=mask, other=0)
        fresh = tl.load(u + place[:, None] * DIM + c[None, :], mask=part, other=0)
        fresh -= tl.dot(from_w, matrix, input_precision=PRECISION)
        q = tl.load(y + row[:, None] * CHANNELS + of * DIM + d[None, :], mask=mask, other=0)
        found = tl.dot(q, matrix, input_precision=PRECISION) * tl.exp2(total)[:, None]
        dots = tl.load(weigh + place[:, None] * CHUNK + i[None, :], mask=there[:, None], other=0)
        found = tl.dot(dots, fresh, found, input_precision=PRECISION)
        tl.store(out + row[:, None] * out_row + head * DIM + c[None, :], found, mask=part)
        k = tl.load(y + row[:, None] * CHANNELS + (N_K + of) * DIM + d[None, :], mask=mask, other=0)
        k = k * tl.where(there, tl.exp2(tl.where(there, last - total, 0)), 0)[:, None]
        matrix = tl.dot(tl.trans(k), fresh, matrix * tl.exp2(last), input_precision=PRECISION)
        if end == after:
            tl.store(matrices + mark * matrices_step + at, matrix, mask=square)
    tl.store(matrices + target * matrices_step + at, matrix, mask=square)


@triton.jit(do_not_specialize=["n_rows"])
def _norm(
    out, z, norm, n_rows, eps, out_row, z_row,
    N_K: tl.constexpr, N_V: tl.constexpr, DIM: tl.constexpr, WIDE: tl.constexpr, TILED: tl.constexpr, JOINED: tl.constexpr,
    ROWS: tl.constexpr,
):  # fmt: skip
    """One head of some rows, normed and gated in place."""
    head = tl.program_id(1)
    _, _, _, _, _, z_at, _, _ = places(head, N_K, N_V // N_K, DIM, TILED, JOINED, False)
    row, d = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64), tl.arange(0, WIDE)
    mask = (row < n_rows)[:, None] & (d < DIM)[None, :]
    at = out + row[:, None] * out_row + head * DIM + d[None, :]
    x = tl.load(at, mask=mask, other=0)
    x = x * tl.rsqrt(tl.sum(x * x, 1) / DIM + eps)[:, None] * tl.load(norm + d, mask=d < DIM, other=0)[None, :]
    gate = tl.load(z + row[:, None] * z_row + z_at + d[None, :], mask=mask, other=0)
    tl.store(at, x * gate * sigmoid(gate), mask=mask)


@dataclass(frozen=True, slots=True)
class ChunkConfig:
    """columns: of a matrix in a program; warps and stages: of those that go through the chunks."""

    columns: int = 32
    warps: int = 4
    stages: int = 1


def delta_chunks(
    workspace: Workspace,
    config: ChunkConfig,
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
) -> None:
    """Chunks of rows; see `engine.triton_kernels.kernels.Kernels.delta`."""
    n, n_v, dim, wide = len(x), shape.n_v_heads, shape.dim, padded(shape.dim)
    assert step.states is not None
    n_seqs, n_chunks = step.states.shape[0], -(-n // int(CHUNK.value)) + 1
    y = workspace.of("delta.y", (n, shape.n_channels))
    u, w = (workspace.of(name, (n, n_v, dim)) for name in ("delta.u", "delta.w"))
    weigh, sums = workspace.of("delta.weigh", (n, n_v, int(CHUNK.value))), workspace.of("delta.sums", (n, n_v))
    sizes = {"N_K": shape.n_k_heads, "N_V": n_v, "DIM": dim, "WIDE": wide, "TILED": shape.tiled}
    rows = triton.cdiv(n, ROWS)
    _convolve[rows, 2 * shape.n_k_heads + n_v, n_seqs](
        x, conv, state.inputs, step.positions, step.seq_of_row, step.states, y, n, norm.eps, x.stride(0), state.inputs.stride(0),
        N_SEQS=n_seqs, TAPS=shape.n_taps, JOINED=shape.joined, ROWS=ROWS, **sizes,
    )  # fmt: skip
    _chunk[n_chunks, n_v, n_seqs](
        y, beta, alpha, dt, a, step.seq_of_row, step.states, u, w, weigh, sums, n, beta.stride(0), alpha.stride(0),
        N_SEQS=n_seqs, PAIRED=shape.paired, num_warps=8, **sizes,
    )  # fmt: skip
    columns = min(config.columns, wide)
    _go[n_v, triton.cdiv(dim, columns), n_seqs](
        y, u, w, weigh, sums, state.matrices, step.positions, step.seq_of_row, step.states, out, n, out.stride(0),
        state.matrices.stride(0), N_SEQS=n_seqs, COLUMNS=columns, num_warps=config.warps, num_stages=config.stages, **sizes,
    )  # fmt: skip
    _norm[rows, n_v](
        out, z, norm.weight, n, norm.eps, out.stride(0), z.stride(0), JOINED=shape.joined, ROWS=ROWS, **sizes
    )  # fmt: skip
