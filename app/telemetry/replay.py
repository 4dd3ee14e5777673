"""What was kept with a message, as gauges to show again."""

from __future__ import annotations

import math
from datetime import datetime

import numpy as np

from app.telemetry import keys
from app.telemetry.message_telemetry import MessageTelemetry, gpu_sample
from app.telemetry.shown import Replayed, Shown
from app.telemetry.timeline import Timeline
from engine.api.values import CpuSample, DeviceWork, EngineSample, HardwareSnapshot

NOT_KEPT = "it is not kept with a message"


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
