"""Cards: what the placement board shows of a model, one frozen row for each unit and each set of hot experts.

They are made by the desk from an outline and a placement; item models sort and group them, delegates paint them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from app.i18n import filled, tr
from engine.api.pure import Device, Gpu, UnitId

Kind = Literal["attention", "ffn", "experts", "kv"]
"""By the colours of the board."""
Family = Literal["embed", "attention", "recurrent", "kv", "state", "dense", "router", "shared", "head", "experts", "hot"]
"""Cards of one family stand together in a column and form ranges of layers."""

ORDER: tuple[Family, ...] = (
    "attention",
    "recurrent",
    "kv",
    "state",
    "dense",
    "router",
    "shared",
    "embed",
    "head",
    "hot",
    "experts",
)
"""Of the families in a column."""
KINDS: Mapping[Family, Kind] = {
    "embed": "ffn",
    "attention": "attention",
    "recurrent": "attention",
    "kv": "kv",
    "state": "kv",
    "dense": "ffn",
    "router": "ffn",
    "shared": "ffn",
    "head": "ffn",
    "experts": "experts",
    "hot": "experts",
}


@dataclass(frozen=True, slots=True, order=True)
class HotSet:
    """The copies of some experts of a layer on a GPU, beside the whole set that stays at its home."""

    layer: int
    gpu: Gpu

    def __str__(self) -> str:
        return f"hot.{self.layer}.{self.gpu}"


CardId = UnitId | HotSet


@dataclass(frozen=True, slots=True)
class Card:
    """One thing that can be moved.

    nbytes: what it takes; n_hot, hot_bytes: how many of its experts are chosen to be moved on their own, and their bytes, or of a
    hot set what it holds. heat: how often each expert was chosen, 0..255 of the busiest; empty: nothing is known. moved: lies
    elsewhere than in the loaded model. nodes: of memory that it is split over, empty: it lies on its device alone.
    """

    id: CardId
    device: Device
    family: Family
    nbytes: int
    formats: str = ""
    n_experts: int = 0
    n_hot: int = 0
    hot_bytes: int = 0
    heat: bytes = b""
    pinned: bool = False
    moved: bool = False
    nodes: tuple[int, ...] = ()

    @property
    def layer(self) -> int:
        """-1 for what stands once in a model."""
        return self.id.layer

    @property
    def kind(self) -> Kind:
        """The colour."""
        return KINDS[self.family]

    @property
    def label(self) -> str:
        """What it is called where nothing around it says more: `Experts, layer 3`."""
        name = family_name(self.family)
        return name if self.layer < 0 else filled(tr("Placement", "%1, layer %2"), name, self.layer)


def family_name(family: Family) -> str:
    """As titles of cards begin."""
    match family:
        case "embed":
            return tr("Placement", "Embedding")
        case "attention":
            return tr("Placement", "Attention")
        case "recurrent":
            return tr("Placement", "Linear attention")
        case "kv":
            return tr("Placement", "KV")
        case "state":
            return tr("Placement", "State")
        case "dense":
            return tr("Placement", "Dense FFN")
        case "router":
            return tr("Placement", "Router")
        case "shared":
            return tr("Placement", "Shared FFN")
        case "head":
            return tr("Placement", "Output head")
        case "hot":
            return tr("Placement", "Hot experts")
        case "experts":
            return tr("Placement", "Experts")


def families(units: Iterable[UnitId]) -> dict[UnitId, Family]:
    """The family of every unit of a model: what a layer's attention and FFN are depends on what else the layer has."""
    all_units = tuple(units)
    recurrent = {unit.layer for unit in all_units if unit.kind == "state"}
    routed = {unit.layer for unit in all_units if unit.kind == "experts"}
    return {unit: _family(unit, recurrent, routed) for unit in all_units}


def _family(unit: UnitId, recurrent: set[int], routed: set[int]) -> Family:
    match unit.kind:
        case "mixer":
            return "recurrent" if unit.layer in recurrent else "attention"
        case "ffn":
            return "router" if unit.layer in routed else "dense"
        case other:
            return other
