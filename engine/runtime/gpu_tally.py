"""What the routers on one GPU chose in a step: written by their kernels, copied to the machine's memory behind the last op."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from engine.program.lane_ops import LaneOp, LaneRoute
from engine.program.plan import Lane
from engine.runtime.choices import StepChoices, few
from engine.runtime.gpu import GpuMemory
from engine.runtime.gpu_bench import Run
from engine.runtime.gpu_buffers import StepShape
from engine.runtime.pinned import Pinned
from engine.triton_kernels.tensors import Tally
from kernels_pyx.executor import FEW_MAX


class GpuTally:
    """The memory of one GPU. layers: those whose router lies there."""

    def __init__(self, memory: GpuMemory, choices: StepChoices, layers: Iterable[int]) -> None:
        """Raises: OutOfMemory, DeviceLost."""
        moe = choices.moe
        self._used = dict(zip(moe.layers, moe.used, strict=True))
        self._place = {layer: i for i, layer in enumerate(moe.layers)}
        self._n_ids = FEW_MAX * moe.most_used
        here = sorted(layers)
        # Rows of all layers of the model, so that places are the same on every device: some hundred KB at most.
        shape = len(moe.layers), moe.words
        self._words = memory.allocate(shape, torch.int32, "workspace", "the choices of experts", zeroed=True)
        self._pinned = Pinned(self._words.nbytes, (memory.device,))
        self._host = self._pinned.bytes[: self._words.nbytes].view(torch.int32).view(shape)
        choices.reads(here, self._host.numpy())

    def of(self, layer: int, n_rows: int, shape: StepShape) -> Tally:
        """Where the router of a layer, of n_rows rows, leaves its choices in steps of `shape`."""
        words, used = self._words[self._place[layer]], self._used[layer]
        if few(shape.n_rows, shape.n_out):
            return Tally(words[: n_rows * used].view(n_rows, used), None)
        return Tally(None, words[self._n_ids :])

    def begin(self, lane: Lane, shape: StepShape) -> Run | None:
        """What comes before the first op: counts begin at 0. None: nothing to do."""
        if few(shape.n_rows, shape.n_out) or not _routes(lane.ops):
            return None
        return self._zero

    def _zero(self) -> None:
        self._words.zero_()

    def fetch(self, lane: Lane) -> Run | None:
        """What comes behind the last op. None: the lane has no router."""
        if not _routes(lane.ops):
            return None

        def copy() -> None:
            self._host.copy_(self._words, non_blocking=True)

        return copy

    def close(self) -> None:
        """Gives the pinned memory back. Idempotent."""
        self._pinned.close()


def _routes(ops: Iterable[LaneOp]) -> bool:
    return any(isinstance(op, LaneRoute) for op in ops)
