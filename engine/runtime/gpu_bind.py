"""A lane of a plan to a list of calls of a GPU's kernels: names become tensors, and each op one call without arguments."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor

from engine.arch.spec import Mla
from engine.arch.units import UnitId
from engine.program.lane_latent import LaneHeads, LaneLatentAttend, LaneLatentHeads, LaneLatentPosition
from engine.program.lane_ops import (
    LaneAdd,
    LaneAttend,
    LaneDelta,
    LaneEmbed,
    LaneExpertsDown,
    LaneExpertsUp,
    LaneGatedAct,
    LaneLinear,
    LaneNorm,
    LaneOp,
    LanePosition,
    LanePrepare,
    LaneRoute,
    LaneRows,
    matrices,
    reads,
    writes,
)
from engine.program.lane_transfer import LaneRecv, LaneSend
from engine.runtime.gpu_bench import Bench, Run
from engine.runtime.gpu_buffers import late_buffers
from engine.runtime.gpu_joined import joined

NOTHING = "nothing"
"""The name of calls that do nothing: what they stand for is not wanted, or done by an earlier one."""


@dataclass(frozen=True, slots=True)
class Call:
    """One op, bound. written: what a check for values that are not finite looks at.

    form: what else than its name says which kernels it calls, of ops of other layers too.
    """

    name: str
    unit: UnitId
    run: Run
    written: tuple[Tensor, ...]
    form: Hashable = ()


def bind(bench: Bench) -> tuple[Call, ...]:
    """The calls of a lane, in order."""
    calls = []
    late, behind = frozenset(late_buffers(bench.lane.ops)), 0
    for i, op in enumerate(bench.lane.ops):
        if i < behind:
            calls.append(Call(NOTHING, op.unit, _nothing, ()))
            continue
        if not len(bench.step.out_rows) and any(buffer.name in late for buffer in (*reads(op), *writes(op))):
            # Nobody wants logits of this chunk: kernels are not launched for no rows.
            calls.append(Call(NOTHING, op.unit, _nothing, ()))
            continue
        name = f"{op.unit} {type(op).__name__.removeprefix('Lane').lower()}"
        join = joined(bench, i)
        if join is not None:
            ops, behind = bench.lane.ops[i : i + join.n_ops], i + join.n_ops
            one_by_one = _joined([_BIND[type(one)](bench, one) for one in ops])
            written = [tensor for one in ops for tensor in _written(bench, one)]
            forms = tuple(form_of(one, bench.resident.weights.format_of) for one in ops)
            calls.append(Call(f"{op.unit} {join.name}", op.unit, partial(_at_once, join.run, one_by_one), tuple(written), forms))
            continue
        runs = [bench.before.get(i), _BIND[type(op)](bench, op), bench.behind.get(i)]
        run, form = _joined([run for run in runs if run is not None]), form_of(op, bench.resident.weights.format_of)
        calls.append(Call(name, op.unit, run, tuple(_written(bench, op)), form))
    return tuple(calls)


def form_of(op: LaneOp, format_of: Callable[[str], str]) -> Hashable:
    """Formats of its matrices, widths of its buffers, and how its attention differs from others. format_of: of a tensor."""
    names = matrices(op) if isinstance(op, LaneLinear | LaneRoute | LaneExpertsUp | LaneExpertsDown) else ()
    formats = tuple(map(format_of, names))
    widths = tuple(buffer.width for buffer in (*reads(op), *writes(op)))
    heads = op.heads if isinstance(op, LaneAttend | LanePosition) else None
    return formats, widths, None if heads is None else (heads.window, heads.sinks is not None)


def _nothing() -> None:
    pass


def _at_once(run: Callable[[], bool], one_by_one: Run) -> None:
    if not run():
        one_by_one()


def _joined(runs: list[Run]) -> Run:
    if len(runs) == 1:
        return runs[0]

    def run_all() -> None:
        for run in runs:
            run()

    return run_all


def _written(at: Bench, op: LaneOp) -> list[Tensor]:
    """The f32 results of an op."""
    own = [at.of(one) for one in writes(op) if one.name in at.found.tensors or one == at.lane.logits]
    return [one for one in own if one.is_floating_point()]


def _embed(at: Bench, op: LaneEmbed) -> Run:
    matrix = at.resident.weights.matrix(op.weight, op.out.width)
    return partial(at.resident.kernels.embed, at.step, matrix, op.scale, at.of(op.out))


def _norm(at: Bench, op: LaneNorm) -> Run:
    norm = at.resident.weights.norm(op.norm)
    return partial(at.resident.kernels.norm, at.of(op.x), norm, op.n_heads, at.of(op.out), add=op.add)


def _prepare(at: Bench, op: LanePrepare) -> Run:
    norm = None if op.source.norm is None else at.resident.weights.norm(op.source.norm)
    rows = at.step.out_rows if op.source.gather else None
    return partial(at.resident.kernels.prepare, at.of(op.source.x), at.acts(op.acts), rows=rows, norm=norm)


def _linear(at: Bench, op: LaneLinear) -> Run:
    assert op.acts is not None
    width = op.source.width
    matrices = [at.matrix(weight, width) for weight in op.weights]
    gated = op.epilogue not in ("store", "add")
    outs = [at.of(weight.out) for weight in (op.weights[:1] if gated else op.weights)]
    biases = [at.bias(weight) for weight in op.weights]
    return partial(at.resident.kernels.linear, at.acts(op.acts), matrices, biases, outs, op.epilogue, op.softcap)


def _route(at: Bench, op: LaneRoute) -> Run:
    assert op.acts is not None
    return partial(
        at.resident.kernels.route,
        at.acts(op.acts),
        at.matrix(op.router, op.source.width),
        at.bias(op.router),
        at.vector(op.routing.bias),
        at.of(op.router.out),
        at.chosen(op.choice),
        op.routing,
        at.noted(op.unit.layer, len(at.of(op.router.out))),
        at.pooled(op),
    )


def _expert_bias(at: Bench, name: str | None, n_experts: int) -> Tensor | None:
    bias = at.vector(name)
    return None if bias is None else bias.view(n_experts, -1)


def _experts_up(at: Bench, op: LaneExpertsUp) -> Run:
    assert op.acts is not None
    n, width, fused = op.choice.n_experts, op.source.width, op.gate == op.up
    matrix, bias = (at.pools.matrix, at.pools.bias) if op.pooled else (at.resident.weights.matrix, partial(_expert_bias, at))
    gate, up = (
        matrix(name, width, n_matrices=n, part=i if fused else 0, n_parts=2 if fused else 1)
        for i, name in enumerate((op.gate, op.up))
    )
    return partial(
        at.resident.kernels.experts_up,
        at.acts(op.acts),
        gate,
        up,
        bias(op.gate_bias, n),
        bias(op.up_bias, n),
        at.chosen(op.choice),
        op.act,
        at.of(op.out),
    )


def _experts_down(at: Bench, op: LaneExpertsDown) -> Run:
    assert op.acts is not None
    n = op.choice.n_experts
    matrix, bias = (at.pools.matrix, at.pools.bias) if op.pooled else (at.resident.weights.matrix, partial(_expert_bias, at))
    return partial(
        at.resident.kernels.experts_down,
        at.acts(op.acts),
        matrix(op.down, op.source.width, n_matrices=n),
        bias(op.bias, n),
        at.chosen(op.choice),
        at.of(op.out),
        add=op.add,
        beside=at.maybe(op.beside),
        share=at.maybe(op.share),
    )


def _position(at: Bench, op: LanePosition) -> Run:
    rope = op.turn_q.rope or op.turn_k.rope
    temperature = op.turn_q.temperature
    weights = at.resident.weights
    return partial(
        at.resident.kernels.position,
        at.step,
        at.maybe(op.q),
        at.maybe(op.k),
        at.maybe(op.v),
        op.heads,
        op.turn_q,
        op.turn_k,
        at.turn(op.turn_q),
        at.turn(op.turn_k),
        None if rope is None else weights.rope(rope),
        None if temperature is None else weights.factors(temperature),
        at.resident.cache.caches[op.layer] if op.store else None,
    )


def _attend(at: Bench, op: LaneAttend) -> Run:
    assert op.position is None
    cache, sinks = at.resident.cache.caches[op.layer], at.vector(op.heads.sinks)
    kernels = at.resident.kernels
    return partial(kernels.attend, at.step, at.of(op.q), cache, op.heads, sinks, at.maybe(op.gate), at.of(op.out), rows=op.rows)


def _delta(at: Bench, op: LaneDelta) -> Run:
    weights = at.resident.weights
    return partial(
        at.resident.kernels.delta,
        at.step,
        at.of(op.x),
        at.of(op.z),
        at.of(op.beta),
        at.of(op.alpha),
        weights.transposed(op.conv, op.shape.n_taps),
        weights.vector(op.dt),
        weights.vector(op.a),
        weights.norm(op.norm),
        op.shape,
        at.resident.cache.states[op.layer],
        at.of(op.out),
        rows=op.rows,
    )


def _heads(at: Bench, op: LaneHeads) -> Run:
    matrix = at.resident.weights.heads(op.matrices)
    return partial(at.resident.kernels.heads, at.of(op.x), matrix, op.x_head, op.out_head, at.of(op.out))


def _latent_position(at: Bench, op: LaneLatentPosition) -> Run:
    weights, cache = at.resident.weights, at.resident.cache.caches[op.layer]
    q, row, norm, table = at.of(op.q), at.of(op.row), weights.norm(op.norm), weights.rope(op.mla.rope)
    return partial(at.resident.kernels.latent_position, at.step, q, row, norm, table, op.mla, cache)


def _latent_attend(at: Bench, op: LaneLatentAttend) -> Run:
    cache = at.resident.cache.caches[op.layer]
    absorbed, q, out = at.of(op.absorbed), at.of(op.q), at.of(op.out)
    return partial(at.resident.kernels.latent_attend, at.step, absorbed, q, op.mla, cache, out, rows=op.rows)


def _latent_heads(at: Bench, op: LaneLatentHeads) -> Run:
    mla: Mla = op.mla
    k, v = at.resident.weights.heads(mla.k), at.resident.weights.heads(mla.v)
    cache = at.resident.cache.caches[op.layer]
    return partial(at.resident.kernels.latent_heads, at.step, at.of(op.q), mla, cache, k, v, at.of(op.out))


def _add(at: Bench, op: LaneAdd) -> Run:
    return partial(at.resident.kernels.add, at.of(op.x), at.of(op.y), at.maybe(op.share))


def _gated_act(at: Bench, op: LaneGatedAct) -> Run:
    return partial(at.resident.kernels.gated_act, at.of(op.gate), at.of(op.up), op.act, at.of(op.out))


def _rows(at: Bench, op: LaneRows) -> Run:
    return partial(at.resident.kernels.rows, at.of(op.x), at.step.out_rows, at.of(op.out))


def _exchange(at: Bench, op: LaneSend | LaneRecv) -> Run:
    return at.exchange(op, tuple(at.of(buffer) for buffer in op.buffers))


_BIND: dict[type[LaneOp], Callable[[Bench, Any], Run]] = {
    LaneEmbed: _embed,
    LaneNorm: _norm,
    LanePrepare: _prepare,
    LaneLinear: _linear,
    LaneRoute: _route,
    LaneExpertsUp: _experts_up,
    LaneExpertsDown: _experts_down,
    LanePosition: _position,
    LaneAttend: _attend,
    LaneHeads: _heads,
    LaneLatentPosition: _latent_position,
    LaneLatentAttend: _latent_attend,
    LaneLatentHeads: _latent_heads,
    LaneDelta: _delta,
    LaneAdd: _add,
    LaneGatedAct: _gated_act,
    LaneRows: _rows,
    LaneSend: _exchange,
    LaneRecv: _exchange,
}
