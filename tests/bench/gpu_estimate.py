"""What is predicted of placements on a real GPU beside what happens: bytes, decode and prefill; and if what is said to fit does.

Run as `python -m tests.bench.gpu_estimate OUT.json [SECTION ...]` on a machine with a GPU, from a checkout. It measures the
machine, loads hybrid and full placements of small synthetic models, and random placements under a limit on this process that is
exactly what was predicted for them. All together takes less than 300 s: `speed` stops after SPEED_S, `capacity` after CAPACITY_S.
With LAYERDECK_GPU=emulate:1 it shows that it works where there is none.
"""

from __future__ import annotations

import gc
import json
import random
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from engine.api.pure import Calibration, Gpu, Machine, ModelOutline, Numa, Placement, Planner, UnitId, read_outline
from engine.errors import EngineError
from engine.estimate.memory import CONTEXT_BYTES
from engine.hardware.machine import this_machine
from engine.placement.file import to_json
from engine.placement.options import LoadOptions
from engine.placement.source import resolve_source
from engine.runtime.calibrate import calibrate
from tests.bench.gpu import Result, build, hybrid_threads, settle, short, synthetic
from tests.helpers.golden_models import batch
from tests.helpers.runs import open_model

EXPERTS = "-ot exps=CPU"
PLACEMENTS = (
    ("qwen3-30b-a3b", 8, "-ngl 99"),
    ("qwen3-30b-a3b", 8, f"-ngl 99 {EXPERTS}"),
    ("qwen3-30b-a3b", 8, "-ngl 99 -ncmoe 4"),
    ("qwen3-30b-a3b", 8, f"-ngl 5 {EXPERTS}"),
    ("qwen3-1.7b", 12, "-ngl 99"),
    ("qwen3-1.7b", 12, "-ngl 7"),
    ("qwen3-1.7b", 12, "-ngl 99 -ot ffn=CPU"),
    ("deepseek-v2-lite", 6, "-ngl 99"),
    ("deepseek-v2-lite", 6, f"-ngl 99 {EXPERTS}"),
    ("qwen3-8b", 6, "-ngl 99"),
    ("qwen3-8b", 6, "-ngl 4"),
)
"""(model, layers, flags); the first of a model takes longest, its kernels are compiled."""
N_DECODE, PROMPT, CHUNKS = 32, 512, 3
SPEED_S, CAPACITY_S = 105.0, 140.0
TRIALS = 20
TOLERANCE = 150 << 20
"""Bytes by which a device may differ from its prediction, or 2 % of it."""


def real() -> bool:
    """Whether there is a GPU to measure."""
    return not any(one.emulated for one in this_machine().gpus)


def measured_machine(out: Result) -> tuple[Machine, Calibration]:
    """The machine before anything of ours is on its GPU but the context, and its rates."""
    if real():
        torch.zeros(1, device="cuda")
    machine = this_machine()
    out["context_bytes"] = {"real": taken(), "predicted": CONTEXT_BYTES}
    started = time.perf_counter()
    rates = calibrate(machine)
    out["calibrate_s"] = round(time.perf_counter() - started, 1)
    out["gpus"] = [asdict(one) for one in rates.gpus]
    out["read_gbps"] = rates.nodes[0].read_gbps
    out["formats"] = {name: asdict(one) for name, one in rates.nodes[0].formats if name in ("Q4_K", "Q6_K", "Q8_0", "F16")}
    return machine, rates


def placed(outline: ModelOutline, planner: Planner, flags: str) -> Placement:
    model = outline.model
    return resolve_source(flags, model.spec, model.graph, model.file, planner.machine.gpus, planner.options).placement


def taken() -> int:
    """Bytes of the first GPU that are not free; 0 where it is emulated."""
    if not real():
        return 0
    free, total = torch.cuda.mem_get_info()
    return int(total - free)


def timed(model: Any) -> tuple[float, float]:
    """(decode, prefill) in tok/s at the beginning of a context."""
    ids = np.random.default_rng(0).integers(0, model.spec.n_vocab, PROMPT + N_DECODE).tolist()
    chunks = []
    for _ in range(CHUNKS):
        started = time.perf_counter()
        model.step(batch(ids[:PROMPT], 0, 1))
        chunks.append(time.perf_counter() - started)
    steps = []
    for i in range(N_DECODE):
        started = time.perf_counter()
        model.step(batch(ids[PROMPT + i : PROMPT + i + 1], PROMPT + i, 1))
        steps.append(time.perf_counter() - started)
    return 1 / median(steps[4:]), PROMPT / min(chunks[1:])


def speed(out: Result) -> None:
    """Bytes and rates of each placement, predicted from the calibration alone and from what those before it have taught."""
    machine, rates = measured_machine(out)
    rows: list[Result] = []
    out["rows"], lessons, started = rows, rates, time.perf_counter()
    for kind, layers, flags in PLACEMENTS:
        if time.perf_counter() - started > SPEED_S:
            out["stopped"] = f"after {SPEED_S:g} s"
            break
        row: Result = {"model": f"{kind} {layers} layers", "flags": flags}
        rows.append(row)
        try:
            lessons = one_placement(row, kind, layers, flags, machine, rates, lessons)
        except EngineError as error:
            row["error"] = str(error)
        gc.collect()
    out["corrections"] = asdict(lessons.corrections)
    out["median_error"] = {
        name: round(median(abs(row[name]["error"]) for row in rows if name in row), 3)
        for name in ("decode", "prefill", "decode_learned", "prefill_learned")
        if any(name in row for row in rows)
    }
    out["bytes_ok"] = [row["bytes"]["ok"] for row in rows if "bytes" in row]


