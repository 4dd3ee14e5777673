"""What crosses between lanes where a GPU is one side: it writes into the slots of the other lane, or reads from them.

A lane of the CPU has its slots in pinned memory, so that copies go on while the host does something else. Between two GPUs the
sender writes into the tensors of the receiver, or through pinned memory where it cannot.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import torch
from torch import Tensor

from engine.placement.placement import Device, Gpu
from engine.program.lane_transfer import LaneRecv, LaneSend
from engine.program.plan import Lane, Plan
from engine.runtime.gpu import GpuDevice
from engine.runtime.gpu_bench import Run
from engine.runtime.gpu_buffers import StepShape, late_buffers


class Flags(Protocol):
    """See `engine.triton_kernels.handoff.GpuFlags`."""

    def send(self, flag: int, rows: Sequence[tuple[Tensor, Tensor]]) -> None:
        """Copies of (own rows, the other lane's), and the flag behind them."""

    def take(self, flag: int, rows: Sequence[tuple[Tensor, Tensor]]) -> None:
        """A wait for the flag, and then copies into the own rows."""


def host_views(slots: Tensor, lane: Lane, max_rows: int, shape: StepShape) -> dict[str, Tensor]:
    """By name, [rows, values from row to row] of each slot of a CPU lane that other lanes may read or write. slots: its arena."""
    late = frozenset(late_buffers(lane.ops))
    found = {}
    for name, slot in lane.slots.items():
        if slot.kind in ("f32", "i32"):
            rows = slot.rows // max_rows * (shape.n_out if name in late else shape.n_rows)
            raw = slots[slot.offset : slot.offset + rows * slot.stride]
            found[name] = raw.view(torch.int32 if slot.kind == "i32" else torch.float32).view(rows, slot.stride // 4)
    return found


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The buffers of all lanes of a plan, by device and name: tensors of GPUs, padded rows of the CPU.

    flags: by GPU, for lanes that run side by side; None: their pieces run one after another. apart: (sender, receiver) of which
    one cannot write into the other's memory; what they exchange goes through `mail`, by flag.
    """

    plan: Plan
    tensors: Mapping[Device, Mapping[str, Tensor]]
    flags: Mapping[Device, Flags] | None = None
    apart: frozenset[tuple[Device, Device]] = frozenset()
    mail: dict[int, list[Tensor]] = field(default_factory=dict)

    def exchange(self, device: GpuDevice, room: Tensor) -> Callable[[LaneSend | LaneRecv, tuple[Tensor, ...]], Run]:
        """How the lane of `device` sends and takes. room: bytes there through which rows go that have gaps on the other side."""

        def run_of(op: LaneSend | LaneRecv, own: tuple[Tensor, ...]) -> Run:
            pairs = list(zip(own, self._theirs(op, Gpu(device.index), own), strict=False))
            other = op.to if isinstance(op, LaneSend) else op.source
            if self.flags is not None:
                flags = self.flags[Gpu(device.index)]
                return partial(flags.send if isinstance(op, LaneSend) else flags.take, op.flag, pairs)
            if isinstance(other, Gpu):
                return Copies(pairs if isinstance(op, LaneSend) else [(there, mine) for mine, there in pairs])
            padded = [_Padded(mine, there, room) for mine, there in pairs]
            if isinstance(op, LaneSend):
                return _Calls([one.send for one in padded])
            return _Calls(
                [
                    one.take if device.emulated else taken(there, mine) or one.take
                    for one, (mine, there) in zip(padded, pairs, strict=True)
                ]
            )

        return run_of

    def _theirs(self, op: LaneSend | LaneRecv, here: Gpu, own: tuple[Tensor, ...]) -> list[Tensor]:
        """What is written or read on the other side; nothing where the other side has written here."""
        sends = isinstance(op, LaneSend)
        other = op.to if isinstance(op, LaneSend) else op.source
        if ((here, other) if sends else (other, here)) in self.apart:
            if op.flag not in self.mail:
                pinned = self.flags is not None or own[0].device.type != "cpu"
                self.mail[op.flag] = [torch.empty(one.shape, dtype=one.dtype, pin_memory=pinned) for one in own]
            return self.mail[op.flag]
        if isinstance(other, Gpu) and not sends:
            return []
        return [self.tensors[other][name] for name in self._names(op)]

    def _names(self, op: LaneSend | LaneRecv) -> list[str]:
        """What the other lane calls the buffers of the op."""
        known = self.plan.exchanges[op.flag]
        lane, at = (known.target, known.recv) if isinstance(op, LaneSend) else (known.source, known.send)
        other = self.plan.lanes[lane].ops[at]
        assert isinstance(other, LaneSend | LaneRecv)
        return [buffer.name for buffer in other.buffers]


def taken(host: Tensor, own: Tensor) -> Run | None:
    """A kernel that fetches rows of pinned memory into tensors of a real device; None where there are too many for it."""
    # Not with the module: emulated devices need no Triton.
    from engine.triton_kernels.crossing import MOST_BYTES, copy_rows

    return partial(copy_rows, host, own) if own.numel() and own.nbytes <= MOST_BYTES else None


class Copies:
    """Copies of (source, target), enqueued one after the other."""

    def __init__(self, pairs: list[tuple[Tensor, Tensor]]) -> None:
        self._pairs = pairs

    def __call__(self) -> None:
        for source, target in self._pairs:
            target.copy_(source, non_blocking=True)


class _Calls:
    def __init__(self, runs: list[Run]) -> None:
        self._runs = runs

    def __call__(self) -> None:
        for run in self._runs:
            run()


class _Padded:
    """Rows of a GPU's tensor to and from rows with a gap behind each: the gap goes along, as one piece is copied at once.

    All of a device go through one room: what is enqueued later comes later.
    """

    def __init__(self, own: Tensor, host: Tensor, room: Tensor) -> None:
        self._own = own
        self._host = host
        self._wide = own if own.shape == host.shape else room[: host.nbytes].view(host.dtype).view(host.shape)
        self._part = self._wide[:, : own.shape[1]]

    def send(self) -> None:
        if self._wide is not self._own:
            self._part.copy_(self._own)
        self._host.copy_(self._wide, non_blocking=True)

    def take(self) -> None:
        self._wide.copy_(self._host, non_blocking=True)
        if self._wide is not self._own:
            self._own.copy_(self._part)
