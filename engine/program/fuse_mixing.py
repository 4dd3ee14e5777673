"""What stands between the projections and the output of one attention becomes one lane op or two.

In decode on the CPU one op rotates, stores and attends, and leaves partials that the next input stage merges. In prefill, and
always on a GPU, `LanePosition` comes first and the attention writes its result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from engine.errors import EngineBug
from engine.graph.ops import Attention, Buffer, KvStore, LatentAttention, LatentStore, Norm, Rope, SigmoidGate, Split
from engine.program.dataflow import LaneInput
from engine.program.lane_latent import LaneLatent, lower_latent
from engine.program.lane_ops import Heads, LaneAttend, LaneOp, LanePosition, Source, Turn

Style = Literal["cpu", "gpu"]


@dataclass(frozen=True, slots=True)
class Parts:
    """An attention and what belongs to it.

    q, gate: the buffer of the queries, and the same again where gates lie behind them; out: where the (gated) result goes; after:
    the first op behind it all.
    """

    op: Attention
    store: KvStore
    norms: Mapping[str, Norm]
    ropes: Mapping[str, Rope]
    norms_last: frozenset[str]
    q: Buffer
    gate: Buffer | None
    out: Buffer
    after: int


def gather(ops: Sequence[LaneInput], i: int, halves: Mapping[str, Split]) -> Parts:
    """Head norms, rotations, cache write and attention from op i on. halves: splits by the names of what comes out.

    Raises:
        EngineBug: ops in an order that no builder makes.
    """
    stop, store = i, None
    norms: dict[str, Norm] = {}
    ropes: dict[str, Rope] = {}
    norms_last: set[str] = set()
    while stop < len(ops) and not isinstance(ops[stop], Attention):
        op = ops[stop]
        if isinstance(op, Norm) and op.x == op.out:
            norms[op.x.name] = op
            if op.x.name in ropes:
                norms_last.add(op.x.name)
        elif isinstance(op, Rope):
            ropes[op.x.name] = op
        elif isinstance(op, KvStore):
            store = op
        else:
            break
        stop += 1
    attend = ops[stop] if stop < len(ops) else None
    if not isinstance(attend, Attention) or store is None or not _belongs(norms, ropes, attend, store):
        raise EngineBug(f"the ops from {i} on are no attention that this version can place")
    q, gate, out = _gate(ops, stop, attend, halves)
    after = stop + (1 if gate is None else 2)
    return Parts(attend, store, norms, ropes, frozenset(norms_last), q, gate, out, after)


def _belongs(norms: Mapping[str, Norm], ropes: Mapping[str, Rope], attention: Attention, store: KvStore) -> bool:
    known = {attention.q.name, store.k.name}
    turns = {rope.rope for rope in ropes.values()}
    return set(norms) <= known and set(ropes) <= known and len(turns) <= 1 and store.layer == attention.layer


def _gate(ops: Sequence[LaneInput], at: int, op: Attention, halves: Mapping[str, Split]) -> tuple[Buffer, Buffer | None, Buffer]:
    """Where the queries of the attention at `at` lie, and its gates behind them, and where the gated output goes."""
    split, follower = halves.get(op.q.name), ops[at + 1] if at + 1 < len(ops) else None
    if split is None:
        return op.q, None, op.out
    if isinstance(follower, SigmoidGate) and (follower.x, follower.gate) == (op.out, split.second):
        return split.x, split.x, follower.out
    raise EngineBug(f"op {at} has gates that are not for its output")


def attention(parts: Parts, *, rows: bool, merged: bool) -> tuple[list[LaneOp], Source | None]:
    """The ops of an attention. rows: each is of another sequence; merged: it leaves partials, read through the source."""
    op, q, k, gate = parts.op, parts.q, parts.store.k, parts.gate
    heads = Heads(
        op.n_heads, op.n_kv_heads, op.head_dim, op.v_dim, op.scale, q.width // op.n_heads, op.window, op.sinks, op.softcap
    )
    turn_q, turn_k = _turn(parts, op.q.name), _turn(parts, k.name)
    if any(turn.whole and turn.norm_last for turn in (turn_q, turn_k)):
        raise EngineBug("a norm over all heads after the rotation is not run")
    position = LanePosition(op.unit, op.layer, q, k, parts.store.v, heads, turn_q, turn_k, True)
    if not merged:
        return [position, LaneAttend(op.unit, op.layer, q, parts.out, heads, rows, None, gate)], None
    partials = Buffer(f"{parts.out.name}.partials", parts.out.width)
    return [LaneAttend(op.unit, op.layer, q, partials, heads, True, position, None)], Source(partials, merge=heads, gate=gate)


def _turn(parts: Parts, name: str) -> Turn:
    norm, rope = parts.norms.get(name), parts.ropes.get(name)
    return Turn(
        None if norm is None else norm.norm,
        None if rope is None else rope.rope,
        norm is not None and norm.n_heads == 1 and norm.x.width > parts.op.head_dim,
        name in parts.norms_last,
        parts.op.temperature if name == parts.op.q.name else None,
    )


def latent(
    ops: Sequence[LaneInput], i: int, store: LatentStore, *, decode: bool, max_rows: int, style: Style
) -> list[LaneLatent]:
    """The ops of the latent attention at i and i + 1."""
    attend = ops[i + 1] if i + 1 < len(ops) else None
    if not isinstance(attend, LatentAttention) or attend.layer != store.layer:
        raise EngineBug(f"the latent rows that op {i} stores are not attended over by the next op")
    return lower_latent(
        attend.unit,
        store.layer,
        attend.q,
        store.x,
        attend.out,
        attend.mla,
        decode=decode,
        max_rows=max_rows,
        partials=decode and style == "cpu",
    )
