"""Shown: one state of all gauges, as it is now, as it was when it was paused, or as it was while a message was written."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from datetime import datetime

import numpy as np

from app.telemetry import keys
from app.telemetry.message_telemetry import MessageTelemetry, gpu_sample
from app.telemetry.timeline import Timeline
from engine.advice.health import Health, PsuBudget, cpu_health, gpu_health, psu_budget
from engine.api.values import CpuSample, DeviceWork, EngineSample, HardwareSnapshot, TokenTrace

NOT_KEPT = "it is not kept with a message"


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


def replayed(message_id: int, telemetry: MessageTelemetry) -> Replayed:
    """What is said of a message that is shown again."""
    span_s = float(telemetry.times_s[-1]) if len(telemetry.times_s) else 0.0
    return Replayed(message_id, datetime.fromtimestamp(telemetry.began_s), telemetry.model, span_s)


def shown_again(telemetry: MessageTelemetry) -> Shown:
    """The gauges while a message was written. Times begin at 0; snapshot and work are of its end, where last known."""
    times = telemetry.times_s
    period_s = telemetry.period_s
    finest_s = max(0.1, min(np.diff(times), default=period_s))
    timeline = Timeline((float(times[-1]) if len(times) else 0.0) + period_s, finest_s)
    last: dict[str, float] = {}
    for i, time_s in enumerate(times.tolist()):
        values = {key: float(column[i]) for key, column in telemetry.columns.items() if math.isfinite(column[i])}
        timeline.push_values(time_s, values, period_s)
        last |= values
    at = timeline.newest_s or 0.0
    cpu = CpuSample(
        telemetry.cpu_name,
        (last[keys.cpu("use_percent")],) if keys.cpu("use_percent") in last else (),
        last.get(keys.cpu("temperature_c")),
        missing=(("temperature_c", NOT_KEPT), ("package_power_w", NOT_KEPT)),
    )
    gpus = tuple(gpu_sample(card, last, NOT_KEPT) for card in telemetry.cards)
    ram = int(last.get(keys.ram_used(), 0))
    snapshot = HardwareSnapshot(at, cpu, ram, telemetry.ram_total_bytes, 0, gpus=gpus)
    names = dict.fromkeys(keys.split(key)[1] for key in telemetry.columns if keys.split(key)[0] == "device")
    devices = tuple(
        DeviceWork(
            name,
            last.get(keys.device(name, "working_percent"), 0.0),
            read_bytes_per_s=last.get(keys.device(name, "read_bytes_per_s")),
        )
        for name in names
    )
    work = EngineSample(
        at, period_s, decode_tok_s=last.get(keys.decode()), prefill_tok_s=last.get(keys.prefill()), devices=devices
    )
    return Shown(timeline, snapshot, work)
