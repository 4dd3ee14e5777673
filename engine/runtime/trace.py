"""Where the time of one measured step went, as spans for people. Executors note `stamps` while they step, at the cost of a clock
reading an op; spans are made of them later, by whoever asks.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from engine.arch.units import UnitKind
from engine.hardware.work import TokenTrace, TraceKind, TraceSpan
from engine.program.lane_ops import LaneOp
from engine.program.lane_transfer import LaneChosen, LaneRecv, LaneSend, LaneTell
from engine.program.plan import Lane
from engine.runtime.stamps import Piece, Stamps

MAX_SPANS = 600
"""More are drawn by nobody: spans of some milliseconds' step would be narrower than a pixel."""
SHORTEST = 2e-4
"""Of a step: shorter spans become part of their neighbour."""
MAX_OUTLINES = 256

_KINDS: dict[UnitKind, TraceKind] = {
    "embed": "other", "head": "other", "mixer": "attention", "kv": "attention", "state": "attention", "ffn": "ffn",
    "shared": "ffn", "experts": "experts",
}  # fmt: skip
_WEIGHTIEST: tuple[TraceKind, ...] = ("experts", "attention", "ffn", "other", "transfer")
Label = tuple[TraceKind, int | None]


class Outlines:
    """What the ops of lanes are, found once for each piece. Used by one thread at a time."""

    def __init__(self) -> None:
        self._found: dict[tuple[int, int, int, bool], tuple[Lane, list[tuple[int, Label]]]] = {}

    def groups(self, piece: Piece, beside: bool) -> list[tuple[int, Label]]:
        """(first op within the piece, what it and those behind it are), op by op."""
        key = id(piece.lane), piece.first, piece.end, beside
        found = self._found.get(key)
        if found is None:
            if len(self._found) >= MAX_OUTLINES:
                self._found.clear()
            labels = [label_of(op, beside=beside) for op in piece.lane.ops[piece.first : piece.end]]
            runs = groupby(range(len(labels)), lambda i: labels[i])
            found = self._found[key] = piece.lane, [(next(run), label) for label, run in runs]
        return found[1]


def label_of(op: LaneOp, *, beside: bool) -> Label:
    """What an op is to people, and its layer."""
    layer = op.unit.layer if op.unit.layer >= 0 else None
    if isinstance(op, LaneRecv) and beside:
        return "wait", layer
    if isinstance(op, LaneRecv | LaneSend | LaneChosen | LaneTell):
        return "transfer", layer
    return _KINDS[op.unit.kind], layer


def label_of_all(ops: Sequence[LaneOp]) -> Label:
    """What ops are that nobody timed one by one: the weightiest of them where they are of one layer or two, else only `other`."""
    labels = [label_of(op, beside=False) for op in ops]
    kind: TraceKind = next((kind for kind in _WEIGHTIEST if any(label[0] == kind for label in labels)), "other")
    layers = {layer for name, layer in labels if name == kind}
    if len(layers) > 2:
        return "other", None
    return kind, max((layer for layer in layers if layer is not None), default=None)


def trace_of(stamps: Stamps, outlines: Outlines) -> TokenTrace:
    """The step as spans, at most MAX_SPANS where that can be."""
    total_ns = max(1, stamps.ended_ns - stamps.began_ns)
    by_device: dict[str, list[TraceSpan]] = {}
    for piece in stamps.all_pieces():
        device = str(piece.lane.device)
        for (kind, layer), began, ended in _stretches(piece, outlines, stamps.beside is not None):
            start, stop = max(0, began - stamps.began_ns), min(total_ns, ended - stamps.began_ns)
            if stop > start:
                by_device.setdefault(device, []).append(TraceSpan(device, kind, layer, start * 1e-6, (stop - start) * 1e-6))
    spans = [sorted(found, key=lambda span: span.start_ms) for _, found in sorted(by_device.items(), key=_order)]
    shortest_ms = SHORTEST * total_ns * 1e-6
    merged = [_merged(found, shortest_ms) for found in spans]
    while sum(map(len, merged)) > MAX_SPANS and shortest_ms < total_ns * 1e-6:
        shortest_ms *= 2
        merged = [_merged(found, shortest_ms) for found in merged]
    return TokenTrace(stamps.began_ns * 1e-9, total_ns * 1e-6, tuple(span for found in merged for span in found))


def _order(item: tuple[str, list[TraceSpan]]) -> tuple[bool, int, str]:
    name = item[0]
    return not name.startswith("gpu"), len(name), name


def _stretches(piece: Piece, outlines: Outlines, beside: bool) -> list[tuple[Label, int, int]]:
    """(what, from, to) in nanoseconds."""
    marks = piece.marks
    if piece.wait:
        return [(("wait", label_of(piece.lane.ops[piece.first], beside=beside)[1]), int(marks[0]), int(marks[-1]))]
    if len(marks) == 2 and piece.end - piece.first != 1:
        return [(label_of_all(piece.lane.ops[piece.first : piece.end]), int(marks[0]), int(marks[1]))]
    groups = outlines.groups(piece, beside)
    starts = marks[[first for first, _ in groups]].tolist()
    return [(label, begin, end) for (_, label), begin, end in zip(groups, starts, [*starts[1:], int(marks[-1])], strict=True)]


def _merged(spans: Sequence[TraceSpan], shortest_ms: float) -> list[TraceSpan]:
    """Neighbours of one kind and layer as one span; those that are too short become part of the one before or behind them."""
    found: list[TraceSpan] = []
    for span in spans:
        before = found[-1] if found else None
        if before is None or span.start_ms - (before.start_ms + before.ms) > shortest_ms:
            found.append(span)
        elif (before.kind, before.layer) == (span.kind, span.layer) or span.ms < shortest_ms:
            found[-1] = _joined(before, span, before)
        elif before.ms < shortest_ms:
            found[-1] = _joined(before, span, span)
        else:
            found.append(span)
    return found


def _joined(first: TraceSpan, last: TraceSpan, named: TraceSpan) -> TraceSpan:
    return TraceSpan(named.device, named.kind, named.layer, first.start_ms, last.start_ms + last.ms - first.start_ms)
