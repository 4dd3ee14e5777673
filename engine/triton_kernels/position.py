# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call, misc"
"""What stands between projections and attention, in one launch: heads are normed, turned and scaled, keys and values stored.

A program has some heads of one row, as a tile [heads, width]. A value and the one it is turned with come from two loads of the
same tile, so that nothing is moved between threads.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from engine.arch.spec import Mla, RopeKind
from engine.program.lane_ops import Heads, Turn
from engine.triton_kernels.paged import Q8_0, Pages, kind_of
from engine.triton_kernels.tensors import Cache, NormWeight, StepInputs

ROUND = tl.constexpr(12582912.0)
"""1.5 * 2^23: added and taken away again it rounds small numbers to the nearest whole one, halves to even."""


@triton.jit
def turned(
    x, at, there, head, position, norm, eps, table,
    WIDTH: tl.constexpr, WIDE: tl.constexpr, NORMED: tl.constexpr, COUNT: tl.constexpr, WHOLE: tl.constexpr,
    LAST: tl.constexpr, ROT_FROM: tl.constexpr, N_ROT: tl.constexpr, NEOX: tl.constexpr,
):  # fmt: skip
    """[heads, WIDE]: the WIDTH values of each head (head h at x + at[h]), normed and turned.

    NORMED: the values that the norm is over, 0 = no norm; COUNT: that many in all; WHOLE: over all heads, with a weight for each;
    LAST: after the rotation, which is of N_ROT values from ROT_FROM on.
    """
    d = tl.arange(0, WIDE)
    mask = there[:, None] & (d < WIDTH)[None, :]
    value = tl.load(x + at[:, None] + d[None, :], mask=mask, other=0)
    factor = tl.full([at.shape[0], 1], 1.0, tl.float32)
    if NORMED and not LAST:
        factor = _factor(value, d, eps, NORMED, COUNT, WHOLE)
        value = _weighed(value, factor, norm, head, d, d, mask, WIDTH, NORMED, WHOLE)
    if N_ROT:
        j = d - ROT_FROM
        rotates = (j >= 0) & (j < N_ROT)
        if NEOX:
            begins = j < N_ROT // 2
            angle = tl.where(begins, j, j - N_ROT // 2)
            partner = tl.where(begins, d + N_ROT // 2, d - N_ROT // 2)
        else:
            begins = j % 2 == 0
            angle = j // 2
            partner = tl.where(begins, d + 1, d - 1)
        turning = mask & rotates[None, :]
        other = tl.load(x + at[:, None] + partner[None, :], mask=turning, other=0)
        if NORMED and not LAST:
            other = _weighed(other, factor, norm, head, partner, d, turning, WIDTH, NORMED, WHOLE)
        row = table + position.to(tl.int64) * N_ROT
        cosine = tl.load(row + angle, mask=rotates, other=1)[None, :]
        sine = tl.load(row + N_ROT // 2 + angle, mask=rotates, other=0)[None, :]
        value = value * cosine + tl.where(begins[None, :], -other, other) * sine
    if NORMED and LAST:
        factor = _factor(value, d, eps, NORMED, COUNT, WHOLE)
        value = _weighed(value, factor, norm, head, d, d, mask, WIDTH, NORMED, WHOLE)
    return value


@triton.jit
def _factor(value, d, eps, NORMED: tl.constexpr, COUNT: tl.constexpr, WHOLE: tl.constexpr):
    """1 / the root of the mean square, [heads, 1]."""
    squares = tl.sum(tl.where((d < NORMED)[None, :], value * value, 0), 1)
    if WHOLE:
        squares = tl.zeros([value.shape[0]], tl.float32) + tl.sum(squares, 0)
    return tl.rsqrt(squares / COUNT + eps)[:, None]


@triton.jit
def _weighed(value, factor, norm, head, source, d, mask, WIDTH: tl.constexpr, NORMED: tl.constexpr, WHOLE: tl.constexpr):
    """value, which lies at `source` of its head, times factor and weight; values that the norm is not over stay."""
    inside = mask & (source < NORMED)[None, :]
    at = tl.where(WHOLE, head, 0)[:, None] * WIDTH + source[None, :]
    return tl.where(inside, value * factor * tl.load(norm + at, mask=inside, other=0), value)


@triton.jit
def stored(
    pool, scales, value, place, scale_place, there,
    WIDTH: tl.constexpr, WIDE: tl.constexpr, KIND: tl.constexpr, GROUPS: tl.constexpr,
):  # fmt: skip
    """Puts value [heads, WIDE] into the cache at place [heads]; 8-bit codes as the CPU kernels round them."""
    d = tl.arange(0, WIDE)
    mask = there[:, None] & (d < WIDTH)[None, :]
    if KIND < Q8_0:
        tl.store(pool + place[:, None] + d[None, :], value.to(pool.dtype.element_ty), mask=mask)
    else:
        SIZE: tl.constexpr = 32 if KIND == Q8_0 and WIDE > 32 else WIDE
        g, i = tl.arange(0, WIDE // SIZE), tl.arange(0, SIZE)
        x = tl.reshape(tl.where(mask, value, 0), [value.shape[0], WIDE // SIZE, SIZE])
        size = tl.abs(x)
        largest = tl.max(size, 2)
        finite = tl.min((size <= 3e38).to(tl.int32), 2) == 1
        scale = tl.where(finite, tl.div_rn(largest, 127.0), float("nan")).to(tl.float16)
        divisor = scale.to(tl.float32)
        factor = tl.where(divisor > 0, tl.div_rn(1.0, tl.where(divisor > 0, divisor, 1.0)), 0.0)
        code = tl.minimum(tl.maximum(tl.where(size <= 3e38, x, 0) * factor[:, :, None], -127.0), 127.0)
        code = tl.where(finite[:, :, None], (code + ROUND) - ROUND, 0.0).to(tl.int8)
        at = (g[:, None] * SIZE + i[None, :])[None, :, :]
        tl.store(pool + place[:, None, None] + at, code, mask=there[:, None, None] & (at < WIDTH))
        tl.store(scales + scale_place[:, None] + g[None, :], scale, mask=there[:, None] & (g < GROUPS)[None, :])


@triton.jit
def own_block(tables, seqs, row, position, table_row, BLOCK: tl.constexpr):
    """The block of a row's own position, int64."""
    return tl.load(tables + tl.load(seqs + row).to(tl.int64) * table_row + position // BLOCK).to(tl.int64)


@triton.jit
def _position(
    q, k, v, norm_q, norm_k, table, q_scale, keys, values, k_scales, v_scales, positions, seqs, tables, eps_q, eps_k, q_row,
    k_row, v_row, table_row, k_step, v_step, ks_step, vs_step,
    N_HEADS: tl.constexpr, KV_HEADS: tl.constexpr, Q_STEP: tl.constexpr, HEAD_DIM: tl.constexpr, HEAD_WIDE: tl.constexpr,
    V_DIM: tl.constexpr, V_WIDE: tl.constexpr, BLOCK: tl.constexpr, Q_PARTS: tl.constexpr, Q_HEADS: tl.constexpr,
    K_HEADS: tl.constexpr, N_ROT: tl.constexpr, NEOX: tl.constexpr, ROPE_Q: tl.constexpr, ROPE_K: tl.constexpr,
    NORM_Q: tl.constexpr, NORM_K: tl.constexpr, WHOLE: tl.constexpr, LAST: tl.constexpr, SCALED: tl.constexpr,
    HAS_K: tl.constexpr, STORE_K: tl.constexpr, STORE_V: tl.constexpr, K_KIND: tl.constexpr, V_KIND: tl.constexpr,
    K_GROUPS: tl.constexpr, V_GROUPS: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """Q_HEADS query heads or K_HEADS KV heads of one row."""
    if EARLY:
        tl.extra.cuda.gdc_wait()
    part, row = tl.program_id(0), tl.program_id(1)
    position = tl.load(positions + row)
    if Q_PARTS:  # noqa: SIM102 - what is not there must not be compiled
        if part < Q_PARTS:
            head = part * Q_HEADS + tl.arange(0, Q_HEADS)
            there, at, d = head < N_HEADS, head * Q_STEP, tl.arange(0, HEAD_WIDE)
            x = q + row.to(tl.int64) * q_row
            value = turned(
                x, at, there, head, position, norm_q, eps_q, table, HEAD_DIM, HEAD_WIDE, HEAD_DIM if NORM_Q else 0,
                N_HEADS * HEAD_DIM if WHOLE else HEAD_DIM, WHOLE, LAST, 0, N_ROT if ROPE_Q else 0, NEOX,
            )  # fmt: skip
            if SCALED:
                value = value * tl.load(q_scale + position)
            tl.debug_barrier()  # partners are read before they are written
            tl.store(x + at[:, None] + d[None, :], value, mask=there[:, None] & (d < HEAD_DIM)[None, :])
    if HAS_K or STORE_V:  # noqa: SIM102
        if part >= Q_PARTS:
            head = (part - Q_PARTS) * K_HEADS + tl.arange(0, K_HEADS)
            there, at, d = head < KV_HEADS, head * HEAD_DIM, tl.arange(0, HEAD_WIDE)
            slot = head * BLOCK + position % BLOCK
            if STORE_K or STORE_V:
                block = own_block(tables, seqs, row, position, table_row, BLOCK)
            if HAS_K:
                x = k + row.to(tl.int64) * k_row
                value = turned(
                    x, at, there, head, position, norm_k, eps_k, table, HEAD_DIM, HEAD_WIDE, HEAD_DIM if NORM_K else 0,
                    KV_HEADS * HEAD_DIM if WHOLE else HEAD_DIM, WHOLE, LAST, 0, N_ROT if ROPE_K else 0, NEOX,
                )  # fmt: skip
                tl.debug_barrier()
                tl.store(x + at[:, None] + d[None, :], value, mask=there[:, None] & (d < HEAD_DIM)[None, :])
                if STORE_K:
                    place, scale_place = block * k_step + slot * HEAD_DIM, block * ks_step + slot * K_GROUPS
                    stored(keys, k_scales, value, place, scale_place, there, HEAD_DIM, HEAD_WIDE, K_KIND, K_GROUPS)
            if STORE_V:
                d = tl.arange(0, V_WIDE)
                mask = there[:, None] & (d < V_DIM)[None, :]
                value = tl.load(v + row.to(tl.int64) * v_row + head[:, None] * V_DIM + d[None, :], mask=mask, other=0)
                place, scale_place = block * v_step + slot * V_DIM, block * vs_step + slot * V_GROUPS
                stored(values, v_scales, value, place, scale_place, there, V_DIM, V_WIDE, V_KIND, V_GROUPS)


@triton.jit
def _latent_position(
    q, x, norm, table, pool, scales, positions, seqs, tables, eps, q_row, x_row, table_row, step, scale_step,
    N_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, RANK: tl.constexpr, N_ROT: tl.constexpr, NEOX: tl.constexpr,
    ROT_WIDE: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr, PARTS: tl.constexpr, TOGETHER: tl.constexpr,
    KIND: tl.constexpr, GROUPS: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """The ends of TOGETHER query heads of one row, or its latent row."""
    if EARLY:
        tl.extra.cuda.gdc_wait()
    part, row = tl.program_id(0), tl.program_id(1)
    position = tl.load(positions + row)
    if part < PARTS:
        head, d = part * TOGETHER + tl.arange(0, TOGETHER), tl.arange(0, ROT_WIDE)
        there, at = head < N_HEADS, head * HEAD_DIM + HEAD_DIM - N_ROT
        ends = q + row.to(tl.int64) * q_row
        value = turned(ends, at, there, head, position, norm, eps, table, N_ROT, ROT_WIDE, 0, 1, False, False, 0, N_ROT, NEOX)
        tl.debug_barrier()
        tl.store(ends + at[:, None] + d[None, :], value, mask=there[:, None] & (d < N_ROT)[None, :])
    else:
        one, width = tl.arange(0, 1), RANK + N_ROT
        latent = turned(
            x + row.to(tl.int64) * x_row, one, one == 0, one, position, norm, eps, table, RANK + N_ROT, WIDE, RANK, RANK,
            False, False, RANK, N_ROT, NEOX,
        )  # fmt: skip
        block, slot = own_block(tables, seqs, row, position, table_row, BLOCK), one + position % BLOCK
        place, scale_place = block * step + slot * width, block * scale_step + slot * GROUPS
        stored(pool, scales, latent, place, scale_place, one == 0, RANK + N_ROT, WIDE, KIND, GROUPS)


def _per_program(n_rows: int, n_heads: int, width: int) -> int:
    """Heads of one program: one in decode, where programs are few, more where there are rows enough to fill the device."""
    return 1 if n_rows * n_heads <= 2048 else max(1, min(n_heads, 512 // width))


def _step_of(scales: Tensor | None) -> int:
    return 0 if scales is None else scales.stride(0)


def _groups_of(scales: Tensor | None) -> int:
    return 0 if scales is None else scales.shape[-1]


def _wide(n: int) -> int:
    return int(triton.next_power_of_2(n))


def position(
    step: StepInputs,
    q: Tensor | None,
    k: Tensor | None,
    v: Tensor | None,
    heads: Heads,
    turn_q: Turn,
    turn_k: Turn,
    norm_q: NormWeight | None,
    norm_k: NormWeight | None,
    rope_table: Tensor | None,
    q_scale: Tensor | None,
    cache: Cache | None,
    *,
    early: bool = False,
) -> None:
    """See `engine.triton_kernels.kernels.Kernels.position`. early: see `DecodeConfig`."""
    given = next(x for x in (q, k, v) if x is not None)
    whole, last = (getattr(turn_q, name) or getattr(turn_k, name) for name in ("whole", "norm_last"))
    rope, wide, v_wide = turn_q.rope or turn_k.rope, _wide(heads.head_dim), _wide(heads.v_dim)
    q_heads, k_heads = (
        _wide(n) if whole else _wide(_per_program(len(given), n, wide)) for n in (heads.n_heads, heads.n_kv_heads)
    )
    q_parts = 0 if q is None else -(-heads.n_heads // q_heads)
    k_parts = 0 if k is None and v is None else -(-heads.n_kv_heads // k_heads)
    values = None if cache is None or v is None else cache.values
    keys = None if cache is None or k is None else cache.keys
    k_scales, v_scales = (None, None) if cache is None else (cache.k_scales, cache.v_scales)
    tables = step.block_tables[0 if cache is None else cache.group]
    block = 1 if cache is None else cache.keys.shape[2]
    largest = max(q_heads if q_parts else 0, k_heads) * max(wide, v_wide)
    _position[q_parts + k_parts, len(given)](
        q, k, v, None if norm_q is None else norm_q.weight, None if norm_k is None else norm_k.weight, rope_table, q_scale,
        keys, values, k_scales, v_scales, step.positions, step.seq_of_row, tables, 0.0 if norm_q is None else norm_q.eps,
        0.0 if norm_k is None else norm_k.eps, 0 if q is None else q.stride(0), 0 if k is None else k.stride(0),
        0 if v is None else v.stride(0), tables.stride(0), 0 if keys is None else keys.stride(0),
        0 if values is None else values.stride(0), _step_of(k_scales), _step_of(v_scales),
        N_HEADS=heads.n_heads, KV_HEADS=heads.n_kv_heads, Q_STEP=heads.q_step, HEAD_DIM=heads.head_dim, HEAD_WIDE=wide,
        V_DIM=heads.v_dim, V_WIDE=v_wide, BLOCK=block, Q_PARTS=q_parts, Q_HEADS=q_heads, K_HEADS=k_heads,
        N_ROT=0 if rope_table is None else rope_table.shape[1], NEOX=rope is not None and rope.kind == "neox",
        ROPE_Q=turn_q.rope is not None, ROPE_K=turn_k.rope is not None, NORM_Q=norm_q is not None, NORM_K=norm_k is not None,
        WHOLE=whole, LAST=last, SCALED=q_scale is not None, HAS_K=k is not None, STORE_K=keys is not None,
        STORE_V=values is not None, K_KIND=0 if keys is None else kind_of(keys, k_scales),
        V_KIND=0 if values is None else kind_of(values, v_scales), K_GROUPS=_groups_of(k_scales),
        V_GROUPS=_groups_of(v_scales), EARLY=early, launch_pdl=early,
        num_warps=max(1, min(8, largest // 256)),
    )  # fmt: skip


def latent_position(
    step: StepInputs,
    q: Tensor,
    row: Tensor,
    norm: NormWeight,
    rope_table: Tensor,
    mla: Mla,
    cache: Cache,
    *,
    early: bool = False,
) -> None:
    """See `engine.triton_kernels.kernels.Kernels.latent_position`. early: see `DecodeConfig`."""
    kind: RopeKind = mla.rope.kind
    pages, wide = Pages(cache, step), _wide(mla.latent)
    together = _wide(max(1, min(mla.n_heads, 512 // mla.rope.n_rot)))
    parts = -(-mla.n_heads // together)
    _latent_position[parts + 1, len(q)](
        q, row, norm.weight, rope_table, cache.keys, cache.k_scales, step.positions, step.seq_of_row, pages.table, norm.eps,
        q.stride(0), row.stride(0), pages.table.stride(0), cache.keys.stride(0), _step_of(cache.k_scales),
        N_HEADS=mla.n_heads, HEAD_DIM=mla.head_dim, RANK=mla.rank, N_ROT=mla.rope.n_rot, NEOX=kind == "neox",
        ROT_WIDE=_wide(mla.rope.n_rot), WIDE=wide, BLOCK=pages.block, PARTS=parts, TOGETHER=together,
        KIND=kind_of(cache.keys, cache.k_scales), GROUPS=_groups_of(cache.k_scales), EARLY=early, launch_pdl=early,
        num_warps=max(1, min(8, wide // 256)),
    )  # fmt: skip
