"""One function per command, run on the engine thread. Each ends its request with an event, or raises what ends it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, cast

from engine.api.commands import (
    ApplyPlacement,
    AskHoldings,
    Cancel,
    Command,
    CountTokens,
    Generate,
    LoadModel,
    UnloadModel,
    WatchSensors,
)
from engine.api.events import (
    AnswerOpened,
    Finished,
    Holdings,
    LoadProgress,
    ModelReady,
    ModelUnloaded,
    Notice,
    TokenCount,
)
from engine.errors import Cancelled, EngineError, InvalidRequest
from engine.service.expert_handlers import EXPERT_HANDLERS
from engine.service.holdings import sampled
from engine.service.loaded import Loaded, holdings_of, load, open_file
from engine.service.migration import Migration
from engine.service.sensor_feed import SensorFeed
from engine.service.state import State
from engine.service.worker_handlers import WORKER_HANDLERS
from engine.session.channels import decoder_for


def handle_load(state: State, command: LoadModel) -> None:
    """Loads a model in the place of the loaded one, which stays if the new file is no model of ours."""

    def progress(phase: str, done: int, total: int) -> None:
        state.emit(LoadProgress(command.request_id, cast(Any, phase), done, total))
        state.breathe()

    state.emit(LoadProgress(command.request_id, "header", 0, 0))
    opened = open_file(command.path, command.options.overrides)
    size = opened.file.file_bytes
    state.emit(LoadProgress(command.request_id, "header", size, size))
    if not state.mailbox.start((command.request_id,)):
        raise Cancelled("loading was cancelled")
    had_model = state.loaded is not None
    state.drop_model()
    try:
        state.loaded = load(opened, command.path, command.options, progress, state.abort, state.emit)
    except EngineError:
        if had_model:
            state.emit(ModelUnloaded(command.request_id))
        raise
    state.tell_feed()
    if state.loaded.info.tuned:
        state.emit(Notice(command.request_id, state.loaded.info.tuned))
    state.emit(ModelReady(command.request_id, state.loaded.info))
    state.emit(Finished(command.request_id, "done"))


def handle_unload(state: State, command: UnloadModel) -> None:
    """Ends all answers and frees the model, if there is one."""
    state.drop_model()
    state.emit(ModelUnloaded(command.request_id))
    state.emit(Finished(command.request_id, "done"))


def handle_generate(state: State, command: Generate) -> None:
    """Queues an answer; the session ends the request."""
    asked = time.monotonic()
    loaded = _loaded(state)
    loaded.model.check_identity()
    ids = loaded.prompts.of_request(command)
    _tell_notice(state, loaded, command)
    opening = loaded.prompts.take_opening()
    if opening:
        state.emit(AnswerOpened(command.request_id, opening))
    decoder = decoder_for(loaded.tokenizer, command)
    loaded.session.add(command.request_id, ids, command.sampling, asked, not command.ignore_eog, decoder)


def handle_count(state: State, command: CountTokens) -> None:
    """Counts the tokens of a conversation as it would be sent."""
    loaded = _loaded(state)
    ids = loaded.prompts.of_messages(command.messages, command.template_vars)
    _tell_notice(state, loaded, command)
    state.emit(TokenCount(command.request_id, len(ids), loaded.model.n_ctx))
    state.emit(Finished(command.request_id, "done"))


def handle_cancel(state: State, command: Cancel) -> None:
    """Ends the answer that it names; one that ended already is no error."""
    if state.loaded is not None:
        state.loaded.session.cancel(command.target)
    if state.migration is not None and state.migration.request_id == command.target:
        state.migration.cancel()
    if state.tuning is not None and state.tuning.request_id == command.target:
        tuning, state.tuning = state.tuning, None
        tuning.cancel()
    state.emit(Finished(command.request_id, "done"))


def handle_watch(state: State, command: WatchSensors) -> None:
    """Starts, changes or ends the readings of the machine."""
    if command.period_s > 0:
        if state.feed is None:
            state.feed = SensorFeed(state.emit, state.work)
            state.tell_feed()
        state.feed.follow(command.request_id, command.period_s, details=command.details)
    else:
        state.end_feed()
    state.emit(Finished(command.request_id, "done"))


def handle_apply(state: State, command: ApplyPlacement) -> None:
    """Sets off to another placement; the migration ends the request."""
    loaded = _loaded(state)
    loaded.model.check_identity()
    if state.tuning is not None:
        state.tuning.rest()
    state.migration = Migration(command.request_id, loaded, command.placement, state.emit, state.mailbox.nudge)


def handle_holdings(state: State, command: AskHoldings) -> None:
    """Tells what the model holds by now."""
    loaded = _loaded(state)
    pages, nodes = sampled(loaded.model.places), loaded.model.source.nodes
    share = None if pages.share is None else 1 - pages.share
    facts = (tuple(pages.by_node.items()), loaded.model.node_policy, "" if nodes is None else nodes.problem)
    state.emit(Holdings(command.request_id, holdings_of(loaded.model), loaded.holding.trends(), share, *facts))
    state.emit(Finished(command.request_id, "done"))


def handle(state: State, command: Command) -> None:
    """Carries out a command. Raises: EngineError, which ends the request in Failed."""
    _HANDLERS[type(command)](state, command)


def _tell_notice(state: State, loaded: Loaded, command: Command) -> None:
    notice = loaded.prompts.take_notice()
    if notice is not None:
        state.emit(Notice(command.request_id, notice))


def _loaded(state: State) -> Loaded:
    if state.loaded is None:
        raise InvalidRequest("no model is loaded; load one first")
    return state.loaded


_HANDLERS: dict[type[Command], Callable[[State, Any], None]] = {
    LoadModel: handle_load,
    UnloadModel: handle_unload,
    Generate: handle_generate,
    CountTokens: handle_count,
    Cancel: handle_cancel,
    WatchSensors: handle_watch,
    ApplyPlacement: handle_apply,
    AskHoldings: handle_holdings,
    **EXPERT_HANDLERS,
    **WORKER_HANDLERS,
}
