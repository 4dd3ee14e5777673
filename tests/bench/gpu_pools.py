"""Pools of experts on a machine with a GPU: that they compute the same, and what they are worth.

Run as `python -m tests.bench.gpu_pools OUT.json [--layers N]` from a checkout with the kernels built; it takes less than 120 s on
an H200. A model of the shape of qwen3-30b-a3b is written, whose routers like some experts better than others and whose text comes
back to what it said; its experts lie on the CPU, all else on the GPU. Golden models are compared with the CPU, with random pools.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from engine.api.heat import hottest, with_hottest
from engine.gguf.reader import read_gguf
from engine.placement.file import to_json
from engine.placement.options import LoadOptions
from engine.runtime.loader import LoadedModel
from tests.bench.gpu import EXPERTS_ON_CPU, hybrid_threads, short
from tests.bench.synthetic import write_synthetic
from tests.helpers.golden_models import batch, golden
from tests.helpers.placed import EXACT, on_cpu, open_placed
from tests.helpers.pooled import open_pooled
from tests.helpers.runs import open_model

KIND = "qwen3-30b-a3b"
N_PROMPT, N_TEXT, N_WARM, N_DECODE = 64, 48, 64, 192
N_VOCAB = 150_000
SHARES = (4, 2)
"""Pools of a fourth and of a half of the experts."""
LIKING = 0.8
"""Deviation of the logarithm of what a router's rows are multiplied with: experts of long rows are chosen more often."""
LAYERS = 24
"""Of 48: half the time to write and to load, twice the tokens a second."""
SETTLE_S = 6.0
GOLDENS = ("qwen3moe", "gpt-oss")

Result = dict[str, Any]


def skewed(path: Path) -> None:
    """Makes the routers of a file like some experts better than others, each layer others."""
    file = read_gguf(path)
    rng = np.random.default_rng(11)
    with path.open("r+b") as handle, mmap.mmap(handle.fileno(), 0) as raw:
        for name, tensor in file.tensors.items():
            if name.endswith("ffn_gate_inp.weight"):
                rows = np.frombuffer(raw, np.float32, tensor.n_elements, tensor.offset).reshape(tensor.shape[1], tensor.shape[0])
                made = rows * np.exp(LIKING * rng.standard_normal((len(rows), 1))).astype(np.float32)
                raw[tensor.offset : tensor.offset + made.nbytes] = made.tobytes()
                del rows


def text() -> list[int]:
    """Tokens of few kinds in a changing order, as a text about one thing has."""
    rng = np.random.default_rng(5)
    kinds = rng.integers(0, N_VOCAB, N_TEXT)
    return kinds[rng.integers(0, N_TEXT, N_PROMPT + N_WARM + N_DECODE)].tolist()


def decode(model: LoadedModel, ids: list[int]) -> Result:
    """Tokens a second behind a prompt and some tokens, with what pools did."""
    model.step(batch(ids[:N_PROMPT], 0, 1))
    for at in range(N_PROMPT, N_PROMPT + N_WARM):
        model.step(batch(ids[at : at + 1], at, 1))
    if model.pools is not None:
        model.pools.forget()
    seconds, beside = [], []
    with parts_of_a_step() as parts:
        for at in range(N_PROMPT + N_WARM, N_PROMPT + N_WARM + N_DECODE):
            started = time.perf_counter()
            model.step(batch(ids[at : at + 1], at, 1))
            seconds.append(time.perf_counter() - started)
            beside.append(seconds[-1] - model.last_step_s)
    middle = median(seconds)
    found: Result = {"tok_s": round(1 / middle, 2), "mean_tok_s": round(len(seconds) / sum(seconds), 2)}
    found["step_ms"] = round(1e3 * middle, 2)
    found["beside_step_ms"] = round(1e3 * median(beside), 3)
    found["parts_us"] = {name: round(1e6 * median(took), 1) for name, took in parts.items() if took}
    if model.pools is not None:
        figures = model.pools.figures()
        hits, misses = sum(one.hits for one in figures), sum(one.misses for one in figures)
        found["hit_rate"] = round(hits / (hits + misses), 4)
        found["promotions_a_token"] = round(sum(one.promotions for one in figures) / N_DECODE, 2)
        found["switched_off"] = model.pools.switched_off
    return found


@contextmanager
def parts_of_a_step() -> Iterator[dict[str, list[float]]]:
    """Seconds of what a step does beside its program, by method, while it is entered."""
    from engine.runtime.choices import StepChoices
    from engine.runtime.gpu_executor import GpuExecutor
    from engine.runtime.gpu_inputs import HostInputs
    from engine.runtime.pool_keeper import PoolKeeper
    from engine.runtime.tally import ExpertTally

    found: dict[str, list[float]] = {}
    wanted = [(PoolKeeper, "begin"), (PoolKeeper, "end"), (PoolKeeper, "settle"), (StepChoices, "read"), (ExpertTally, "add")]
    wanted += [(LoadedModel, "_took"), (HostInputs, "fill"), (GpuExecutor, "_run_beside"), (GpuExecutor, "_run_cpu")]
    before = [(owner, name, getattr(owner, name)) for owner, name in wanted]

    def timed(usual: Any, took: list[float]) -> Any:
        def run(*args: Any, **options: Any) -> Any:
            started = time.perf_counter()
            try:
                return usual(*args, **options)
            finally:
                took.append(time.perf_counter() - started)

        return run

    try:
        for owner, name, usual in before:
            setattr(owner, name, timed(usual, found.setdefault(f"{owner.__name__}.{name}", [])))
        yield found
    finally:
        for owner, name, usual in before:
            setattr(owner, name, usual)


