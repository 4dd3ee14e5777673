"""What a Placement of ours does otherwise than another tool would: a sentence for all layers that differ in the same way."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from engine.arch.units import UnitId


@dataclass(frozen=True, slots=True)
class Difference:
    """`what` of a unit lies on the device `theirs` with the other tool, and on `ours` here; both by the tool's names."""

    what: str
    unit: UnitId
    theirs: str
    ours: str


_WITH = {
    "experts": "as all experts of a layer",
    "shared": "as the whole shared expert",
    "ffn": "as the whole feed-forward part",
    "mixer": "as the whole attention",
    "head": "as the whole output",
    "kv": "as the attention that reads it",
    "state": "as the layer that reads it",
}


def sentences(found: Iterable[Difference]) -> tuple[str, ...]:
    """One sentence for each way to differ, with the layers it is about."""
    layers: dict[tuple[str, str, str, str], list[int]] = {}
    for one in found:
        layers.setdefault((one.what, one.unit.kind, one.theirs, one.ours), []).append(one.unit.layer)
    return tuple(_sentence(*key, sorted(set(which))) for key, which in layers.items())


def _sentence(what: str, kind: str, theirs: str, ours: str, layers: list[int]) -> str:
    if what == "a cache of":
        return f"a cache of type {theirs} is not known here: {ours} is used"
    if layers == [-1]:
        return f"{what} the model: {theirs} there, {ours} here, {_WITH.get(kind, 'as the whole unit')}"
    return f"{what} {layer_list(layers)}: {theirs} there, {ours} here, {_WITH.get(kind, 'as the whole unit')}"


def layer_list(layers: Iterable[int]) -> str:
    """Layers as people write them: `layer 3`, `layers 0-2, 5`."""
    order = sorted(set(layers))
    starts = [order[0], *(b for a, b in pairwise(order) if b != a + 1)]
    ends = [*(a for a, b in pairwise(order) if b != a + 1), order[-1]]
    parts = [f"{a}" if a == b else f"{a}-{b}" for a, b in zip(starts, ends, strict=True)]
    return f"{'layer' if len(order) == 1 else 'layers'} {', '.join(parts)}"
