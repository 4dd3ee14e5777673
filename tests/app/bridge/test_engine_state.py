"""The reducer: which state follows which event."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from app.bridge.engine_state import EngineState, reduced, submitted
from engine.api.commands import Cancel, CountTokens, Generate, LoadModel
from engine.api.events import (
    Event,
    Failed,
    Finished,
    LoadProgress,
    ModelReady,
    ModelUnloaded,
    PrefillProgress,
    Queued,
    TokenDelta,
)
from engine.api.values import RequestId
from tests.helpers.fake_engine import model_info

L, A, B = RequestId("load"), RequestId("a"), RequestId("b")
INFO = model_info("/m.gguf")
READY = reduced(EngineState(), ModelReady(L, INFO))


def test_loading_shows_bytes_and_ends_ready() -> None:
    state = submitted(EngineState(), LoadModel(L, "/m.gguf"))
    assert state.kind == "reading"
    state = reduced(state, LoadProgress(L, "weights", 5, 10))
    assert (state.kind, state.done, state.total) == ("loading", 5, 10)
    assert reduced(state, LoadProgress(L, "warmup", 0, 0)).kind == "warming"
    state = reduced(reduced(state, ModelReady(L, INFO)), Finished(L, "done"))
    assert (state.kind, state.model, state.loading) == ("ready", INFO, None)


def test_cancelled_load_is_no_error() -> None:
    state = submitted(submitted(EngineState(), LoadModel(L, "/m")), Cancel(RequestId("c"), L))
    assert state.kind == "stopping"
    assert reduced(state, LoadProgress(L, "weights", 1, 2)).kind == "stopping"
    assert reduced(state, Failed(L, "Cancelled", "x")).kind == "no_model"


def test_failed_load_with_the_old_model_gone_is_an_error() -> None:
    state = reduced(submitted(READY, LoadModel(L, "/other")), ModelUnloaded(L))
    state = reduced(state, Failed(L, "GgufError", "broken"))
    assert (state.kind, state.detail, state.model) == ("error", "broken", None)


def test_failed_load_with_the_old_model_still_there_is_no_state_of_error() -> None:
    state = submitted(READY, LoadModel(L, "/other"))
    assert reduced(state, Failed(L, "GgufError", "broken")) == READY


def test_second_answer_goes_on_when_the_first_ends() -> None:
    state = submitted(READY, Generate(A, prompt="x"))
    state = reduced(reduced(state, PrefillProgress(A, 1, 4)), TokenDelta(A, "t", 1, 1, 8.0))
    assert (state.kind, state.tok_s) == ("generating", 8.0)
    state = reduced(submitted(state, Generate(B, prompt="y")), Queued(B, 1))
    assert state.kind == "generating"
    state = reduced(state, Finished(A, "stop"))
    assert (state.kind, state.answers) == ("prefill", frozenset({B}))
    assert reduced(state, Failed(B, "EngineError", "x")) == READY


def test_counting_tokens_changes_nothing() -> None:
    state = submitted(READY, Generate(A, prompt="x"))
    assert submitted(state, CountTokens(B, ())) == state
    assert reduced(state, Finished(B, "done")) == state


IDS = st.sampled_from([L, A, B])
EVENTS = st.one_of(
    st.builds(LoadProgress, IDS, st.sampled_from(["header", "weights", "warmup"]), st.integers(0, 9), st.integers(0, 9)),
    st.builds(ModelReady, IDS, st.just(INFO)),
    st.builds(ModelUnloaded, IDS),
    st.builds(Queued, IDS, st.integers(0, 3)),
    st.builds(PrefillProgress, IDS, st.integers(0, 9), st.integers(0, 9)),
    st.builds(TokenDelta, IDS, st.text(max_size=3), st.just(1), st.just(1), st.none()),
    st.builds(Finished, IDS, st.just("done")),
    st.builds(Failed, IDS, st.sampled_from(["Cancelled", "GgufError"]), st.just("x")),
)


@given(st.lists(EVENTS, max_size=30))
def test_after_every_request_ended_it_rests(events: list[Event]) -> None:
    state = EngineState()
    for event in events:
        state = reduced(state, event)
    for request in (L, A, B):
        state = reduced(state, Finished(request, "done"))
    assert state.answers == frozenset()
    assert state.kind in ("no_model", "ready", "error")
