"""How kernels of a GPU are timed: replays of a captured graph, beside what a kernel that only reads reaches."""

from __future__ import annotations

from collections.abc import Callable

import torch
import triton
import triton.language as tl


@triton.jit
def _read(x, out, n, BLOCK: tl.constexpr, TIMES: tl.constexpr):  # type: ignore[no-untyped-def]
    acc = tl.zeros([BLOCK], tl.int32)
    start = tl.program_id(0).to(tl.int64) * BLOCK * TIMES
    for i in tl.static_range(TIMES):
        acc += tl.load(x + start + i * BLOCK + tl.arange(0, BLOCK))
    tl.store(out + tl.program_id(0), tl.sum(acc, 0))


def graph_us(call: Callable[[], object], n: int, rounds: int = 9) -> float:
    """Microseconds of one of the n launches that `call` makes, the median of replays."""
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    times = []
    for _ in range(rounds + 2):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) * 1e3 / n)
    return sorted(times[2:])[rounds // 2]


def read_limit() -> float:
    """GB/s of a kernel that only reads."""
    x = torch.zeros(1 << 29, dtype=torch.int32, device="cuda")
    block, best = 4096, 0.0
    for times in (4, 8):
        n = x.numel() // (block * times)
        out = torch.empty(n, dtype=torch.int32, device="cuda")
        us = graph_us(lambda n=n, out=out, times=times: _read[(n,)](x, out, n, BLOCK=block, TIMES=times, num_warps=8), 1)  # type: ignore[misc]
        best = max(best, 4e-3 * x.numel() / us)
    return best
