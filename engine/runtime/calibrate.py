"""Measures this machine for estimates: what its memory gives, what kernels get through in each format, what crosses its buses.

A second or two for the CPU, and a few for each GPU, which torch must open. Nothing may be running meanwhile that is to count.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.estimate.rates import Calibration, FormatRates, GpuRates, NodeRates, assumed
from engine.hardware.machine import Machine
from engine.quants.formats import FORMATS, QuantFormat
from kernels_pyx import probe
from kernels_pyx.cpu_features import active_isa

U8 = npt.NDArray[np.uint8]

WIDTH = 2048
"""Values of a row that is multiplied."""
LEAST_BYTES = 96 << 20
"""Read by each thread at once, or MOST_BYTES / threads where there are many: more than caches hold."""
MOST_BYTES = 2 << 30
MANY, FEWER, ROWS = 512, 32, 2048
"""Rows of activations that tell what products and what unpacking take, and rows of weights."""
TRIES = 4
FILL = 0x11
"""Bytes that are small ordinary numbers in every format."""
ATTEND_SHARE = 0.72
"""Of the rate of f32 products, what attention reaches in prompts."""
MEET_US, MEET_US_PER_WORKER = 0.1, 0.17
"""What workers take to meet: measured with 2 to 16 of them on several machines."""


def calibrate(machine: Machine, *, gpus: bool = True) -> Calibration:
    """The rates of this machine; what cannot be measured is assumed. gpus: whether torch may be imported to measure them."""
    guess = assumed(machine)
    nodes = tuple(measure_node(one.cpus or tuple(sorted(os.sched_getaffinity(0)))) for one in machine.nodes)
    found = list(guess.gpus)
    if gpus and not machine.problem:
        for i, one in enumerate(machine.gpus):
            if not one.emulated:
                found[i] = measure_gpu(one.index)
    return Calibration(nodes, tuple(found), guess.exchange_us, guess.step_us, guess.file_gbps, measured=True)


def measure_node(cpus: Sequence[int]) -> NodeRates:
    """The rates of these processors and of the memory beside them."""
    n_threads = len(cpus)
    counts = _thread_counts(n_threads)
    nbytes = min(LEAST_BYTES, MOST_BYTES // n_threads)
    with ThreadPoolExecutor(n_threads, initializer=os.sched_setaffinity, initargs=(0, cpus)) as pool:
        # Who writes first decides on which node pages lie.
        team = _Team(pool, list(pool.map(lambda _: np.full(nbytes, FILL, np.uint8), cpus)))
        read = {n: n * nbytes / team.seconds(lambda own: probe.read(own.data), n) / 1e9 for n in counts}
        formats = tuple((form.name, _format(form, team, read[n_threads])) for form in FORMATS if form.path == "fast")
    best, ascending = 0.0, []
    for n in counts:  # more threads never read less than fewer do: the others would wait
        best = max(best, read[n])
        ascending.append((n, best))
    floats = ATTEND_SHARE * dict(formats)["F32"].gops
    return NodeRates(tuple(ascending), formats, floats, MEET_US + MEET_US_PER_WORKER * n_threads)


def read_gbps(n_threads: int) -> float:
    """GB/s that so many threads read from memory together, at this moment."""
    nbytes = min(LEAST_BYTES, MOST_BYTES // n_threads)
    with ThreadPoolExecutor(n_threads) as pool:
        team = _Team(pool, [np.full(nbytes, FILL, np.uint8) for _ in range(n_threads)])
        return n_threads * nbytes / team.seconds(lambda own: probe.read(own.data), n_threads) / 1e9


@dataclass(frozen=True, slots=True)
class _Own:
    """What one thread works on: bytes to read, room for products, room for the kernels."""

    data: U8
    out: npt.NDArray[np.float32]
    scratch: U8


class _Team:
    """Threads that do the same at once, each with memory of its own."""

    def __init__(self, pool: ThreadPoolExecutor, data: Sequence[U8]) -> None:
        self._pool = pool
        room = max(MANY * ROWS, len(data[0]) // min(form.row_bytes(WIDTH) for form in FORMATS) + 1)
        self._own = [_Own(one, np.empty(room, np.float32), _aligned(probe.many_scratch_bytes(WIDTH))) for one in data]
        self.n_threads, self.nbytes = len(data), len(data[0])

    def seconds(self, call: Callable[[_Own], Any], n_threads: int) -> float:
        """The least that n threads took to be done, all of them."""
        taken = []
        for _ in range(TRIES):
            started = time.perf_counter()
            list(self._pool.map(call, self._own[:n_threads]))
            taken.append(time.perf_counter() - started)
        return min(taken)


def _format(form: QuantFormat, team: _Team, read: float) -> FormatRates:
    isa, row = active_isa(), form.row_bytes(WIDTH)
    acts = {n: _activations(form, n) for n in (1, FEWER, MANY)}

    def product(own: _Own, n_rows: int, n_act: int) -> None:
        x, stride = acts[n_act]
        scratch = own.scratch if n_act > 1 else None
        w, y = own.data[: n_rows * row], own.out[: n_act * n_rows]
        probe.linear(isa, form.ggml_id, w, row, x, stride, n_act, y, n_rows, WIDTH, n_rows, scratch)

    n_all = team.nbytes // row
    one = n_all * row / team.seconds(lambda own: product(own, n_all, 1), 1) / 1e9
    all_of_them = team.n_threads * n_all * row / team.seconds(lambda own: product(own, n_all, 1), team.n_threads) / 1e9
    few = team.seconds(lambda own: product(own, ROWS, FEWER), team.n_threads)
    many = team.seconds(lambda own: product(own, ROWS, MANY), team.n_threads)
    each = (many - few) / (MANY - FEWER)  # seconds of a row of activations
    unpack = max(0.0, few - FEWER * each) / (ROWS * WIDTH)
    return FormatRates(one, min(1.0, all_of_them / read), 2.0 * ROWS * WIDTH / each / 1e9, unpack * 1e9)


def _activations(form: QuantFormat, n: int) -> tuple[U8, int]:
    stride = probe.act_row_bytes(form.act, WIDTH)
    rows = _aligned(n * stride)
    for i in range(n):
        probe.quantize(active_isa(), form.act, np.ones(WIDTH, np.float32), rows[i * stride : (i + 1) * stride], WIDTH)
    return rows, stride


def _aligned(nbytes: int) -> U8:
    raw = np.zeros(nbytes + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + nbytes]


def _thread_counts(n: int) -> tuple[int, ...]:
    """1, 2, 4, ... and n."""
    found = [1]
    while found[-1] * 2 < n:
        found.append(found[-1] * 2)
    return tuple(dict.fromkeys((*found, n)))


def measure_gpu(index: int) -> GpuRates:
    """The rates of a GPU that torch can compute on."""
    import torch

    device = torch.device("cuda", index)
    with torch.cuda.device(device):
        rates = _rates_of(device)
        torch.cuda.empty_cache()
    return rates


def _rates_of(device: Any) -> GpuRates:
    import torch

    data = torch.zeros(1 << 27, dtype=torch.float32, device=device)
    read = data.nbytes / _gpu_seconds(lambda: torch.sum(data), device) / 1e9
    pinned = torch.empty(1 << 28, dtype=torch.uint8, pin_memory=True)
    there = torch.empty(1 << 28, dtype=torch.uint8, device=device)
    to = pinned.nbytes / _gpu_seconds(lambda: there.copy_(pinned, non_blocking=True), device) / 1e9
    back = pinned.nbytes / _gpu_seconds(lambda: pinned.copy_(there, non_blocking=True), device) / 1e9
    side = torch.ones(4096, 4096, dtype=torch.float16, device=device)
    dense = 2.0 * 4096**3 / _gpu_seconds(lambda: side @ side, device) / 1e12
    node = _node_us(device)
    return GpuRates(read, dense, to, back, node)


def _gpu_seconds(call: Callable[[], Any], device: Any) -> float:
    import torch

    call()
    taken = []
    for _ in range(TRIES):
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        first.record()
        call()
        last.record()
        torch.cuda.synchronize(device)
        taken.append(float(first.elapsed_time(last)) * 1e-3)
    return min(taken)


def _node_us(device: Any) -> float:
    """Microseconds of a launch within a captured graph, with what a small matrix loses until all of a GPU is at work."""
    import torch

    n, x = 200, torch.zeros(8192, device=device)
    x.add_(1.0)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(n):
            x.add_(1.0)
    return RAMP_US + _gpu_seconds(graph.replay, device) / n * 1e6


RAMP_US = 1.5
"""Beside an empty launch."""
