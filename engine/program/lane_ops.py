"""The ops of a lane after fusing: what one descriptor does, with buffers and tensors by name and no addresses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from engine.arch.spec import Act, DeltaShape, Norm, Rope, Routing, Temperature
from engine.arch.units import UnitId
from engine.graph.ops import Buffer
from engine.program.lane_latent import LaneHeads, LaneLatent, LaneLatentAttend, LaneLatentHeads, LaneLatentPosition
from engine.program.lane_transfer import (
    Choice,
    LaneChosen,
    LaneRecv,
    LaneSend,
    LaneTell,
    LaneTransfer,
    transfer_reads,
    transfer_writes,
)
from engine.program.pooling import PoolSplit


@dataclass(frozen=True, slots=True)
class Heads:
    """The shape of attention, what its rows see and what its softmax adds; see `engine.graph.ops.Attention`.

    q_step: values from query to query of a row, more than head_dim where gates lie behind each.
    """

    n_heads: int
    n_kv_heads: int
    head_dim: int
    v_dim: int
    scale: float
    q_step: int
    window: int | None = None
    sinks: str | None = None
    softcap: float = 0.0


@dataclass(frozen=True, slots=True)
class Source:
    """The input stage of linears: rows of x; gathered, merged from attention partials, or normed on the way.

    gate: with `merge`, the buffer of queries and gates whose gates multiply the merged heads.
    """

    x: Buffer
    gather: bool = False
    merge: Heads | None = None
    norm: Norm | None = None
    gate: Buffer | None = None

    @property
    def plain(self) -> bool:
        """Whether the rows are used as they lie."""
        return not self.gather and self.merge is None and self.norm is None

    @property
    def width(self) -> int:
        """Values per row after the stage."""
        return self.x.width if self.merge is None else self.merge.n_heads * self.merge.v_dim

    @property
    def inputs(self) -> tuple[Buffer, ...]:
        """The buffers that it reads."""
        return (self.x,) if self.gate is None else (self.x, self.gate)


@dataclass(frozen=True, slots=True)
class Turn:
    """Norm and rotation of the heads of queries or keys.

    whole: the norm is over all heads of a row at once; norm_last: it comes after the rotation; temperature: of queries.
    """

    norm: Norm | None
    rope: Rope | None
    whole: bool = False
    norm_last: bool = False
    temperature: Temperature | None = None


@dataclass(frozen=True, slots=True)
class Weight:
    """One matrix of a linear op and where its product goes. first: see `engine.graph.ops.Linear`."""

    weight: str
    bias: str | None
    out: Buffer
    first: int | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """What the workers of one node do of an op: rows [first, end) of each of its matrices, of LaneExpertsDown columns.

    Parts of one op run side by side. ranges: () where the op has no matrices.
    """

    node: int
    ranges: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class LaneEmbed:
    """out[r] = row token_ids[r] of weight, times scale."""

    unit: UnitId
    weight: str
    out: Buffer
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class LaneNorm:
    """out = norm of x over n_heads parts; add: out += it."""

    unit: UnitId
    x: Buffer
    out: Buffer
    norm: Norm
    n_heads: int
    out_rows: bool
    add: bool = False


@dataclass(frozen=True, slots=True)
class LanePrepare:
    """acts = the input stage of x for all workers, in every layout its linears read."""

    unit: UnitId
    source: Source
    acts: Buffer
    weights: tuple[str, ...]
    out_rows: bool
    slots: int = 1  # rows of the source per row of the step
    part: Part | None = None


@dataclass(frozen=True, slots=True)
class LaneLinear:
    """Products of one input. acts None: each worker runs the input stage for itself.

    epilogue: `store`, `add` into the one output, or the gated activation of weights 0 (gate) and 1 (up) into output 0.
    """

    unit: UnitId
    source: Source
    acts: Buffer | None
    weights: tuple[Weight, ...]
    epilogue: Literal["store", "add"] | Act
    out_rows: bool
    softcap: float = 0.0  # with `store`: softcap * tanh(product / softcap)
    part: Part | None = None


@dataclass(frozen=True, slots=True)
class LaneRoute:
    """scores = router x; then picks experts for every row. acts None: see LaneLinear.

    pool: the choice is also told apart by who computes it.
    """

    unit: UnitId
    source: Source
    acts: Buffer | None
    router: Weight
    choice: Choice
    routing: Routing
    out_rows: bool
    pool: PoolSplit | None = None


@dataclass(frozen=True, slots=True)
class LaneExpertsUp:
    """out = act(gate x) * up x * weight of the slot, a row a slot: n_used rows per row of the step, on the CPU grouped by expert.

    gate and up may name one tensor, see `engine.arch.spec.MoeFfn`. pooled: see `engine.graph.ops.Experts`.
    """

    unit: UnitId
    source: Source
    acts: Buffer | None
    gate: str
    up: str
    out: Buffer
    choice: Choice
    act: Act
    out_rows: bool
    gate_bias: str | None = None
    up_bias: str | None = None
    pooled: bool = False
    part: Part | None = None


@dataclass(frozen=True, slots=True)
class LaneExpertsDown:
    """out = the sum of down x over the slots of a row, or out += it. beside: another summand, times sigmoid(share) if set."""

    unit: UnitId
    source: Source
    acts: Buffer | None
    down: str
    out: Buffer
    choice: Choice
    add: bool
    out_rows: bool
    bias: str | None = None
    beside: Buffer | None = None
    share: Buffer | None = None
    pooled: bool = False
    part: Part | None = None


@dataclass(frozen=True, slots=True)
class LanePosition:
    """Turns queries and keys in place and stores keys and values; each part optional."""

    unit: UnitId
    layer: int
    q: Buffer | None
    k: Buffer | None
    v: Buffer | None
    heads: Heads
    turn_q: Turn
    turn_k: Turn
    store: bool


@dataclass(frozen=True, slots=True)
class LaneAttend:
    """Attention over the cache of `layer`. rows: decode, each row of another sequence; else tiles.

    position: on the CPU in decode, where it does itself what that says and leaves partials in out; None: LanePosition came before
    and out is the result. gate: the buffer of queries and gates whose gates multiply the result.
    """

    unit: UnitId
    layer: int
    q: Buffer
    out: Buffer
    heads: Heads
    rows: bool
    position: LanePosition | None
    gate: Buffer | None


@dataclass(frozen=True, slots=True)
class LaneDelta:
    """Gated DeltaNet of `layer`: see `engine.graph.ops.Delta`. rows: decode, a row a sequence; else chunks of rows."""

    unit: UnitId
    x: Buffer
    z: Buffer
    beta: Buffer
    alpha: Buffer
    out: Buffer
    conv: str
    dt: str
    a: str
    norm: Norm
    layer: int
    shape: DeltaShape
    rows: bool


@dataclass(frozen=True, slots=True)
class LaneAdd:
    """x += y, or x += sigmoid(share) * y. more: on the CPU another summand, with a factor of 1."""

    unit: UnitId
    x: Buffer
    y: Buffer
    out_rows: bool
    share: Buffer | None = None
    more: Buffer | None = None


@dataclass(frozen=True, slots=True)
class LaneGatedAct:
    """out = act(gate) * up."""

    unit: UnitId
    gate: Buffer
    up: Buffer
    out: Buffer
    act: Act
    out_rows: bool


@dataclass(frozen=True, slots=True)
class LaneRows:
    """out = the wanted rows of x."""

    unit: UnitId
    x: Buffer
    out: Buffer


LaneSpread = LanePrepare | LaneLinear | LaneExpertsUp | LaneExpertsDown
"""Ops that may be a part of one."""
LaneExperts = LaneRoute | LaneExpertsUp | LaneExpertsDown
LaneMixing = LanePosition | LaneAttend | LaneLatent | LaneDelta
LanePointwise = LaneEmbed | LaneNorm | LanePrepare | LaneAdd | LaneGatedAct | LaneRows
LaneOp = LanePointwise | LaneLinear | LaneExperts | LaneMixing | LaneTransfer


def matrices(op: LaneLinear | LaneExperts) -> tuple[str, ...]:
    """The tensors that the op multiplies its input with."""
    match op:
        case LaneLinear():
            return tuple(weight.weight for weight in op.weights)
        case LaneRoute():
            return (op.router.weight,)
        case LaneExpertsUp():
            return (op.gate, op.up)
        case LaneExpertsDown():
            return (op.down,)


def _inputs(op: LaneLinear | LaneExperts) -> tuple[Buffer, ...]:
    return op.source.inputs if op.acts is None else (op.acts,)


def reads(op: LaneOp) -> tuple[Buffer, ...]:
    """Buffers whose contents the op needs, those it changes in place included."""
    match op:
        case LaneEmbed():
            return ()
        case LaneNorm():
            return (op.x, op.out) if op.add else (op.x,)
        case LaneRows():
            return (op.x,)
        case LanePrepare():
            return op.source.inputs
        case LaneLinear():
            added = tuple(weight.out for weight in op.weights) if op.epilogue == "add" else ()
            return (*_inputs(op), *added)
        case LaneRoute():
            return _inputs(op)
        case LaneExpertsUp():
            return (*_inputs(op), *op.choice.buffers)
        case LaneExpertsDown():
            others = (op.out if op.add else None, op.beside, op.share)
            return (*_inputs(op), *op.choice.buffers, *(one for one in others if one is not None))
        case LanePosition():
            return tuple(buffer for buffer in (op.q, op.k, op.v) if buffer is not None)
        case LaneAttend():
            return (op.q, *(() if op.position is None else reads(op.position)), *(() if op.gate is None else (op.gate,)))
        case LaneHeads() | LaneLatentPosition() | LaneLatentAttend() | LaneLatentHeads():
            return op.read
        case LaneDelta():
            return (op.x, op.z, op.beta, op.alpha)
        case LaneAdd():
            return (op.x, op.y, *(one for one in (op.share, op.more) if one is not None))
        case LaneGatedAct():
            return (op.gate, op.up)
        case LaneSend() | LaneRecv() | LaneChosen() | LaneTell():
            return transfer_reads(op)


def writes(op: LaneOp) -> tuple[Buffer, ...]:
    """Buffers that the op fills or changes."""
    match op:
        case LaneRoute():
            pool = () if op.pool is None else (op.pool.here, op.pool.there)
            return (op.router.out, *op.choice.buffers, *pool)
        case (
            LaneEmbed()
            | LaneNorm()
            | LaneAttend()
            | LaneDelta()
            | LaneGatedAct()
            | LaneRows()
            | LaneExpertsUp()
            | LaneExpertsDown()
        ):
            return (op.out,)
        case LanePrepare():
            return (op.acts,)
        case LaneLinear():
            return tuple(weight.out for weight in op.weights[: None if op.epilogue in ("store", "add") else 1])
        case LanePosition():
            return tuple(buffer for buffer in (op.q, op.k) if buffer is not None)
        case LaneHeads() | LaneLatentPosition() | LaneLatentAttend() | LaneLatentHeads():
            return op.written
        case LaneAdd():
            return (op.x,)
        case LaneSend() | LaneRecv() | LaneChosen() | LaneTell():
            return transfer_writes(op)
