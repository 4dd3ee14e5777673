"""What a longer context costs, and what has to leave which device for it."""

from __future__ import annotations

from collections.abc import Callable

from engine.estimate.memory import Estimate
from engine.estimate.prediction import ContextPlan
from engine.placement.placement import Placement

Fix = Callable[[Placement], "tuple[str, Placement] | None"]
MOST_MOVES = 16


def plan_context(
    placement: Placement, n_ctx: int, before: Estimate, bytes_of: Callable[[Placement], Estimate], fix: Fix
) -> ContextPlan:
    """The plan for n_ctx tokens. before: the placement's bytes as it is; bytes_of, fix: for the longer context."""
    after = bytes_of(placement)
    extra = _used(after) - _used(before)
    moves: list[str] = []
    there, found = placement, after
    while not found.fits and len(moves) < MOST_MOVES:
        step = fix(there)
        if step is None:
            break
        moves.append(step[0])
        there, found = step[1], bytes_of(step[1])
    amount = f"{n_ctx} tokens of context need {abs(extra) / 1e9:.1f} GB {'more' if extra >= 0 else 'less'}"
    if not found.fits:
        lacking = found.limit
        sentence = f"{amount}: {lacking.device} would lack {lacking.over / 1e9:.1f} GB, and nothing that could move makes room."
        return ContextPlan(n_ctx, extra, placement, (), False, sentence)
    if not moves:
        return ContextPlan(n_ctx, extra, placement, (), True, f"{amount}, which are there.")
    steps = "; ".join(f"{move[0].lower()}{move[1:]}" for move in moves)
    return ContextPlan(n_ctx, extra, there, tuple(moves), True, f"{amount}: {steps}.")


def _used(estimate: Estimate) -> int:
    """Bytes that depend on the context; what passes through rings for experts does not, it goes where there is room."""
    return sum(one.kv + one.kept_windows + one.state + one.derived for one in estimate.devices)
