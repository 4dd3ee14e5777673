"""Ways of computing a decoded token on a GPU against each other, in the captured graphs of whole models: what is right and fast.

Run on a machine with a GPU as `python -m tests.bench.gpu_variants OUT.json [MODEL ...]`, 150 s. Kernels of every variant are
compiled first, side by side, with short models; then each model is loaded once, and the graph of a token captured anew for each
variant, in two rounds. A variant is right where its logits of some tokens are near those of the first variant, which is the usual
path op by op.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from tests.bench.gpu_memory import SHORT

MODELS = {"30b": "qwen3-30b-a3b", "8b": "qwen3-8b"}
PROMPT, TOKENS, ROUNDS = 512, 24, 2

Result = dict[str, Any]


@dataclass(frozen=True)
class Variant:
    """joins: see `engine.triton_kernels.linear_kernels.JOINS`; keys, warps, least, stages: of attention in one launch."""

    joins: tuple[str, ...] = ()
    keys: int = 64
    warps: int = 4
    least: int = 2
    stages: int = 3
    moe_only: bool = False


ALL = ("attention", "route", "up", "down")
VARIANTS: dict[str, Variant] = {
    "op by op": Variant(),
    "attention": Variant(("attention",)),
    "attention 8 warps": Variant(("attention",), warps=8),
    "attention 32 keys": Variant(("attention",), keys=32, least=1),
    "attention 128 keys": Variant(("attention",), keys=128, least=4, stages=2),
    "route": Variant(("route",), moe_only=True),
    "up": Variant(("up",), moe_only=True),
    "down": Variant(("down",), moe_only=True),
    "all": Variant(ALL),
    "chain alone": Variant(("chain",)),
    "all, chain": Variant((*ALL, "chain")),
    "all but up, chain": Variant(("attention", "route", "down", "chain"), moe_only=True),
}


def use(kernels: Any, variant: Variant) -> None:
    """From now on what is bound is computed so."""
    from engine.triton_kernels.attention_decode import DecodeConfig

    kernels.joins = frozenset(variant.joins)
    kernels.whole_config = DecodeConfig(variant.keys, variant.warps, variant.stages, variant.least)


def bound_anew(model: Any) -> Any:
    """The graph of a token of one sequence, captured again."""
    from engine.runtime.gpu_buffers import StepShape

    executor = model.executor
    key = (0, StepShape(1, 1, 1), True)
    if key in executor._binder._bound:
        executor._binder._drop(key)
    bound = executor._binder.bind(0, key[1], beside=True)
    executor.warmer.make_ready(0, bound)
    return bound


def opened(kind: str, layers: int | None) -> Any:
    from engine.placement.options import LoadOptions
    from tests.bench.gpu import synthetic
    from tests.helpers.runs import open_model

    return open_model(synthetic(kind, {}, layers), LoadOptions(n_threads=1, n_ctx=2048, placement="-ngl 99"))


def compile_one(kind: str, name: str) -> None:
    """Everything of one variant, once."""
    from tests.helpers.golden_models import batch

    model = opened(kind, SHORT)
    use(model.executor.sides[0].kernels, VARIANTS[name])
    bound_anew(model)
    model.step(batch([5], 0, 1))
    model.close()


def measure(name: str, out: Result) -> None:
    """All variants of one model."""
    from tests.helpers.golden_models import batch

    model = opened(MODELS[name], None)
    kernels = model.executor.sides[0].kernels
    ids = np.random.default_rng(0).integers(0, model.spec.n_vocab, PROMPT + TOKENS).tolist()
    model.step(batch(ids[:PROMPT], 0, 1))
    known: Any = None
    wanted = {one: variant for one, variant in VARIANTS.items() if not variant.moe_only or "a3b" in MODELS[name]}
    for turn in range(ROUNDS):
        for one, variant in wanted.items():
            row = out.setdefault(one, {"joins": variant.joins, "graph_ms": [], "step_ms": []})
            try:
                use(kernels, variant)
                bound_anew(model)
                steps, logits = [], []
                for i in range(TOKENS):
                    started = time.perf_counter()
                    found = model.step(batch(ids[PROMPT + i : PROMPT + i + 1], PROMPT + i, 1))
                    steps.append(time.perf_counter() - started)
                    logits.append(found[0].copy())
                row["graph_ms"].append(round(1e3 * model.executor.replay_s(60), 4))
                row["step_ms"].append(round(1e3 * median(steps), 4))
                if known is None:
                    known = np.stack(logits)
                difference = np.stack(logits) - known
                row["rms"] = float(np.sqrt(np.mean(difference**2)) / np.sqrt(np.mean(known**2)))
                row["max"] = float(np.abs(difference).max() / np.abs(known).max())
                row["same_ids"] = int((np.stack(logits).argmax(1) == known.argmax(1)).sum())
                if turn == ROUNDS - 1:
                    model.executor.profile = True
                    model.step(batch(ids[-1:], PROMPT + TOKENS - 1, 1))
                    model.executor.profile = False
                    row["ops_us"] = {kind: round(1e6 * seconds, 1) for kind, seconds in model.executor.op_times()}
            except Exception as error:
                row["error"] = f"{type(error).__name__}: {str(error)[:300]}"
    model.close()


def table(name: str, out: Result) -> str:
    lines = [f"{name:20} {'graph ms':>18} {'step ms':>18} {'tok/s':>7} {'rms':>9} {'max':>9} same ids of {TOKENS}"]
    for one, row in out.items():
        if "error" in row:
            lines.append(f"{one:20} {row['error'][:110]}")
            continue
        graph, step = (" ".join(f"{value:8.3f}" for value in row[key]) for key in ("graph_ms", "step_ms"))
        rate = 1e3 / min(row["step_ms"])
        lines.append(f"{one:20} {graph:>18} {step:>18} {rate:7.1f} {row['rms']:9.2e} {row['max']:9.2e} {row['same_ids']}")
    good = [row for row in out.values() if "error" not in row and "ops_us" in row]
    for row in (good[0], min(good, key=lambda row: min(row["graph_ms"]))) if good else ():
        lines.append(f"{row['joins']}: {row['ops_us']}")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"some of: {' '.join(MODELS)}")
    parser.add_argument("--compile", choices=tuple(VARIANTS))
    args = parser.parse_args()
    names = args.models or list(MODELS)
    if args.compile:
        compile_one(MODELS[names[0]], args.compile)
        return 0
    from tests.bench.gpu import build, synthetic

    begun = time.perf_counter()
    results: Result = {"build": {}}
    build(results["build"])
    for name in names:
        synthetic(MODELS[name], {}, SHORT)
    command = [sys.executable, "-m", "tests.bench.gpu_variants", "-"]
    others = [
        subprocess.Popen([*command, name, "--compile", one], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        for name in names
        for one, variant in VARIANTS.items()
        if not variant.moe_only or "a3b" in MODELS[name]
    ]
    for name in names:
        synthetic(MODELS[name], {})
    written = time.perf_counter() - begun
    failed = sum(other.wait() != 0 for other in others)
    compiled = time.perf_counter() - begun
    sys.stdout.write(f"built and written in {written:.0f} s, compiled after {compiled:.0f} s, {failed} of {len(others)} failed\n")
    for name in names:
        results[name] = {}
        measure(name, results[name])
        sys.stdout.write(table(name, results[name]) + "\n")
        args.out.write_text(json.dumps(results, indent=1), encoding="utf-8")
    sys.stdout.write(f"{time.perf_counter() - begun:.0f} s\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
