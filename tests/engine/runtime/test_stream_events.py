"""The events that keep copies and products of a real GPU apart, with a driver that only takes notes."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from engine.placement import streaming
from tests.helpers.golden_models import batch, golden
from tests.helpers.placed import EXACT, hybrid, need_torch, open_placed


class Driver:
    """Streams and events in the form of torch.cuda's. notes: (stream, what, event), in the order of the calls."""

    def __init__(self) -> None:
        self.notes: list[tuple[str, str, Any]] = []
        self._lock = threading.Lock()
        self._own = threading.local()
        driver = self

        class Event:
            def __init__(self, enable_timing: bool = False) -> None:
                self.timed = enable_timing
                self.n_records = 0

            def record(self) -> None:
                self.n_records += 1
                driver.note("record", self)

            def synchronize(self) -> None:
                assert self.n_records, "waited for an event that nobody records"
                driver.note("await", self)

            def query(self) -> bool:
                return self.n_records > 0

            def elapsed_time(self, later: Event) -> float:
                assert self.timed and later.timed and self.n_records and later.n_records
                return 2.0

        class Stream:
            def __init__(self, device: object = None) -> None:
                self.name = "copies"

            def wait_event(self, event: Event) -> None:
                assert event.n_records, "waited for an event that nobody records"
                driver.note("wait", event, self.name)

            def synchronize(self) -> None:
                driver.note("synchronize", None, self.name)

        self.Event, self.Stream = Event, Stream
        self._compute = Stream()
        self._compute.name = "compute"

    def note(self, what: str, event: Any, stream: str | None = None) -> None:
        with self._lock:
            self.notes.append((stream or getattr(self._own, "stream", "compute"), what, event))

    def current_stream(self, device: object = None) -> Any:
        return self._compute

    @contextlib.contextmanager
    def stream(self, stream: Any) -> Iterator[None]:
        self._own.stream = stream.name
        yield
        self._own.stream = "compute"

    def device(self, device: object) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()


@pytest.fixture
def driven(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Any, Any, Driver]]:
    """(model, its ring, the driver)."""
    need_torch()
    import torch

    from engine.runtime.gpu_stream_marks import Marks

    monkeypatch.setenv("LAYERDECK_GPU", "emulate")
    monkeypatch.setattr(streaming, "CHUNK_BYTES", 9001)
    driver = Driver()
    model: Any = open_placed(golden("qwen3moe").path, hybrid, replace(EXACT, stream_experts="on"))
    ring = model.executor._sides[0].experts
    for name in ("Event", "Stream", "current_stream", "stream", "device"):
        monkeypatch.setattr(torch.cuda, name, getattr(driver, name))
    ring._marks = Marks(len(ring._parts), model.executor._sides[0].memory)
    yield model, ring, driver
    model.close()


def at(driver: Driver, stream: str, what: str, event: Any, start: int = 0) -> int:
    return next(i for i, note in enumerate(driver.notes) if i >= start and note == (stream, what, event))


def test_places_are_free_before_they_are_written_and_full_before_they_are_read(driven: tuple[Any, Any, Driver]) -> None:
    model, ring, driver = driven
    ids, recorded = golden("qwen3moe").ids("medium"), golden("qwen3moe").logits("medium")
    for _ in range(2):
        start = len(driver.notes)
        assert np.abs(model.step(batch(ids))[-len(recorded) :] - recorded).max() < 2e-3
        marks, n = ring._marks, len(ring._parts)
        assert n >= 3
        for position in range(n):
            free = marks.free[max(0, position + 1 - streaming.RING_LAYERS)]
            copies = at(driver, "copies", "wait", free, start)
            assert at(driver, "compute", "record", free, start) < copies
            arrived = at(driver, "copies", "record", marks.ready[position], start)
            assert copies < arrived < at(driver, "compute", "wait", marks.ready[position], start)
            assert arrived < at(driver, "compute", "record", marks.free[position + 1], start)
        assert driver.notes[-1][1] == "synchronize" or ("copies", "synchronize", None) in driver.notes[start:]
    assert ring.times is not None and ring.times.nbytes == ring.nbytes
    assert ring.times.waited_s == pytest.approx(0.002 * n) and ring.times.copy_s == pytest.approx(0.002)


def test_chunks_are_filled_again_only_behind_their_copies(driven: tuple[Any, Any, Driver]) -> None:
    from engine.runtime.gpu_stream_marks import on_the_way

    assert [on_the_way(n) for n in (2, 3, 4, 8, 20)] == [1, 1, 1, 5, 15]
    model, ring, driver = driven
    freed: list[int] = []
    ferry = ring._ferry

    class Told:
        chunk, n_chunks = ferry.chunk, ferry.n_chunks

        def freed(self, n: int) -> None:
            if n:
                assert ("copies", "await", ring._marks._copied[(n - 1) % ferry.n_chunks]) == driver.notes[-1]
            freed.append(n)
            ferry.freed(n)

        def __getattr__(self, name: str) -> Any:
            return getattr(ferry, name)

    ring._ferry = Told()
    model.step(batch(golden("qwen3moe").ids("short")))
    ring._ferry = ferry
    n = len(ring._loads)
    ahead = on_the_way(ferry.n_chunks)
    assert n > 2 * ferry.n_chunks
    assert freed == [max(0, i - ahead + 1) for i in range(n)]


def test_the_bus_is_measured_with_the_first_layers_alone(driven: tuple[Any, Any, Driver]) -> None:
    _, ring, _ = driven
    usual = sys.getswitchinterval()
    assert ring.measure() > 0
    assert sys.getswitchinterval() == usual
    marks = ring._marks
    assert [one.n_records for one in marks.ready][: streaming.RING_LAYERS] == [1] * streaming.RING_LAYERS
    assert not any(one.n_records for one in marks.ready[streaming.RING_LAYERS :])
    assert ring._passage is None and ring.times is None


def test_the_fastest_chunks_are_taken(driven: tuple[Any, Any, Driver], monkeypatch: pytest.MonkeyPatch) -> None:
    model, ring, _ = driven
    monkeypatch.setattr(streaming, "RINGS", ((9001, 4), (5000, 3), (7000, 2)))
    rates = iter([1.0, 10.0, 11.0, 9.0, 30.0, 20.0, 21.0])  # the first does not count, then the better of two
    measure = type(ring).measure

    def told(self: Any) -> float:
        assert measure(self) > 0
        return next(rates)

    monkeypatch.setattr(type(ring), "measure", told)
    assert ring.tune() == 30.0
    assert (ring._ferry.chunk, ring._ferry.n_chunks) == (5000, 3)
    ids, recorded = golden("qwen3moe").ids("medium"), golden("qwen3moe").logits("medium")
    assert np.abs(model.step(batch(ids))[-len(recorded) :] - recorded).max() < 2e-3
