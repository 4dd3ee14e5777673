"""From one measured decode step to the picture of where its time goes."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from app.i18n import filled, tr
from app.monitors.reading import Reading
from app.monitors.trace_card import Lane, Stretch, TraceFigures, ms_text
from engine.api.values import TokenTrace, TraceKind, TraceSpan

COLORS: Mapping[TraceKind, str] = {
    "experts": "experts",
    "attention": "attn",
    "ffn": "ffn",
    "other": "buffers",
    "transfer": "cyan",
    "wait": "text3",
}
_NOT_WORK = ("transfer", "wait")
_LEAST_SHARE = 0.003
GPU_EXPERTS = "experts on GPUs"
"""Experts by who computes them: they are told apart from those of the processors."""


def trace_figures(trace: TokenTrace | None, when: str = "") -> TraceFigures:
    """when: `14:02:11`, where the token is not of now."""
    if trace is None or trace.total_ms <= 0 or not trace.spans:
        return TraceFigures(note=tr("Monitors", "No token was measured yet: ask something"))
    lanes: dict[str, list[Stretch]] = {}
    for span in trace.spans:
        lane = lanes.setdefault(span.device, [])
        if span.kind != "wait":
            lane.append(Stretch(span.start_ms, span.ms, COLORS[span.kind], _said(span)))
    ordered = sorted(lanes, key=lambda name: (not name.startswith("gpu"), len(name), name))
    return TraceFigures(
        total_ms=trace.total_ms,
        note=filled(tr("Monitors", "last run, %1"), when) if when else "",
        lanes=tuple(Lane(device_title(name), tuple(lanes[name])) for name in ordered),
        parts=_parts(trace),
    )


def device_title(name: str) -> str:
    """`GPU 0`, `NUMA 1`."""
    if name.startswith("gpu"):
        return filled(tr("Monitors", "GPU %1"), name[3:])
    return filled(tr("Monitors", "NUMA %1"), name.removeprefix("numa"))


def _kind_text(kind: str) -> str:
    return {
        "experts": tr("Monitors", "Experts"),
        "attention": tr("Monitors", "Attention and KV"),
        "ffn": tr("Monitors", "FFN and shared experts"),
        "other": tr("Monitors", "Norms, embedding and output"),
        "transfer": tr("Monitors", "Transfers and waits"),
    }[kind]


def _said(span: TraceSpan) -> str:
    kind = _kind_text(span.kind) if span.kind != "transfer" else tr("Monitors", "Transfer")
    return kind if span.layer is None else filled(tr("Monitors", "%1, layer %2"), kind, span.layer)


def _parts(trace: TokenTrace) -> tuple[tuple[str, Reading], ...]:
    """How the token's time adds up: every moment belongs to what computes then, in equal parts where several do."""
    sums = time_by_kind(trace)
    found = []
    for kind in ("experts", GPU_EXPERTS, "attention", "ffn", "other", "transfer"):
        ms = sums.get(kind, 0.0)
        if ms < _LEAST_SHARE * trace.total_ms:
            continue
        label = _experts_text(trace, kind) if kind in ("experts", GPU_EXPERTS) else _kind_text(kind)
        share = f"{100 * ms / trace.total_ms:.0f} %"
        tip = tr("Monitors", "Where several devices compute at once, each has an equal part of that time")
        token = {"transfer": "text3", GPU_EXPERTS: "experts"}.get(kind) or COLORS[kind]  # type: ignore[index]
        found.append((token, Reading(label, f"{ms_text(ms)} ms", share, tip)))
    return tuple(found)


def _experts_text(trace: TokenTrace, part: str) -> str:
    """`Experts on NUMA 0 and 1`, `Experts on GPU 2 and 3`."""
    numbers = sorted({int(span.device.lstrip("gpunma")) for span in trace.spans if _part(span) == part})
    listed = [str(n) for n in numbers]
    said = ", ".join(listed) if len(listed) < 3 else f"{listed[0]}–{listed[-1]}"
    if len(listed) == 2:
        said = filled(tr("Monitors", "%1 and %2"), *listed)
    return filled(tr("Monitors", "Experts on GPU %1") if part == GPU_EXPERTS else tr("Monitors", "Experts on NUMA %1"), said)


def _part(span: TraceSpan) -> str:
    return GPU_EXPERTS if span.kind == "experts" and span.device.startswith("gpu") else span.kind


def time_by_kind(trace: TokenTrace) -> dict[str, float]:
    """Milliseconds by kind, experts of GPUs by themselves; they add up to total_ms. What no device computes in is `transfer`."""
    edges: list[tuple[float, int, str]] = []
    for span in trace.spans:
        if span.kind not in _NOT_WORK and span.ms > 0:
            edges.append((max(0.0, span.start_ms), 1, _part(span)))
            edges.append((min(trace.total_ms, span.start_ms + span.ms), -1, _part(span)))
    edges.sort()
    active: dict[str, int] = {}
    sums: dict[str, float] = {}
    worked = 0.0
    for (at, step, kind), following in pairwise([*edges, (trace.total_ms, 0, "")]):
        active[kind] = active.get(kind, 0) + step
        n, ms = sum(active.values()), following[0] - at
        if n > 0 and ms > 0:
            worked += ms
            for name, count in active.items():
                if count:
                    sums[name] = sums.get(name, 0.0) + ms * count / n
    sums["transfer"] = max(0.0, trace.total_ms - worked)
    return sums
