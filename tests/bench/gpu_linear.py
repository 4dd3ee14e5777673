"""Linears and experts on a GPU: checked against torch, timed in graphs, GB/s beside what a kernel that only reads reaches.

Run on the machine with the GPU as `python -m tests.bench.gpu_linear --out FILE [--seconds 220] [--only SUBSTRING]`; nothing has
to be built. Every candidate tile of every case is compiled first, by several processes side by side; then one process checks and
times them in order, until the seconds are over. Weights are rotated so that no cache holds them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from engine.triton_kernels.gemv import Tile
from engine.triton_kernels.grouped import GroupTile
from tests.bench.gpu_linear_cases import Case, cases, small_cases
from tests.bench.gpu_timing import graph_us, read_limit


@dataclass
class Row:
    """What was measured of one tile of one case."""

    name: str
    format: str
    tile: str
    error: float
    us: float
    gbps: float
    percent: float
    tflops: float
    default: bool = False
    failure: str = ""


def measure(case: Case, limit: float) -> Iterator[Row]:
    for tile in case.tiles:
        text = str(tile) if not isinstance(tile, Tile | GroupTile) else ",".join(str(value) for value in asdict(tile).values())
        row = Row(case.name, case.format, text, 0.0, 0.0, 0.0, 0.0, 0.0, default=tile == case.tiles[0])
        try:
            row.error = case.check(tile)
            row.us = graph_us(lambda tile=tile: [case.run(i, tile) for i in range(case.n_launches)] and None, case.n_launches)
        except Exception as failure:  # a tile that does not compile is a result
            row.failure = f"{type(failure).__name__}: {str(failure).strip().splitlines()[0][:160] if str(failure) else ''}"
            yield row
            continue
        row.gbps = case.nbytes / row.us / 1e3
        row.percent = 100 * row.gbps / limit
        row.tflops = case.flops / row.us / 1e6
        yield row


def compile_part(part: int, of: int) -> None:
    """Runs every of-th tile once, for what Triton keeps on disk."""
    n = 0
    for make in cases():
        case = make()
        for tile in case.tiles:
            if n % of == part:
                try:
                    case.run(0, tile)
                except Exception:
                    continue
            n += 1
        del case
    torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seconds", type=float, default=220)
    parser.add_argument("--only", default="")
    parser.add_argument("--processes", type=int, default=12)
    parser.add_argument("--part", type=int)
    args = parser.parse_args()
    if args.part is not None:
        compile_part(args.part, args.processes)
        return
    begun = time.perf_counter()
    command = [sys.executable, "-m", "tests.bench.gpu_linear", "--processes", str(args.processes), "--part"]
    others = [subprocess.Popen([*command, str(i)], stderr=subprocess.DEVNULL) for i in range(args.processes)]
    for other in others:
        try:
            other.wait(timeout=max(1.0, begun + 0.6 * args.seconds - time.perf_counter()))
        except subprocess.TimeoutExpired:
            other.kill()  # what it has not compiled is compiled when it is timed
    compiled = time.perf_counter() - begun
    limit = read_limit()
    print(f"{torch.cuda.get_device_name()}: reads {limit:.0f} GB/s; compiled in {compiled:.0f} s", flush=True)
    rows: list[Row] = []
    makers: list[Callable[[], Case]] = [*cases()]
    makers[13:13] = [lambda case=case: case for case in small_cases()]
    for make in makers:
        if time.perf_counter() - begun > args.seconds:
            print("out of time", flush=True)
            break
        case = make()
        if args.only not in f"{case.name} {case.format}":
            continue
        found = list(measure(case, limit))
        rows += found
        good = [row for row in found if not row.failure]
        for row in (found[0], *([min(good, key=lambda row: row.us)] if good else [])):
            print(line(row), flush=True)
        for row in found[1:]:
            if row.failure:
                print(line(row), flush=True)
        del case
        if args.out:
            figures = {"device": torch.cuda.get_device_name(), "read_gbps": limit, "rows": [asdict(row) for row in rows]}
            args.out.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    wrong = [row for row in rows if row.error > (2e-2 if "pp" in row.name else 1e-4)]
    print(f"{len(rows)} rows, {len(wrong)} wrong, {time.perf_counter() - begun:.0f} s")
    for row in wrong:
        print("WRONG", line(row))


def line(row: Row) -> str:
    if row.failure:
        return f"{row.name:22} {row.format:16} {row.tile:12} {row.failure}"
    speed = f"{row.tflops:6.1f} TFLOP/s" if row.tflops > 40 else f"{row.gbps:6.0f} GB/s {row.percent:5.1f} %"
    mark = " default" if row.default else ""
    return f"{row.name:22} {row.format:16} {row.tile:12} {row.us:8.2f} us {speed:20} error {row.error:.1e}{mark}"


if __name__ == "__main__":
    main()
