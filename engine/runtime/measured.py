"""What one step took by device and op, taken when the executor is asked to `measure`, which costs a clock reading an op; and what
crossed the links of GPUs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.graph.ops import Buffer
from engine.placement.placement import Gpu
from engine.program.lane_transfer import LaneRecv, LaneSend
from engine.program.plan import Lane, Plan


@dataclass(frozen=True, slots=True)
class PartTime:
    """Seconds of a step in which a device computed, and in which it waited for another one in its midst."""

    device: str
    computing_s: float
    waiting_s: float


@dataclass(frozen=True, slots=True)
class StepTimes:
    """parts: of each device that had one. ops: (device, kind of op, seconds in all layers), where the device is told op by op."""

    parts: tuple[PartTime, ...]
    ops: tuple[tuple[str, str, float], ...] = ()


def cpu_part(lane: Lane, times: npt.NDArray[np.int64]) -> tuple[PartTime, tuple[tuple[str, str, float], ...]]:
    """The CPU's part of a step by the time of each of its ops, in ns. What it receives it waits for."""
    computing, waiting, kinds = 0, 0, dict[str, int]()
    for op, ns in zip(lane.ops, times.tolist(), strict=True):
        if isinstance(op, LaneRecv):
            waiting += ns
        else:
            computing += ns
            kind = kind_of(str(op.unit), type(op).__name__)
            kinds[kind] = kinds.get(kind, 0) + ns
    device = str(lane.device)
    ops = tuple((device, kind, ns * 1e-9) for kind, ns in kinds.items())
    return PartTime(device, computing * 1e-9, waiting * 1e-9), ops


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
    """Collects the times of one step. cpu_ns: for the program of the CPU's lane, by op."""

    def __init__(self, n_ops: int) -> None:
        self.cpu_ns = np.zeros(n_ops, np.int64)
        self._turns: list[tuple[str, float]] = []

    def turn(self, device: str, seconds: float) -> None:
        """A device computed so long while the others stood still."""
        self._turns.append((device, seconds))

    def result(self, cpu: Lane | None, waited_s: dict[str, float] | None, total_s: float) -> StepTimes:
        """waited_s: seconds that each GPU waited, where lanes ran side by side; None: they took turns."""
        mine, ops = (None, ()) if cpu is None else cpu_part(cpu, self.cpu_ns)
        if waited_s is None:
            return StepTimes(in_turns(self._turns, total_s), ops)
        gpus = tuple(PartTime(device, max(0.0, total_s - seconds), seconds) for device, seconds in waited_s.items())
        return StepTimes(gpus if mine is None else (mine, *gpus), ops)
