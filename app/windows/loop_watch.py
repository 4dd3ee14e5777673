"""LoopWatch: how long the window was kept waiting at worst since it was shown, and by what.

A tick of 100 ms on the thread of the window tells how late it came. When it is a quarter of a second late, another thread notes
what the window's thread is doing: functions and lines, no values. Nothing runs while the window is hidden.
"""

from __future__ import annotations

import faulthandler
import re
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from PySide6.QtCore import QObject, Qt, QTimer

TICK_S = 0.1
LATE_S = 0.25
START_S = 2.0
"""So long after it was shown, a window is still being made: nobody types yet."""
_OURS, _INNERMOST = 5, 2
_CALL = re.compile(r'^  File "(.*)", line (\d+) in (.*)$', re.MULTILINE)
_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Wait:
    """The longest one: seconds, of which worked_s the thread of the window computed itself; stack: where, the innermost last."""

    seconds: float = 0.0
    worked_s: float = 0.0
    stack: tuple[str, ...] = ()

    @property
    def starved(self) -> bool:
        """Whether the thread was ready but other programs had the processor, or it slept in the system."""
        return self.worked_s < 0.5 * self.seconds


class LoopWatch(QObject):
    """Lives on the window's thread. watch(True) while the window is seen; close() before the application ends."""

    def __init__(self, parent: QObject | None = None, start_s: float = START_S) -> None:
        super().__init__(parent)
        self._start_s = start_s
        self._counts_from_s = 0.0
        self._worst = Wait()
        self._tick_s = time.monotonic()
        self._worked_s = time.thread_time()
        self._stack: tuple[str, ...] = ()
        self._thread_id = threading.get_ident()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._timer = QTimer(self)
        self._timer.setTimerType(Qt.TimerType.PreciseTimer)
        self._timer.setInterval(round(TICK_S * 1000))
        self._timer.timeout.connect(self._on_tick)

    @property
    def worst(self) -> Wait:
        """The longest wait so far."""
        return self._worst

    def watch(self, on: bool) -> None:
        """Begins or ends watching; what was found stays."""
        if on == self._timer.isActive():
            return
        if not on:
            self.close()
            return
        self._tick_s, self._worked_s = time.monotonic(), time.thread_time()
        self._counts_from_s = self._tick_s + self._start_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, args=(self._stop,), name="loop-watch", daemon=True)
        self._thread.start()
        self._timer.start()

    def close(self) -> None:
        """Ends the thread. Idempotent."""
        self._timer.stop()
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _on_tick(self) -> None:
        now, worked_s = time.monotonic(), time.thread_time()
        late_s = now - self._tick_s - TICK_S
        if late_s > self._worst.seconds and self._tick_s >= self._counts_from_s:
            stack = self._stack if late_s >= LATE_S else ()
            self._worst = Wait(late_s, min(late_s, worked_s - self._worked_s), stack)
        self._tick_s, self._worked_s, self._stack = now, worked_s, ()

    def _look(self, stop: threading.Event) -> None:
        """On the other thread: notes the stack once for each long wait. A wait that holds the interpreter's lock is seen late."""
        while not stop.wait(LATE_S):
            if not self._stack and time.monotonic() - self._tick_s > TICK_S + LATE_S:
                self._stack = stack_of(self._thread_id)


def stack_of(thread_id: int) -> tuple[str, ...]:
    """Our innermost calls of a thread and what they are in, as `app/chat/composer.py:12 focus`, without folders of this computer.

    Its frames are never held: what a frame refers to lives on with it, and a painter that outlives the painting of its widget
    ends the process. So the interpreter writes them down itself.
    """
    with tempfile.TemporaryFile() as file:
        faulthandler.dump_traceback(file, all_threads=True)
        file.seek(0)
        text = file.read().decode(errors="replace")
    _, _, rest = text.partition(f"hread 0x{thread_id:016x} ")
    calls = [match.groups() for match in _CALL.finditer(rest.partition("\n\n")[0])][::-1]
    ours = [call for call in calls[:-_INNERMOST] if Path(call[0]).is_relative_to(_ROOT)][-_OURS:]
    return tuple(f"{_short(filename)}:{line} {name}" for filename, line, name in (*ours, *calls[-_INNERMOST:]))


def _short(filename: str) -> str:
    path = Path(filename)
    return str(path.relative_to(_ROOT)) if path.is_relative_to(_ROOT) else path.name
