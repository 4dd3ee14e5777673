"""What the application knows and the checks of the doctor may use: the newest reading, the loaded model, its own folders."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from engine.api.values import HardwareSnapshot, ModelInfo

if TYPE_CHECKING:
    from engine.advice.doctor.context import Context
    from engine.advice.doctor.facts import ModelFacts


def make_context(snapshot: HardwareSnapshot | None, model: ModelInfo | None, data: Path, folders: tuple[Path, ...]) -> Context:
    """On the thread that runs the checks. data: where chats and settings lie; folders: where models are looked for."""
    from engine.advice.doctor.context import Context
    from engine.advice.doctor.facts import AppFacts

    return Context(
        snapshot=snapshot,
        model=None if model is None else model_facts(model),
        app=AppFacts(data, folders),
        node_gbps=node_rates(),
    )


def model_facts(model: ModelInfo) -> ModelFacts:
    """A loaded model as the checks see it."""
    from engine.advice.doctor.facts import ModelFacts

    return ModelFacts(
        Path(model.path),
        is_loaded=True,
        cpu_bytes=sum(share.nbytes for share in model.devices if share.device.startswith("numa")),
        mapped=any(one.mapped for one in model.holdings),
        n_workers=0 if model.placement is None else model.placement.workers.n_workers,
    )


def node_rates() -> tuple[float, ...]:
    """GB/s of each memory node as it was measured when this machine was calibrated; empty before."""
    from engine.api.pure import load_rates, this_machine

    rates = load_rates(this_machine())
    if rates is None or not rates.measured:
        return ()
    return tuple(max((gbps for _n, gbps in node.read_gbps), default=0.0) for node in rates.nodes)
