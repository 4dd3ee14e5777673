"""The ops of a lane that compute latent attention; `engine.arch.spec.Mla` has the mathematics, kernels_pyx/c/op.h the rest.

Absorbed, for decode and short chunks: `LaneHeads` brings queries to latent rows, `LaneLatentAttend` attends over them,
`LaneHeads` brings their sums to values. For long chunks `LaneLatentHeads` makes keys and values of each head on the way.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.arch.spec import HeadMatrices, Mla, Norm
from engine.arch.units import UnitId
from engine.graph.ops import Buffer

ABSORBED_ROWS = 128
"""Rows of a prefill chunk up to which the absorbed form is cheaper than making keys and values of the whole past."""


@dataclass(frozen=True, slots=True)
class LaneHeads:
    """out[r][h] = W_h x[r][h]. x_head, out_head: values from head to head; merge: x holds attention partials.

    sync False: the next op may begin meanwhile.
    """

    unit: UnitId
    x: Buffer
    out: Buffer
    matrices: HeadMatrices
    x_head: int
    out_head: int
    merge: bool = False
    sync: bool = True

    @property
    def read(self) -> tuple[Buffer, ...]:
        """Buffers whose contents are needed."""
        return (self.x,)

    @property
    def written(self) -> tuple[Buffer, ...]:
        """Buffers that are filled or changed."""
        return (self.out,)


@dataclass(frozen=True, slots=True)
class LaneLatentPosition:
    """Rotates the ends of the queries in place; norms, rotates and stores the latent rows."""

    unit: UnitId
    layer: int
    q: Buffer
    row: Buffer
    mla: Mla
    norm: Norm

    @property
    def read(self) -> tuple[Buffer, ...]:
        """Buffers whose contents are needed."""
        return (self.q, self.row)

    @property
    def written(self) -> tuple[Buffer, ...]:
        """Buffers that are filled or changed."""
        return (self.q,)


@dataclass(frozen=True, slots=True)
class LaneLatentAttend:
    """Attention of absorbed queries; out: n_heads sums of latent rows. rows: decode, on the CPU partials into out."""

    unit: UnitId
    layer: int
    absorbed: Buffer
    q: Buffer
    out: Buffer
    mla: Mla
    rows: bool

    @property
    def read(self) -> tuple[Buffer, ...]:
        """Buffers whose contents are needed."""
        return (self.absorbed, self.q)

    @property
    def written(self) -> tuple[Buffer, ...]:
        """Buffers that are filled or changed."""
        return (self.out,)


@dataclass(frozen=True, slots=True)
class LaneLatentHeads:
    """Attention with keys and values made on the way; out: the values of each head."""

    unit: UnitId
    layer: int
    q: Buffer
    out: Buffer
    mla: Mla

    @property
    def read(self) -> tuple[Buffer, ...]:
        """Buffers whose contents are needed."""
        return (self.q,)

    @property
    def written(self) -> tuple[Buffer, ...]:
        """Buffers that are filled or changed."""
        return (self.out,)


LaneLatent = LaneHeads | LaneLatentPosition | LaneLatentAttend | LaneLatentHeads


def lower_latent(
    unit: UnitId, layer: int, q: Buffer, row: Buffer, out: Buffer, mla: Mla, *, decode: bool, max_rows: int, partials: bool
) -> list[LaneLatent]:
    """What the store and the attention of a layer become, in the form that suits steps of up to max_rows rows.

    partials: the attention leaves those, and the last op merges them.
    """
    position = LaneLatentPosition(unit, layer, q, row, mla, mla.kv_norm)
    if not decode and max_rows > ABSORBED_ROWS:
        return [position, LaneLatentHeads(unit, layer, q, out, mla)]
    absorbed, sums = Buffer(f"{q.name}.absorbed", mla.n_heads * mla.rank), Buffer(f"{out.name}.latent", mla.n_heads * mla.rank)
    return [
        LaneHeads(unit, q, absorbed, mla.absorb, mla.head_dim, mla.rank, sync=False),
        position,
        LaneLatentAttend(unit, layer, absorbed, q, sums, mla, decode),
        LaneHeads(unit, sums, out, mla.v, mla.rank, mla.v.n_out, merge=partials),
    ]
