"""From a reading of a graphics card, and what the engine counted on it, to what its card on the dashboard shows."""

from __future__ import annotations

from collections.abc import Mapping

from app.i18n import filled, tr
from app.monitors import timeline as keys
from app.monitors.facts import Facts, Held
from app.monitors.gpu_card import GpuFigures, Pill
from app.monitors.machine_figures import short_name
from app.monitors.reading import NOT_KNOWN, Reading, unknown
from app.telemetry.shown import Shown
from app.widgets.format import bytes_in_unit_of, exact_bytes, seconds_text
from engine.advice.health import Health
from engine.api.values import DeviceWork, GpuSample, why

_OWNERS = (("attention", "attn"), ("ffn", "ffn"), ("experts", "experts"), ("kv", "kv"), ("buffers", "buffers"))
_FULL_C = 95.0
_SMALL_PER_S = 0.05e9
_RINGS = {"ok": "ok", "warm": "warn", "hot": "err"}


def gpu_figures(shown: Shown, facts: Facts) -> tuple[GpuFigures, ...]:
    """Every card of the machine, in the order of the readings."""
    snapshot = shown.snapshot
    assert snapshot is not None
    work = works_by_card(shown)
    names = titles(shown)
    found = []
    for gpu in snapshot.gpus:
        done = work.get(gpu.key)
        device = done.device if done is not None else names[gpu.key].lower().replace(" ", "")
        health = shown.healths.get(gpu.key, Health("ok"))
        found.append(_one(gpu, names[gpu.key], done, facts.held.get(device), health, loaded=facts.model is not None))
    return tuple(found)


def works_by_card(shown: Shown) -> Mapping[str, DeviceWork]:
    """What the engine does on each card, by the card's key."""
    return {} if shown.work is None else {one.card: one for one in shown.work.devices if one.card}


def titles(shown: Shown) -> dict[str, str]:
    """`GPU 0` by key: the engine's number of a card that it uses; the others take what is left, in order."""
    snapshot = shown.snapshot
    gpus = () if snapshot is None else snapshot.gpus
    numbers = {key: int(one.device[3:]) for key, one in works_by_card(shown).items() if one.device[3:].isdigit()}
    free = iter(n for n in range(len(gpus) + len(numbers)) if n not in numbers.values())
    return {gpu.key: f"GPU {numbers[gpu.key] if gpu.key in numbers else next(free)}" for gpu in gpus}


def plot_key(gpu_key: str, work: DeviceWork | None) -> str:
    """The gauge of the card's line: how much it works for us, else how busy it is."""
    return keys.gpu(gpu_key, "busy_percent") if work is None else keys.device(work.device, "working_percent")


def _one(gpu: GpuSample, title: str, work: DeviceWork | None, share: Held | None, health: Health, *, loaded: bool) -> GpuFigures:
    memory, segments = _memory(gpu, share)
    full = gpu.slowdown_temperature_c or _FULL_C
    heat = 0.0 if gpu.temperature_c is None else gpu.temperature_c / full
    pill, line = _pill(gpu, health)
    return GpuFigures(
        key=gpu.key,
        title=title,
        name=short_name(gpu.name),
        link=_link(gpu),
        temperature=_temperature(gpu, health),
        fan=_fan(gpu),
        working=_working(gpu, work, loaded=loaded),
        memory=memory,
        power=_power(gpu),
        clock=_clock(gpu),
        traffic=_traffic(gpu, work),
        segments=segments,
        ring=(round(heat, 2), _RINGS.get(health.level, "text3")),
        pill=pill,
        line=line,
        faded=gpu.state != "ok",
    )


def _pill(gpu: GpuSample, health: Health) -> tuple[Pill | None, str]:
    """(the word that stands out, the colour of the frame)."""
    said = health.sentence or gpu.problem
    match gpu.state:
        case "lost":
            return Pill(tr("Monitors", "Lost"), "err", "circle-alert", said), "err"
        case "off":
            return Pill(tr("Monitors", "Not asked"), "text2", "circle-alert", said), "line"
        case "silent":
            text = (
                filled(tr("Monitors", "%1 ago"), seconds_text(round(gpu.age_s)))
                if gpu.age_s >= 1
                else tr("Monitors", "No answer")
            )
            return Pill(text, "warn", "triangle-alert", said), "line"
        case "asleep" | "resting":
            return Pill(tr("Monitors", "Asleep"), "text2", "moon", said), "line"
    if health.level == "hot":
        return Pill(tr("Monitors", "Hot"), "err", "triangle-alert", said), "err"
    if health.level == "warm":
        slowed = (gpu.temperature_c or 0) < 80
        return Pill(tr("Monitors", "Slowed") if slowed else tr("Monitors", "Warm"), "warn", "triangle-alert", said), "warn"
    return None, "line"


def _missing(gpu: GpuSample, label: str, field: str) -> Reading:
    reason = why(gpu.missing, field) or gpu.problem or tr("Monitors", "it has not been read yet")
    return unknown(label, reason)


