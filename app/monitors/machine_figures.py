"""From readings to what is said of the whole machine: the six tiles, the line of the header, the alarm."""

from __future__ import annotations

import numpy as np

from app.i18n import filled, tr
from app.monitors import timeline as keys
from app.monitors.board import TileName
from app.monitors.facts import Facts
from app.monitors.reading import Reading, unknown
from app.monitors.tile import TileFigures
from app.monitors.timeline import Timeline
from app.telemetry.shown import Shown
from app.widgets.format import bytes_in_unit_of, exact_bytes, rate_text, seconds_text
from engine.api.values import HardwareSnapshot, why

LEAST_S = 60.0
"""A line over less says nothing."""
_NOISE = (
    "NVIDIA ", "GeForce ", "AMD ", "Intel(R) ", "Xeon(R) ", "Core(TM) ", "(R)", "(TM)", " Graphics", " Processor", " CPU",
)  # fmt: skip


def short_name(name: str) -> str:
    """A processor or card without what every such name has: `EPYC 7763`, `RTX 4090`."""
    for word in _NOISE:
        name = name.replace(word, "")
    words = [word for word in name.split(" @ ")[0].split() if not word.endswith("-Core")]
    return " ".join(words)


def machine_text(snapshot: HardwareSnapshot, facts: Facts) -> str:
    """`homelab-01   4 GPUs, 2 × EPYC 7763, 512 GB`."""
    parts = []
    if snapshot.gpus:
        n = len(snapshot.gpus)
        parts.append(tr("Monitors", "1 GPU") if n == 1 else filled(tr("Monitors", "%1 GPUs"), n))
    sockets, name = (1 if facts.topology is None else facts.topology.sockets), short_name(snapshot.cpu.name)
    if name:
        parts.append(f"{sockets} × {name}" if sockets > 1 else name)
    if snapshot.ram_total_bytes:
        parts.append(exact_bytes(snapshot.ram_total_bytes))
    return "   ".join(part for part in (facts.host, ", ".join(parts)) if part)


def tiles(shown: Shown, facts: Facts, span_s: float) -> dict[TileName, TileFigures]:
    """The six figures."""
    snapshot = shown.snapshot
    assert snapshot is not None
    return {
        "decode": _decode(shown, span_s),
        "prefill": _prefill(shown.timeline, facts),
        "first_token": _first_token(shown.timeline, facts),
        "vram": _vram(snapshot),
        "ram": _ram(snapshot),
        "power": _power(shown, snapshot),
    }


def last_known(timeline: Timeline, key: str, span_s: float) -> float | None:
    """The newest value that there was; None: none in that time."""
    _, values = timeline.series(key, span_s, 1 << 16)
    known = values[np.isfinite(values)]
    return float(known[-1]) if len(known) else None


def _decode(shown: Shown, span_s: float) -> TileFigures:
    label, key = tr("Monitors", "Decode"), keys.decode()
    now, peak = shown.timeline.latest(key), shown.timeline.peak(key, span_s)
    note = "" if peak is None else filled(tr("Monitors", "peak %1"), rate_text(peak))
    if now is not None:
        tip = tr("Monitors", "Tokens a second in the steps that write answers, all answers together")
        return TileFigures(Reading(label, rate_text(now), tr("Monitors", "tok/s"), tip, key), note)
    last = None if peak is None else last_known(shown.timeline, key, span_s)
    if last is None:
        missing = unknown(label, tr("Monitors", "nothing was generated in this time"))
        return TileFigures(missing)
    tip = tr("Monitors", "Nothing is generated now; this is of the last answer")
    return TileFigures(Reading(label, rate_text(last), tr("Monitors", "tok/s, last"), tip, key), note, faded=True)


def _prefill(line: Timeline, facts: Facts) -> TileFigures:
    label, key = tr("Monitors", "Prefill"), keys.prefill()
    rate = line.latest(key)
    if rate is None:
        return TileFigures(unknown(label, tr("Monitors", "no prompt was read yet")))
    note = filled(tr("Monitors", "last %1 tokens"), f"{facts.prompt_tokens:,}") if facts.prompt_tokens else ""
    tip = tr("Monitors", "How fast the last prompt was read, in tokens a second")
    return TileFigures(Reading(label, rate_text(rate), tr("Monitors", "tok/s"), tip, key), note)


def _first_token(line: Timeline, facts: Facts) -> TileFigures:
    label, key = tr("Monitors", "First token"), keys.first_token()
    first = line.latest(key)
    if first is None:
        return TileFigures(unknown(label, tr("Monitors", "no answer was finished yet")))
    p95 = facts.first_token_p95_s
    note = "" if p95 is None else filled(tr("Monitors", "p95 %1"), _short_seconds(p95))
    text, _, unit = _short_seconds(first).partition(" ")
    tip = tr("Monitors", "From the last question to the first token of its answer")
    return TileFigures(Reading(label, text, unit, tip, key), note)


def _short_seconds(seconds: float) -> str:
    """240 ms, 14.2 s, 2 min 5 s."""
    if seconds < 0.995:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 99.95 else seconds_text(seconds)


