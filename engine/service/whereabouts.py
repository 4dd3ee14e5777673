"""Where the pages and the workers of a loaded model really are, beside where its placement wants them: both are looked at again
and again, since other programs can move them. Owned by the loaded model; the engine thread looks, between two steps."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Sequence

from engine.api.values import Astray, StrayWorker
from engine.hardware.page_nodes import nodes_of
from engine.runtime.loaded_model import LoadedModel
from engine.runtime.node_memory import Meant
from engine.runtime.placed import Placed
from engine.service.holdings import sampled_nodes
from kernels_pyx.pool import Pool

PAGES_S = 4.0
"""Between two looks at pages, each of a fifth of a millisecond. With the 5 s for which a finding must last, 15 s are kept."""
WORKERS_S = 1.0
"""Between two looks at workers, a microsecond for each of them."""

LooksAtPages = Callable[[Sequence[int]], list[int | None]]
LooksAtThread = Callable[[int], frozenset[int] | None]


def allowed_of(thread: int) -> frozenset[int] | None:
    """The processors that a thread of this process may run on; None: it has ended."""
    try:
        return frozenset(os.sched_getaffinity(thread))
    except OSError:
        return None


class Whereabouts:
    """astray, strays: see `EngineSample`; as they were found last."""

    def __init__(
        self,
        model: LoadedModel,
        pages: LooksAtPages = nodes_of,
        thread: LooksAtThread = allowed_of,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._model, self._look_at_pages, self._look_at_thread, self._clock = model, pages, thread, clock
        self._pages_due = self._workers_due = -PAGES_S
        self._placed: Placed | None = None
        self._places: tuple[Meant, ...] = ()
        self.astray: Astray | None = None
        self.strays: tuple[StrayWorker, ...] = ()

    def look(self) -> None:
        """At what is due. While a placement is being applied pages are on their way, and nothing is said of them."""
        now, placed = self._clock(), self._model.placed
        if placed is not self._placed:
            self._placed, self._places, self._pages_due = placed, (), now
            self.astray = None
        if now >= self._pages_due and placed is not None and self._model.source.nodes is not None:
            self._pages_due = now + PAGES_S
            self._places = self._places or self._model.places
            self.astray = None if self._model.moving else astray_of(self._places, self._look_at_pages)
        if now >= self._workers_due:
            self._workers_due = now + WORKERS_S
            team = None if placed is None or placed.programs is None else placed.programs.team
            self.strays = () if team is None else strays_of(team, self._look_at_thread)


def astray_of(places: Sequence[Meant], look: LooksAtPages = nodes_of) -> Astray | None:
    """How much lies elsewhere than it is meant to; None where the system tells of no page."""
    pairs = sampled_nodes(places, look)
    wrong = Counter((meant[0], found) for meant, found in pairs if found not in meant)
    if not pairs:
        return None
    (meant, found), _ = wrong.most_common(1)[0] if wrong else ((None, None), 0)
    return Astray(wrong.total() / len(pairs), meant, found)


def strays_of(team: Pool, look: LooksAtThread = allowed_of) -> tuple[StrayWorker, ...]:
    """Workers that were pinned and may run elsewhere by now. The first is the thread that steps, pinned anew each time."""
    refused = {core for core, _ in team.refused}
    found = []
    for core, thread in zip(team.cores[1:], team.threads, strict=False):  # a closed team has no threads
        allowed = look(thread) if thread and core >= 0 and core not in refused else None
        if allowed is not None and allowed != {core}:
            found.append(StrayWorker(core, tuple(sorted(allowed))))
    return tuple(found)
