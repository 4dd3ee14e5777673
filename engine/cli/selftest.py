"""`layerdeck selftest`: which kernel serves each format here, and whether kernels and worker pool compute right."""

from __future__ import annotations

import argparse
import os
import platform
from typing import Any

import numpy as np
import numpy.typing as npt

import engine
from engine.cli.options import add_json_option
from engine.cli.output import write_json, write_text
from engine.hardware.sampler import cpu_name
from engine.quants.formats import FORMATS, QuantFormat
from engine.quants.reference import dequantise
from kernels_pyx import probe
from kernels_pyx.cpu_features import active_isa, available_isas, detected_isa
from kernels_pyx.dispatch import kernels_of
from kernels_pyx.pool import Pool

ROWS, WIDTH, ACTIVATIONS = 8, 512, 12
COUNTED = 100_000

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
U8 = npt.NDArray[np.uint8]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `selftest`."""
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Prints the checks; exit code 1 when one of them failed."""
    kernels = [check(fmt, isa) for isa in available_isas() for fmt in FORMATS]
    pool = check_pool()
    failed = [f"{one['format']} {one['isa']}" for one in kernels if not one["ok"]] + ([] if pool["ok"] else ["pool"])
    result = {
        "version": engine.VERSION,
        "python": platform.python_version(),
        "cpu": cpu_name(),
        "isa": {"detected": detected_isa(), "active": active_isa(), "available": list(available_isas())},
        "kernels": kernels,
        "pool": pool,
        "ok": not failed,
        "failed": failed,
    }
    if args.json:
        write_json(result)
    else:
        write_text("".join(f"{one['isa']:>11} {one['format']:>5}  {_verdict(one)}\n" for one in kernels))
        write_text(f"pool of {pool['n_workers']} threads: {_verdict(pool)}\n")
    return 1 if failed else 0


def check(fmt: QuantFormat, isa: str) -> dict[str, Any]:
    """One format on one instruction set: dequantised bits equal numpy's, products lie within their bounds."""
    few, many = kernels_of(isa)[fmt.name]
    rng = np.random.default_rng(fmt.ggml_id)
    # Bytes without the top bits of an exponent: every scale and value among them is finite.
    stored = rng.integers(0, 256, (ROWS, fmt.row_bytes(WIDTH)), dtype=np.uint8) & np.uint8(0x3B)
    weights = dequantise(fmt.name, stored)
    x = rng.normal(size=(ACTIVATIONS, WIDTH)).astype(np.float32)
    exact = x.astype(np.float64) @ weights.astype(np.float64).T
    size = np.abs(x).astype(np.float64) @ np.abs(weights).astype(np.float64).T
    # A quantised activation is off by at most half a step, 1/254 of the largest of its block.
    coarse = np.abs(weights).sum(axis=1, dtype=np.float64)[None, :] * np.abs(x).max(axis=1, keepdims=True) / 254 + 1e-5 * size
    errors = {
        "f32": _error(product(fmt, isa, stored, x, f32=True, many=False), exact, 1e-5 * size),
        "f32_many": _error(product(fmt, isa, stored, x, f32=True, many=True), exact, 1e-5 * size),
        "own": _error(product(fmt, isa, stored, x, f32=False, many=False), exact, coarse),
        "own_many": _error(product(fmt, isa, stored, x, f32=False, many=True), exact, coarse),
    }
    bits = bool(np.array_equal(unpacked(fmt, isa, stored).view(np.uint32), weights.view(np.uint32)))
    return {
        "format": fmt.name,
        "isa": isa,
        "few": few,
        "many": many,
        "bits_equal": bits,
        "errors_of_bound": errors,
        "ok": bits and all(one <= 1.0 for one in errors.values()),
    }


def check_pool() -> dict[str, Any]:
    """Whether a team on the cores of this process counts right."""
    cores = sorted(os.sched_getaffinity(0))
    pool = Pool(cores)
    try:
        counted = pool.tally(COUNTED)
        return {"n_workers": pool.n_workers, "cores": cores, "counted": counted, "ok": counted == COUNTED}
    finally:
        pool.close()


def unpacked(fmt: QuantFormat, isa: str, stored: U8) -> F32:
    """The stored rows as f32 by the kernel of one instruction set: [n, WIDTH]."""
    out = np.empty((len(stored), WIDTH), np.float32)
    for row, values in zip(stored, out, strict=True):
        probe.to_f32(isa, fmt.ggml_id, row, values, WIDTH)
    return out


def product(fmt: QuantFormat, isa: str, stored: U8, x: F32, *, f32: bool, many: bool) -> F32:
    """x @ weights.T by one kernel: [ACTIVATIONS, ROWS]."""
    act = "f32" if f32 else fmt.act
    n_bytes = probe.act_row_bytes(act, WIDTH)
    stride = -(-n_bytes // 64) * 64
    rows = _aligned(len(x) * stride)
    for i, one in enumerate(x):
        probe.quantize(isa, act, one, rows[i * stride : i * stride + n_bytes], WIDTH)
    out = np.empty(len(x) * ROWS, np.float32)
    scratch = _aligned(probe.many_scratch_bytes(WIDTH)) if many else None
    # Kernels for few activations take 8 at most.
    step = len(x) if many else 8
    for at in range(0, len(x), step):
        n = min(step, len(x) - at)
        y = out[at * ROWS : (at + n) * ROWS]
        act_rows = rows[at * stride : (at + n) * stride]
        probe.linear(
            isa, fmt.ggml_id, stored.reshape(-1), stored.shape[1], act_rows, stride, n, y, ROWS, WIDTH, ROWS, scratch, f32
        )
    return out.reshape(len(x), ROWS)


def _error(got: F32, exact: F64, bound: F64) -> float:
    return round(float((np.abs(got - exact) / (bound + 1e-30)).max()), 6)


def _aligned(n_bytes: int) -> U8:
    raw = np.zeros(n_bytes + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + n_bytes]


def _verdict(one: dict[str, Any]) -> str:
    return "ok" if one["ok"] else "FAILED"
