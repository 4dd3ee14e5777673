"""Ops of a lane that stand one behind the other and that some kernels do in one launch: attention of decode, a router's choice.

A launch costs a microsecond or two of every token, whatever it does. Kernels that cannot do several ops at once say so when they
are called; then the ops run one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from engine.program.joins import together
from engine.program.lane_ops import LaneAttend, LaneOp, LanePosition, LanePrepare, LaneRoute
from engine.runtime.gpu_bench import Bench
from engine.triton_kernels.tensors import Acts


@dataclass(frozen=True, slots=True)
class Join:
    """n_ops from one on. run: all of them; False: nothing was done."""

    name: str
    n_ops: int
    run: Callable[[], bool]


def joined(bench: Bench, at: int) -> Join | None:
    """What begins with op `at`, None where it stands alone."""
    n_ops = together(bench.lane.ops[at : at + 3])
    found: Join | None = None
    match bench.lane.ops[at : at + n_ops]:
        case [LanePosition() as op, LaneAttend() as attend, *behind]:
            found = _attention(bench, op, attend, behind[0] if behind else None)
        case [LanePrepare() as op, LaneRoute() as route]:
            found = Join("prepareroute", 2, _route(bench, op, route))
    if found is None or any(i in hooks for hooks in (bench.before, bench.behind) for i in range(at, at + found.n_ops)):
        return None
    return found


def _attention(bench: Bench, op: LanePosition, attend: LaneAttend, behind: LaneOp | None) -> Join:
    """Rotation, store and attention; and 8-bit codes of the result where nothing else is wanted of it."""
    assert op.q is not None and op.k is not None and op.v is not None
    acts: Acts | None = None
    if isinstance(behind, LanePrepare):
        made = bench.acts(behind.acts)
        acts = made if made.codes is not None and made.values is None and made.halves is None else None
    weights = bench.resident.weights
    rope, temperature = op.turn_q.rope or op.turn_k.rope, op.turn_q.temperature
    run = partial(
        bench.resident.kernels.attend_whole,
        bench.step,
        bench.of(op.q),
        bench.of(op.k),
        bench.of(op.v),
        op.heads,
        op.turn_q,
        op.turn_k,
        bench.turn(op.turn_q),
        bench.turn(op.turn_k),
        None if rope is None else weights.rope(rope),
        None if temperature is None else weights.factors(temperature),
        bench.resident.cache.caches[op.layer],
        bench.vector(attend.heads.sinks),
        bench.maybe(attend.gate),
        bench.of(attend.out),
        acts,
    )
    return Join("attendwhole", 2 if acts is None else 3, run)


def _route(bench: Bench, op: LanePrepare, route: LaneRoute) -> Callable[[], bool]:
    return partial(
        bench.resident.kernels.prepare_route,
        bench.of(op.source.x),
        None if op.source.norm is None else bench.resident.weights.norm(op.source.norm),
        bench.acts(op.acts),
        bench.matrix(route.router, route.source.width),
        bench.bias(route.router),
        bench.vector(route.routing.bias),
        bench.of(route.router.out),
        bench.chosen(route.choice),
        route.routing,
        bench.noted(route.unit.layer, len(bench.of(route.router.out))),
        bench.pooled(route),
    )
