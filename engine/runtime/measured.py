"""What one step took by device and op, taken when the executor is asked to `measure`, which costs a clock reading an op; and what
crossed the links of GPUs."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.graph.ops import Buffer
from engine.placement.placement import Gpu, Numa
from engine.program.lane_transfer import LaneRecv, LaneSend
from engine.program.plan import Lane, Plan
from engine.runtime.stamps import I64, Beside, CardStamps, Piece, Stamps, cpu_piece
from engine.runtime.teams import Teams


@dataclass(frozen=True, slots=True)
class PartTime:
    """Seconds of a step in which a device computed, and in which it waited for another one in its midst."""

    device: str
    computing_s: float
    waiting_s: float


@dataclass(frozen=True, slots=True)
class StepTimes:
    """parts: of each device that had one. ops: (device, kind of op, seconds in all layers), where the device is told op by op.

    stamps: when what was done.
    """

    parts: tuple[PartTime, ...]
    ops: tuple[tuple[str, str, float], ...] = ()
    stamps: Stamps | None = None


def cpu_part(lane: Lane, times: npt.NDArray[np.int64]) -> tuple[PartTime, tuple[tuple[str, str, float], ...]]:
    """The CPU's part of a step by the time of each of its ops, in ns. What it receives it waits for."""
    kinds = _kinds_of(lane)
    sums = 1e-9 * np.bincount(kinds.of_op, times, len(kinds.names) + 1)
    device, waiting = str(lane.device), float(sums[-1])
    ops = tuple((device, name, float(seconds)) for name, seconds in zip(kinds.names, sums, strict=False))
    return PartTime(device, float(sums.sum()) - waiting, waiting), ops


def room_for(teams: Teams | None) -> I64 | None:
    """[n_workers] for their times, where they are teams of several nodes."""
    return None if teams is None or len(teams.nodes) < 2 else np.zeros(len(teams.of), np.int64)


def node_parts(teams: Teams, worker_ns: npt.NDArray[np.int64], total_s: float) -> tuple[PartTime, ...]:
    """The part of each node of memory: its workers' time at tasks, the mean of them, and for the rest they wait for others.

    worker_ns: [n_workers].
    """
    of = np.array(teams.of, np.intp)
    means = 1e-9 * np.bincount(of, worker_ns, len(teams.nodes)) / np.bincount(of, minlength=len(teams.nodes))
    return tuple(
        PartTime(str(Numa(node)), min(float(mean), total_s), max(0.0, total_s - float(mean)))
        for node, mean in zip(teams.nodes, means, strict=True)
    )


@dataclass(frozen=True, slots=True)
class _Kinds:
    """Kinds of ops of a lane by name; of_op: [n_ops] which one, len(names) for waits."""

    lane: Lane
    names: tuple[str, ...]
    of_op: npt.NDArray[np.intp]


_FOUND: dict[int, _Kinds] = {}
_MOST_FOUND = 32
"""Lanes of models that were loaded since are forgotten. A lane is no key: it holds its slots in a dictionary."""


def _kinds_of(lane: Lane) -> _Kinds:
    found = _FOUND.get(id(lane))
    if found is None or found.lane is not lane:
        if len(_FOUND) >= _MOST_FOUND:
            _FOUND.clear()
        names = [None if isinstance(op, LaneRecv) else kind_of(str(op.unit), type(op).__name__) for op in lane.ops]
        order = tuple(dict.fromkeys(name for name in names if name is not None))
        places = {name: i for i, name in enumerate(order)}
        of_op = np.array([len(order) if name is None else places[name] for name in names], np.intp)
        found = _FOUND[id(lane)] = _Kinds(lane, order, of_op)
    return found


def kind_of(unit: str, name: str) -> str:
    """`experts.3` and `LaneExpertsDown` as `experts expertsdown`: one kind in all layers."""
    return f"{unit.partition('.')[0]} {name.removeprefix('Lane').lower()}"


