"""Which device does which op of a step, and what must cross between them for that.

An op runs where its unit lies. Of each buffer it is known which devices hold it as it is; whoever reads it elsewhere is sent it,
once. What one op needs of one device crosses together. It is sent right behind what makes it and taken right before what reads
it first, so that all that does not depend on it goes on meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from engine.arch.units import UnitId
from engine.errors import PlacementError
from engine.graph.ops import Add, Buffer, Experts, Op, OutRows
from engine.placement.placement import Device, Placement
from engine.program.dataflow import LaneInput, reads, substitute, writes
from engine.program.lane_transfer import LaneRecv, LaneSend
from engine.program.pooling import PoolSplit, with_pools

_ANYWHERE = (OutRows, Add)
"""Ops that only pick or add."""


@dataclass(frozen=True, slots=True)
class Part:
    """The ops of one device, in order, with what it sends and takes. late: the first op that has n_out rows."""

    device: Device
    ops: tuple[LaneInput, ...]
    late: int


@dataclass(slots=True)
class _Held:
    """A buffer of the step: the devices that hold it as it is, who wrote it last, and at which op of the step."""

    at: set[Device]
    writer: Device
    written: int


@dataclass(slots=True)
class _Lane:
    """ops: with their place in the order of the whole step; names: what the lane calls buffers that it was sent."""

    ops: list[tuple[tuple[int, int, int], LaneInput]] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)


def partition(ops: Sequence[Op], placement: Placement) -> tuple[Part, ...]:
    """A part for each device that has ops, in order of first use. ops: renamed, see `engine.program.dataflow.rename`.

    Raises:
        PlacementError: a unit without a place, or a cache or state that does not lie with its layer's mixer.
    """
    homes = {unit: placement.device_of(unit) for unit in dict.fromkeys(op.unit for op in ops)}
    _check(homes)
    return _Partition(_sums_apart(with_pools(ops, placement, homes), homes), homes).run()


def _check(homes: Mapping[UnitId, Device]) -> None:
    for unit, device in homes.items():
        mixer = homes.get(UnitId("mixer", unit.layer))
        if unit.kind in ("kv", "state") and mixer is not None and mixer != device:
            raise PlacementError(f"{unit} is placed on {device} and mixer.{unit.layer} on {mixer}; they must lie together")


def _sums_apart(ops: Sequence[Op | PoolSplit], homes: Mapping[UnitId, Device]) -> Sequence[Op | PoolSplit]:
    """Adds what a shared expert made to the stream before what the others made, where these come from another device.

    x += out + beside becomes x += beside, x += out: the first is done while the other device computes.
    """
    found = list(ops)
    for i, op in enumerate(ops[:-2]):
        beside, last = ops[i + 1], ops[i + 2]
        if not isinstance(op, Experts) or not isinstance(beside, Add) or not isinstance(last, Add):
            continue
        if beside.x != op.out or last.y != op.out or last.share is not None:
            continue
        if homes[op.unit] not in (homes[beside.unit], homes.get(UnitId("shared", op.unit.layer), homes[beside.unit])):
            found[i + 1] = replace(beside, x=last.x)
    return found


class _Partition:
    def __init__(self, ops: Sequence[Op | PoolSplit], homes: Mapping[UnitId, Device]) -> None:
        self._ops = ops
        self._homes = homes
        self._held: dict[str, _Held] = {}
        self._lanes: dict[Device, _Lane] = {}
        self._n_flags = 0

    def run(self) -> tuple[Part, ...]:
        picked = next((i for i, op in enumerate(self._ops) if isinstance(op, OutRows)), len(self._ops))
        for i, op in enumerate(self._ops):
            device = self._device(op)
            lane = self._lanes.get(device)
            if lane is None:
                lane = self._lanes[device] = _Lane()
            read = reads(op)
            self._bring(i, op, read, device, picked)
            sent = lane.names and any(buffer.name in lane.names for buffer in read)
            lane.ops.append(((i, 0, 0), substitute(op, lane.names) if sent else op))
            for buffer in writes(op):
                self._held[buffer.name] = _Held({device}, device, i)
        return tuple(self._part(device, lane, picked) for device, lane in self._lanes.items())

    def _device(self, op: Op | PoolSplit) -> Device:
        """Where the op runs: with its unit; what only picks or adds, where all that it reads lies."""
        home = self._homes[op.unit]
        if isinstance(op, _ANYWHERE):
            common = set.intersection(*(self._held[buffer.name].at for buffer in reads(op)))
            if home not in common and common:
                return min(common)
        return home

    def _bring(self, i: int, op: Op | PoolSplit, read: Sequence[Buffer], device: Device, picked: int) -> None:
        """Sends the device what the op reads and it does not hold."""
        missing: dict[Device, list[Buffer]] = {}
        for buffer in read:
            held = self._held[buffer.name]
            if device not in held.at and buffer not in missing.setdefault(held.writer, []):
                missing[held.writer].append(buffer)
        for source, buffers in missing.items():
            self._exchange(i, op.unit, source, device, buffers, picked)

    def _exchange(self, i: int, unit: UnitId, source: Device, device: Device, buffers: Sequence[Buffer], picked: int) -> None:
        flag, ours, theirs = self._n_flags, self._lanes[source], self._lanes[device]
        self._n_flags += 1
        made = max(self._held[buffer.name].written for buffer in buffers)
        late = made >= picked
        sent = tuple(replace(buffer, name=ours.names.get(buffer.name, buffer.name)) for buffer in buffers)
        for buffer in buffers:
            theirs.names[buffer.name] = f"{buffer.name}@{flag}"
            self._held[buffer.name].at.add(device)
        taken = tuple(replace(buffer, name=theirs.names[buffer.name]) for buffer in buffers)
        ours.ops.append(((made, 1, flag), LaneSend(self._ops[made].unit, sent, device, flag, late)))
        theirs.ops.append(((i, -1, flag), LaneRecv(unit, taken, source, flag, late)))

    @staticmethod
    def _part(device: Device, lane: _Lane, picked: int) -> Part:
        ordered = sorted(lane.ops, key=lambda one: one[0])
        late = sum(at <= (picked, 0, 0) for at, _ in ordered)
        return Part(device, tuple(op for _, op in ordered), late)
