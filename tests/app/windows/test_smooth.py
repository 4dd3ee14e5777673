"""The window stays smooth while a scripted engine streams.

Gaps of the event loop are judged by their p99, best of three. On a loaded machine the gaps are those of other processes; then
the processor time that the thread of the window spent in each gap is judged, by half the bound.
"""

from __future__ import annotations

import statistics
import time

import pytest
from PySide6.QtCore import QElapsedTimer, Qt, QTimer

from app.chat.transcript_view import TranscriptView
from app.store import chats
from tests.app.windows.conftest import Stage
from tests.helpers.beside import BESIDE
from tests.helpers.fake_engine import Prefill, Tokens

MARKDOWN = """## A heading

Some **bold** words and `code`, a [link](https://example.org) and plain text that goes on for a line or two of the column.

- one item
- another item with more words in it

```python
def place(layer: int) -> str:
    return f"cpu:{layer % 2}"
```

| Part | Device |
|---|---|
| Attention | GPU 0 |
| Experts | NUMA 1 |

"""


def tokens(n: int) -> tuple[str, ...]:
    """n tokens of about four characters of markdown."""
    text = MARKDOWN * (n * 4 // len(MARKDOWN) + 1)
    return tuple(text[i * 4 : i * 4 + 4] for i in range(n))


class Heartbeat:
    """Gaps of the event loop, seen by a timer of 5 ms."""

    def __init__(self) -> None:
        self.gaps_ms: list[float] = []
        self.work_ms: list[float] = []
        self._worked_s = time.thread_time()
        self._clock = QElapsedTimer()
        self._timer = QTimer()
        self._timer.setTimerType(Qt.TimerType.PreciseTimer)
        self._timer.timeout.connect(self._on_timeout)
        self._clock.start()
        self._timer.start(5)

    def _on_timeout(self) -> None:
        self.gaps_ms.append(self._clock.nsecsElapsed() / 1e6)
        self._clock.restart()
        worked_s = time.thread_time()
        self.work_ms.append(1000 * (worked_s - self._worked_s))
        self._worked_s = worked_s

    def p99_ms(self) -> tuple[float, float]:
        """Of the gaps, and of the thread's own work in them."""
        self._timer.stop()
        return statistics.quantiles(self.gaps_ms, n=100)[98], statistics.quantiles(self.work_ms, n=100)[98]


@pytest.mark.slow
def test_event_loop_gaps_while_generating_at_full_speed(stage: Stage) -> None:
    stage.load()
    results = []
    for _ in range(3):
        stage.controller.new_chat()
        stage.engine.answers = [(Prefill(), Tokens(tokens(800), tok_s=200))]
        stage.send("go", wait=False)
        stage.qtbot.waitUntil(lambda: stage.parts.bridge.state.kind == "generating")
        beat = Heartbeat()
        stage.qtbot.waitUntil(lambda: not stage.parts.chats.streaming_chats(), timeout=30_000)
        results.append(beat.p99_ms())
    assert min(gap for gap, _work in results) <= 33.0 * BESIDE or min(work for _gap, work in results) <= 16.5 * BESIDE, results


@pytest.mark.slow
def test_a_very_long_answer_costs_the_same_at_its_end(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    costs: list[float] = []
    append = TranscriptView.append_text

    def timed(self: TranscriptView, message_id: int, text: str) -> None:
        start = time.thread_time()
        append(self, message_id, text)
        costs.append(time.thread_time() - start)

    monkeypatch.setattr(TranscriptView, "append_text", timed)
    stage.load()
    stage.engine.answers = [(Prefill(), Tokens(tokens(11_000), tok_s=1500))]
    stage.send("go", wait=False)
    stage.qtbot.waitUntil(lambda: stage.controller.last_answer() is not None)
    stage.qtbot.waitUntil(lambda: not stage.parts.chats.streaming_chats(), timeout=60_000)
    quarter = len(costs) // 4
    assert quarter > 20
    first = statistics.median(costs[quarter : 2 * quarter])
    last = statistics.median(costs[-quarter:])
    assert last < 2.0 * first + 0.002, (first, last)
    assert len(stage.shown()[-1][1]) == len("".join(tokens(11_000)))


def test_a_chat_of_two_thousand_messages_opens_quickly(stage: Stage) -> None:
    def fill(db: object) -> int:
        chat = chats.add_chat(db, "long")  # type: ignore[arg-type]
        parent = None
        for i in range(2000):
            role = "user" if i % 2 == 0 else "assistant"
            parent = chats.add_message(db, chat.id, parent, role, f"Message {i}\n\n{MARKDOWN}").id  # type: ignore[arg-type]
        return chat.id

    chat_id = stage.parts.store.change(fill).result(60)
    stage.controller.open_chat(chat_id)
    best = 10.0
    for _ in range(3):
        stage.controller.new_chat()
        stage.qtbot.wait(20)
        start = time.thread_time()
        stage.controller.open_chat(chat_id)
        stage.window.page.transcript.viewport().repaint()
        best = min(best, time.thread_time() - start)
    assert best <= 0.3 * BESIDE, best