def _joined(*parts: str) -> str:
    return "\n".join(part for part in parts if part)


def _temperature(gpu: GpuSample, health: Health) -> Reading:
    label, celsius = tr("Monitors", "Temperature"), gpu.temperature_c
    if celsius is None:
        return _missing(gpu, label, "temperature_c")
    lines = [health.sentence]
    for words, value in (
        (tr("Monitors", "Memory: %1 °C"), gpu.memory_temperature_c),
        (tr("Monitors", "Hot spot: %1 °C"), gpu.hotspot_temperature_c),
        (tr("Monitors", "%1 °C before it slows down"), gpu.margin_c),
        (tr("Monitors", "It slows itself down at %1 °C"), gpu.slowdown_temperature_c),
    ):
        if value is not None:
            lines.append(filled(words, f"{value:.0f}"))
    if gpu.memory_temperature_c is None and why(gpu.missing, "memory_temperature_c"):
        lines.append(filled(tr("Monitors", "Memory: n/a, %1"), why(gpu.missing, "memory_temperature_c")))
    return Reading(label, f"{celsius:.0f} °C", "", _joined(*lines), keys.gpu(gpu.key, "temperature_c"))


def _fan(gpu: GpuSample) -> Reading:
    label = tr("Monitors", "Fan")
    if gpu.fan_percent is not None:
        tip = tr("Monitors", "What the fan was told to do; a blocked one says the same")
        text = filled(tr("Monitors", "fan %1 %"), f"{gpu.fan_percent:.0f}")
        return Reading(label, text, "", tip, keys.gpu(gpu.key, "fan_percent"), spoken=f"{gpu.fan_percent:.0f} %")
    if gpu.fan_rpm is not None:
        return Reading(label, filled(tr("Monitors", "fan %1 rpm"), f"{gpu.fan_rpm:,.0f}"), spoken=f"{gpu.fan_rpm:.0f} rpm")
    reason = why(gpu.missing, "fan_percent") or tr("Monitors", "this card does not tell it")
    return Reading(label, tr("Monitors", "fan n/a"), "", reason, tone="text3", spoken=f"{NOT_KNOWN}, {reason}")


def _working(gpu: GpuSample, work: DeviceWork | None, *, loaded: bool) -> Reading:
    busy = gpu.busy_percent
    if busy is None:
        driver = filled(tr("Monitors", "Busy by the driver: n/a, %1"), why(gpu.missing, "busy_percent") or gpu.problem)
    else:
        driver = filled(tr("Monitors", "The driver says busy %1 %: it counts waiting kernels, and other programs"), f"{busy:.0f}")
    if work is not None and gpu.state in ("ok", "silent"):
        own = tr("Monitors", "Of the time in which it computed for the model; the rest it waited for other devices or was idle")
        if work.waiting_ms is not None:
            own = _joined(own, filled(tr("Monitors", "It waits %1 ms of each token for others"), f"{work.waiting_ms:.1f}"))
        key = keys.device(work.device, "working_percent")
        return Reading(tr("Monitors", "Working"), f"{work.working_percent:.0f} %", "", _joined(own, driver), key)
    if busy is None:
        return _missing(gpu, tr("Monitors", "Busy"), "busy_percent")
    own = tr("Monitors", "The model does not use this card") if loaded else tr("Monitors", "No model is loaded")
    return Reading(tr("Monitors", "Busy"), f"{busy:.0f} %", "", _joined(driver, own), keys.gpu(gpu.key, "busy_percent"))


def _memory(gpu: GpuSample, share: Held | None) -> tuple[Reading, tuple[tuple[float, str], ...]]:
    """(used of all, the bar by owner)."""
    label, used, total = tr("Monitors", "VRAM"), gpu.memory_used_bytes, gpu.memory_total_bytes
    if used is None or not total:
        return _missing(gpu, label, "memory_used_bytes"), ()
    words = {
        "attention": tr("Monitors", "Attention"),
        "ffn": tr("Monitors", "FFN"),
        "experts": tr("Monitors", "Experts"),
        "kv": tr("Monitors", "KV"),
        "buffers": tr("Monitors", "Buffers"),
    }
    ours = [(int(getattr(share, field)), token, words[field]) for field, token in _OWNERS] if share is not None else []
    planned = sum(n for n, _, _ in ours)
    # What was planned is a little more than what is held: the bar must not be longer than what the card says.
    scale = min(1.0, used / planned) if planned else 1.0
    parts = [(round(n * scale), token, name) for n, token, name in ours if n]
    rest = used - sum(n for n, _, _ in parts)
    if rest > 0.002 * total:
        parts.append((rest, "text3", tr("Monitors", "Other programs and contexts of the driver")))
    lines = [f"{name}: {exact_bytes(n)}" for n, _, name in parts]
    if gpu.memory_reserved_bytes:
        lines.append(filled(tr("Monitors", "%1 more are the driver's own"), exact_bytes(gpu.memory_reserved_bytes)))
    for process in gpu.processes or ():
        held = exact_bytes(process.memory_bytes) if process.memory_bytes is not None else NOT_KNOWN
        lines.append(f"{process.name} ({process.pid}): {held}")
    text = f"{bytes_in_unit_of(used, total)} / {exact_bytes(total)}"
    reading = Reading(label, text, "", _joined(*lines), keys.gpu(gpu.key, "memory_used_bytes"))
    return reading, tuple((round(n / total, 3), token) for n, token, _ in parts)


