"""The lane of one GPU in steps of one shape: its inputs, its calls, its logits; run call by call, or captured once and replayed.

An emulated device replays the list of its bound calls. A real one is warmed up first, so that kernels are compiled and libraries
have their workspace before anything is captured.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager, nullcontext

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from engine.runtime.driver import DRIVER
from engine.runtime.gpu import GpuDevice, guarded
from engine.runtime.gpu_bind import NOTHING, Call
from engine.triton_kernels.compiling import listen, nothing_compiled

WARM_RUNS = 2
"""Before a capture: the first compiles, the second runs as the capture will."""


class GpuStream:
    """Where one GPU's work is enqueued, in order; shared by all lanes of the device."""

    def __init__(self, device: GpuDevice) -> None:
        self.device = device
        with DRIVER:
            self._stream = None if device.emulated else torch.cuda.Stream(device.torch_device)
        self._pool = None if device.emulated else torch.cuda.graph_pool_handle()
        self._partner: GpuStream | None = None

    def partner(self) -> GpuStream:
        """Another one of the same device, whose partner this is: libraries keep working memory for each stream for ever, so that
        placements that follow each other take turns with two."""
        if self._partner is None:
            self._partner = GpuStream(self.device)
            self._partner._partner = self
        return self._partner

    @contextmanager
    def current(self) -> Iterator[None]:
        """What is called within is enqueued here.

        Raises:
            DeviceLost.
        """
        if self._stream is None:
            with guarded(self.device), torch.inference_mode():
                yield
            return
        on_device = torch.cuda.device(self.device.torch_device)
        with guarded(self.device), torch.inference_mode(), on_device, torch.cuda.stream(self._stream):
            yield

    def synchronize(self) -> None:
        """Waits for all that was enqueued. Raises: DeviceLost."""
        if self._stream is not None:
            with guarded(self.device):
                self._stream.synchronize()

    def replay(self, graph: torch.cuda.CUDAGraph) -> None:
        """Enqueues a graph, with as little around it as can be. Raises: DeviceLost."""
        with guarded(self.device), torch.cuda.stream(self._stream):
            graph.replay()

    def after(self, other: GpuStream) -> None:
        """What is enqueued from now on waits for what the other has enqueued so far."""
        if self._stream is not None and other._stream is not None and other is not self:
            self._stream.wait_stream(other._stream)

    def capture(self, calls: Sequence[Call], *, known: bool = False) -> torch.cuda.CUDAGraph:
        """The calls as one graph. They must have run before. Other threads go on with other streams meanwhile.

        Not by torch's context: that waits for the whole device and gives back all memory that is kept for later.

        known: only others of their kind have run. Raises: NotCompiled: a kernel would have to be compiled all the same.
        """
        graph = torch.cuda.CUDAGraph()
        with self.current():
            self.synchronize()
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                with nothing_compiled() if known else nullcontext():
                    for call in calls:
                        call.run()
            finally:
                with DRIVER:
                    graph.capture_end()
        return graph


