"""Lanes of one plan that run side by side on real devices: the flags they meet at, and what is said when one does not come.

The graphs of all GPUs are launched, then the CPU runs its lane in one call; each side waits at the exchanges for what it needs.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from engine.errors import Cancelled, DeviceLost, EngineError
from engine.placement.placement import Device, Gpu
from engine.program.plan import Plan
from engine.runtime.gpu import GpuMemory
from engine.runtime.pinned import Pinned
from engine.runtime.stamps import Beside, CardStamps
from engine.triton_kernels.handoff import LINE, GpuFlags
from kernels_pyx.handoff import FAR, LATE, Handoff, handoff_bytes

LIMIT_S = 2.0
"""The longest wait where little is read in a step: some hundred times what one takes."""
PATIENCE = 10.0
"""How many times longer than foreseen a step may take."""
SLOW_READ = 10e9
"""Bytes a second that CPUs of this decade read from memory when all goes badly."""

MOST_S = 120.0
"""After which nobody waits any longer, whatever was foreseen."""


def wait_limit(cpu_bytes: int) -> float:
    """Seconds that one side waits for another. cpu_bytes: of weights on the CPU, all of which many rows may read in a step."""
    return min(max(LIMIT_S, PATIENCE * cpu_bytes / SLOW_READ), MOST_S)


class Meeting:
    """The flags of one plan. `host`: for the CPU's program; `flags`: for the kernels of each GPU."""

    def __init__(self, plan: Plan, memories: Mapping[Device, GpuMemory], limit_s: float) -> None:
        """limit_s: see `wait_limit`. Raises: OutOfMemory, DeviceLost."""
        n_flags = len(plan.exchanges)
        self._plan = plan
        self._limit_s = limit_s
        self._pinned = Pinned(handoff_bytes(n_flags), tuple(memory.device for memory in memories.values()))
        self.host = Handoff(memoryview(self._pinned.arena), n_flags, limit_s=limit_s)
        words = self._pinned.bytes[: handoff_bytes(n_flags)].view(torch.int32).view(-1, LINE)
        self._devices = {device: memory.device for device, memory in memories.items()}
        self.flags: dict[Device, GpuFlags] = {}
        for lane in plan.lanes:
            if isinstance(lane.device, Gpu):
                self.flags[lane.device] = self._flags_of(memories[lane.device], words)
        self.reset()

    def _flags_of(self, memory: GpuMemory, words: Tensor) -> GpuFlags:
        with torch.cuda.device(memory.device.torch_device):
            return GpuFlags(words, memory.allocator("workspace", "the flags of a plan"), asm=True, limit_s=self._limit_s)

    def next_step(self) -> None:
        """Before a step: the host counts on as the kernels at the head of each graph do."""
        self.host.epoch = (self.host.epoch + 1) % (1 << 32)

    def reset(self) -> None:
        """Both sides count from 0 again, and nothing is stopped. Only while no step is under way."""
        self.host.reset(0)
        for device, flags in self.flags.items():
            flags.reset(0)
            self._devices[device].synchronize()

    def stamps(self) -> Beside:
        """What each side noted of the step that has ended."""
        cards = []
        for i, lane in enumerate(self._plan.lanes):
            flags = self.flags.get(lane.device)
            if flags is not None:
                cards.append(CardStamps(i, int(flags.began.item()), flags.stamps.cpu().numpy()))
        return Beside(self._plan, self.host.stamps.copy(), tuple(cards))

    def problem(self) -> EngineError | None:
        """Why the step that has ended was given up; None: it was not."""
        why = self.host.stopped
        if not why:
            return None
        if why < LATE:
            return Cancelled("the step was stopped")
        exchange = self._plan.exchanges[why - (FAR if why >= FAR else LATE)]
        silent, waited = (self._plan.lanes[lane].device for lane in (exchange.source, exchange.target))
        return DeviceLost(
            f"{_called(silent)} did not answer {_called(waited)} within {self._limit_s:.3g} s in the midst of a step; "
            "try again, or load the model anew"
        )

    def close(self) -> None:
        """Idempotent."""
        self.flags.clear()
        self._pinned.close()


def _called(device: Device) -> str:
    return str(device) if isinstance(device, Gpu) else "the CPU"
