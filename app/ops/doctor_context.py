"""What the application knows and the checks of the doctor may use: the newest reading, the loaded model, its own folders."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from engine.api.events import Holdings
from engine.api.values import HardwareSnapshot, ModelInfo

if TYPE_CHECKING:
    from engine.advice.doctor.context import Context
    from engine.advice.doctor.facts import ModelFacts


@dataclass(frozen=True, slots=True)
class Known:
    """snapshot: the newest reading, None while nobody asked for one. held: where the loaded model really lies, None before it was
    told. cards: the keys of the `GpuSample`s of the engine's cards, by device as `gpu0`."""

    snapshot: HardwareSnapshot | None = None
    held: Holdings | None = None
    cards: Mapping[str, str] = field(default_factory=dict)


def make_context(known: Known, model: ModelInfo | None, data: Path, folders: tuple[Path, ...]) -> Context:
    """On the thread that runs the checks. data: where chats and settings lie; folders: where models are looked for."""
    from engine.advice.doctor.context import Context
    from engine.advice.doctor.facts import AppFacts

    return Context(
        snapshot=known.snapshot,
        model=None if model is None else model_facts(model, known),
        app=AppFacts(data, folders),
        node_gbps=node_rates(),
    )


def model_facts(model: ModelInfo, known: Known) -> ModelFacts:
    """A loaded model as the checks see it."""
    from engine.advice.doctor.facts import ModelFacts

    held, cards = known.held, known.cards
    nodes = [(int(one.device[4:]), one.nbytes) for one in model.devices if one.device.startswith("numa")]
    return ModelFacts(
        Path(model.path),
        is_loaded=True,
        cpu_bytes=sum(nbytes for _node, nbytes in nodes),
        node_bytes=tuple(nodes),
        mapped=any(one.mapped for one in model.holdings),
        gpu_bytes=tuple((cards[one.device], one.nbytes) for one in model.devices if one.device in cards),
        n_workers=0 if model.placement is None else model.placement.workers.n_workers,
        node_policy="" if held is None else held.node_policy,
        node_pages=() if held is None else held.node_pages,
        placed=None if held is None or held.off_node_share is None else 1 - held.off_node_share,
        denied="" if held is None else held.node_denied,
    )


def node_rates() -> tuple[float, ...]:
    """GB/s of each memory node as it was measured when this machine was calibrated; empty before."""
    from engine.api.pure import load_rates, this_machine

    rates = load_rates(this_machine())
    if rates is None or not rates.measured:
        return ()
    return tuple(max((gbps for _n, gbps in node.read_gbps), default=0.0) for node in rates.nodes)
