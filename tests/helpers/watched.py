"""The diagnosis beside a real engine, for faults that are put into a machine: what it says first, after how many seconds."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from app.ops.diagnosis_facts import DiagnosisFacts
from engine.advice.diagnosis.diagnostician import Diagnostician
from engine.advice.diagnosis.finding import Finding
from engine.advice.diagnosis.window import Reading
from engine.api.commands import Cancel, Generate, WatchSensors
from engine.api.events import Counters, Event, Sensors
from engine.api.values import HardwareSnapshot, LoadOptions, ModelInfo, RequestId, SamplingParams
from engine.hardware.topology_read import topology
from tests.helpers.recorder import Recorder, new_id

WITHIN_S = 15.0
HEALTHY_S = 13.0
"""A whole window and more: what is true of this machine anyway has been said by then."""
STILL_S = 8.0
"""What was only forgotten has been said again by then."""
PERIOD_S = 1.0
ANSWER = SamplingParams(temperature=0.8, max_tokens=1000, seed=7)


@dataclass(frozen=True, slots=True)
class Named:
    """What was said first, after how many seconds. before: what was said already when the fault began."""

    rule: str
    seconds: float
    sentence: str
    before: tuple[str, ...] = ()


class Watched:
    """A diagnosis that follows an engine or a feed. shown: (seconds since the mark, findings) whenever they changed.

    info: of the loaded model.
    """

    def __init__(self) -> None:
        self.facts, self.doctor = DiagnosisFacts(), Diagnostician()
        self.shown: list[tuple[float, tuple[Finding, ...]]] = []
        self.prompt = "Once upon a time"
        self.current: list[RequestId] = []
        self.known: set[tuple[str, str]] = set()
        self.info: ModelInfo | None = None
        self._snapshot: HardwareSnapshot | None = None
        self._lock = threading.Lock()
        self.mark_s = time.monotonic()

    def mark(self) -> None:
        """The fault begins now. What is said already is of this machine and not of the fault: it is left out from here on."""
        with self._lock:
            self.known |= {one.key for one in self.doctor.findings}
            self.mark_s, self.shown = time.monotonic(), []

    def take(self, event: Event) -> None:
        """Any thread."""
        with self._lock:
            if self.facts.take(event):
                self.doctor.forget()
            if isinstance(event, Sensors):
                if self._snapshot is not None:
                    self._push(None)
                self._snapshot = event.snapshot
            elif isinstance(event, Counters):
                self._push(event)

    def _push(self, counters: Counters | None) -> None:
        snapshot, self._snapshot = self._snapshot, None
        if snapshot is None:
            return
        if self.facts.now.topology is None:
            self.facts.now = replace(self.facts.now, topology=topology())
        found = self.doctor.push(Reading(snapshot, None if counters is None else counters.sample), self.facts.now)
        self.facts.watch(self.doctor.window)
        self.shown.append((time.monotonic() - self.mark_s, found))

    def first(self, within_s: float = WITHIN_S) -> Named:
        """What was said first after the mark; waits for it."""
        while time.monotonic() - self.mark_s < within_s:
            with self._lock:
                for at, found in self.shown:
                    new = [one for one in found if one.key not in self.known]
                    if new:
                        return Named(new[0].id, at, new[0].sentence, tuple(sorted(one for one, _ in self.known)))
            time.sleep(0.05)
        return Named("nothing", within_s, "", tuple(sorted(one for one, _ in self.known)))

    def gone(self, rule: str, within_s: float) -> float | None:
        """Seconds since the mark after which a rule said nothing any more, for STILL_S; None: it goes on."""
        while time.monotonic() - self.mark_s < within_s:
            with self._lock:
                silent = list(itertools.takewhile(lambda one: all(rule != found.id for found in one[1]), reversed(self.shown)))
                if silent and silent[0][0] - silent[-1][0] >= STILL_S:
                    return silent[-1][0]
            time.sleep(0.05)
        return None


@contextmanager
def answering(path: Path, options: LoadOptions | None = None, healthy_s: float = HEALTHY_S) -> Iterator[tuple[Recorder, Watched]]:
    """A model that answers without end, and the diagnosis beside it, which has heard enough of how it is in health."""
    watched = Watched()
    with Recorder() as recorder:
        recorder.engine.subscribe(watched.take)
        watched.info = recorder.load(path, options or LoadOptions(n_ctx=2048))
        warm = Generate(new_id(), prompt="A", sampling=SamplingParams(temperature=0.0, max_tokens=8))
        recorder.finished(warm)
        recorder.engine.submit(WatchSensors(new_id("watch"), PERIOD_S))
        ended = threading.Event()

        def keep() -> None:
            while not ended.is_set():
                request = Generate(new_id("keep"), prompt=watched.prompt, sampling=ANSWER, ignore_eog=True)
                recorder.engine.submit(request)
                watched.current.append(request.request_id)
                with suppress(AssertionError):
                    recorder.end_of(request.request_id)

        thread = threading.Thread(target=keep, daemon=True)
        thread.start()
        time.sleep(healthy_s)
        watched.mark()
        try:
            yield recorder, watched
        finally:
            ended.set()
            for one in watched.current[-1:]:
                recorder.engine.submit(Cancel(new_id("cancel"), one))
            thread.join(10)
