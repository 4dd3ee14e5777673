"""Which tensors of a file each unit reads, and how: what moving a unit moves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from engine.arch.units import UnitId, UnitKind
from engine.graph.ops import Attention as AttentionOp
from engine.graph.ops import Delta, Embed, Experts, Graph, LatentAttention, LatentStore, Linear, Norm, Op, Rope, Route

Use = Literal["matrix", "vector", "taps", "factors", "turned"]
"""`matrix`: multiplied as the file holds it; `vector`: read as f32; `taps`: the same, turned round, of a convolution; `factors`:
read once, for the table of a rotation; `turned`: read once, when a derived weight is made of it."""


@dataclass(frozen=True, slots=True)
class TensorUse:
    """A tensor by name, the unit that reads it, and how."""

    name: str
    unit: UnitId
    use: Use


def tensor_uses(graph: Graph) -> tuple[TensorUse, ...]:
    """Every use of a tensor, each once, in order of execution. A tied head reads the tensor of the embedding too."""
    found = (TensorUse(name, _owner(op.unit), use) for op in graph.ops for name, use in _of(op) if name is not None)
    return tuple(dict.fromkeys(found))


def _owner(unit: UnitId) -> UnitId:
    """Caches and states hold no tensors; what their ops read belongs to the mixer."""
    kinds: tuple[UnitKind, ...] = ("kv", "state")
    return UnitId("mixer", unit.layer) if unit.kind in kinds else unit


def _of(op: Op) -> Iterator[tuple[str | None, Use]]:
    match op:
        case Embed():
            yield op.weight, "matrix"
        case Norm():
            yield op.norm.weight, "vector"
        case Linear():
            yield from ((op.weight, "matrix"), (op.bias, "vector"))
        case Rope():
            yield op.rope.factors, "factors"
        case AttentionOp():
            yield op.sinks, "vector"
        case LatentStore():
            yield from ((op.norm.weight, "vector"), (op.rope.factors, "factors"))
        case LatentAttention():
            for part in (op.mla.absorb, op.mla.k, op.mla.v):
                yield part.weight, "turned" if part.transposed else "matrix"
        case Delta():
            yield op.conv, "taps"
            yield from ((name, "vector") for name in (op.dt, op.a, op.norm.weight))
        case Route():
            yield op.routing.bias, "vector"
        case Experts():
            yield from ((name, "matrix") for name in (op.gate, op.up, op.down))
            yield from ((name, "vector") for name in (op.gate_bias, op.up_bias, op.down_bias))
