"""Lanes of one plan that run side by side on real devices: the flags they meet at, and what is said when one does not come.

The graphs of all GPUs are launched, then the CPU runs its lane in one call; each side waits at the exchanges for what it needs.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from engine.errors import DeviceLost, EngineError
from engine.placement.placement import Device, Gpu
from engine.program.plan import Plan
from engine.runtime.gpu import GpuMemory
from engine.runtime.pinned import Pinned
from engine.triton_kernels.handoff import LINE, GpuFlags
from kernels_pyx.handoff import FAR, LATE, Handoff, handoff_bytes

LIMIT_S = 2.0
"""The longest wait: some hundred times what a step takes."""


class Meeting:
    """The flags of one plan. `host`: for the CPU's program; `flags`: for the kernels of each GPU."""

    def __init__(self, plan: Plan, memories: Mapping[Device, GpuMemory]) -> None:
        """Raises OutOfMemory, DeviceLost."""
        n_flags = len(plan.exchanges)
        self._pinned = Pinned(handoff_bytes(n_flags), tuple(memory.device for memory in memories.values()))
        self.host = Handoff(memoryview(self._pinned.arena), n_flags, limit_s=LIMIT_S)
        words = self._pinned.bytes[: handoff_bytes(n_flags)].view(torch.int32).view(-1, LINE)
        self._devices = {device: memory.device for device, memory in memories.items()}
        self.flags: dict[Device, GpuFlags] = {}
        for lane in plan.lanes:
            if isinstance(lane.device, Gpu):
                self.flags[lane.device] = self._flags_of(memories[lane.device], words)
        self.reset()

    def _flags_of(self, memory: GpuMemory, words: Tensor) -> GpuFlags:
        with torch.cuda.device(memory.device.torch_device):
            return GpuFlags(words, memory.allocator("workspace", "the flags of a plan"), asm=True, limit_s=LIMIT_S)

    def next_step(self) -> None:
        """Before a step: the host counts on as the kernels at the head of each graph do."""
        self.host.epoch = (self.host.epoch + 1) % (1 << 32)

    def reset(self) -> None:
        """Both sides count from 0 again, and nothing is stopped. Only while no step is under way."""
        self.host.reset(0)
        for device, flags in self.flags.items():
            flags.reset(0)
            self._devices[device].synchronize()

    def problem(self) -> EngineError | None:
        """Why the step that has ended was given up; None: it was not."""
        why = self.host.stopped
        if not why:
            return None
        side = "the CPU waited for a GPU" if LATE <= why < FAR else "a GPU waited for the CPU"
        return DeviceLost(f"{side} for more than {LIMIT_S:g} s in the midst of a step; try again, or load the model anew")

    def close(self) -> None:
        """Idempotent."""
        self.flags.clear()
        self._pinned.close()
