"""Watches cards from a thread of its own, so that whoever takes a snapshot never waits for a driver."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from engine.hardware.gpu_rounds import GpuRounds
from engine.hardware.snapshot import GpuSample

log = logging.getLogger("engine")

WORKER = "engine.hardware.sensor_worker"
REST_AFTER_S = 60.0
"""So long after the last model has left the cards they are left alone, where the system may put them to sleep."""
BUDGET_MS_PER_S = 5.0
"""What questions to four cards may take of a second; more than twice of it three times in a row halves their rate."""
MAX_PERIOD_S = 10.0
RARE_S = 5.0
"""From this period on (a hidden window, a battery) what changes slowly is asked only once."""
LATE_S = 1.5
"""Beyond the time between readings: then values count as late."""


class GpuWatch:
    """The cards of this machine. Cheap while there are none: no process is started."""

    def __init__(
        self,
        root: Path = Path("/"),
        changed: Callable[[], None] = lambda: None,
        worker: str = WORKER,
        rest_after_s: float = REST_AFTER_S,
    ) -> None:
        """root: where /proc and /sys lie. changed: called on the watch's thread when a card begins or ceases to answer."""
        self._rounds = GpuRounds(root, worker, changed)
        self._rest_after_s = rest_after_s
        self._wanted_s = self._period_s = 1.0
        self._begun = False
        self._n_dear = 0
        self._cost_ms: float | None = None
        self._used_at = time.monotonic()
        self._in_use = self._details = False
        self._wake, self._ended = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="gpu sensors", daemon=True)

    def start(self, period_s: float) -> None:
        """Begins to ask, every period_s."""
        self._wanted_s = self._period_s = period_s
        self._thread.start()

    def adjust(self, *, period_s: float | None = None, in_use: bool | None = None, details: bool | None = None) -> None:
        """Changes how often cards are asked; whether a model lies on them, then they are never left alone; whether they also tell
        which programs hold their memory and what crosses their links."""
        if period_s is not None and period_s != self._wanted_s:
            self._wanted_s = self._period_s = period_s
            self._n_dear = 0
            self._wake.set()
        if in_use is not None and in_use != self._in_use:
            self._in_use, self._used_at = in_use, time.monotonic()
            self._wake.set()
        if details is not None:
            self._details = details

    @property
    def pid(self) -> int | None:
        """Of the sensor process, while there is one."""
        return self._rounds.pid

    @property
    def begun(self) -> bool:
        """Whether a first round of questions is over."""
        return self._begun

    @property
    def problem(self) -> str:
        """Why NVIDIA's cards cannot be seen though there should be some, or ""."""
        return self._rounds.problem

    @property
    def cost_ms(self) -> float | None:
        """What the last round of questions took in the sensor process."""
        return self._cost_ms

    @property
    def note(self) -> str:
        """Why cards are asked less often than was wished, or ""."""
        if self._period_s <= self._wanted_s:
            return ""
        return f"cards are asked every {self._period_s:g} s: their driver takes {self._cost_ms or 0:.0f} ms for its answers"

    def samples(self) -> tuple[GpuSample, ...]:
        """What is known of each card now."""
        return self._rounds.samples(self._period_s + LATE_S)

    def close(self) -> None:
        """Ends process and thread, also in the midst of a question. Idempotent."""
        self._ended.set()
        self._wake.set()
        while self._thread.is_alive():
            pid = self._rounds.pid
            if self._rounds.busy and pid is not None:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._thread.join(0.2)
        self._rounds.drop_process()

    def _run(self) -> None:
        while not self._ended.is_set():
            started = time.monotonic()
            idle = not self._in_use and started - self._used_at >= self._rest_after_s
            self._mind_the_cost(*self._rounds.round(idle=idle, details=self._details, seldom=self._period_s < RARE_S))
            self._begun = True
            self._wake.wait(max(0.0, started + self._period_s - time.monotonic()))
            self._wake.clear()

    def _mind_the_cost(self, cost_ms: float, n_cards: int) -> None:
        if not n_cards:
            return
        self._cost_ms = cost_ms
        budget = BUDGET_MS_PER_S * self._period_s * max(1.0, n_cards / 4)
        self._n_dear = self._n_dear + 1 if cost_ms > 2 * budget else 0
        if self._n_dear >= 3 and self._period_s < MAX_PERIOD_S:
            self._period_s, self._n_dear = min(MAX_PERIOD_S, 2 * self._period_s), 0
            log.info("%s", self.note)
