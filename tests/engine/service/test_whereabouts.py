"""Pages and workers that others have moved: by what is pretended of them, and with real workers of a real model."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from engine.api.commands import Generate, PinWorkers, WatchSensors
from engine.api.events import Counters
from engine.api.values import Astray, LoadOptions, SamplingParams, StrayWorker
from engine.runtime.node_memory import PAGE, Meant
from engine.service.whereabouts import PAGES_S, Whereabouts, astray_of, strays_of
from kernels_pyx.pool import Pool
from tests.helpers.golden_models import golden
from tests.helpers.recorder import Recorder, new_id

CPUS = sorted(os.sched_getaffinity(0))[:2]
two_cpus = pytest.mark.skipif(
    len(CPUS) < 2 or "PYTEST_XDIST_WORKER" in os.environ,
    reason="two processors are needed, and tests that run side by side pin nobody",
)


def lying(nodes: dict[int, int]) -> Any:
    """A system whose pages lie so; of others it tells nothing."""
    return lambda addresses: [nodes.get(address // PAGE) for address in addresses]


def test_the_nodes_between_which_most_pages_are_astray_are_named() -> None:
    places = [Meant((0,), 0, 10 * PAGE), Meant((1,), 10 * PAGE, 10 * PAGE), Meant((0, 1), 20 * PAGE, 10 * PAGE)]
    right = dict.fromkeys(range(10), 0) | dict.fromkeys(range(10, 20), 1) | {i: i % 2 for i in range(20, 30)}
    assert astray_of(places, lying(right)) == Astray(0.0)
    wrong = right | dict.fromkeys(range(10, 16), 0) | {0: 1}
    assert astray_of(places, lying(wrong)) == Astray(7 / 30, 1, 0)
    assert astray_of(places, lying({})) is None and astray_of((), lying(right)) is None


class Pretender:
    """A model on two nodes. asked: how often pages were asked for."""

    moving = False
    places = (Meant((1,), 0, 4 * PAGE),)

    def __init__(self) -> None:
        self.source = SimpleNamespace(nodes=object())
        self.placed = SimpleNamespace(programs=None)
        self.asked, self.node = 0, 0

    def look(self, addresses: Sequence[int]) -> list[int | None]:
        self.asked += 1
        return [self.node] * len(addresses)


def test_pages_are_looked_at_now_and_then_and_anew_in_another_placement() -> None:
    model, now = Pretender(), [100.0]
    where = Whereabouts(cast(Any, model), model.look, clock=lambda: now[0])
    for _ in range(3):
        where.look()
    assert where.astray == Astray(1.0, 1, 0) and model.asked == 1
    now[0] += PAGES_S
    model.node = 1
    where.look()
    assert where.astray == Astray(0.0) and model.asked == 2
    model.placed = SimpleNamespace(programs=None)
    where.look()
    assert model.asked == 3
    now[0] += PAGES_S
    model.moving = True
    where.look()
    assert where.astray is None and model.asked == 3
    model.source.nodes = None
    model.moving, now[0] = False, now[0] + PAGES_S
    where.look()
    assert model.asked == 3 and where.strays == ()


@two_cpus
def test_workers_that_others_moved_are_told_apart_from_refused_ones() -> None:
    pool = Pool((CPUS[0], CPUS[1], 1023))
    try:
        until = time.monotonic() + 5
        while 0 in pool.threads and time.monotonic() < until:
            time.sleep(0.01)
        assert [core for core, _ in pool.refused] == [1023] and strays_of(pool) == ()
        os.sched_setaffinity(pool.threads[0], {CPUS[0]})
        assert strays_of(pool) == (StrayWorker(CPUS[1], (CPUS[0],)),)
        assert strays_of(pool, lambda thread: None) == ()  # it has ended meanwhile
    finally:
        pool.close()


@two_cpus
def test_a_moved_worker_is_in_the_counters_until_it_is_pinned_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAYERDECK_GPU", "none")
    with Recorder() as recorder:
        cpus = f"{CPUS[0]},{CPUS[1]}"
        recorder.load(golden("qwen2moe").path, LoadOptions(n_threads=2, cores=tuple(CPUS)))

        def answered_with(strays: bool) -> None:
            """An answer after which the workers are told so, at some reading."""
            since, end = len(recorder.events), time.monotonic() + 20
            while time.monotonic() < end:
                recorder.finished(Generate(new_id(), ids=(1, 2, 3), sampling=SamplingParams(max_tokens=8), ignore_eog=True))
                found = [one.sample.strays for one in recorder.events[since:] if isinstance(one, Counters)]
                if found and bool(found[-1]) == strays:
                    assert not strays or found[-1] == (StrayWorker(CPUS[1], (CPUS[0],)),)
                    return
            raise AssertionError("it was not told")

        recorder.engine.submit(WatchSensors(new_id("watch"), 0.2))
        answered_with(strays=False)
        workers = [int(task.name) for task in Path("/proc/self/task").iterdir()]
        moved = next(one for one in workers if os.sched_getaffinity(one) == {CPUS[1]})
        os.sched_setaffinity(moved, {CPUS[0]})
        answered_with(strays=True)
        recorder.finished(PinWorkers(new_id("pin"), cpus))
        answered_with(strays=False)