class GpuLane:
    """calls: inputs first, then the ops in order, then the logits; `first_op` of them come before the ops."""

    def __init__(self, stream: GpuStream, calls: tuple[Call, ...], first_op: int, n_ops: int) -> None:
        self.stream = stream
        self.calls = calls
        self._first_op = first_op
        self._n_ops = n_ops
        self._graphs: dict[tuple[int, int], torch.cuda.CUDAGraph] = {}

    def piece(self, first: int, end: int) -> Sequence[Call]:
        """The calls of ops [first, end): with what comes before the first op of all, and behind the last."""
        start = 0 if first == 0 else first + self._first_op
        stop = len(self.calls) if end == self._n_ops else end + self._first_op
        return self.calls[start:stop]

    def run(self, first: int, end: int) -> None:
        """Enqueues ops [first, end). Raises: DeviceLost."""
        graph = self._graphs.get((first, end))
        if graph is not None:
            self.stream.replay(graph)
            return
        with self.stream.current():
            for call in self.piece(first, end):
                _named(call, self.stream.device)

    def run_marked(self, first: int, end: int) -> npt.NDArray[np.int64] | None:
        """Enqueues ops [first, end); on an emulated device the monotonic nanoseconds at which each began and the last one ended,
        with what comes before the first and behind the last. Raises: DeviceLost."""
        if not self.stream.device.emulated:
            self.run(first, end)
            return None
        marks = []
        with self.stream.current():
            for call in self.piece(first, end):
                marks.append(time.monotonic_ns())
                _named(call, self.stream.device)
        before = self._first_op if first == 0 else 0
        return np.array([marks[0], *marks[before + 1 : before + end - first], time.monotonic_ns()])

    def capture(self, first: int, end: int, *, known: bool = False) -> None:
        """From now on ops [first, end) are replayed. They must have been warmed up. Nothing to do where a device is emulated.

        known: see `GpuStream.capture`.
        """
        if not self.stream.device.emulated:
            self._graphs[first, end] = self.stream.capture(self.piece(first, end), known=known)

    def new_layers(self, known: set[Hashable]) -> frozenset[int]:
        """The layers in which some op is of a kind that is not among those known, which it is then; and what belongs to none.

        Whole layers, so that each op finds what those before it made: ids of experts are no place for what was left there.
        """
        nth: Counter[str] = Counter()
        found = {-1}
        for call in self.calls:
            nth[call.name] += 1
            kind = call.name.partition(" ")[2], call.unit.kind, nth[call.name], call.form
            if kind not in known:
                found.add(call.unit.layer)
                known.add(kind)
        return frozenset(found)

    def run_layers(self, first: int, end: int, layers: frozenset[int]) -> None:
        """Enqueues those of ops [first, end) that belong to these layers. Raises: DeviceLost."""
        with self.stream.current():
            for call in self.piece(first, end):
                if call.unit.layer in layers:
                    _named(call, self.stream.device)

    def first_bad(self, first: int, end: int) -> Call | None:
        """Runs ops [first, end) one by one; the first after which a value is not finite, where there is one."""
        with self.stream.current():
            for call in self.piece(first, end):
                call.run()
                if any(not bool(torch.isfinite(tensor).all()) for tensor in call.written):
                    return call
        return None

    def time_kinds(self, repeats: int = 5) -> tuple[tuple[str, float], ...]:
        """(kind of call, seconds of all its calls in one step), where the weights of many layers are more than a cache holds.

        Where a device is real, calls of one kind are captured together, so that launches do not count. The step must have run.
        """
        kinds = self._kinds().items()
        return tuple((kind, self._seconds(calls, repeats)) for kind, calls in kinds if calls[0].name != NOTHING)

    def time_in_order(self) -> tuple[tuple[str, float], ...]:
        """(kind of call, seconds of all its calls) as they run one after another, launches and all; what the host takes first."""
        if self.stream.device.emulated:
            return self.time_kinds()
        kinds = {id(call): kind for kind, calls in self._kinds().items() for call in calls}
        found: dict[str, float] = {}
        with self.stream.current():
            marks = [torch.cuda.Event(enable_timing=True) for _ in range(len(self.calls) + 1)]
            started = time.perf_counter()
            marks[0].record()
            for call, mark in zip(self.calls, marks[1:], strict=True):
                call.run()
                mark.record()
            found["host enqueue"] = time.perf_counter() - started
            marks[-1].synchronize()
        for call, before, after in zip(self.calls, marks, marks[1:], strict=False):
            kind = kinds[id(call)]
            found[kind] = found.get(kind, 0.0) + float(before.elapsed_time(after)) / 1e3
        return tuple(found.items())

    def _kinds(self) -> dict[str, list[Call]]:
        """The calls of each kind: unit and op, and which of its kind within its unit."""
        found: dict[str, list[Call]] = {}
        nth: dict[str, int] = {}
        for call in self.calls:
            nth[call.name] = nth.get(call.name, 0) + 1
            unit, _, op = call.name.partition(" ")
            kind = f"{unit.partition('.')[0]} {op}"
            found.setdefault(kind if nth[call.name] == 1 else f"{kind} {nth[call.name]}", []).append(call)
        return found

    def _seconds(self, calls: Sequence[Call], repeats: int) -> float:
        if self.stream.device.emulated:
            started = time.perf_counter()
            with self.stream.current():
                for call in calls:
                    call.run()
            return time.perf_counter() - started
        graph = self.stream.capture(calls)
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        with self.stream.current():
            graph.replay()
            start.record()
            for _ in range(repeats):
                graph.replay()
            end.record()
            end.synchronize()
            return float(start.elapsed_time(end)) / 1e3 / repeats

    def close(self) -> None:
        """Drops the graphs and the calls. Idempotent."""
        with DRIVER:
            self._graphs.clear()
        self.calls = ()


def _named(call: Call, device: GpuDevice) -> None:
    """Runs a call; what fails says where. The first time its code is loaded, for which a card must be idle.

    While it is compiled the driver is let go of, and not had again where that fails.
    """
    if not device.emulated:
        listen()
        DRIVER.__enter__()
    try:
        call.run()
    except RuntimeError as error:
        error.add_note(f"in {call.name}")
        raise
    finally:
        if not device.emulated:
            DRIVER.let_go()


class Outputs:
    """A step's logits on the device of its head: a row a wanted row, and the sum of each row."""

    def __init__(self, logits: Tensor, sums: Tensor, both: Tensor) -> None:
        """both: logits [n_out, n_vocab] and sums [n_out] as they lie side by side."""
        self.logits = logits
        self.n_out = len(logits)
        self._sums = sums
        self._both = both

    def add_up(self) -> None:
        """Enqueues the sums."""
        torch.sum(self.logits, dim=1, out=self._sums)

    def bring(self, stream: GpuStream, floats: Tensor) -> None:
        """Enqueues the copy of both. No graph has it: where to differs from step to step."""
        with stream.current():
            floats.copy_(self._both, non_blocking=True)
