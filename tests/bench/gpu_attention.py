"""Attention and gated DeltaNet on a GPU: checked against torch in f32, timed in graphs, beside what a kernel that reads reaches.

Run on the machine with the GPU as `python -m tests.bench.gpu_attention --out FILE [--seconds 220] [--only SUBSTRING]`; nothing
has to be built. Every launch worth trying is compiled first, by several processes side by side; then one process checks and times
them, until the seconds are over. Where several caches fit, they are read in turns, so that the device's own cache holds none.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import Any

import torch

from tests.bench.gpu_attention_cases import (
    Case,
    decode,
    head_products,
    latent,
    latent_prefill,
    positions,
    prefill,
    short,
)
from tests.bench.gpu_delta_cases import delta
from tests.bench.gpu_timing import graph_us, read_limit


@dataclass
class Row:
    """What was measured of one launch of one case. percent: of the GB/s that reading reaches."""

    name: str
    kind: str
    config: str
    error: float = 0.0
    us: float = 0.0
    gbps: float = 0.0
    percent: float = 0.0
    tflops: float = 0.0
    usual: bool = False
    failure: str = ""


def measure(case: Case, limit: float, stop: float) -> list[Row]:
    """A row for each launch, until `stop`; the usual one comes first."""
    rows = []
    for config in case.configs:
        if rows and time.perf_counter() > stop:
            break
        text = ",".join(map(str, asdict(config).values())) if is_dataclass(config) else str(config)  # type: ignore[arg-type]
        row = Row(case.name, case.kind, text, usual=config is case.configs[0])
        rows.append(row)
        try:
            row.error = case.check(config)
            row.us = graph_us(lambda config=config: [case.run(i, config) for i in range(case.n_launches)], case.n_launches)  # type: ignore[misc]
        except Exception as failure:  # a launch that does not fit the device is a result
            row.failure = f"{type(failure).__name__}: {str(failure).strip().splitlines()[0][:160] if str(failure) else ''}"
            continue
        row.gbps, row.tflops = case.nbytes / row.us / 1e3, case.flops / row.us / 1e6
        row.percent = 100 * row.gbps / limit
    return rows


def cases() -> Iterator[Callable[[], Case]]:
    """The most wanted first."""
    for depth in (512, 4096, 16384, 32768):
        for model in ("8b", "30b"):
            for kind in ("f16", "q8_0"):
                yield lambda model=model, kind=kind, depth=depth: decode(model, kind, depth)  # type: ignore[misc]
        for kind in ("f16", "q8_0"):
            yield lambda kind=kind, depth=depth: latent(16, kind, depth)  # type: ignore[misc]
    for n_rows, past in ((512, 0), (512, 4096), (2048, 0), (2048, 16384)):
        yield lambda n_rows=n_rows, past=past: prefill("8b", "f16", n_rows, past)  # type: ignore[misc]
    yield lambda: delta(1, rows=True)
    yield lambda: delta(8, rows=True)
    yield lambda: delta(512, rows=False)
    yield lambda: delta(2048, rows=False)
    for n_rows in (1, 512):
        for kind in ("f16", "q8_0"):
            yield lambda n_rows=n_rows, kind=kind: positions("8b", kind, n_rows)  # type: ignore[misc]
    yield lambda: head_products(16, 1)
    yield lambda: head_products(16, 128)
    yield lambda: latent(16, "f16", 4096, 128, rows=False)
    yield lambda: latent(128, "f16", 4096)
    yield lambda: latent_prefill(16, "f16", 512, 4096)
    yield lambda: latent_prefill(16, "f16", 2048, 0)
    for n_rows in (32, 128):
        yield lambda n_rows=n_rows: short("8b", "f16", n_rows, 16384)  # type: ignore[misc]
    yield lambda: decode("8b", "f16", 4096, 8)
    yield lambda: decode("8b", "int8", 16384)
    yield lambda: decode("next", "f16", 16384)
    yield lambda: prefill("8b", "q8_0", 512, 4096)
    yield lambda: prefill("30b", "f16", 512, 4096)
    yield lambda: prefill("next", "f16", 512, 4096)


def compile_part(part: int, of: int, only: str) -> None:
    """Runs every of-th launch once, for what Triton keeps on disk. Depth alone makes no other kernel."""
    n, done = 0, set()
    for make in cases():
        case = make()
        for config in case.configs if only in case.name else ():
            key = (case.name.split(" at ")[0].split(" rows behind ")[0], case.kind, str(config))
            if key not in done:
                done.add(key)
                if n % of == part:
                    try:
                        case.run(0, config)
                    except Exception:  # reported when it is measured
                        continue
                n += 1
        del case
    torch.cuda.synchronize()


def best(rows: list[Row]) -> Row:
    """The fastest launch that is right."""
    return min((row for row in rows if not row.failure and row.error < 5e-3), key=lambda row: row.us, default=rows[0])


def line(row: Row) -> str:
    """A row of the table."""
    what = f"{row.name:34} {row.kind:5} {row.config:24}"
    rates = f"{row.us:8.1f} us {row.gbps:6.0f} GB/s {row.percent:3.0f} % {row.tflops:6.0f} TFLOP/s  error {row.error:.1e}"
    return f"{what} {row.failure or rates}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seconds", type=float, default=220)
    parser.add_argument("--only", default="")
    parser.add_argument("--processes", type=int, default=12)
    parser.add_argument("--part", type=int)
    args = parser.parse_args()
    if args.part is not None:
        compile_part(args.part, args.processes, args.only)
        return
    begun = time.perf_counter()
    command = [
        sys.executable,
        "-m",
        "tests.bench.gpu_attention",
        "--processes",
        str(args.processes),
        "--only",
        args.only,
        "--part",
    ]
    others = [subprocess.Popen([*command, str(i)], stderr=subprocess.DEVNULL) for i in range(args.processes)]
    for other in others:
        try:
            other.wait(timeout=max(1.0, begun + 0.5 * args.seconds - time.perf_counter()))
        except subprocess.TimeoutExpired:
            other.kill()
    compiled, limit = time.perf_counter() - begun, read_limit()
    device = f"{torch.cuda.get_device_name()}: reads {limit:.0f} GB/s; compiled in {compiled:.0f} s"
    print(device, flush=True)
    found: list[dict[str, Any]] = []
    for make in cases():
        if time.perf_counter() - begun > args.seconds:
            print("out of time", flush=True)
            break
        case = make()
        if args.only not in case.name:
            continue
        rows = measure(case, limit, begun + args.seconds)
        found += map(asdict, rows)
        print(line(rows[0]) + ("" if best(rows) is rows[0] else f"\n{line(best(rows))}  <- best"), flush=True)
        if args.out:
            args.out.write_text(json.dumps({"device": device, "read_gbps": limit, "rows": found}, indent=1))
    print(f"{time.perf_counter() - begun:.0f} s", flush=True)


if __name__ == "__main__":
    main()
