"""What the process holds on each device over time, and whether it grows without a reason: looks at the ledger of the model and at
what the system counts. Owned by the loaded model, asked by the engine thread."""

from __future__ import annotations

import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from engine.api.values import HoldingTrend
from engine.hardware.page_nodes import PAGE, nodes_of
from engine.placement.placement import Device, Gpu, Numa
from engine.runtime.loaded_model import LoadedModel
from engine.runtime.node_memory import Meant, PageReport
from engine.service.growth import WINDOW_S, steady_growth
from kernels_pyx.arena import Arena

LOOK_S = 10.0
"""How often it looks."""
KEPT = 360
"""Looks that count: an hour of them."""
GROWN_BYTES = 256 << 20
"""What libraries, allocators and the rest of the program may take beside the ledger before it is called growth."""
BY_PAGE = ("kv", "kept windows", "state")
"""Owners whose memory is taken when it is first written."""
TOUCHED_PAGES = 2048
"""Pages of theirs that are asked for: one to two milliseconds, once in LOOK_S."""
SAMPLED_PAGES = 1024
"""Pages whose node is asked for: a tenth of a millisecond for a few hundred of them."""
LEAST_SPAN_S = 120.0
"""A shorter time tells nothing about a slope."""


@dataclass(frozen=True, slots=True)
class Look:
    """held: bytes by device as the system counts them; known: as the model's ledger does. explained: of what is held, what has an
    owner and is there; unsure: bytes by which that may be off."""

    time_s: float
    held: dict[Device, int]
    known: dict[Device, int]
    explained: dict[Device, int]
    unsure: dict[Device, int]


class HoldingWatch:
    """One loaded model."""

    def __init__(self, model: LoadedModel, clock: Callable[[], float] = time.monotonic) -> None:
        self._model = model
        self._clock = clock
        self._looks: deque[Look] = deque(maxlen=KEPT)
        self._placed = model.placed
        self.look()

    def look(self) -> None:
        """Once in LOOK_S; not while the model is on its way to another placement, where it lies twice, and anew behind that."""
        if self._model.placed is not self._placed:
            self._placed = self._model.placed
            self._looks.clear()
        if self._model.moving:
            return
        if not self._looks or self._clock() - self._looks[-1].time_s >= LOOK_S:
            self._looks.append(self._look())

    def _look(self) -> Look:
        known = known_bytes(self._model)
        explained, unsure = explained_bytes(self._model, known)
        held = {device: system_bytes(device, known[device]) for device in known}
        return Look(self._clock(), held, known, explained, unsure)

    def trends(self) -> tuple[HoldingTrend, ...]:
        """Of every device in use now."""
        self.look()
        last = self._look()
        return tuple(self._trend(device, last) for device in sorted(last.held))

    def _trend(self, device: Device, last: Look) -> HoldingTrend:
        looks = [one for one in (*self._looks, last) if device in one.held]
        first = looks[0]
        span = last.time_s - first.time_s
        slope = slope_of([(one.time_s, one.held[device]) for one in looks])
        grown = last.held[device] - first.held[device]
        # Caches are taken page by page: all that the ledger knows may still become real.
        reason = last.known[device] if isinstance(device, Numa) else max(0, last.known[device] - first.known[device])
        sentence = ""
        rate = (
            0.0
            if self._model.moving
            else steady_growth(
                [(one.time_s, one.held[device] - one.explained.get(device, 0)) for one in looks], last.unsure.get(device, 0)
            )
        )
        if rate:
            sentence = (
                f"{device} grows by {rate * 3600 / 1e9:.1f} GB an hour without a known reason, and has done so for "
                f"{min(span, WINDOW_S) / 60:.0f} minutes; load the model again if it goes on"
            )
        elif not self._model.moving and span >= LEAST_SPAN_S and slope > 0 and grown > reason + GROWN_BYTES:
            sentence = (
                f"{device} holds {grown - reason:,} bytes more than {span / 60:.0f} minutes ago without a known reason; "
                "load the model again if it goes on"
            )
        return HoldingTrend(str(device), last.held[device], slope, span, sentence)


def sampled(places: Sequence[Meant], look: Callable[[Sequence[int]], list[int | None]] = nodes_of) -> PageReport:
    """Where some pages of these lie, and how many of them where they are meant to."""
    known = sampled_nodes(places, look)
    by_node = Counter(is_on for _, is_on in known)
    return PageReport(len(known), sum(is_on in nodes for nodes, is_on in known), dict(sorted(by_node.items())))


