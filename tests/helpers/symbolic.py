"""What a step computes, as terms without numbers: of the ops of a graph, and of the lanes of a plan, side by side in any order.

A term is a number that stands for an operation and the terms it is applied to; two ways to compute the same have the same term.
The lanes run over pretended memory: a buffer whose bytes another one has taken since is gone, and whoever reads it fails.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

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
from engine.placement.placement import Gpu
from engine.program.lane_latent import LaneHeads, LaneLatentAttend, LaneLatentHeads, LaneLatentPosition
from engine.program.lane_ops import (
    Heads,
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
    Source,
    Turn,
    Weight,
    reads,
    writes,
)
from engine.program.lane_transfer import LaneChosen, LaneRecv, LaneSend, LaneTell
from engine.program.plan import Lane, Plan


class Terms:
    """Numbers for operations."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[Any, ...], int] = {}
        self._parts: list[tuple[Any, ...]] = []

    def of(self, *parts: Any) -> int:
        """The number of an operation on terms."""
        if parts not in self._numbers:
            self._numbers[parts] = len(self._parts)
            self._parts.append(parts)
        return self._numbers[parts]

    def parts(self, term: int) -> tuple[Any, ...]:
        """What a number stands for."""
        return self._parts[term]

    def sum(self, *terms: int) -> int:
        """A sum, whatever the order."""
        flat: list[int] = []
        for term in terms:
            parts = self.parts(term)
            flat += parts[1] if parts[0] == "sum" else (term,)
        return self.of("sum", tuple(sorted(flat)))

    def add(self, x: int, y: int, share: int | None) -> int:
        """x + y, or x + sigmoid(share) y."""
        return self.sum(x, y if share is None else self.of("share", y, share))

    def linear(self, x: int, weight: Weight | Linear, softcap: float) -> int:
        """One product."""
        return self.of("linear", x, weight.weight, weight.bias, weight.first, softcap)

    def attend(self, q: int, cache: int, layer: int, heads: Heads | Attention) -> int:
        """One attention over a cache."""
        shape = (heads.n_heads, heads.n_kv_heads, heads.head_dim, heads.v_dim)
        return self.of("attend", q, cache, layer, shape, heads.scale, heads.window, heads.sinks, heads.softcap)


def of_graph(terms: Terms, ops: Sequence[Op], logits: str) -> int:
    """What the ops of a step make of the buffer `logits`. Names have one definition each."""
    at: dict[str, int] = {}
    caches: dict[int, int] = {}
    for op in ops:
        match op:
            case Embed():
                at[op.out.name] = terms.of("embed", op.weight, op.scale)
            case Norm():
                at[op.out.name] = terms.of("norm", at[op.x.name], op.norm, op.n_heads)
            case Linear():
                at[op.out.name] = terms.linear(at[op.x.name], op, op.softcap)
            case Rope():
                at[op.x.name] = terms.of("rope", at[op.x.name], op.rope)
            case KvStore():
                caches[op.layer] = terms.of("kv", op.layer, at[op.k.name], at[op.v.name])
            case Attention():
                q = at[op.q.name]
                if op.temperature is not None:
                    q = terms.of("temper", q, op.temperature)
                at[op.out.name] = terms.attend(q, caches[op.layer], op.layer, op)
            case LatentStore():
                caches[op.layer] = terms.of("latent", op.layer, at[op.x.name], op.norm, op.rope)
            case LatentAttention():
                at[op.out.name] = terms.of("latent attend", at[op.q.name], caches[op.layer], op.mla)
            case Split():
                for half, out in enumerate((op.first, op.second)):
                    at[out.name] = terms.of("half", at[op.x.name], half)
            case SigmoidGate():
                at[op.out.name] = terms.of("gated", at[op.x.name], at[op.gate.name])
            case Delta():
                inputs = [at[buffer.name] for buffer in (op.x, op.z, op.beta, op.alpha)]
                at[op.out.name] = terms.of("delta", *inputs, op.conv, op.dt, op.a, op.norm, op.layer, op.shape)
            case GatedAct():
                at[op.out.name] = terms.of("act", at[op.gate.name], at[op.up.name], op.act)
            case Route():
                for name, out in (("chosen", op.chosen), ("weights", op.weights)):
                    at[out.name] = terms.of(name, at[op.x.name], op.routing)
            case Experts():
                table = terms.of("table", at[op.chosen.name], at[op.weights.name])
                up = terms.of("up", at[op.x.name], op.gate, op.up, op.gate_bias, op.up_bias, op.act, table)
                at[op.out.name] = terms.of("down", up, op.down, op.down_bias, table)
            case Add():
                at[op.x.name] = terms.add(at[op.x.name], at[op.y.name], None if op.share is None else at[op.share.name])
            case OutRows():
                at[op.out.name] = terms.of("rows", at[op.x.name])
    return at[logits]


