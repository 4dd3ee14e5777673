"""The stream and the events of a real GPU to which experts are brought, see `gpu_stream`; and what they tell afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import torch

from engine.placement.streaming import RING_LAYERS
from engine.runtime.driver import DRIVER
from engine.runtime.gpu import GpuMemory, guarded


@dataclass(frozen=True, slots=True)
class StreamTimes:
    """The last step that brought all layers. copy_s: from the first copy to the last; waited_s: in which the device had nothing
    to compute because weights had not come; gbps: of the first layers, for which no place had to become free."""

    nbytes: int
    copy_s: float
    waited_s: float
    gbps: float


class Marks:
    """The copy stream and the events of a real device. free[p + 1]: behind the experts of layer p; free[0]: before all."""

    def __init__(self, n_layers: int, memory: GpuMemory) -> None:
        self._memory = memory
        with guarded(memory.device), torch.cuda.device(memory.device.torch_device), DRIVER:
            self.stream = torch.cuda.Stream(memory.device.torch_device)
        timed = partial(torch.cuda.Event, enable_timing=True)
        self.ready = [timed() for _ in range(n_layers)]
        self.free = [torch.cuda.Event() for _ in range(n_layers + 1)]
        self._first = timed()
        self._before, self._behind = [timed() for _ in range(n_layers)], [timed() for _ in range(n_layers)]
        self._waited: list[int] = []
        self._copied: list[torch.cuda.Event] = []

    @contextmanager
    def sending(self) -> Iterator[None]:
        """Within, work is enqueued on the copy stream."""
        device = self._memory.device
        self._copied = []
        with guarded(device), torch.inference_mode(), torch.cuda.device(device.torch_device), torch.cuda.stream(self.stream):
            yield

    def begin(self, position: int) -> None:
        """Before the copies of a layer: they wait until its place is free."""
        self.stream.wait_event(self.free[max(0, position + 1 - RING_LAYERS)])
        if position == 0:
            self._waited = []
            self._first.record()

    def read(self, i: int, n_chunks: int) -> int:
        """Behind the copy of load i: how many loads have been read for certain."""
        ahead = on_the_way(n_chunks)
        if i < n_chunks:
            self._copied.append(torch.cuda.Event())
        self._copied[i % n_chunks].record()
        if i < ahead:
            return 0
        self._copied[(i - ahead) % n_chunks].synchronize()
        return i - ahead + 1

    def wait(self, position: int) -> None:
        """The current stream waits for a layer."""
        self._before[position].record()
        torch.cuda.current_stream(self._memory.device.torch_device).wait_event(self.ready[position])
        self._behind[position].record()
        self._waited.append(position)

    @property
    def are_over(self) -> bool:
        """Whether the device has come past all that it waited for."""
        return bool(self._waited) and self._behind[self._waited[-1]].query()

    def times(self, nbytes: int, first_bytes: int) -> StreamTimes:
        """Of a step that is over."""
        seconds = float(self._first.elapsed_time(self.ready[-1])) / 1e3
        first = float(self._first.elapsed_time(self.ready[min(RING_LAYERS, len(self.ready)) - 1])) / 1e3
        waited = sum(float(self._before[p].elapsed_time(self._behind[p])) for p in self._waited) / 1e3
        return StreamTimes(nbytes, seconds, waited, first_bytes / first / 1e9 if first else 0.0)


def on_the_way(n_chunks: int) -> int:
    """How many chunks are given to the bus at once: enough to outlast a delay of who sends, the others are being filled."""
    return max(1, n_chunks - max(3, n_chunks // 4))