def settled(model: LoadedModel) -> None:
    """Takes weights into memory of our own for a while; what is left goes on beside steps, in every run alike."""
    started = time.perf_counter()
    while model.settling and time.perf_counter() - started < SETTLE_S:
        model.settle()


def compared(model: LoadedModel, ids: list[int], mode: str) -> Result:
    """Blocks with and without in turn."""
    assert model.pools is not None
    model.pools.use("promote")
    model.pools.compare(mode, 16, 6)  # type: ignore[arg-type]
    at = N_PROMPT
    while (found := model.pools.compared()) is None:
        model.step(batch(ids[at : at + 1], at, 1))
        at += 1
    one = found[1]
    return {
        "with_tok_s": round(one.with_tok_s, 2),
        "without_tok_s": round(one.without_tok_s, 2),
        "gain": round(one.gain, 4),
        "sigma": round(one.sigma, 4),
    }


def worth(out: Result, layers: int) -> None:
    """Decode without pools, and with pools of the hottest, left alone and with promotion."""
    folder = Path(os.environ.get("LAYERDECK_BENCH_MODELS", "/tmp/layerdeck_bench"))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{KIND}-skewed-{layers}l.gguf"
    if not path.exists():
        started = time.perf_counter()
        write_synthetic(KIND, path, layers)
        skewed(path)
        out["write_s"] = round(time.perf_counter() - started, 1)
    ids = text()
    options = LoadOptions(n_threads=hybrid_threads(), n_ctx=2048, placement=EXPERTS_ON_CPU, stream_experts="off")
    model = open_model(path, options)
    try:
        settled(model)
        out["without"] = decode(model, ids)
        assert model.experts is not None and model.placement is not None
        tally, placement, spec = model.experts, model.placement, model.spec
        counts = tally.counts.copy()
        n_experts = counts.shape[1]
        out["skew"] = {
            f"hottest {n_experts // share}": round(float(np.mean([hottest(row, n_experts // share)[1] for row in counts])), 3)
            for share in (16, 8, *SHARES)
        }
    finally:
        model.close()
    for share in SHARES:
        row: Result = {}
        out[f"pools of 1/{share}"] = row
        pooled = with_hottest(placement, tally.moe.layers, counts, n_experts // share)
        started = time.perf_counter()
        model = open_model(path, replace(options, placement=to_json(pooled, spec)))
        try:
            row["load_s"] = round(time.perf_counter() - started, 2)
            settled(model)
            assert model.pools is not None
            for mode in ("off", "keep", "promote"):
                model.pools.use(mode)  # type: ignore[arg-type]
                row[mode] = decode(model, ids)
            row["keep against off"] = compared(model, ids, "keep")
            row["promote against keep"] = compared(model, ids, "promote")
            row["gpu_bytes"] = sum(one.nbytes for one in model.residency.holdings if str(one.device) == "gpu0")
        finally:
            model.close()


def same(out: Result) -> None:
    """Golden models with random pools on the GPU against the CPU: exact kernels and the usual ones, while experts are moved."""
    from engine.runtime import promotion

    margin, promotion.MARGIN = promotion.MARGIN, 1e-9  # whatever is missed is moved
    try:
        for name in GOLDENS:
            row: Result = {}
            out[name] = row
            path, ids = golden(name).path, golden(name).ids("medium")
            for kind, options, bound in (("exact", EXACT, 1e-2), ("usual", replace(EXACT, f32_activations=False), 1.0)):
                theirs, ours = open_placed(path, on_cpu, EXACT), open_pooled(path, 3, options=options, most=6)
                expected, found = ([model.step(batch(ids[:40]))] for model in (theirs, ours))
                for at in range(40, len(ids)):
                    for model, rows in ((theirs, expected), (ours, found)):
                        rows.append(model.step(batch(ids[at : at + 1], at)))
                difference = np.concatenate(found) - np.concatenate(expected)
                assert ours.pools is not None and ours.experts is not None and theirs.experts is not None
                row[kind] = {
                    "max": float(np.abs(difference).max()),
                    "rms": float(np.sqrt(np.mean(difference**2))),
                    "promotions": sum(one.promotions for one in ours.pools.figures()),
                    "counts_agree": bool(np.array_equal(ours.experts.counts, theirs.experts.counts)),
                    "ok": bool(np.abs(difference).max() < bound),
                }
                ours.close()
                theirs.close()
    finally:
        promotion.MARGIN = margin


def main() -> int:
    """Runs both parts; each survives the failure of the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="where the JSON goes")
    parser.add_argument("--layers", type=int, default=LAYERS, help="of the model, which has 48")
    args = parser.parse_args()
    found: Result = {}
    for name, part in (("same", same), ("worth", lambda out: worth(out, args.layers))):
        row: Result = {}
        found[name] = row
        started = time.perf_counter()
        try:
            part(row)
        except Exception as error:
            row["error"] = short(error)
        row["seconds"] = round(time.perf_counter() - started, 1)
        args.out.write_text(json.dumps(found, indent=1), encoding="utf-8")
        sys.stdout.write(f"{name}: {json.dumps(row)[:4000]}\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