def sampled_nodes(
    places: Sequence[Meant], look: Callable[[Sequence[int]], list[int | None]] = nodes_of
) -> list[tuple[tuple[int, ...], int]]:
    """(nodes it is meant to lie on, node it lies on) of some pages of these; without those of which nothing is told."""
    total = sum(one.nbytes for one in places)
    step = max(PAGE, total // SAMPLED_PAGES)
    wanted = [(one.nodes, one.address + at) for one in places for at in range(0, one.nbytes, step)]
    found = look([address for _, address in wanted])
    return [(nodes, is_on) for (nodes, _), is_on in zip(wanted, found, strict=True) if is_on is not None]


def known_bytes(model: LoadedModel) -> dict[Device, int]:
    """By device, what the ledger has of memory of our own."""
    found: dict[Device, int] = {}
    for one in model.residency.holdings:
        found[one.device] = found.get(one.device, 0) + (0 if one.mapped else one.nbytes)
    return found


def explained_bytes(model: LoadedModel, known: Mapping[Device, int]) -> tuple[dict[Device, int], dict[Device, int]]:
    """(what the ledger has and memory really holds, by how much that may be off), by device. The CPU's caches and states are
    taken page by page, of which a sample is looked at; its nodes are told apart by nobody, so each has all of it."""
    nodes = [device for device in known if isinstance(device, Numa)]
    rows = [one for one in model.residency.holdings if isinstance(one.device, Numa) and not one.mapped]
    by_page = sum(one.nbytes for one in rows if one.owner in BY_PAGE)
    there, off = touched_bytes(model)
    eager = sum(one.nbytes for one in rows) - by_page
    explained = {device: (eager + (there or 0)) if isinstance(device, Numa) else known[device] for device in known}
    played = sum(known[device] for device in known if isinstance(device, Gpu) and not _is_real(device))
    return explained, dict.fromkeys(nodes, played + (by_page if there is None else off))


def touched_bytes(model: LoadedModel, look: Callable[[Sequence[int]], list[int | None]] = nodes_of) -> tuple[int | None, int]:
    """(bytes of caches and states in the machine's memory that are there, by how much that may be off); None: nobody tells."""
    placed = model.placed
    if placed is None:
        return 0, 0
    arenas = [one.arena for one in placed.cache.layers.values()] + [one.arena for one in placed.states.layers.values()]
    total = sum(one.nbytes for one in arenas)
    step = max(PAGE, total // TOUCHED_PAGES // PAGE * PAGE)
    pieces = [(one.address + at, min(step, one.nbytes - at)) for one in arenas for at in range(0, one.nbytes, step)]
    found = look([address for address, _ in pieces]) if pieces else []
    there = sum(nbytes for (_, nbytes), node in zip(pieces, found, strict=True) if node is not None)
    if pieces and not there and not _tells(look):
        return None, 0
    return there, round(step * len(arenas) ** 0.5)  # where a cache ends is known to a step: three standard errors of all of them


def _tells(look: Callable[[Sequence[int]], list[int | None]]) -> bool:
    """Whether the system says where pages are at all: one of our own that was just written."""
    page = Arena(PAGE)
    try:
        memoryview(page)[:1] = b"1"
        return look([page.address]) != [None]
    finally:
        page.close()


def system_bytes(device: Device, known: int) -> int:
    """What the process really holds: of its own memory, or of a real GPU's; an emulated one is known by its ledger alone."""
    if isinstance(device, Gpu):
        return int(sys.modules["torch"].cuda.memory_reserved(device.index)) if _is_real(device) else known
    return anonymous_bytes()


def _is_real(gpu: Gpu) -> bool:
    """Whether it is no card that the CPU plays, in memory of its own."""
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_available()) and gpu.index < torch.cuda.device_count()


def anonymous_bytes() -> int:
    """Memory of this process that no file backs."""
    try:
        for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) << 10
    except (OSError, ValueError):
        pass
    return int(psutil.Process().memory_info().rss)


def slope_of(points: list[tuple[float, int]]) -> float:
    """Bytes a second of the line through (seconds, bytes) that is off by the least squares; 0 of less than two points."""
    n = len(points)
    mean_t, mean_b = sum(t for t, _ in points) / n, sum(b for _, b in points) / n
    spread = sum((t - mean_t) ** 2 for t, _ in points)
    return sum((t - mean_t) * (b - mean_b) for t, b in points) / spread if spread else 0.0