def in_turns(spent: Iterable[tuple[str, float]], total_s: float) -> tuple[PartTime, ...]:
    """Devices that ran one after another: whoever does not compute waits. spent: (device, seconds), any number for each."""
    sums: dict[str, float] = {}
    for device, seconds in spent:
        sums[device] = sums.get(device, 0.0) + seconds
    return tuple(PartTime(device, seconds, max(0.0, total_s - seconds)) for device, seconds in sums.items())


Crossed = dict[str, tuple[int, int]]
"""Bytes that came to and left each GPU."""


def crossing(plan: Plan) -> Crossed:
    """Activations of one row that cross the link of each GPU."""
    found: Crossed = {}
    for lane in plan.lanes:
        if isinstance(lane.device, Gpu):
            come = sum(_row_bytes(op.buffers) for op in lane.ops if isinstance(op, LaneRecv))
            left = sum(_row_bytes(op.buffers) for op in lane.ops if isinstance(op, LaneSend))
            found[str(lane.device)] = come, left
    return found


def _row_bytes(buffers: tuple[Buffer, ...]) -> int:
    """All are of 4-byte values."""
    return 4 * sum(buffer.width for buffer in buffers)


class Timing:
    """Collects the times of one step, which begins now. cpu: the CPU's lane, None: it has none; teams: who does it.

    cpu_ns: for its program, by op; worker_ns: by worker, where they are teams of several nodes, else None.
    """

    def __init__(self, cpu: Lane | None, teams: Teams | None = None) -> None:
        self.began_ns = time.monotonic_ns()
        self.cpu_ns = np.zeros(0 if cpu is None else len(cpu.ops), np.int64)
        self._teams = teams
        self.worker_ns = room_for(teams)
        self.pieces: list[Piece] = []
        self._turns: list[tuple[str, float]] = []

    def turn(self, lane: Lane, first: int, end: int, began_ns: int, marks: I64 | None = None) -> None:
        """A lane computed since began_ns while the others stood still. marks: see `Piece`; None: those of the CPU are in
        cpu_ns, of a GPU only its beginning and end are known."""
        now = time.monotonic_ns()
        self._turns.append((str(lane.device), (now - began_ns) * 1e-9))
        if marks is not None:
            self.pieces.append(Piece(lane, first, end, marks))
        elif isinstance(lane.device, Gpu):
            self.pieces.append(Piece(lane, first, end, np.array((began_ns, now))))
        else:
            self.pieces.append(cpu_piece(lane, first, end, self.cpu_ns, now))

    def cpu_ended(self, lane: Lane) -> None:
        """The CPU's lane has just been run beside those of GPUs."""
        self.pieces.append(cpu_piece(lane, 0, len(lane.ops), self.cpu_ns, time.monotonic_ns()))

    def result(self, cpu: Lane | None, beside: Beside | None, total_s: float) -> StepTimes:
        """beside: what cards say where lanes ran side by side; None: they took turns."""
        mine, ops = (None, ()) if cpu is None else cpu_part(cpu, self.cpu_ns)
        stamps = Stamps(self.began_ns, self.began_ns + round(total_s * 1e9), tuple(self.pieces), beside)
        if beside is None:
            return StepTimes(self._by_node(in_turns(self._turns, total_s), total_s), ops, stamps)
        waited_s = {str(beside.plan.lanes[card.lane].device): waited(beside.plan, card) for card in beside.cards}
        gpus = tuple(PartTime(device, max(0.0, total_s - seconds), seconds) for device, seconds in waited_s.items())
        return StepTimes(self._by_node(gpus if mine is None else (mine, *gpus), total_s), ops, stamps)

    def _by_node(self, parts: tuple[PartTime, ...], total_s: float) -> tuple[PartTime, ...]:
        """With a part for each node of memory in place of the CPU's."""
        if self._teams is None or self.worker_ns is None:
            return parts
        cards = tuple(one for one in parts if not one.device.startswith("numa"))
        return (*node_parts(self._teams, self.worker_ns, total_s), *cards)


def waited(plan: Plan, card: CardStamps) -> float:
    """Seconds that a card waited at its flags, by its own clock."""
    flags = [one.flag for one in plan.exchanges if one.target == card.lane]
    return float((card.flags[flags, 1] - card.flags[flags, 0]).clip(min=0).sum()) * 1e-9