class Running:
    """The lanes of a plan, each at some op."""

    def __init__(self, plan: Plan, terms: Terms) -> None:
        self._plan, self._terms = plan, terms
        self._at = [0] * len(plan.lanes)
        self._flags: set[int] = set()
        self._memory: list[dict[str, int]] = [{} for _ in plan.lanes]  # what lies in each lane's memory at this moment
        self._late: list[dict[str, bool]] = [{} for _ in plan.lanes]
        self._caches: dict[int, int] = {}
        self.n_sent = 0
        self.logits: int | None = None

    def run(self, chance: random.Random | None = None) -> int:
        """Everything: in the order of the schedule, or op by op of any lane that can go on. The term of the logits."""
        if chance is None:
            for piece in self._plan.schedule:
                assert self._at[piece.lane] == piece.first
                while self._at[piece.lane] < piece.end:
                    assert self._step(piece.lane), f"{piece} waits"
        while todo := [i for i, lane in enumerate(self._plan.lanes) if self._at[i] < len(lane.ops)]:
            assert chance is not None, "the schedule leaves something out"
            chance.shuffle(todo)
            assert any(self._step(i) for i in todo), "all lanes wait"
        assert self.logits is not None
        return self.logits

    def _step(self, i: int) -> bool:
        """The next op of lane i, unless it waits for another."""
        lane = self._plan.lanes[i]
        op = lane.ops[self._at[i]]
        if isinstance(op, LaneRecv):
            if op.flag not in self._flags:
                return False
            if self._pulled(op.flag):
                self._cross(op.flag)
            for buffer in op.buffers:
                self._value(i, buffer)
        elif isinstance(op, LaneSend):
            self.n_sent += 1
            for buffer in op.buffers:
                assert self._late[i][buffer.name] == op.out_rows
                self._value(i, buffer)
            self._flags.add(op.flag)
            if not self._pulled(op.flag):
                self._cross(op.flag)
        else:
            self._check_rows(i, op)
            for buffer, value in self._compute(i, op):
                self._put(i, buffer, value, self._rows_late(i, op))
        self._at[i] += 1
        return True

    def _pulled(self, flag: int) -> bool:
        one = self._plan.exchanges[flag]
        devices = self._plan.lanes[one.source].device, self._plan.lanes[one.target].device
        return isinstance(devices[1], Gpu) and not isinstance(devices[0], Gpu)

    def _cross(self, flag: int) -> None:
        one = self._plan.exchanges[flag]
        send, recv = self._plan.lanes[one.source].ops[one.send], self._plan.lanes[one.target].ops[one.recv]
        assert isinstance(send, LaneSend) and isinstance(recv, LaneRecv) and (send.flag, recv.flag) == (flag, flag)
        assert (send.to, recv.source) == (self._plan.lanes[one.target].device, self._plan.lanes[one.source].device)
        assert send.out_rows == recv.out_rows
        for ours, theirs in zip(send.buffers, recv.buffers, strict=True):
            assert ours.width == theirs.width
            self._put(one.target, theirs, self._value(one.source, ours), send.out_rows)

    def _value(self, i: int, buffer: Buffer) -> int:
        assert buffer.name in self._memory[i], f"{buffer.name} is not there on {self._plan.lanes[i].device}"
        return self._memory[i][buffer.name]

    def _put(self, i: int, buffer: Buffer, value: int, late: bool) -> None:
        lane, held = self._plan.lanes[i], self._memory[i]
        if buffer == lane.logits:
            self.logits = value
            return
        slot = lane.slots[buffer.name]
        assert slot.offset + slot.nbytes <= lane.arena_bytes
        for name in [name for name in held if name != buffer.name and _overlap(lane, name, buffer.name)]:
            del held[name]
        held[buffer.name], self._late[i][buffer.name] = value, late

    def _rows_late(self, i: int, op: LaneOp) -> bool:
        return isinstance(op, LaneRows) or bool(getattr(op, "out_rows", False))

    def _check_rows(self, i: int, op: LaneOp) -> None:
        source = getattr(op, "source", None)
        gathers = isinstance(op, LaneRows) or (source is not None and source.gather)
        if isinstance(op, LaneEmbed):
            return
        for buffer in reads(op):
            own = source is not None and buffer in source.inputs
            wanted = False if gathers and (own or isinstance(op, LaneRows)) else self._rows_late(i, op)
            assert self._late[i][buffer.name] == wanted, f"{type(op).__name__} {op.unit} has other rows than {buffer.name}"

    def _compute(self, i: int, op: LaneOp) -> list[tuple[Buffer, int]]:
        found = self._results(i, op)
        assert {buffer.name for buffer, _ in found} == {buffer.name for buffer in writes(op)}, op
        return found

    def _source(self, i: int, source: Source) -> int:
        x = self._value(i, source.x)
        if source.merge is not None and source.gate is not None:
            x = self._terms.of("gated", x, self._terms.parts(self._value(i, source.gate))[2])
        if source.gather:
            x = self._terms.of("rows", x)
        return x if source.norm is None else self._terms.of("norm", x, source.norm, 1)

    def _input(self, i: int, op: LaneLinear | LaneRoute | LaneExpertsUp | LaneExpertsDown) -> int:
        return self._source(i, op.source) if op.acts is None else self._value(i, op.acts)

    def _turned(self, x: int, turn: Turn, n_heads: int) -> int:
        def norm(value: int) -> int:
            return value if turn.norm is None else self._terms.of("norm", value, turn.norm, 1 if turn.whole else n_heads)

        x = x if turn.norm_last else norm(x)
        x = x if turn.rope is None else self._terms.of("rope", x, turn.rope)
        x = norm(x) if turn.norm_last else x
        return x if turn.temperature is None else self._terms.of("temper", x, turn.temperature)

    def _position(self, i: int, op: LanePosition) -> list[tuple[Buffer, int]]:
        terms = self._terms
        assert op.q is not None and op.k is not None and op.v is not None and op.store
        q, k = self._value(i, op.q), self._turned(self._value(i, op.k), op.turn_k, op.heads.n_kv_heads)
        if op.heads.q_step == op.heads.head_dim:
            q = self._turned(q, op.turn_q, op.heads.n_heads)
        else:
            q = terms.of("joined", self._turned(terms.of("half", q, 0), op.turn_q, op.heads.n_heads), terms.of("half", q, 1))
        self._caches[op.layer] = terms.of("kv", op.layer, k, self._value(i, op.v))
        return [(op.q, q), (op.k, k)]

    def _attend(self, i: int, op: LaneAttend) -> list[tuple[Buffer, int]]:
        terms = self._terms
        q = self._value(i, op.q)
        if op.position is not None:
            made = dict(self._position(i, op.position))
            q = made[op.q]
            self._memory[i][op.q.name] = q
        gates = None
        if op.heads.q_step != op.heads.head_dim:
            _, q, gates = terms.parts(q)
        result = terms.attend(q, self._caches[op.layer], op.layer, op.heads)
        if op.gate is not None:
            assert op.gate == op.q and gates is not None
            result = terms.of("gated", result, gates)
        return [(op.out, result)]

    def _latent(
        self, i: int, op: LaneHeads | LaneLatentPosition | LaneLatentAttend | LaneLatentHeads
    ) -> list[tuple[Buffer, int]]:
        terms = self._terms
        match op:
            case LaneLatentPosition():
                self._caches[op.layer] = terms.of("latent", op.layer, self._value(i, op.row), op.norm, op.mla.rope)
                return [(op.q, terms.of("turned", self._value(i, op.q)))]
            case LaneLatentHeads():
                q = terms.parts(self._value(i, op.q))[1]
                return [(op.out, terms.of("latent attend", q, self._caches[op.layer], op.mla))]
            case LaneLatentAttend():
                q = terms.parts(self._value(i, op.q))[1]
                assert terms.parts(self._value(i, op.absorbed)) == ("heads", q, op.mla.absorb)
                return [(op.out, terms.of("sums", q, self._caches[op.layer], op.mla))]
            case LaneHeads():
                x = self._value(i, op.x)
                parts = terms.parts(x)
                if parts[0] != "sums":
                    return [(op.out, terms.of("heads", x, op.matrices))]
                assert parts[3].v == op.matrices
                return [(op.out, terms.of("latent attend", *parts[1:]))]

    def _results(self, i: int, op: LaneOp) -> list[tuple[Buffer, int]]:
        terms = self._terms
        match op:
            case LaneEmbed():
                return [(op.out, terms.of("embed", op.weight, op.scale))]
            case LaneNorm():
                made = terms.of("norm", self._value(i, op.x), op.norm, op.n_heads)
                return [(op.out, terms.sum(self._value(i, op.out), made) if op.add else made)]
            case LanePrepare():
                return [(op.acts, self._source(i, op.source))]
            case LaneLinear():
                x = self._input(i, op)
                made_of = [terms.linear(x, weight, op.softcap) for weight in op.weights]
                if op.epilogue == "store":
                    return [(weight.out, value) for weight, value in zip(op.weights, made_of, strict=True)]
                out = op.weights[0].out
                if op.epilogue == "add":
                    return [(out, terms.sum(self._value(i, out), *made_of))]
                return [(out, terms.of("act", *made_of, op.epilogue))]
            case LaneRoute():
                scores = terms.linear(self._input(i, op), op.router, 0.0)
                chosen, weights = terms.of("chosen", scores, op.routing), terms.of("weights", scores, op.routing)
                if op.choice.table is not None:
                    return [(op.router.out, scores), (op.choice.table, terms.of("table", chosen, weights))]
                return [(op.router.out, scores), (op.choice.chosen, chosen), (op.choice.weights, weights)]
            case LaneChosen() if op.choice.table is not None:
                return [(op.choice.table, self._table(i, op.choice.chosen, op.choice.weights))]
            case LaneTell() if op.choice.table is not None:
                _, chosen, weights = terms.parts(self._value(i, op.choice.table))
                return [(op.choice.chosen, chosen), (op.choice.weights, weights)]
            case LaneExpertsUp():
                x, biases = self._input(i, op), (op.gate_bias, op.up_bias)
                return [(op.out, terms.of("up", x, op.gate, op.up, *biases, op.act, self._choice(i, op)))]
            case LaneExpertsDown():
                made = terms.of("down", self._input(i, op), op.down, op.bias, self._choice(i, op))
                if op.beside is not None:
                    made = terms.add(made, self._value(i, op.beside), None if op.share is None else self._value(i, op.share))
                return [(op.out, terms.sum(self._value(i, op.out), made) if op.add else made)]
            case LanePosition():
                return self._position(i, op)
            case LaneAttend():
                return self._attend(i, op)
            case LaneHeads() | LaneLatentPosition() | LaneLatentAttend() | LaneLatentHeads():
                return self._latent(i, op)
            case LaneDelta():
                inputs = [self._value(i, buffer) for buffer in (op.x, op.z, op.beta, op.alpha)]
                return [(op.out, terms.of("delta", *inputs, op.conv, op.dt, op.a, op.norm, op.layer, op.shape))]
            case LaneAdd():
                share = None if op.share is None else self._value(i, op.share)
                return [(op.x, terms.add(self._value(i, op.x), self._value(i, op.y), share))]
            case LaneGatedAct():
                return [(op.out, terms.of("act", self._value(i, op.gate), self._value(i, op.up), op.act))]
            case LaneRows():
                return [(op.out, terms.of("rows", self._value(i, op.x)))]
        raise AssertionError(op)

    def _table(self, i: int, chosen: Buffer, weights: Buffer) -> int:
        return self._terms.of("table", self._value(i, chosen), self._value(i, weights))

    def _choice(self, i: int, op: LaneExpertsUp | LaneExpertsDown) -> int:
        choice = op.choice
        return self._table(i, choice.chosen, choice.weights) if choice.table is None else self._value(i, choice.table)


def _overlap(lane: Lane, a: str, b: str) -> bool:
    one, other = lane.slots[a], lane.slots[b]
    return one.offset < other.offset + other.nbytes and other.offset < one.offset + one.nbytes