def _vram(snapshot: HardwareSnapshot) -> TileFigures:
    label = tr("Monitors", "VRAM")
    known = [gpu for gpu in snapshot.gpus if gpu.memory_used_bytes is not None and gpu.memory_total_bytes]
    if not known:
        reason = snapshot.gpu_problem or tr("Monitors", "this machine has no graphics card")
        if snapshot.gpus:
            reason = why(snapshot.gpus[0].missing, "memory_used_bytes") or snapshot.gpus[0].problem or reason
        return TileFigures(unknown(label, reason))
    used = sum(gpu.memory_used_bytes or 0 for gpu in known)
    total = sum(gpu.memory_total_bytes or 0 for gpu in known)
    frees = [gpu.memory_free_bytes for gpu in known if gpu.memory_free_bytes is not None]
    note = filled(tr("Monitors", "%1 free"), exact_bytes(sum(frees))) if len(frees) == len(known) else ""
    tip = tr("Monitors", "Memory of all cards that programs hold")
    if len(known) < len(snapshot.gpus):
        tip += filled(tr("Monitors", "; %1 cards do not tell theirs"), len(snapshot.gpus) - len(known))
    unit = filled(tr("Monitors", "of %1"), exact_bytes(total))
    return TileFigures(Reading(label, bytes_in_unit_of(used, total), unit, tip, keys.vram_used()), note, _is_old(snapshot))


def _is_old(snapshot: HardwareSnapshot) -> bool:
    """Whether a card's part in a sum is not of now."""
    return any(gpu.state not in ("ok", "asleep", "resting") for gpu in snapshot.gpus)


def _ram(snapshot: HardwareSnapshot) -> TileFigures:
    total, swap = snapshot.ram_total_bytes, snapshot.memory.swap_used_bytes
    if not total:
        reason = why(snapshot.memory.missing, "available_bytes") or tr("Monitors", "the system does not tell how much it has")
        return TileFigures(unknown(tr("Monitors", "RAM"), reason))
    note = tr("Monitors", "no swap") if not swap else filled(tr("Monitors", "%1 swapped"), exact_bytes(swap))
    unit = filled(tr("Monitors", "of %1"), exact_bytes(total))
    tip = tr("Monitors", "Memory that programs hold; what the system keeps of files is not among it")
    return TileFigures(
        Reading(tr("Monitors", "RAM"), bytes_in_unit_of(snapshot.ram_used_bytes, total), unit, tip, keys.ram_used()), note
    )


def _power(shown: Shown, snapshot: HardwareSnapshot) -> TileFigures:
    label = tr("Monitors", "Power")
    cards = [gpu.power_w for gpu in snapshot.gpus if gpu.power_w is not None]
    cpu = snapshot.cpu.package_power_w
    if not cards and cpu is None:
        return TileFigures(
            unknown(
                label, why(snapshot.cpu.missing, "package_power_w") or tr("Monitors", "no part of this machine tells its power")
            )
        )
    note = tr("Monitors", "GPUs alone") if cpu is None else ""
    if cards and cpu is not None:
        note = filled(tr("Monitors", "GPUs %1 W"), f"{sum(cards):,.0f}")
    tip = tr("Monitors", "What cards and processors draw")
    if cpu is None:
        reason = why(snapshot.cpu.missing, "package_power_w") or tr("Monitors", "this system does not tell it")
        tip = filled(tr("Monitors", "What the cards draw, without the processors: %1"), reason)
    tone = "text"
    if shown.psu is not None:
        note, tip = filled(tr("Monitors", "of %1 W"), f"{shown.psu.limit_w:,.0f}"), shown.psu.sentence
        tone = "warn" if shown.psu.is_tight else "text"
    watts = sum(cards) + (cpu or 0.0)
    return TileFigures(
        Reading(label, f"{watts:,.0f}", tr("Monitors", "W"), tip, keys.power(), tone), note, bool(cards) and _is_old(snapshot)
    )


def alarm(shown: Shown, titles: dict[str, str], told: frozenset[str] = frozenset()) -> tuple[str, str]:
    """(the worst that is to be said across the page, its tone); ("", ""). titles: of the cards by key; told: titles of those of
    which the page says it already."""
    gpus = () if shown.snapshot is None else shown.snapshot.gpus
    for level, tone in (("lost", "err"), ("hot", "err")):
        for key, health in shown.healths.items():
            if health.level == level and health.sentence:
                title = titles.get(key)
                if title in told:
                    continue
                name = next((gpu.name for gpu in gpus if gpu.key == key), "")
                sentence = health.sentence.replace(name, short_name(name), 1).rstrip(".") + "."
                return (f"{title}, {sentence}" if title else sentence), tone
    if shown.psu is not None and shown.psu.is_tight:
        return shown.psu.sentence.rstrip(".") + ".", "warn"
    return "", ""


def span_seconds(choice: str, timeline: Timeline) -> float:
    """How far back lines go: a number of seconds, or `all` that is remembered."""
    if choice != "all":
        return float(choice)
    oldest, newest = timeline.oldest_s, timeline.newest_s
    if oldest is None or newest is None:
        return LEAST_S
    return max(LEAST_S, min(timeline.span_s, newest - oldest))


def span_text(choice: str, span_s: float) -> str:
    """`last 5 minutes`."""
    minutes = max(1, round(span_s / 60))
    if choice == "all":
        return filled(tr("Monitors", "all of %1 min"), minutes)
    return tr("Monitors", "last minute") if minutes == 1 else filled(tr("Monitors", "last %1 minutes"), minutes)
