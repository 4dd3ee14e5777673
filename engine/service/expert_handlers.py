"""The commands about counts and pools of experts, run on the engine thread, and the events that come of them between steps."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from engine.api.commands import Command, ComparePools, UsePools, WatchExperts
from engine.api.events import ExpertCounts, Finished, LayerPool, PoolsCompared, PoolStats
from engine.api.values import RequestId
from engine.errors import InvalidRequest
from engine.runtime.pool_keeper import PoolKeeper
from engine.service.state import ExpertWatch, State

MIN_PERIOD_S = 0.05
MODES = ("promote", "keep", "off")


def handle_watch_experts(state: State, command: WatchExperts) -> None:
    """Starts, changes or ends the events with counts."""
    state.expert_watch = None
    if command.period_s > 0:
        state.expert_watch = ExpertWatch(command.request_id, max(command.period_s, MIN_PERIOD_S), time.monotonic())
    state.emit(Finished(command.request_id, "done"))


def handle_use_pools(state: State, command: UsePools) -> None:
    """Changes what pools do."""
    pools = _pools(state)
    if command.mode not in MODES:
        raise InvalidRequest(f"pools do not {str(command.mode)[:20]!r}; use {', '.join(MODES)}")
    pools.use(command.mode)
    state.comparison = None
    state.emit(_stats(command.request_id, pools))
    state.emit(Finished(command.request_id, "done"))


def handle_compare_pools(state: State, command: ComparePools) -> None:
    """Begins to compare; what comes of it is told when there are enough tokens."""
    pools = _pools(state)
    if command.mode not in MODES[:2] or command.n_block < 1 or command.n_pairs < 1:
        raise InvalidRequest(f"a comparison needs {' or '.join(MODES[:2])}, and at least one token and one pair of blocks")
    pools.compare(command.mode, command.n_block, command.n_pairs)
    state.comparison = command.request_id
    state.emit(_stats(command.request_id, pools))
    state.emit(Finished(command.request_id, "done"))


def tell_experts(state: State) -> None:
    """Between steps: sends counts that are due and have changed, and what a comparison has found."""
    watch, loaded = state.expert_watch, state.loaded
    if loaded is None or (watch is None and state.comparison is None):
        return
    tally, pools = loaded.model.experts, loaded.model.pools
    found = None if pools is None or state.comparison is None else pools.compared()
    if found is not None and state.comparison is not None:
        mode, one = found
        state.emit(PoolsCompared(state.comparison, mode, one.with_tok_s, one.without_tok_s, one.gain, one.sigma, one.n_pairs))
        state.comparison = None
    if watch is None or tally is None or tally.n_tokens == watch.told or time.monotonic() < watch.due:
        return
    rows = tuple(tally.rows.tolist())
    state.emit(ExpertCounts(watch.request_id, tally.n_tokens, tally.moe.layers, tally.counts.copy(), rows))
    if pools is not None:
        state.emit(_stats(watch.request_id, pools))
    elif watch.pools:
        state.emit(PoolStats(watch.request_id, 0, 0, 0, (), "off"))  # those there were have gone
    watch.pools = pools is not None
    watch.told, watch.due = tally.n_tokens, time.monotonic() + watch.period_s


def _pools(state: State) -> PoolKeeper:
    pools = None if state.loaded is None else state.loaded.model.pools
    if pools is None:
        raise InvalidRequest("the loaded model has no pools of experts; load it with a placement that has some")
    return pools


def _stats(request_id: RequestId, pools: PoolKeeper) -> PoolStats:
    layers = tuple(LayerPool(one.layer, one.device, one.hits, one.misses, one.promotions, one.experts) for one in pools.figures())
    hits, misses, promotions = (sum(getattr(one, name) for one in layers) for name in ("hits", "misses", "promotions"))
    off = pools.switched_off
    return PoolStats(request_id, hits, misses, promotions, layers, pools.mode, bool(off), off, pools.comparing)


EXPERT_HANDLERS: dict[type[Command], Callable[[State, Any], None]] = {
    WatchExperts: handle_watch_experts,
    UsePools: handle_use_pools,
    ComparePools: handle_compare_pools,
}
