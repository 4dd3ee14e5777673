"""EngineState: what the engine is doing, as the header shows it, and the pure function that derives it from commands and events.

No Qt here: the bridge owns the current value and tells the window when it changes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from engine.api.commands import Cancel, Command, Generate, LoadModel
from engine.api.events import (
    Event,
    Failed,
    Finished,
    LoadProgress,
    ModelReady,
    ModelUnloaded,
    PlacementApplied,
    PrefillProgress,
    Queued,
    TokenDelta,
    WorkersPinned,
)
from engine.api.values import ModelInfo, RequestId

StateKind = Literal["no_model", "reading", "loading", "warming", "ready", "prefill", "generating", "stopping", "error"]

_LOAD_KINDS: dict[str, StateKind] = {"header": "reading", "weights": "loading", "warmup": "warming"}


@dataclass(frozen=True, slots=True)
class EngineState:
    """One state of the engine. done/total: bytes while loading, tokens in prefill. detail: model name or error sentence.

    model, loading and answers say which model answers, which request loads, and which requests have answers under way.
    """

    kind: StateKind = "no_model"
    done: int = 0
    total: int = 0
    detail: str = ""
    tok_s: float | None = None
    model: ModelInfo | None = None
    loading: RequestId | None = None
    answers: frozenset[RequestId] = frozenset()

    @property
    def can_answer(self) -> bool:
        """True when a model is loaded, busy or not."""
        return self.model is not None and self.loading is None


def _settled(state: EngineState) -> EngineState:
    """The state when nothing runs any more: ready with a model, no_model without."""
    if state.model is None:
        return EngineState()
    return EngineState(kind="ready", detail=state.model.name, model=state.model)


def submitted(state: EngineState, command: Command) -> EngineState:
    """The state once `command` is handed to the engine, before any event came back."""
    match command:
        case LoadModel(request_id=request_id):
            return EngineState(kind="reading", model=state.model, loading=request_id)
        case Generate(request_id=request_id):
            answers = state.answers | {request_id}
            if state.loading is not None or state.answers:
                return replace(state, answers=answers)
            return replace(state, kind="prefill", done=0, total=0, tok_s=None, answers=answers)
        case Cancel(target=target) if target == state.loading or target in state.answers:
            return replace(state, kind="stopping", tok_s=None)
        case _:
            return state


def reduced(state: EngineState, event: Event) -> EngineState:
    """The state after `event`."""
    match event:
        case LoadProgress(request_id, phase, done, total) if request_id == state.loading:
            if state.kind == "stopping":
                return state
            return replace(state, kind=_LOAD_KINDS[phase], done=done, total=total)
        case ModelReady(_, info):
            return _resumed(EngineState(kind="ready", detail=info.name, model=info, answers=state.answers))
        case PlacementApplied(info=info) | WorkersPinned(info=info):
            return replace(state, model=info) if state.model is not None else state
        case ModelUnloaded():
            return replace(state, model=None) if state.loading is not None else EngineState()
        case Queued(request_id):
            return replace(state, answers=state.answers | {request_id})
        case PrefillProgress(request_id, done, total) if request_id in state.answers and state.kind != "stopping":
            return replace(state, kind="prefill", done=done, total=total, tok_s=None)
        case TokenDelta(request_id=request_id, decode_tok_s=tok_s) if request_id in state.answers and state.kind != "stopping":
            return replace(state, kind="generating", done=0, total=0, tok_s=tok_s)
        case Failed(request_id=request_id) | Finished(request_id=request_id):
            return _ended(state, request_id, event)
        case _:
            return state


def _ended(state: EngineState, request_id: RequestId, event: Failed | Finished) -> EngineState:
    if request_id == state.loading:
        after = replace(_settled(state), answers=state.answers)
        # A model that stays loaded answers as before: the sentence is shown, the state is not an error.
        if isinstance(event, Failed) and event.kind != "Cancelled" and after.model is None:
            return replace(after, kind="error", detail=event.message)
        return after
    if request_id not in state.answers:
        return state
    remaining = replace(state, answers=state.answers - {request_id})
    return remaining if state.loading is not None else _resumed(remaining)


def _resumed(state: EngineState) -> EngineState:
    """Back to rest, or to the answer that waited behind the one that ended."""
    if not state.answers:
        return _settled(state)
    return replace(state, kind="prefill", done=0, total=0, tok_s=None)
