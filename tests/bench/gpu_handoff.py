"""Exchanges between a captured graph and workers of the CPU: how long each takes, and whether every row arrives.

python -m tests.bench.gpu_handoff [--replays 500] [--exchanges 48] [--workers 1,4,8,14] [--widths 2048,4096]

A graph does n times: x += 1, send x, take y, z += y; the CPU adds each x it is sent to y. The time of an exchange is that of the
graph less that of the two sums, divided by n. One JSON object a line; exit 1 when anything was wrong. Needs a card.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import threading
import time

import numpy as np
import torch

from engine.runtime.gpu import GpuDevice, open_gpus
from engine.runtime.pinned import Pinned
from engine.triton_kernels.handoff import LINE, GpuFlags
from kernels_pyx.handoff import FAR, LATE, STOPPED, handoff_bytes
from tests.helpers.adder import Adder

LIMIT_S = 2.0


def card() -> GpuDevice:
    """The first one."""
    return open_gpus([0])[0]


def allocate(shape: tuple[int, ...], dtype: str) -> torch.Tensor:
    """A tensor of the card."""
    return torch.empty(shape, dtype=getattr(torch, dtype), device="cuda")


class Bench:
    """A card and a team that exchange rows of `width` values, n times a step."""

    def __init__(self, n: int, n_workers: int, width: int, limit_s: float = LIMIT_S) -> None:
        self.n = n
        self._pinned = [Pinned(nbytes, (card(),)) for nbytes in (8 * width, handoff_bytes(2 * n))]
        rows_arena, words_arena = (one.arena for one in self._pinned)
        self.adder = Adder(n, n_workers, limit_s, width, arena=rows_arena, words=words_arena)
        rows, words = (one.bytes.view(dtype) for one, dtype in zip(self._pinned, (torch.float32, torch.int32), strict=True))
        rows, words = rows.view(2, width), words.view(-1, LINE)
        self.host_x, self.host_y = rows[:1], rows[1:]
        self.flags = GpuFlags(words, allocate, asm=True, limit_s=limit_s)
        self.x, self.y, self.z = (torch.zeros(1, width, device="cuda") for _ in range(3))
        self.model = [np.zeros(width, np.float32) for _ in range(3)]
        self.x.add_(0.0)  # every kernel once: see `engine.triton_kernels.handoff`
        self.z.add_(self.y)
        self.flags.send(0, [(self.x, self.host_x)])
        self.flags.take(1, [(self.y, self.host_y)])
        self.flags.begin()
        torch.cuda.synchronize()
        self.flags.reset()
        self.graph, self.base = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self._launch()
        with torch.cuda.graph(self.base):
            for _ in range(n):
                self.x.add_(0.0)
                self.z.add_(0.0)

    def _launch(self) -> None:
        self.flags.begin()
        for i in range(self.n):
            self.x.add_(1.0)
            self.flags.send(2 * i, [(self.x, self.host_x)])
            self.flags.take(2 * i + 1, [(self.y, self.host_y)])
            self.z.add_(self.y)

    def step(self) -> float:
        """Seconds of one replay."""
        started = time.perf_counter()
        self.graph.replay()
        self.adder.next_step()
        fine = self.adder.run() == (False, -1)
        torch.cuda.synchronize()
        seconds = time.perf_counter() - started
        for _ in range(self.n):
            x, y, z = self.model
            x += np.float32(1.0)
            y += x
            z += y
        if not fine:
            raise RuntimeError(f"a step was given up: {self.adder.handoff.stopped:#x}")
        return seconds

    def base_s(self) -> float:
        """Seconds of one replay without exchanges."""
        started = time.perf_counter()
        self.base.replay()
        torch.cuda.synchronize()
        return time.perf_counter() - started

    def right(self) -> bool:
        """Whether all sums are what they must be."""
        on_card = [self.x, self.y, self.z]
        return all(np.array_equal(one.cpu().numpy()[0], wanted) for one, wanted in zip(on_card, self.model, strict=True))

    def close(self) -> None:
        """Ends the team, and lets the card forget the memory that it exchanged with it."""
        torch.cuda.synchronize()
        self.adder.pool.close()
        for one in self._pinned:
            one.close()


def timed(n: int, replays: int, n_workers: int, width: int) -> dict[str, object]:
    """One row of the table."""
    bench = Bench(n, n_workers, width)
    base = statistics.median(bench.base_s() for _ in range(50))
    for _ in range(20):
        bench.step()
    times = sorted(bench.step() for _ in range(replays))
    median, stamps = statistics.median(times), bench.flags.stamps.cpu().numpy()
    row: dict[str, object] = {
        "workers": n_workers,
        "row_bytes": 4 * width,
        "us_per_exchange": round((median - base) / n * 1e6, 2),
        "step_us": round(median * 1e6, 1),
        "p99_us": round(times[int(len(times) * 0.99)] * 1e6, 1),
        "max_us": round(times[-1] * 1e6, 1),
        "base_us": round(base * 1e6, 1),
        "card_waits_us": round(float((stamps[1::2, 1] - stamps[1::2, 0]).mean()) / 1e3, 2),
        "correct": bench.right() and bench.adder.handoff.stopped == 0,
    }
    bench.close()
    return row


def given_up() -> dict[str, object]:
    """Each side without the other, and a cancelled step: all end, and say why."""
    bench = Bench(4, 2, 2048, limit_s=0.5)
    found: dict[str, object] = {}
    started = time.perf_counter()
    bench.graph.replay()  # nobody adds
    torch.cuda.synchronize()
    found["card_alone_s"] = round(time.perf_counter() - started, 3)
    fine = bench.adder.handoff.stopped == FAR + 1
    _again(bench)
    started = time.perf_counter()
    bench.adder.next_step()
    aborted, _ = bench.adder.run()  # nobody sends
    found["team_alone_s"] = round(time.perf_counter() - started, 3)
    fine = fine and aborted and bench.adder.handoff.stopped == LATE + 0
    _again(bench)
    bench.adder.next_step()
    bench.adder.next_step()  # an epoch that the card does not reach, so that the team waits
    threading.Timer(0.05, bench.adder.abort.set).start()
    started = time.perf_counter()
    bench.graph.replay()
    aborted, _ = bench.adder.run()
    torch.cuda.synchronize()
    found["cancelled_s"] = round(time.perf_counter() - started, 3)
    fine = fine and aborted and bench.adder.handoff.stopped == STOPPED and float(str(found["cancelled_s"])) < 0.4
    bench.adder.abort.clear()
    _again(bench)
    bench.step()
    found["correct"] = fine and bench.adder.handoff.stopped == 0
    bench.close()
    return found


def _again(bench: Bench) -> None:
    bench.adder.handoff.reset()
    bench.flags.reset()
    torch.cuda.synchronize()


def main() -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replays", type=int, default=500)
    parser.add_argument("--exchanges", type=int, default=48)
    parser.add_argument("--workers", default="1,4,8,14")
    parser.add_argument("--widths", default="2048,4096")
    options = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    print(json.dumps({"card": torch.cuda.get_device_name(), "cores": cores, "torch": torch.__version__}), flush=True)
    rows = [given_up()]
    print(json.dumps({"given_up": rows[0]}), flush=True)
    for width in map(int, options.widths.split(",")):
        for n_workers in map(int, options.workers.split(",")):
            if n_workers <= max(1, cores - 2):
                rows.append(timed(options.exchanges, options.replays, n_workers, width))
                print(json.dumps(rows[-1]), flush=True)
    return 0 if all(row["correct"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
