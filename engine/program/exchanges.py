"""How lanes depend on each other: their exchanges, an order to run them in, and how long what crosses must stay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine.errors import EngineBug
from engine.placement.placement import Device, Gpu
from engine.program.lane_ops import LaneOp, reads, writes
from engine.program.lane_transfer import LaneRecv, LaneSend
from engine.program.plan import Exchange, Segment

Ops = Sequence[LaneOp]


def exchanges(lanes: Sequence[Ops]) -> tuple[Exchange, ...]:
    """All exchanges, by flag.

    Raises:
        EngineBug: a send that nobody takes, or the other way round.
    """
    sent = {op.flag: (i, at) for i, ops in enumerate(lanes) for at, op in enumerate(ops) if isinstance(op, LaneSend)}
    taken = {op.flag: (i, at) for i, ops in enumerate(lanes) for at, op in enumerate(ops) if isinstance(op, LaneRecv)}
    if sorted(sent) != sorted(taken) or sorted(sent) != list(range(len(sent))):
        raise EngineBug("lanes send what no lane takes")
    return tuple(Exchange(flag, *sent[flag], *taken[flag]) for flag in range(len(sent)))


def schedule(lanes: Sequence[Ops]) -> tuple[Segment, ...]:
    """Pieces of the lanes, as long as they can be, in an order in which all that a piece takes has been sent before.

    Raises:
        EngineBug: lanes that wait for each other.
    """
    at, sent = [0] * len(lanes), set[int]()
    found: list[Segment] = []
    while any(done < len(ops) for done, ops in zip(at, lanes, strict=True)):
        before = len(found)
        for i, ops in enumerate(lanes):
            first = at[i]
            while at[i] < len(ops) and _ready(ops[at[i]], sent):
                at[i] += 1
            if at[i] > first:
                found.append(Segment(i, first, at[i]))
        if len(found) == before:
            raise EngineBug("lanes wait for each other")
    return tuple(found)


def _ready(op: LaneOp, sent: set[int]) -> bool:
    """Whether the op can run; takes note of what it sends."""
    if isinstance(op, LaneSend):
        sent.add(op.flag)
    return not isinstance(op, LaneRecv) or op.flag in sent


@dataclass(frozen=True, slots=True)
class Stay:
    """Of one lane, by name: from which op on a buffer that it is sent may arrive, up to which op one that it sends is read."""

    arrives: Mapping[str, int]
    read_until: Mapping[str, int]


def stays(lanes: Sequence[Ops], devices: Sequence[Device]) -> tuple[Stay, ...]:
    """How long the buffers of exchanges must keep their place in each lane.

    A GPU that sends writes where the receiver has its buffer, as soon as it gets there; one that takes something from a CPU reads
    it, when it gets there. Between two CPUs it may be either. What one lane knows of how far another has come are the exchanges
    between the two alone.

    Raises:
        EngineBug: a buffer is changed that may still be read from elsewhere.
    """
    arrives: list[dict[str, int]] = [{} for _ in lanes]
    read_until: list[dict[str, int]] = [{} for _ in lanes]
    known = exchanges(lanes)
    ways: dict[tuple[int, int], list[Exchange]] = {}
    for one in known:
        ways.setdefault((one.source, one.target), []).append(one)
    for one in known:
        send, recv = lanes[one.source][one.send], lanes[one.target][one.recv]
        assert isinstance(send, LaneSend) and isinstance(recv, LaneRecv)
        back = ways.get((one.target, one.source), ())
        from_gpu, to_gpu = isinstance(devices[one.source], Gpu), isinstance(devices[one.target], Gpu)
        if not from_gpu:
            after = (other.recv for other in back if other.send > one.recv)
            until = min(after, default=len(lanes[one.source]) - 1)
            for buffer in send.buffers:
                _unchanged(lanes[one.source], buffer.name, one.send, until)
                read_until[one.source][buffer.name] = max(until, read_until[one.source].get(buffer.name, 0))
        if from_gpu or not to_gpu:
            from_op = max((other.send for other in back if other.recv < one.send), default=0)
            arrives[one.target] |= {buffer.name: from_op for buffer in recv.buffers}
    return tuple(Stay(*both) for both in zip(arrives, read_until, strict=True))


def _unchanged(ops: Ops, name: str, after: int, until: int) -> None:
    for i in range(after + 1, until + 1):
        if any(buffer.name == name for buffer in writes(ops[i])):
            raise EngineBug(f"op {i} ({type(ops[i]).__name__}, {ops[i].unit}) changes {name}, which a GPU may still read")


def touched(ops: Ops) -> tuple[dict[str, int], dict[str, int]]:
    """By name of a buffer, the first and the last op that touch it."""
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for i, op in enumerate(ops):
        for buffer in (*reads(op), *writes(op)):
            first.setdefault(buffer.name, i)
            last[buffer.name] = i
    return first, last