def _power(gpu: GpuSample) -> Reading:
    label, key = tr("Monitors", "Power"), keys.gpu(gpu.key, "power_w")
    if gpu.power_w is None:
        return _missing(gpu, label, "power_w")
    if gpu.power_limit_w is None:
        reason = why(gpu.missing, "power_limit_w")
        return Reading(
            label, f"{gpu.power_w:.0f}", tr("Monitors", "W"), reason and filled(tr("Monitors", "Limit: n/a, %1"), reason), key
        )
    tip, usual = (
        filled(tr("Monitors", "%1 % of its limit"), f"{100 * gpu.power_w / gpu.power_limit_w:.0f}"),
        gpu.power_limit_default_w,
    )
    if usual is not None and gpu.power_limit_w < usual - 1:
        tip = _joined(tip, filled(tr("Monitors", "Its limit is below the usual %1 W"), f"{usual:.0f}"))
    return Reading(label, f"{gpu.power_w:.0f} / {gpu.power_limit_w:.0f}", tr("Monitors", "W"), tip, key)


def _clock(gpu: GpuSample) -> Reading:
    label = tr("Monitors", "Clock")
    if gpu.core_clock_mhz is None:
        return _missing(gpu, label, "core_clock_mhz")
    lines = [filled(tr("Monitors", "Slow because: %1"), reason) for reason in gpu.slow_reasons or ()]
    if gpu.core_clock_max_mhz is not None:
        lines.append(filled(tr("Monitors", "At most %1 MHz"), f"{gpu.core_clock_max_mhz:.0f}"))
    if gpu.memory_clock_mhz is not None:
        lines.append(filled(tr("Monitors", "Memory: %1 MHz"), f"{gpu.memory_clock_mhz:.0f}"))
    if gpu.performance_state is not None:
        lines.append(filled(tr("Monitors", "Performance state P%1"), gpu.performance_state))
    heat = bool((gpu.slow_bits or 0) & 0xE8)
    tone = "warn" if heat else "text"
    text = f"{gpu.core_clock_mhz:.0f}"
    return Reading(label, text, tr("Monitors", "MHz"), _joined(*lines), keys.gpu(gpu.key, "core_clock_mhz"), tone)


def _traffic(gpu: GpuSample, work: DeviceWork | None) -> Reading:
    label = tr("Monitors", "PCIe rx / tx")
    own = tr("Monitors", "Bytes a second that the engine moved to the card and from it, counted by itself")
    if work is not None:
        key = keys.device(work.device, "in_bytes_per_s")
        return Reading(label, *_rates(work.in_bytes_per_s or 0.0, work.out_bytes_per_s or 0.0), own, key)
    read, write = gpu.link_read_bytes_per_s, gpu.link_write_bytes_per_s
    if read is not None and write is not None:
        key = keys.gpu(gpu.key, "link_read_bytes_per_s")
        return Reading(label, *_rates(read, write), tr("Monitors", "By the driver, of all programs"), key)
    reason = why(gpu.missing, "link_read_bytes_per_s") or tr("Monitors", "the engine does not use this card")
    return unknown(label, reason)


def _rates(into: float, out: float) -> tuple[str, str]:
    """("0.4 / 0.9", "GB/s"), in MB/s where both are small."""
    if max(into, out) < _SMALL_PER_S:
        return f"{into / 1e6:.1f} / {out / 1e6:.1f}", tr("Monitors", "MB/s")
    return f"{into / 1e9:.1f} / {out / 1e9:.1f}", tr("Monitors", "GB/s")


def _link(gpu: GpuSample) -> Reading:
    label, generation, width = tr("Monitors", "PCIe link"), gpu.link_generation, gpu.link_width
    if generation is None or width is None:
        reason = why(gpu.missing, "link_generation") or why(gpu.missing, "link_width") or gpu.problem
        return Reading(label, "", "", reason, tone="text3", spoken=NOT_KNOWN)
    lines, tone = [], "text3"
    if gpu.link_width_max is not None and width < gpu.link_width_max:
        lines.append(filled(tr("Monitors", "It has %1 of %2 lanes"), width, gpu.link_width_max))
        tone = "warn"
    most = gpu.link_generation_max
    if most is not None and generation < most:
        lines.append(filled(tr("Monitors", "Generation %1 of %2: it falls while a card idles"), generation, most))
    if gpu.link_replays:
        lines.append(filled(tr("Monitors", "%1 packets were sent again"), gpu.link_replays))
    return Reading(label, f"Gen{generation} ×{width}", "", _joined(*lines), tone=tone)
