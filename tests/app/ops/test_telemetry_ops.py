"""Telemetry of messages: kept with the answer, shown again, gone with it; watching lasts as long as the answer."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from app.ops.telemetry_ops import MAX_ROWS, TelemetryOps, _Live
from app.store import chats
from app.store.chat_store import ChatStore
from app.telemetry import keys
from app.telemetry.message_telemetry import unpacked
from engine.api.commands import WatchSensors
from engine.api.values import DeviceWork, EngineSample
from tests.app.ops.conftest import Bench
from tests.app.ops.test_monitor_ops import read
from tests.helpers.fake_engine import Prefill, Stall, Tokens


@pytest.fixture
def telemetry(bench: Bench) -> Iterator[TelemetryOps]:
    made = TelemetryOps(bench.chats, bench.monitors, bench.store, bench.bridge)
    yield made
    made.close()


def answer(bench: Bench, n_readings: int = 3) -> int:
    """An answer during which the machine is read some times; the id of the message."""
    bench.load()
    bench.engine.answers = [(Prefill(), Tokens(("a", "b")), Stall(60))]
    turn = bench.ask("q", wait=False)
    bench.qtbot.waitUntil(lambda: bench.monitors.period_s > 0)
    at = time.monotonic() + 1
    for i in range(n_readings):
        read(bench, at + i, EngineSample(at + i, 1.0, decode_tok_s=12.0 + i, devices=(DeviceWork("numa0", 70.0),)))
    bench.chats.stop(turn.chat.id)
    bench.settle()
    return turn.answer.id


def wait_kept(bench: Bench, message_id: int) -> bytes:
    bench.qtbot.waitUntil(lambda: bench.store.telemetry(message_id) is not None)
    data = bench.store.telemetry(message_id)
    assert data is not None
    return data


def test_an_answer_keeps_what_the_machine_did(bench: Bench, telemetry: TelemetryOps) -> None:
    message_id = answer(bench)
    kept = unpacked(wait_kept(bench, message_id))
    decode = kept.columns[keys.decode()]
    assert decode[-3:].tolist() == pytest.approx([12.0, 13.0, 14.0], rel=1e-4)
    assert kept.columns[keys.device("numa0", "working_percent")][-1] == 70.0
    assert kept.columns[keys.gpu("GPU-a", "temperature_c")][-1] == 83.0
    assert [card.name for card in kept.cards] == ["RTX 3090"]
    assert kept.model == "SmolLM2 135M Instruct"
    assert abs(kept.began_s - time.time()) < 60
    # Nobody watches any more.
    assert bench.monitors.period_s == 0.0
    assert [one.period_s for one in bench.engine.sent(WatchSensors)] == [1.0, 0.0]  # type: ignore[union-attr]


def test_it_is_shown_again_and_the_present_comes_back(bench: Bench, telemetry: TelemetryOps) -> None:
    message_id = answer(bench)
    wait_kept(bench, message_id)
    changes: list[int | None] = []
    monitors = bench.monitors
    monitors.replay_changed.connect(lambda: changes.append(None if monitors.replayed is None else monitors.replayed.message_id))
    monitors.replay(message_id)
    assert monitors.timeline.latest(keys.decode()) == pytest.approx(14.0, rel=1e-4)
    assert monitors.timeline.series(keys.decode(), 1e6, 100)[0][0] < 10.0  # seconds since the question
    assert monitors.healths["GPU-a"].level == "warm"
    assert not monitors.is_paused
    # Readings go on below, and change nothing of what is shown.
    monitors.set_watching("page", 1.0)
    read(bench, time.monotonic() + 50, celsius=95.0)
    assert monitors.now.healths["cpu"].level == "hot"
    assert monitors.healths["cpu"].level == "ok"
    monitors.live()
    assert monitors.healths["cpu"].level == "hot"
    monitors.replay(message_id)
    monitors.pause(True)
    assert monitors.is_paused
    assert changes == [message_id, None, message_id, None]


def test_where_nothing_was_kept_a_sentence_says_so(bench: Bench, telemetry: TelemetryOps) -> None:
    bench.load()
    turn = bench.ask("q")
    bench.monitors.replay(turn.question.id if turn.question is not None else 0)
    assert "No telemetry was kept" in bench.notices[-1]
    assert bench.monitors.replayed is None
    bench.store.change(
        lambda db: db.execute("INSERT OR REPLACE INTO message_telemetry VALUES (?, x'0102')", (turn.answer.id,))
    ).result(5)
    bench.monitors.replay(turn.answer.id)
    assert "cannot be read" in bench.notices[-1]


def test_it_goes_with_its_message(bench: Bench, telemetry: TelemetryOps) -> None:
    message_id = answer(bench)
    wait_kept(bench, message_id)
    bench.store.change(lambda db: chats.delete_message(db, message_id)).result(5)
    assert bench.store.telemetry(message_id) is None
    bench.store.close()
    again = ChatStore(bench.store.path)
    left = again.change(lambda db: db.execute("SELECT count(*) FROM message_telemetry").fetchone()).result(5)
    again.close()
    assert left == (0,)


def test_a_continued_answer_keeps_both_parts(bench: Bench, telemetry: TelemetryOps) -> None:
    message_id = answer(bench)
    first = len(unpacked(wait_kept(bench, message_id)).times_s)
    bench.engine.answers = [(Prefill(), Tokens(("c",)), Stall(60))]
    bench.chats.continue_answer(message_id)
    bench.qtbot.waitUntil(lambda: bench.monitors.period_s > 0)
    at = time.monotonic() + 100
    read(bench, at)
    bench.chats.stop(bench.turns[-1].chat.id)
    bench.settle()
    bench.qtbot.waitUntil(lambda: len(unpacked(wait_kept(bench, message_id)).times_s) > first)


def test_answers_cut_off_by_the_end_of_the_program_keep_theirs(bench: Bench, telemetry: TelemetryOps) -> None:
    bench.load()
    bench.engine.answers = [(Prefill(), Tokens(("a",)), Stall(60))]
    turn = bench.ask("q", wait=False)
    bench.qtbot.waitUntil(lambda: bench.monitors.period_s > 0)
    read(bench, time.monotonic() + 1)
    telemetry.close()
    wait_kept(bench, turn.answer.id)
    bench.chats.stop(turn.chat.id)


def test_an_answer_of_hours_stays_small(bench: Bench) -> None:
    live = _Live(0.0, 0.0)
    for i in range(5 * MAX_ROWS):
        live.add(float(i), {keys.decode(): 1.0})
        assert len(live.rows) <= MAX_ROWS
    assert live.times[0] < 10
    assert live.times[-1] > 5 * MAX_ROWS - 20
    assert live.n_together >= 4


def test_a_store_that_cannot_write_troubles_nobody(
    bench: Bench, telemetry: TelemetryOps, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = bench.store.change

    def refuse(job: Any) -> Future[Any]:
        if getattr(job, "func", None) is None:
            return changed(job)
        future: Future[Any] = Future()
        future.set_exception(OSError("disk"))
        return future

    monkeypatch.setattr(bench.store, "change", refuse)
    message_id = answer(bench)
    assert bench.store.telemetry(message_id) is None
    assert not bench.notices
