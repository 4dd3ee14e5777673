"""Kernels against the machine: GB/s of `few` beside a read probe, GOP/s of `many` beside the peak of its instructions.

Run as `python -m tests.bench.kernels [--formats Q4_1,Q8_0] [--isas avx2] [--k 2048] [--out FILE]`; one thread, one process, some
seconds. Each figure is the best of interleaved rounds, since machines are shared; only ratios within one run mean something.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from engine.quants.formats import BY_NAME, QuantFormat
from kernels_pyx import probe
from kernels_pyx.cpu_features import available_isas
from tests.helpers.numerics import U8, aligned, random_weights

MIB = 1 << 20
Figures = dict[str, float | int | str]


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def best_interleaved(calls: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """The least seconds of each call, taken in turns."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            taken[name].append(seconds(call))
    return {name: min(times) for name, times in taken.items()}


def activations(fmt: QuantFormat, isa: str, k: int, n_act: int) -> tuple[U8, int]:
    stride = probe.act_row_bytes(fmt.act, k)
    rows = aligned(n_act * stride)
    rng = np.random.default_rng(1)
    for i in range(n_act):
        probe.quantize(isa, fmt.act, rng.normal(0, 1, k).astype(np.float32), rows[i * stride : (i + 1) * stride], k)
    return rows, stride


def weights(fmt: QuantFormat, k: int, n_bytes: int) -> tuple[U8, int]:
    """At least n_bytes of rows, repeated from a random block of them: larger than any cache."""
    block = random_weights(fmt.name, 256, k, np.random.default_rng(2)).reshape(-1)
    rows = np.tile(block, -(-n_bytes // len(block)))
    return rows, len(rows) // fmt.row_bytes(k)


def bench_few(fmt: QuantFormat, isas: tuple[str, ...], k: int, n_act: int, rounds: int, n_bytes: int) -> list[Figures]:
    w, n = weights(fmt, k, n_bytes)
    y = np.empty(n_act * n, np.float32)
    calls: dict[str, Callable[[], object]] = {"read": lambda: probe.read(w)}
    for isa in isas:
        x, stride = activations(fmt, isa, k, n_act)
        calls[isa] = _linear(isa, fmt, w, x, stride, n_act, y, k, n, None)
    best = best_interleaved(calls, rounds)
    read = len(w) / best["read"] / 1e9
    return [
        {
            "op": "few",
            "format": fmt.name,
            "isa": isa,
            "k": k,
            "n_act": n_act,
            "gbps": round(len(w) / best[isa] / 1e9, 2),
            "read_gbps": round(read, 2),
            "of_read": round(best["read"] / best[isa], 3),
        }
        for isa in isas
    ]


def bench_many(fmt: QuantFormat, isas: tuple[str, ...], k: int, n_act: int, rounds: int) -> list[Figures]:
    n = 512
    w = random_weights(fmt.name, n, k, np.random.default_rng(2)).reshape(-1)
    y = np.empty(n_act * n, np.float32)
    scratch = aligned(probe.many_scratch_bytes(k))
    calls: dict[str, Callable[[], object]] = {"maddubs": lambda: probe.maddubs_peak(100_000)}
    if "avx512vnni" in isas:
        calls["vnni"] = lambda: probe.vnni_peak(100_000)
    for isa in isas:
        x, stride = activations(fmt, isa, k, n_act)
        calls[isa] = _linear(isa, fmt, w, x, stride, n_act, y, k, n, scratch)
    best = best_interleaved(calls, rounds)
    peaks = {"maddubs": 100_000 * probe.MADDUBS_PROBE_OPS / best["maddubs"] / 1e9}
    if "vnni" in best:
        peaks["vnni"] = 100_000 * probe.VNNI_PROBE_OPS / best["vnni"] / 1e9
    rows: list[Figures] = []
    for isa in isas:
        gops = 2 * n_act * n * k / best[isa] / 1e9
        peak = peaks["vnni" if isa == "avx512vnni" else "maddubs"]
        rows.append(
            {
                "op": "many",
                "format": fmt.name,
                "isa": isa,
                "k": k,
                "n_act": n_act,
                "gops": round(gops, 1),
                "peak_gops": round(peak, 1),
                "of_peak": round(gops / peak, 3),
            }
        )
    return rows


def _linear(
    isa: str,
    fmt: QuantFormat,
    w: U8,
    x: U8,
    stride: int,
    n_act: int,
    y: np.ndarray[tuple[int], np.dtype[np.float32]],
    k: int,
    n: int,
    scratch: U8 | None,
) -> Callable[[], None]:
    return lambda: probe.linear(isa, fmt.ggml_id, w, fmt.row_bytes(k), x, stride, n_act, y, n, k, n, scratch)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--formats", default="Q4_1,Q8_0,Q4_K,Q6_K,Q4_0,F16")
    parser.add_argument("--isas", default=",".join(isa for isa in available_isas() if isa != "scalar"))
    parser.add_argument("--k", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--mib", type=int, default=128, help="weights read by one `few`")
    parser.add_argument("--few", default="1,2,4,8", help="numbers of activations")
    parser.add_argument("--many", default="12,32,480")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    isas = tuple(options.isas.split(","))
    rows: list[Figures] = []
    for name in options.formats.split(","):
        fmt = BY_NAME[name]
        for n_act in map(int, filter(None, options.few.split(","))):
            rows += bench_few(fmt, isas, options.k, n_act, options.rounds, options.mib * MIB)
        for n_act in map(int, filter(None, options.many.split(","))):
            rows += bench_many(fmt, isas, options.k, n_act, options.rounds)
    for row in rows:
        sys.stdout.write("  ".join(f"{key} {value}" for key, value in row.items()) + "\n")
    if options.out:
        options.out.write_text(json.dumps({"machine": platform.processor() or platform.machine(), "rows": rows}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
