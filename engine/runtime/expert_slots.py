"""The pools of experts on one GPU: slots with copies, and tables that say what lies where, which its kernels read.

The whole sets stay in the machine's memory, mapped or our own; copies come from there, one expert at a time, through pinned
memory and on a stream of their own on real devices. What is brought during a step must not be named by the tables of that step.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from engine.errors import Cancelled
from engine.gguf.info import TensorInfo
from engine.placement.placement import Pool
from engine.program.lane_ops import LaneExpertsDown, LaneExpertsUp, LaneOp, matrices
from engine.quants.padding import PADDED, padded_bytes
from engine.runtime.driver import DRIVER
from engine.runtime.gpu import GpuMemory, guarded
from engine.runtime.pinned import Pinned
from engine.runtime.weights import Weights
from engine.triton_kernels.formats import padded as padded_format
from engine.triton_kernels.tensors import Matrix
from kernels_pyx.executor import AbortFlag

ALIGN = 256
BUFFERS = 2
"""Matrices of one expert on their way at once: one is copied to pinned memory while the other crosses."""


@dataclass(frozen=True, slots=True)
class _Part:
    """One tensor of a layer: bytes of an expert in the file, and the room of its slots, uint8 [n_slots, bytes of one here]."""

    tensor: TensorInfo
    nbytes: int
    room: Tensor


class ExpertSlots:
    """Used by one thread; `bring` may run on another while no other method is called."""

    def __init__(self, memory: GpuMemory, weights: Weights, pools: Iterable[Pool], ops: Iterable[LaneOp], n_experts: int) -> None:
        """Takes the room; nothing is read yet. ops: of all lanes of the device.

        Raises:
            OutOfMemory: with device, bytes asked for and free. UnsupportedModel, GgufError: see `Weights`.
        """
        self.pools = tuple(sorted(pools, key=lambda pool: pool.layer))
        self._device = memory.device
        self._weights = weights
        self._index = {pool.layer: i for i, pool in enumerate(self.pools)}
        names, biases = _named(ops)
        self._parts: dict[int, list[_Part]] = {pool.layer: [] for pool in self.pools}
        self._rooms: dict[str, Tensor] = {}
        self._biases: dict[str, Tensor] = {}
        self._layer_biases = biases
        sizes = [
            (pool, weights.tensor(name), weights.tensor(name).nbytes // n_experts)
            for pool in self.pools
            for name in sorted(names[pool.layer])
        ]
        total = sum(_aligned(len(pool.experts) * padded_bytes(one.type_name, each)) for pool, one, each in sizes)
        what = f"copies of {sum(len(pool.experts) for pool in self.pools)} experts"
        room, at = memory.allocate((total,), torch.uint8, "weights", what, zeroed=True), 0
        for pool, tensor, each in sizes:
            here, n = padded_bytes(tensor.type_name, each), len(pool.experts)
            self._rooms[tensor.name] = room[at : at + n * here]
            self._parts[pool.layer].append(_Part(tensor, each, self._rooms[tensor.name].view(n, here)))
            at += _aligned(n * here)
        for pool in self.pools:
            for name in biases[pool.layer]:
                width = weights.vector(name).size // n_experts
                shape = len(pool.experts), width
                self._biases[name] = memory.allocate(shape, torch.float32, "derived", "biases of pooled experts", zeroed=True)
        tables = len(self.pools), n_experts
        self._tables = memory.allocate(tables, torch.int32, "workspace", "the tables of pools")
        pinned = 4 * self._tables.numel()
        self._most = max(each for _, _, each in sizes)
        self._pinned = Pinned(_aligned(pinned) + BUFFERS * self._most, (self._device,))
        self._host = self._pinned.bytes[:pinned].view(torch.int32).view(tables)
        self._seen = self._host.numpy()
        self._seen[:] = -1
        self._tables.copy_(self._host)
        self._buffers = [self._pinned.bytes[start : start + self._most] for start in self._starts(_aligned(pinned))]
        with DRIVER:
            self._stream = None if self._device.emulated else torch.cuda.Stream(self._device.torch_device)

    def _starts(self, first: int) -> list[int]:
        return [first + i * self._most for i in range(BUFFERS)]

    @property
    def expert_bytes(self) -> int:
        """Bytes of an expert of the file, of the layer where it has most."""
        return max(sum(part.nbytes for part in parts) for parts in self._parts.values())

    def matrix(self, name: str, n_in: int, *, n_matrices: int = 1, part: int = 0, n_parts: int = 1) -> Matrix:
        """The copies of a tensor as matrices, by slot; see `GpuWeights.matrix`."""
        tensor = self._weights.matrix(name, n_in)
        form, stride = padded_format(tensor.type_name), padded_bytes(tensor.type_name, tensor.nbytes * n_in // tensor.n_elements)
        rows = self._rooms[name].numel() // stride // n_matrices // n_parts
        return Matrix(self._rooms[name], form, n_in, rows, stride, part * rows * stride, n_matrices, n_parts * rows * stride)

    def bias(self, name: str | None, n_slots: int) -> Tensor | None:
        """Biases by slot, f32 [n_slots, n]."""
        return None if name is None else self._biases[name]

    def slot_of(self, layer: int) -> Tensor:
        """int32 [n_experts], the table that the router's kernel reads."""
        return self._tables[self._index[layer]]

    def tell(self, tables: npt.NDArray[np.int32]) -> None:
        """What lies where from the next step on, [n_pools, n_experts]. Only between steps."""
        self._seen[:] = tables

    def fetch(self) -> None:
        """Enqueues what brings the tables that were told to where kernels read them: comes first in each step, also captured."""
        self._tables.copy_(self._host, non_blocking=True)

    def fill(self, progress: Callable[[int], None], abort: AbortFlag) -> None:
        """Brings what the placement names. progress(done): bytes so far.

        Raises:
            Cancelled: the flag was set. DeviceLost.
        """
        done = 0
        for pool in self.pools:
            for slot, expert in enumerate(pool.experts):
                if abort.is_set:
                    raise Cancelled("loading was stopped")
                self.bring([(pool.layer, expert, slot)])
                done += sum(part.nbytes for part in self._parts[pool.layer])
                progress(done)

    @property
    def nbytes(self) -> int:
        """Bytes of the file that `fill` brings."""
        return sum(len(pool.experts) * sum(part.nbytes for part in self._parts[pool.layer]) for pool in self.pools)

    def bring(self, fetches: Sequence[tuple[int, int, int]]) -> None:
        """Copies of (layer, expert, slot); all are there on return. Raises: DeviceLost."""
        stream = self._stream
        on_device = nullcontext() if stream is None else torch.cuda.device(self._device.torch_device)
        on_stream = nullcontext() if stream is None else torch.cuda.stream(stream)
        with guarded(self._device), on_device, on_stream, torch.inference_mode():
            marks: list[torch.cuda.Event | None] = [None] * BUFFERS
            turn = 0
            for layer, expert, slot in fetches:
                for part in self._parts[layer]:
                    mark = marks[turn]
                    if mark is not None:
                        mark.synchronize()
                    buffer = self._buffers[turn][: part.nbytes]
                    address = self._weights.address(part.tensor) + expert * part.nbytes
                    buffer.numpy()[:] = _bytes_at(address, part.nbytes)
                    self._into(part, part.room[slot], buffer)
                    if stream is not None:
                        marks[turn] = mark = torch.cuda.Event()
                        mark.record(stream)
                    turn = (turn + 1) % BUFFERS
                for name in self._layer_biases[layer]:
                    values = self._weights.vector(name).reshape(-1, self._biases[name].shape[1])[expert]
                    self._biases[name][slot].copy_(torch.from_numpy(values))
            if stream is not None:
                stream.synchronize()

    @staticmethod
    def _into(part: _Part, room: Tensor, buffer: Tensor) -> None:
        """Blocks of the file to their room, where each may take more than in the file."""
        stored, padded = PADDED.get(part.tensor.type_name, (0, 0))
        if not stored:
            room.copy_(buffer, non_blocking=True)
            return
        arrived = buffer if room.device.type == "cpu" else buffer.to(room.device, non_blocking=True)
        room.view(-1, padded)[:, :stored].copy_(arrived.view(-1, stored))

    def close(self) -> None:
        """Lets go of the pinned memory. Idempotent."""
        self._buffers = []
        self._pinned.close()


def _named(ops: Iterable[LaneOp]) -> tuple[Mapping[int, set[str]], Mapping[int, set[str]]]:
    """By layer, the tensors and the biases that pooled ops read."""
    names: dict[int, set[str]] = {}
    biases: dict[int, set[str]] = {}
    for op in ops:
        if isinstance(op, LaneExpertsUp | LaneExpertsDown) and op.pooled:
            names.setdefault(op.unit.layer, set()).update(matrices(op))
            given = (op.gate_bias, op.up_bias) if isinstance(op, LaneExpertsUp) else (op.bias,)
            biases.setdefault(op.unit.layer, set()).update(name for name in given if name is not None)
    return names, biases


def _bytes_at(address: int, nbytes: int) -> npt.NDArray[np.uint8]:
    return np.frombuffer(memoryview((ctypes.c_uint8 * nbytes).from_address(address)), np.uint8)


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGN) * ALIGN
