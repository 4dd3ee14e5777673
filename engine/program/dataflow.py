"""Who reads what among the ops of a graph: names for each value, and rows dropped as soon as nobody wants them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from engine.graph.ops import (
    Add,
    Attention,
    Buffer,
    Delta,
    Embed,
    Experts,
    GatedAct,
    KvStore,
    LatentAttention,
    LatentStore,
    Linear,
    Norm,
    Op,
    OutRows,
    Rope,
    Route,
    SigmoidGate,
    Split,
)
from engine.program.lane_transfer import LaneRecv, LaneSend
from engine.program.pooling import PoolSplit

LaneInput = Op | PoolSplit | LaneSend | LaneRecv
"""What the ops of a lane are made from."""

_INPUTS = ("x", "y", "z", "k", "v", "q", "gate", "up", "share", "beta", "alpha")
"""Fields of ops that name what they read."""


def rows_early(ops: Sequence[Op]) -> Sequence[Op]:
    """Drops the unwanted rows before the last feed-forward part, after which nobody reads them."""
    pick = next((i for i, op in enumerate(ops) if isinstance(op, OutRows)), None)
    attentions = [i for i, op in enumerate(ops) if isinstance(op, Attention | LatentAttention | Delta)]
    if pick is None or not attentions or attentions[-1] > pick:
        return ops
    rows = ops[pick]
    assert isinstance(rows, OutRows)
    joined = [i for i in range(attentions[-1], pick) if isinstance(op := ops[i], Add) and op.x == rows.x]
    if len(joined) < 2:
        return ops
    after = joined[0] + 1
    known = {rows.x}
    for op in ops[after:pick]:
        if not known.issuperset(reads(op)):
            return ops  # something of before is read, with all rows
        known |= {buffer for name in ("out", "chosen", "weights") if isinstance(buffer := getattr(op, name, None), Buffer)}
    later: list[Op] = []
    for op in ops[after:pick]:
        changes: dict[str, Any] = {name: rows.out for name in ("x", "out") if getattr(op, name, None) == rows.x}
        later.append(replace(op, **changes))
    return (*ops[:after], rows, *later, *ops[pick + 1 :])


def reads(op: LaneInput) -> tuple[Buffer, ...]:
    """The buffers that an op reads, those it changes in place included."""
    match op:
        case LaneSend():
            return op.buffers
        case LaneRecv():
            return ()
        case PoolSplit():
            return (op.chosen,)
        case Embed():
            return ()
        case Norm() | Linear() | Rope() | OutRows() | Route() | LatentStore() | Split():
            return (op.x,)
        case SigmoidGate():
            return (op.x, op.gate)
        case Delta():
            return (op.x, op.z, op.beta, op.alpha)
        case Experts():
            return (op.x, op.chosen, op.weights)
        case KvStore():
            return (op.k, op.v)
        case Attention() | LatentAttention():
            return (op.q,)
        case GatedAct():
            return (op.gate, op.up)
        case Add():
            return (op.x, op.y, *(() if op.share is None else (op.share,)))


def writes(op: Op | PoolSplit) -> tuple[Buffer, ...]:
    """The buffers that an op fills or changes."""
    match op:
        case PoolSplit():
            return (op.here, op.there)
        case Route():
            return (op.chosen, op.weights)
        case Split():
            return (op.first, op.second)
        case Rope() | Add():
            return (op.x,)
        case KvStore() | LatentStore():
            return ()
        case _:
            return (op.out,)


def substitute(op: Op | PoolSplit, names: Mapping[str, str]) -> Op | PoolSplit:
    """The op with other names for some of its buffers."""
    changes: dict[str, Any] = {}
    for name in _names_of(op):
        buffer = getattr(op, name)
        if isinstance(buffer, Buffer) and buffer.name in names:
            changes[name] = Buffer(names[buffer.name], buffer.width)
    return replace(op, **changes) if changes else op


def _names_of(op: Op | PoolSplit) -> tuple[str, ...]:
    """The fields of an op: which ones a kind has is looked up once."""
    known = _FIELDS.get(type(op).__name__)
    if known is None:
        known = _FIELDS[type(op).__name__] = tuple(field.name for field in fields(op))
    return known


_FIELDS: dict[str, tuple[str, ...]] = {}


def rename(ops: Sequence[Op]) -> tuple[list[Op], dict[str, Buffer]]:
    """Gives each definition of a buffer a name of its own; an op that changes a buffer in place keeps its name."""
    current: dict[str, Buffer] = {}
    renamed: list[Op] = []
    for i, op in enumerate(ops):
        changes: dict[str, Any] = {}
        for field in (*_INPUTS, *(("chosen", "weights") if isinstance(op, Experts) else ())):
            buffer = getattr(op, field, None)
            if isinstance(buffer, Buffer):
                changes[field] = current[buffer.name]
        defined = {}
        for field in ("out", "first", "second", *(("chosen", "weights") if isinstance(op, Route) else ())):
            out = getattr(op, field, None)
            if isinstance(out, Buffer):
                in_place = isinstance(op, Norm) and op.x.name == out.name
                defined[out.name] = changes[field] = current[out.name] if in_place else Buffer(f"{out.name}.{i}", out.width)
        renamed.append(replace(op, **changes))
        current |= defined
    return renamed, current