def one_placement(
    row: Result, kind: str, layers: int, flags: str, machine: Machine, rates: Calibration, lessons: Calibration
) -> Calibration:
    """Fills the row of a placement; what it teaches."""
    outline = read_outline(str(synthetic(kind, row, layers)))
    options = LoadOptions(n_threads=hybrid_threads(), n_ctx=2048)
    planner, taught = Planner(outline, options, machine, rates), Planner(outline, options, machine, lessons)
    placement = placed(outline, planner, flags)
    found = planner.refine(placement)
    began = time.perf_counter()
    model = open_model(Path(outline.info.path), replace(options, placement=to_json(placement, outline.model.spec)))
    try:
        row["load_s"] = [round(found.load_s, 1), round(time.perf_counter() - began, 1)]
        row["settle_s"] = settle(model)
        decode, prefill = timed(model)
        held = {f"{one.device} {one.owner}": one.nbytes for one in model.residency.holdings}
        row["held"] = held
        row["bytes"] = bytes_of(found.of(Gpu(0)).used, taken(), held)
    finally:
        model.close()
    for name, predictor in (("", planner), ("_learned", taught)):
        predicted = predictor.estimate(placement, depth=PROMPT)
        for what, rate, real_rate in (("decode", predicted.decode_tok_s, decode), ("prefill", predicted.prefill_tok_s, prefill)):
            row[what + name] = {"predicted": round(rate, 1), "real": round(real_rate, 1), "error": round(rate / real_rate - 1, 3)}
    row["limit"] = f"{found.limit_device} {found.limit}"
    return taught.learned(placement, decode_tok_s=decode, prefill_tok_s=prefill, depth=PROMPT)


def bytes_of(predicted: int, real_bytes: int, held: dict[str, int]) -> Result:
    """What was predicted of the GPU beside what is taken of it, by us alone; where it is emulated, beside the ledger."""
    known = sum(nbytes for name, nbytes in held.items() if name.startswith("gpu0"))
    really = real_bytes or known
    ok = abs(predicted - really) <= max(TOLERANCE, 0.02 * really)
    return {"predicted": predicted, "real": really, "ledger": known, "error": round(predicted / max(1, really) - 1, 4), "ok": ok}


def capacity(out: Result) -> None:
    """Random placements of one model, each under a limit of exactly what was predicted for it: how many do not run."""
    machine, total = this_machine(), torch.cuda.mem_get_info()[1] if real() else 1
    outline = read_outline(str(synthetic("qwen3-30b-a3b", out, 4)))
    options = LoadOptions(n_threads=hybrid_threads(), n_ctx=2048)
    planner, rng, started = Planner(outline, options, machine), random.Random(5), time.perf_counter()
    failed: list[str] = []
    out |= {"trials": 0, "failed": failed}
    units = [unit for unit, _ in planner.default().units]
    for _ in range(TRIALS):
        if time.perf_counter() - started > CAPACITY_S:
            out["stopped"] = f"after {CAPACITY_S:g} s"
            break
        placement = planner.move(planner.default(), units, Gpu(0))
        back = [unit for unit in units if unit.kind in ("experts", "ffn", "mixer", "embed") and rng.random() < 0.4]
        placement = planner.move(placement, [*back, UnitId("embed")], Numa(0))
        found = planner.estimate(placement)
        there = found.of(Gpu(0))
        if not found.fits or not there.used:
            continue
        limit = there.used - CONTEXT_BYTES
        if real():
            torch.cuda.empty_cache()
            torch.cuda.set_per_process_memory_fraction(limit / total)
        out["trials"] += 1
        try:
            model = open_model(Path(outline.info.path), replace(options, placement=to_json(placement, outline.model.spec)))
            try:
                timed_steps(model)
                if real():
                    out.setdefault("of_limit", []).append(round(torch.cuda.max_memory_reserved() / limit, 3))
            finally:
                model.close()
        except (EngineError, torch.OutOfMemoryError) as error:
            failed.append(f"{limit} bytes: {error}")
        finally:
            if real():
                torch.cuda.set_per_process_memory_fraction(1.0)
                torch.cuda.reset_peak_memory_stats()
        gc.collect()


def timed_steps(model: Any) -> None:
    """A prompt and a few tokens, which take what kernels keep."""
    ids = np.random.default_rng(0).integers(0, model.spec.n_vocab, PROMPT + 4).tolist()
    model.step(batch(ids[:PROMPT], 0, 1))
    for i in range(4):
        model.step(batch(ids[PROMPT + i : PROMPT + i + 1], PROMPT + i, 1))


SECTIONS: dict[str, Callable[[Result], None]] = {"build": build, "speed": speed, "capacity": capacity}


def main() -> int:
    """Runs the sections that are named, or all, and writes what they found."""
    out, named = Path(sys.argv[1]), sys.argv[2:] or list(SECTIONS)
    found: Result = {}
    for name in named:
        section: Result = {}
        found[name] = section
        begun = time.perf_counter()
        try:
            SECTIONS[name](section)
        except Exception as error:
            section["error"] = short(error)
        section["seconds"] = round(time.perf_counter() - begun, 1)
        out.write_text(json.dumps(found, indent=1), encoding="utf-8")
        sys.stdout.write(f"{name}: {json.dumps(section)[:6000]}\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
