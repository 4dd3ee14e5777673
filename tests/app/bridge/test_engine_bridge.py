"""EngineBridge: order, merging to 30 a second, states from a scripted engine, and close while it streams."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
from pytestqt.qtbot import QtBot

from app.bridge.engine_bridge import EngineBridge, merged
from app.bridge.op import Op
from engine.api.commands import Generate, LoadModel
from engine.api.events import Event, Failed, Finished, ModelReady, PrefillProgress, TokenDelta
from engine.api.values import RequestId
from tests.helpers.fake_engine import OUT_OF_MEMORY, FakeEngine, Prefill, Stall, Tokens


@pytest.fixture
def engine() -> Iterator[FakeEngine]:
    made = FakeEngine()
    yield made
    made.close()


@pytest.fixture
def bridge(qtbot: QtBot, engine: FakeEngine) -> Iterator[EngineBridge]:
    made = EngineBridge(engine)
    yield made
    made.close()


def run(qtbot: QtBot, bridge: EngineBridge, command: Generate | LoadModel, timeout: int = 5000) -> list[Event]:
    events: list[Event] = []
    ended: list[Event] = []

    def watch(event: Event) -> None:
        assert threading.current_thread() is threading.main_thread()
        events.append(event)
        if isinstance(event, Finished | Failed):
            ended.append(event)

    bridge.submit(command, watch)
    qtbot.waitUntil(lambda: bool(ended), timeout=timeout)
    return events


def load(qtbot: QtBot, bridge: EngineBridge) -> None:
    run(qtbot, bridge, LoadModel(bridge.new_id(), "/m.gguf"))


def test_merged_keeps_the_text_and_the_newest_figures() -> None:
    request = RequestId("r")
    both = merged(TokenDelta(request, "a", 1, 1, None), TokenDelta(request, "b", 2, 3, 9.0))
    assert both == TokenDelta(request, "ab", 3, 3, 9.0)


def test_deltas_are_merged_to_thirty_a_second_and_none_is_lost(qtbot: QtBot, engine: FakeEngine, bridge: EngineBridge) -> None:
    load(qtbot, bridge)
    texts = tuple(f"{i} " for i in range(300))
    engine.answer = (Prefill(), Tokens(texts, tok_s=600))
    start = time.monotonic()
    events = run(qtbot, bridge, Generate(bridge.new_id(), prompt="x"))
    took_s = time.monotonic() - start
    deltas = [event for event in events if isinstance(event, TokenDelta)]
    assert "".join(delta.text for delta in deltas) == "".join(texts)
    assert sum(delta.n_tokens for delta in deltas) == 300
    assert len(deltas) <= took_s * 31 + 3
    assert isinstance(events[-1], Finished)
    last_prefill = max(i for i, event in enumerate(events) if isinstance(event, PrefillProgress))
    assert last_prefill < min(i for i, event in enumerate(events) if isinstance(event, TokenDelta))


def test_states_of_a_whole_life(qtbot: QtBot, engine: FakeEngine, bridge: EngineBridge) -> None:
    kinds: list[str] = []
    bridge.state_changed.connect(lambda state: kinds.append(state.kind) if not kinds or kinds[-1] != state.kind else None)
    load(qtbot, bridge)
    run(qtbot, bridge, Generate(bridge.new_id(), prompt="x"))
    assert kinds == ["reading", "loading", "warming", "ready", "prefill", "generating", "ready"]
    assert bridge.state.model is not None
    assert bridge.state.detail == bridge.state.model.name


def test_cancel_while_it_stalls_ends_the_request(qtbot: QtBot, engine: FakeEngine, bridge: EngineBridge) -> None:
    load(qtbot, bridge)
    engine.answer = (Prefill(), Tokens(("a",)), Stall(60))
    events: list[Event] = []
    request = bridge.new_id()
    bridge.submit(Generate(request, prompt="x"), events.append)
    qtbot.waitUntil(lambda: any(isinstance(event, TokenDelta) for event in events))
    bridge.cancel(request)
    assert bridge.state.kind == "stopping"
    qtbot.waitUntil(lambda: isinstance(events[-1], Finished))
    assert events[-1].reason == "cancelled"  # type: ignore[union-attr]
    assert bridge.state.kind == "ready"


def test_a_load_that_fails_leaves_the_error_in_the_state(qtbot: QtBot, engine: FakeEngine, bridge: EngineBridge) -> None:
    engine.load = (OUT_OF_MEMORY,)
    run(qtbot, bridge, LoadModel(bridge.new_id(), "/m.gguf"))
    assert (bridge.state.kind, bridge.state.detail, bridge.state.can_answer) == ("error", OUT_OF_MEMORY.message, False)


def test_op_calls_one_ending_once(qtbot: QtBot, engine: FakeEngine, bridge: EngineBridge) -> None:
    calls: list[str] = []
    op = Op(bridge, Generate(bridge.new_id(), prompt="x")).success(lambda e: calls.append("ok"))
    op.failure(lambda e: calls.append(e.message)).run()
    qtbot.waitUntil(lambda: bool(calls))
    assert calls == ["No model is loaded; choose one first."]
    Op(bridge, LoadModel(bridge.new_id(), "/m")).on(ModelReady, lambda e: calls.append(e.info.path)).success(
        lambda e: calls.append(e.reason)
    ).run()
    qtbot.waitUntil(lambda: len(calls) == 3)
    assert calls[1:] == ["/m", "done"]


def test_close_while_streaming_leaves_no_thread_and_tells_nothing_more(
    qtbot: QtBot, engine: FakeEngine, bridge: EngineBridge
) -> None:
    load(qtbot, bridge)
    engine.answer = (Prefill(), Tokens(tuple("abc" * 1000), tok_s=500))
    events: list[Event] = []
    bridge.submit(Generate(bridge.new_id(), prompt="x"), events.append)
    qtbot.waitUntil(lambda: len(events) > 3)
    bridge.close()
    bridge.close()
    n_told = len(events)
    qtbot.wait(100)
    assert len(events) == n_told
    assert "fake-engine" not in [thread.name for thread in threading.enumerate()]
