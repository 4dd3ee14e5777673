"""How lanes depend on each other: their exchanges, an order to run them in, and how long what crosses must stay."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine.errors import EngineBug
from engine.placement.placement import Device, Gpu
from engine.program.lane_transfer import LaneRecv, LaneSend
from engine.program.plan import Exchange, Segment
from engine.program.touches import Touches


def exchanges(lanes: Sequence[Touches]) -> tuple[Exchange, ...]:
    """All exchanges, by flag.

    Raises:
        EngineBug: a send that nobody takes, or the other way round.
    """
    sent = {flag: (i, at) for i, lane in enumerate(lanes) for flag, at in lane.sends.items()}
    taken = {flag: (i, at) for i, lane in enumerate(lanes) for flag, at in lane.recvs.items()}
    if sent.keys() != taken.keys() or sorted(sent) != list(range(len(sent))):
        raise EngineBug("lanes send what no lane takes")
    return tuple(Exchange(flag, *sent[flag], *taken[flag]) for flag in range(len(sent)))


def schedule(lanes: Sequence[Touches]) -> tuple[Segment, ...]:
    """Pieces of the lanes, as long as they can be, in an order in which all that a piece takes has been sent before.

    Raises:
        EngineBug: lanes that wait for each other.
    """
    stops = [sorted([(at, False, flag) for flag, at in lane.sends.items()] + _taken(lane)) for lane in lanes]
    at, passed, sent = [0] * len(lanes), [0] * len(lanes), set[int]()
    found: list[Segment] = []
    while any(done < len(lane.ops) for done, lane in zip(at, lanes, strict=True)):
        before = len(found)
        for i, lane in enumerate(lanes):
            first, at[i] = at[i], len(lane.ops)
            for stop, takes, flag in stops[i][passed[i] :]:
                if takes and flag not in sent:
                    at[i] = stop
                    break
                if not takes:
                    sent.add(flag)
                passed[i] += 1
            if at[i] > first:
                found.append(Segment(i, first, at[i]))
        if len(found) == before:
            raise EngineBug("lanes wait for each other")
    return tuple(found)


def _taken(lane: Touches) -> list[tuple[int, bool, int]]:
    return [(at, True, flag) for flag, at in lane.recvs.items()]


@dataclass(frozen=True, slots=True)
class Stay:
    """Of one lane, by name: from which op on a buffer that it is sent may arrive, up to which op one that it sends is read."""

    arrives: Mapping[str, int]
    read_until: Mapping[str, int]


def stays(lanes: Sequence[Touches], devices: Sequence[Device], known: Sequence[Exchange]) -> tuple[Stay, ...]:
    """How long the buffers of exchanges must keep their place in each lane. known: all exchanges.

    A GPU that sends writes where the receiver has its buffer, as soon as it gets there; one that takes something from a CPU reads
    it, when it gets there. Between two CPUs it may be either. What one lane knows of how far another has come are the exchanges
    between the two alone.

    Raises:
        EngineBug: a buffer is changed that may still be read from elsewhere.
    """
    arrives: list[dict[str, int]] = [{} for _ in lanes]
    read_until: list[dict[str, int]] = [{} for _ in lanes]
    on_gpu = [isinstance(device, Gpu) for device in devices]
    ways: dict[tuple[int, int], list[Exchange]] = {}
    for one in known:
        ways.setdefault((one.source, one.target), []).append(one)
    back = {way: _Way(ways.get((way[1], way[0]), ())) for way in ways}
    for one in known:
        send, recv = lanes[one.source].ops[one.send], lanes[one.target].ops[one.recv]
        assert isinstance(send, LaneSend) and isinstance(recv, LaneRecv)
        answers = back[one.source, one.target]
        if not on_gpu[one.source]:
            until = answers.taken_after(one.recv, len(lanes[one.source].ops) - 1)
            for buffer in send.buffers:
                _unchanged(lanes[one.source], buffer.name, one.send, until)
                read_until[one.source][buffer.name] = max(until, read_until[one.source].get(buffer.name, 0))
        if on_gpu[one.source] or not on_gpu[one.target]:
            arrives[one.target] |= dict.fromkeys((buffer.name for buffer in recv.buffers), answers.sent_before(one.send))
    return tuple(Stay(*both) for both in zip(arrives, read_until, strict=True))


class _Way:
    """What one lane sends to another, to be asked for many ops."""

    def __init__(self, known: Sequence[Exchange]) -> None:
        by_send = sorted((one.send, one.recv) for one in known)
        self._sends = [send for send, _ in by_send]
        self._least_recv = [recv for _, recv in by_send]
        for i in reversed(range(len(by_send) - 1)):
            self._least_recv[i] = min(self._least_recv[i], self._least_recv[i + 1])
        by_recv = sorted((one.recv, one.send) for one in known)
        self._recvs = [recv for recv, _ in by_recv]
        self._most_send = [send for _, send in by_recv]
        for i in range(1, len(by_recv)):
            self._most_send[i] = max(self._most_send[i], self._most_send[i - 1])

    def taken_after(self, op: int, otherwise: int) -> int:
        """The first op that takes what is sent behind op `op` of the sender."""
        i = bisect_right(self._sends, op)
        return self._least_recv[i] if i < len(self._sends) else otherwise

    def sent_before(self, op: int) -> int:
        """The last op that sends what is taken before op `op` of the receiver, 0: there is none."""
        i = bisect_left(self._recvs, op)
        return self._most_send[i - 1] if i else 0


def _unchanged(lane: Touches, name: str, after: int, until: int) -> None:
    written = lane.written.get(name, [])
    i = bisect_right(written, after)
    if i < len(written) and written[i] <= until:
        at = written[i]
        op = lane.ops[at]
        raise EngineBug(f"op {at} ({type(op).__name__}, {op.unit}) changes {name}, which a GPU may still read")
