"""The commands about counts and pools of experts, run on the engine thread."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from engine.api.commands import Command, ComparePools, UsePools, WatchExperts
from engine.api.events import Finished
from engine.errors import InvalidRequest
from engine.service.state import ExpertWatch, State

MIN_PERIOD_S = 0.05


def handle_watch_experts(state: State, command: WatchExperts) -> None:
    """Starts, changes or ends the events with counts."""
    state.expert_watch = None
    if command.period_s > 0:
        state.expert_watch = ExpertWatch(command.request_id, max(command.period_s, MIN_PERIOD_S), time.monotonic())
    state.emit(Finished(command.request_id, "done"))


def handle_use_pools(state: State, command: UsePools) -> None:
    """Changes what pools do."""
    raise InvalidRequest("the loaded model has no pools of experts; place some in the placement")


def handle_compare_pools(state: State, command: ComparePools) -> None:
    """Begins to compare."""
    raise InvalidRequest("the loaded model has no pools of experts; place some in the placement")


EXPERT_HANDLERS: dict[type[Command], Callable[[State, Any], None]] = {
    WatchExperts: handle_watch_experts,
    UsePools: handle_use_pools,
    ComparePools: handle_compare_pools,
}
