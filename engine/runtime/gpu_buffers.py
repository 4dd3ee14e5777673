"""The tensors of a GPU lane in steps of one shape: views of the arena that all plans of the device share."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.errors import EngineBug
from engine.program.gpu_slots import GPU_ALIGN
from engine.program.lane_ops import LaneOp, LanePrepare, LaneRows, writes
from engine.program.plan import Lane, Slot
from engine.triton_kernels.kernels import Kernels
from engine.triton_kernels.tensors import Acts


@dataclass(frozen=True, slots=True)
class StepShape:
    """Rows, sequences and wanted rows of a step."""

    n_rows: int
    n_seqs: int
    n_out: int


@dataclass(frozen=True, slots=True)
class LaneTensors:
    """What the buffers of a lane are, by name."""

    tensors: dict[str, Tensor]
    acts: dict[str, Acts]


class Formats:
    """The names of the formats of a model's tensors."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names

    def of(self, tensors: Iterable[str]) -> frozenset[str]:
        """The formats of some tensors."""
        return frozenset(self._names[name] for name in tensors)


def lane_tensors(
    lane: Lane, max_rows: int, shape: StepShape, arena: Tensor, kernels: Kernels, formats: Formats, *, f32: bool
) -> LaneTensors:
    """The views for steps of `shape`, each at the beginning of its slot. max_rows: rows that the lane was laid out for."""
    late = frozenset(late_buffers(lane.ops))
    prepares = {op.acts.name: op for op in lane.ops if isinstance(op, LanePrepare)}
    found = LaneTensors({}, {})
    for name, slot in lane.slots.items():
        rows = slot.rows // max_rows * (shape.n_out if name in late else shape.n_rows)
        dealer = _Dealer(arena, slot)
        if slot.kind == "acts":
            weights = formats.of(prepares[name].weights)
            found.acts[name] = kernels.acts(dealer.by_name, rows, slot.width, weights, f32=f32)
        else:
            found.tensors[name] = dealer((rows, slot.width), torch.int32 if slot.kind == "i32" else torch.float32)
    return found


class _Dealer:
    """Gives one view after the other of the bytes of a slot."""

    def __init__(self, arena: Tensor, slot: Slot) -> None:
        self._room = arena[slot.offset : slot.offset + slot.nbytes]
        self._name = slot.name
        self._at = 0

    def __call__(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        nbytes = math.prod(shape) * dtype.itemsize
        if self._at + nbytes > self._room.numel():
            raise EngineBug(f"{self._name} does not fit the slot that was laid out for it")
        view = self._room[self._at : self._at + nbytes].view(dtype).view(shape)
        self._at += -(-nbytes // GPU_ALIGN) * GPU_ALIGN
        return view

    def by_name(self, shape: tuple[int, ...], dtype: str) -> Tensor:
        return self(shape, getattr(torch, dtype))


def late_buffers(ops: Iterable[LaneOp]) -> Iterator[str]:
    """Buffers that have a row for each wanted row of the step."""
    for op in ops:
        if isinstance(op, LaneRows) or getattr(op, "out_rows", False):
            yield from (buffer.name for buffer in writes(op))
