"""Shown: one state of all gauges, as it is now, as it was when it was paused, or as it was while a message was written."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING

from engine.advice.health import Health, PsuBudget, cpu_health, gpu_health, psu_budget
from engine.api.values import EngineSample, HardwareSnapshot, TokenTrace

if TYPE_CHECKING:  # numpy would delay the first frame of the window
    from app.telemetry.timeline import Timeline


@dataclass(frozen=True, slots=True)
class Shown:
    """trace: of the last measured step of this model, also while it idles. healths: by card key and "cpu" for the processor. psu:
    None where its watts are not told."""

    timeline: Timeline
    snapshot: HardwareSnapshot | None = None
    work: EngineSample | None = None
    trace: TokenTrace | None = None
    healths: dict[str, Health] = field(default_factory=dict)
    psu: PsuBudget | None = None

    def judged(self, psu_watts: int) -> Shown:
        """With healths and budget of its snapshot."""
        if self.snapshot is None:
            return self
        healths = {gpu.key: gpu_health(gpu) for gpu in self.snapshot.gpus}
        healths["cpu"] = cpu_health(self.snapshot.cpu)
        return replace(self, healths=healths, psu=psu_budget(psu_watts, self.snapshot))


@dataclass(frozen=True, slots=True)
class Replayed:
    """Which message is shown again. model: the one that answered; span_s: how long that took."""

    message_id: int
    began: datetime
    model: str
    span_s: float
