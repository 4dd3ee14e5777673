"""Readings of the machine, and of the engine's own work, as events: on a thread of their own, so that a long step delays none."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from engine.api.events import Counters, Event, Sensors
from engine.api.values import EngineSample, RequestId
from engine.hardware.cpu_facts import on_battery
from engine.hardware.gpu_watch import GpuWatch
from engine.hardware.sampler import LIVE, Sampler

SOONEST_S = 0.1
"""Before the first reading, whose use of processors is of this time; and between two, also when a card has something to tell."""
BATTERY_PERIOD_S = 5.0
BATTERY_LOOKS_S = 30.0


class SensorFeed:
    """One watch. `work` is asked beside each reading; None: no model is loaded."""

    def __init__(
        self,
        emit: Callable[[Event], None],
        work: Callable[[], EngineSample | None],
        root: Path = LIVE,
        gpus: GpuWatch | None = None,
    ) -> None:
        """root: where /proc and /sys lie. gpus: None: those of the machine."""
        self._emit = emit
        self._work = work
        self._root = root
        self._told = threading.Event()
        self._ended = False
        self._gpus = gpus or GpuWatch(root, self._told.set)
        self._sampler = Sampler(root, gpus=self._gpus)
        self._request_id = RequestId("")
        self._wanted_s = self._period_s = 1.0
        self._battery_due = 0.0
        self._thread = threading.Thread(target=self._run, name="sensors", daemon=True)

    def follow(self, request_id: RequestId, period_s: float, *, details: bool) -> None:
        """From now on events carry this id and come every period_s. details: see `GpuWatch.adjust`."""
        self._request_id, self._wanted_s = request_id, max(period_s, SOONEST_S)
        self._battery_due = 0.0
        self._adjust_period()
        self._gpus.adjust(details=details)
        if not self._thread.is_alive():
            self._gpus.start(self._period_s)
            self._thread.start()
        else:
            self._told.set()

    def model(self, path: Path | None, *, on_gpus: bool) -> None:
        """The model that is loaded from now on, None: none."""
        self._sampler.watch_file(path)
        self._gpus.adjust(in_use=on_gpus)

    def close(self) -> None:
        """Ends the readings: no event comes after this. Idempotent."""
        self._ended = True
        self._told.set()
        if self._thread.is_alive():
            self._thread.join()
        self._gpus.close()

    def _run(self) -> None:
        time.sleep(SOONEST_S)
        while not self._ended:
            began = time.monotonic()
            self._adjust_period()
            self._told.clear()
            self._read()
            self._told.wait(max(0.0, began + self._period_s - time.monotonic()))
            # What cards tell is told soon, not at once: they may tell much.
            if not self._ended:
                time.sleep(max(0.0, min(self._period_s, SOONEST_S) - (time.monotonic() - began)))

    def _read(self) -> None:
        snapshot, request_id = self._sampler.sample(self._period_s), self._request_id
        work = self._work()
        if self._ended:
            return
        self._emit(Sensors(request_id, snapshot))
        if work is not None:
            self._emit(Counters(request_id, work))

    def _adjust_period(self) -> None:
        """On battery readings are rarer."""
        now = time.monotonic()
        if now < self._battery_due:
            return
        self._battery_due = now + BATTERY_LOOKS_S
        self._period_s = max(self._wanted_s, BATTERY_PERIOD_S) if on_battery(self._root) else self._wanted_s
        self._gpus.adjust(period_s=self._period_s)
