"""Rewrite rules from the ops of a graph to those of a lane: fewer passes over memory, fewer meetings of workers, fewer launches.

norm + quantise; q, k, v in one op; gate + up + act in one op; linear + residual add; rotate + cache write, see `fuse_mixing`. The
lane of a GPU has its input stages in ops of their own, and choices of experts as they are, not grouped.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from engine.arch.spec import Act
from engine.errors import EngineBug
from engine.graph.ops import (
    Add,
    Attention,
    Buffer,
    Delta,
    Embed,
    Experts,
    GatedAct,
    KvStore,
    LatentAttention,
    LatentStore,
    Linear,
    Norm,
    Op,
    OutRows,
    Rope,
    Route,
    SigmoidGate,
    Split,
)
from engine.program.dataflow import LaneInput, reads, rename, rows_early
from engine.program.fuse_mixing import Style, attention, gather, latent
from engine.program.lane_ops import (
    LaneAdd,
    LaneDelta,
    LaneEmbed,
    LaneExpertsDown,
    LaneExpertsUp,
    LaneGatedAct,
    LaneLinear,
    LaneNorm,
    LaneOp,
    LanePrepare,
    LaneRoute,
    LaneRows,
    Source,
    Weight,
)
from engine.program.lane_transfer import Choice, LaneChosen, LaneRecv, LaneSend, LaneTell
from engine.program.pooling import PoolSplit

Phase = Literal["decode", "prefill"]

MAX_WEIGHTS = 4
"""Matrices of one linear op."""
FEW_ROWS = 8
"""Rows up to which each worker may hold its own copy of the input."""
FEW_SLOTS = 64
"""Rows a slot up to which it may."""
MOST_ROWS = 1 << 30
"""More than any step has."""
PRIVATE_VALUES = 16384
"""An input stage of up to this many values costs each worker less than meeting the others."""


def fuse(ops: Sequence[Op], logits: Buffer, phase: Phase, max_rows: int) -> tuple[tuple[LaneOp, ...], Buffer]:
    """A whole graph as one lane of the CPU, for steps of up to max_rows rows, and the buffer that holds the logits.

    In decode every row belongs to another sequence. Buffers come out renamed: one name, one definition.
    """
    named, last = named_ops(ops, phase)
    return fuse_lane(named, phase, max_rows, "cpu", first_late(named)), last[logits.name]


def named_ops(ops: Sequence[Op], phase: Phase) -> tuple[Sequence[Op], Mapping[str, Buffer]]:
    """The ops of a step with one name for each definition of a buffer, and what each buffer is called in the end."""
    return _NAMED.of(ops, phase)


class _Named:
    """The named ops of the last graphs: they are the same for all placements of a model. For any thread."""

    KEPT = 8

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[int, Phase], tuple[Sequence[Op], Sequence[Op], Mapping[str, Buffer]]] = OrderedDict()
        """By identity of the ops, which stay as long as they are known here."""

    def of(self, ops: Sequence[Op], phase: Phase) -> tuple[Sequence[Op], Mapping[str, Buffer]]:
        key = id(ops), phase
        with self._lock:
            found = self._known.get(key)
            if found is None:
                named, last = rename(rows_early(ops) if phase == "prefill" else ops)
                found = self._known[key] = ops, tuple(named), last
                while len(self._known) > self.KEPT:
                    self._known.popitem(last=False)
            self._known.move_to_end(key)
        return found[1:]


_NAMED = _Named()


def first_late(ops: Sequence[LaneInput]) -> int:
    """The first op that has n_out rows."""
    return next((i + 1 for i, op in enumerate(ops) if isinstance(op, OutRows)), len(ops))


def fuse_lane(ops: Sequence[LaneInput], phase: Phase, max_rows: int, style: Style, late: int) -> tuple[LaneOp, ...]:
    """The ops of one lane. late: the first op that has n_out rows. What a lane sends is there when it is sent."""
    return fuse_up_to(ops, phase, max_rows, style, late)[0]


def fuse_up_to(ops: Sequence[LaneInput], phase: Phase, max_rows: int, style: Style, late: int) -> tuple[tuple[LaneOp, ...], int]:
    """The same, and up to how many rows, max_rows or more, they are the same ops."""
    fuser = _Fuser(ops, phase, max_rows, style, late)
    found = tuple(fuser.run())
    return found, max(max_rows, fuser.up_to)


class _Fuser:
    def __init__(self, ops: Sequence[LaneInput], phase: Phase, max_rows: int, style: Style, late: int) -> None:
        self._ops = ops
        self._decode = phase == "decode"
        self._max_rows = max_rows
        self.up_to = MOST_ROWS
        self._style = style
        self._late_from = late
        self._readers: defaultdict[str, list[int]] = defaultdict(list)
        for i, op in enumerate(ops):
            for buffer in reads(op):
                self._readers[buffer.name].append(i)
        self._sources: dict[str, Source] = {}  # buffers that exist only as input stages
        self._halves: dict[str, Split] = {}  # by the names of both halves, which lie in one buffer
        self._choices: dict[str, Choice] = {}  # by the name of the buffer of chosen experts
        self._told: set[str] = set()  # choices that stand in chosen and weights too
        self._out: list[LaneOp] = []
        self._prepared: set[Buffer] = set()
        self._late = False

    def run(self) -> list[LaneOp]:
        i = 0
        while i < len(self._ops):
            i = self._one(i)
        return self._out

    def _one(self, i: int) -> int:
        """Lowers the op at i and those fused with it; the index of the next one."""
        op = self._ops[i]
        self._late = i >= self._late_from
        match op:
            case Embed():
                self._out.append(LaneEmbed(op.unit, op.weight, op.out, op.scale))
            case OutRows():
                self._rows(i, op)
            case LaneSend():
                self._send(op)
            case LaneRecv():
                self._out.append(op)
            case Norm() if op.n_heads > 1 or op.x == op.out:
                return self._mixer(i)
            case Norm():
                return self._norm(i, op)
            case Linear():
                return self._linears(i)
            case Rope() | KvStore() | Attention():
                return self._mixer(i)
            case LatentStore():
                self.up_to = self._max_rows
                self._out += latent(self._ops, i, op, decode=self._decode, max_rows=self._max_rows, style=self._style)
                return i + 2
            case GatedAct():
                self._out.append(LaneGatedAct(op.unit, op.gate, op.up, op.out, op.act, self._late))
            case Add():
                self._out.append(LaneAdd(op.unit, op.x, op.y, self._late, op.share))
            case PoolSplit():
                self._split(op)
            case Experts():
                return self._experts(i, op)
            case LatentAttention():
                raise EngineBug(f"op {i} attends over latent rows that nothing stored before it")
            case Split():
                self._halves |= {op.first.name: op, op.second.name: op}
            case Delta():
                fields = (op.x, op.z, op.beta, op.alpha, op.out, op.conv, op.dt, op.a, op.norm, op.layer, op.shape)
                self._out.append(LaneDelta(op.unit, *fields, rows=self._decode))
            case SigmoidGate():
                raise EngineBug(f"op {i} gates something else than an attention's output")
            case Route():
                raise EngineBug(f"op {i} routes by something else than a linear op's output")
        return i + 1

    def _feeds_linears_only(self, name: str) -> bool:
        return bool(self._readers[name]) and all(isinstance(self._ops[i], Linear | Experts) for i in self._readers[name])

    def _still(self, x: Buffer, i: int, last: int) -> bool:
        """Whether x, read by the op at i, stays as it is up to the op at `last`, where an input stage would read it."""
        return not any(isinstance(op, Add | Rope) and op.x == x for op in self._ops[i + 1 : last])

    def _rows(self, i: int, op: OutRows) -> None:
        readers = self._readers[op.out.name]
        stages = [self._stage_end(r) for r in readers]
        if readers and all(end is not None and self._still(op.x, i, end) for end in stages):
            self._sources[op.out.name] = Source(op.x, gather=True)
        else:
            self._out.append(LaneRows(op.unit, op.x, op.out))

    def _stage_end(self, i: int) -> int | None:
        """Where the op at i, if it is a linear op or a norm that can be its input stage, reads for the last time."""
        op = self._ops[i]
        if isinstance(op, Linear | Experts):
            return i
        if not isinstance(op, Norm) or op.n_heads > 1 or not self._feeds_linears_only(op.out.name):
            return None
        last = self._readers[op.out.name][-1]
        return last if self._still(op.x, i, last) else None

    def _norm(self, i: int, op: Norm) -> int:
        follower = self._ops[i + 1] if i + 1 < len(self._ops) else None
        if isinstance(follower, Add) and self._is_residual(op, follower, i + 1):
            self._out.append(LaneNorm(op.unit, op.x, follower.x, op.norm, 1, self._late, add=True))
            return i + 2
        if self._stage_end(i) is not None:
            before = self._sources.get(op.x.name, Source(op.x))
            self._sources[op.out.name] = replace(before, norm=op.norm)
        else:
            self._out.append(LaneNorm(op.unit, op.x, op.out, op.norm, op.n_heads, self._late))
        return i + 1

    def _linears(self, i: int) -> int:
        first = self._ops[i]
        assert isinstance(first, Linear)
        group = [first]
        for op in self._ops[i + 1 : i + MAX_WEIGHTS]:
            if not isinstance(op, Linear) or op.x != first.x or op.softcap != first.softcap:
                break
            group.append(op)
        after = i + len(group)
        follower = self._ops[after] if after < len(self._ops) else None
        weights = tuple(Weight(op.weight, op.bias, op.out, op.first) for op in group)
        if isinstance(follower, Route) and follower.x == group[-1].out:
            if len(group) > 1:
                self._emit(first, weights[:-1], "store")
            self._route(group[-1], follower)
            return after + 1
        plain = first.softcap == 0.0
        if plain and len(group) == 2 and isinstance(follower, GatedAct) and self._is_gate(group, follower, after):
            weights = (replace(weights[0], out=follower.out), replace(weights[1], out=follower.out))
            self._emit(first, weights, follower.act)
            return after + 1
        if plain and len(group) == 1 and isinstance(follower, Add) and self._is_residual(first, follower, after):
            self._emit(first, (replace(weights[0], out=follower.x),), "add")
            return after + 1
        self._emit(first, weights, "store", group[-1].softcap)
        return after

    def _is_gate(self, group: list[Linear], act: GatedAct, at: int) -> bool:
        outs = (group[0].out, group[1].out)
        return (act.gate, act.up) == outs and all(self._readers[out.name] == [at] for out in outs)

    def _is_residual(self, op: Linear | Norm, add: Add, at: int) -> bool:
        return add.y == op.out and add.x != op.x and add.share is None and self._readers[op.out.name] == [at]

    def _emit(
        self,
        op: Linear,
        weights: tuple[Weight, ...],
        epilogue: Literal["store", "add"] | Act,
        softcap: float = 0.0,
    ) -> None:
        source, acts = self._input(op, op.x, tuple(self._weights_reading(op.x.name)))
        self._out.append(LaneLinear(op.unit, source, acts, weights, epilogue, self._late, softcap))

    def _input(self, op: Linear | Experts, x: Buffer, weights: tuple[str, ...], slots: int = 1) -> tuple[Source, Buffer | None]:
        """The input stage of an op that multiplies x with some of the weights, and its result where all workers share it."""
        source, rows = self._sources.get(x.name, Source(x)), self._max_rows * slots
        few = rows <= (FEW_ROWS if slots == 1 else FEW_SLOTS) and rows * source.width <= PRIVATE_VALUES
        if few and self._style == "cpu":
            most = min(FEW_ROWS if slots == 1 else FEW_SLOTS, PRIVATE_VALUES // max(1, source.width)) // slots
            self.up_to = min(self.up_to, most)
            return source, None
        acts = Buffer(f"{x.name}.acts", source.width)
        if acts not in self._prepared:
            self._prepared.add(acts)
            self._out.append(LanePrepare(op.unit, source, acts, weights, self._late, slots))
        return source, acts

    def _route(self, op: Linear, route: Route) -> None:
        choice = self._choice(route.chosen, route.weights, op.out.width)
        self._choices[route.chosen.name] = choice
        source, acts = self._input(op, op.x, tuple(self._weights_reading(op.x.name)))
        router = Weight(op.weight, op.bias, op.out)
        self._out.append(LaneRoute(op.unit, source, acts, router, choice, route.routing, self._late))

    def _choice(self, chosen: Buffer, weights: Buffer, n_experts: int) -> Choice:
        table = Buffer(f"{chosen.name}.table", n_experts) if self._style == "cpu" else None
        return Choice(table, n_experts, chosen.width, chosen, weights)

    def _split(self, op: PoolSplit) -> None:
        """Becomes a part of the router's op."""
        at = next(i for i, one in enumerate(self._out) if isinstance(one, LaneRoute) and one.choice.chosen == op.chosen)
        route = self._out[at]
        assert isinstance(route, LaneRoute)
        self._out[at] = replace(route, pool=op)

    def _send(self, op: LaneSend) -> None:
        """A send, behind what makes the table of a choice that it names readable to others."""
        for buffer in op.buffers:
            choice = self._choices.get(buffer.name)
            if choice is not None and choice.table is not None and buffer.name not in self._told:
                self._told.add(buffer.name)
                self._out.append(LaneTell(op.unit, choice, op.out_rows))
        self._out.append(op)

    def _known(self, op: Experts) -> Choice:
        """The choice for some experts, which this lane has made or was sent."""
        if op.chosen.name not in self._choices:
            choice = self._choices[op.chosen.name] = self._choice(op.chosen, op.weights, op.n_experts)
            self._told.add(op.chosen.name)
            if choice.table is not None:
                self._out.append(LaneChosen(op.unit, choice, self._late))
        return self._choices[op.chosen.name]

    def _experts(self, i: int, op: Experts) -> int:
        choice = self._known(op)
        source, acts = self._input(op, op.x, tuple(self._weights_reading(op.x.name)))
        hidden = Buffer(f"{op.out.name}.hidden", op.n_ff)
        self._out.append(
            LaneExpertsUp(
                op.unit, source, acts, op.gate, op.up, hidden, choice, op.act, self._late, op.gate_bias, op.up_bias, op.pooled
            )
        )
        source, acts = self._input(op, hidden, (op.down,), choice.n_used)
        after, beside = i + 1, self._ops[i + 1] if i + 1 < len(self._ops) else None
        if isinstance(beside, Add) and beside.x == op.out and beside.y != op.out:  # what a shared expert made
            after += 1
        else:
            beside = None
        residual = self._ops[after] if after < len(self._ops) else None
        add = isinstance(residual, Add) and self._is_sum(residual, op, after)
        out = residual.x if add and isinstance(residual, Add) else op.out
        y, share = (None, None) if beside is None else (beside.y, beside.share)
        self._out.append(
            LaneExpertsDown(op.unit, source, acts, op.down, out, choice, add, self._late, op.down_bias, y, share, op.pooled)
        )
        return after + 1 if add else after

    def _is_sum(self, add: Add, op: Experts, at: int) -> bool:
        """Whether the op at `at` does nothing but add the experts' output, which nobody else reads, to something else."""
        known = op.out, op.x
        return add.y == op.out and add.x not in known and add.share is None and self._readers[op.out.name][-1] == at

    def _weights_reading(self, name: str) -> Iterator[str]:
        for i in self._readers[name]:
            match self._ops[i]:
                case Linear(weight=weight):
                    yield weight
                case Experts(x=x, gate=gate, up=up) if x.name == name:
                    yield from (gate, up)

    def _mixer(self, i: int) -> int:
        """Head norms, rotations, cache write and attention: one op or two."""
        parts = gather(self._ops, i, self._halves)
        merged = self._decode and self._style == "cpu" and self._feeds_linears_only(parts.out.name)
        ops, source = attention(parts, rows=self._decode and self._style == "gpu", merged=merged)
        self._out += ops
        if source is not None:
            self._sources[parts.out.name] = source
        return parts.after
