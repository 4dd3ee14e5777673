"""Where the memory of a GPU goes: what the ledger declares, what torch's allocator keeps beside, what driver and libraries take.

Run on a machine with a GPU as `python -m tests.bench.gpu_memory OUT.json [NAME ...]`, 100 s. Kernels are compiled first, by a
process for each model side by side, while the models are written; then each is measured in a process of its own, step by step:
what the device says is taken, what torch's allocator has reserved and dealt out, and what the ledger knows of. At the end every
block that is in no ledger is named with the lines that asked for it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

MIB = 1 << 20
BESIDE_LIMIT = 300 * MIB
EXPERTS_ON_CPU = "-ngl 99 -ot exps=CPU"
MODELS: dict[str, tuple[str, str, int]] = {
    "8b": ("qwen3-8b", "-ngl 99", 512),
    "30b-hybrid": ("qwen3-30b-a3b", EXPERTS_ON_CPU, 512),
    "30b-hybrid-2048": ("qwen3-30b-a3b", EXPERTS_ON_CPU, 2048),
    "dsv2lite": ("deepseek-v2-lite", "-ngl 99", 512),
    "8b expandable": ("qwen3-8b", "-ngl 99", 512),
    "30b-hybrid expandable": ("qwen3-30b-a3b", EXPERTS_ON_CPU, 512),
}
"""By name: kind, placement, rows of a chunk. Expandable: torch's allocator maps pages into long ranges in place of segments."""
SHORT = 4
"""Layers of the models that kernels are compiled with: one of each kind."""

Result = dict[str, Any]


class Marks:
    """The state of the device after each thing that happened, and what had changed."""

    def __init__(self) -> None:
        self.rows: list[Result] = []
        self.ledger: Callable[[], int] = lambda: 0

    def add(self, label: str) -> None:
        import torch

        torch.cuda.synchronize()
        free, total = torch.cuda.mem_get_info()
        stats = torch.cuda.memory_stats()
        reserved, allocated = torch.cuda.memory_reserved(), torch.cuda.memory_allocated()
        self.rows.append(
            {
                "after": label,
                "device": total - free,
                "reserved": reserved,
                "allocated": allocated,
                "inactive_split": stats.get("inactive_split_bytes.all.current", 0),
                "declared": self.ledger(),
            }
        )

    def table(self) -> str:
        heads = ("device", 9), ("driver", 8), ("reserved", 9), ("slack", 7), ("allocated", 9), ("declared", 9), ("beside", 7)
        lines = [f"{'after':34} {' '.join(f'{head:>{width}}' for head, width in heads)}"]
        for row in self.rows:
            driver, slack = row["device"] - row["reserved"], row["reserved"] - row["allocated"]
            beside = row["allocated"] - row["declared"]
            figures = (row["device"], driver, row["reserved"], slack, row["allocated"], row["declared"], beside)
            text = " ".join(f"{one / MIB:{width}.1f}" for one, width in zip(figures, (9, 8, 9, 7, 9, 9, 7), strict=True))
            lines.append(f"{row['after'][:34]:34} {text}")
        return "\n".join(lines)


def watched(marks: Marks) -> None:
    """Marks behind what takes memory while a model is loaded."""
    from engine.runtime import gpu_executor, gpu_side, gpu_stream, gpu_warmup, gpu_weights

    def behind(owner: Any, name: str, label: str) -> None:
        inner = getattr(owner, name)

        def run(self: Any, *args: Any, **kwargs: Any) -> Any:
            found = inner(self, *args, **kwargs)
            if isinstance(self, gpu_side.GpuSide):
                marks.ledger = lambda: sum(one.nbytes for tensors in self.memory._held.values() for one in tensors)
            text = label
            if name == "make_ready":
                plan, shape = args[1].plan, args[1].shape
                text = f"ready: {plan.phase} {shape.n_rows} rows, {shape.n_out} out, plan {args[0]}"
            marks.add(text)
            return found

        setattr(owner, name, run)

    behind(gpu_side.GpuSide, "__init__", "room of everything")
    behind(gpu_weights.GpuWeights, "upload", "weights")
    behind(gpu_stream.ExpertStream, "tune", "rings tried")
    behind(gpu_executor.GpuExecutor, "__init__", "executor")
    behind(gpu_warmup.Warmer, "make_ready", "")


def measure(name: str, out: Result) -> None:
    """One model, in this process."""
    out["nvml_before"] = used_by_all()
    import torch

    marks = Marks()
    torch.zeros(1, device="cuda")
    torch.cuda.empty_cache()
    marks.add("context")
    context = marks.rows[-1]["device"]
    a = torch.ones(64, 64, dtype=torch.float16, device="cuda")
    into = torch.ones(64, 64, device="cuda")
    torch.addmm(into, a, a, torch.float32, out=into)
    marks.add("library of products")
    del a, into
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()
    marks.add("and its workspace let go")
    torch.cuda.memory._record_memory_history("state", stacks="python")
    watched(marks)
    model, options = opened(name)
    marks.add("loaded")
    steps(model, name, marks.add)
    out |= {"nvml_after": used_by_all(), "marks": marks.rows}
    holdings = {one.owner: one.nbytes for one in model.executor.holdings()}
    last = marks.rows[-1]
    beside = last["device"] - context - sum(holdings.values())
    out |= {"holdings": holdings, "context": context, "device_beside_what_is_declared": beside}
    out["estimate"] = estimated(name, options, context - out["nvml_before"])
    out["spills"], out["kernels"] = kernels()
    foreign, segments = unknown_blocks(model)
    out |= {"unknown": foreign, "segments": segments}
    torch.cuda.memory._record_memory_history(None)
    sys.stdout.write(f"{name}\n{marks.table()}\n")
    figures = {owner: round(nbytes / MIB, 1) for owner, nbytes in holdings.items()}
    said = "within" if beside <= BESIDE_LIMIT else "OVER"
    sys.stdout.write(f"holdings MiB {figures}; beside what is declared {beside / MIB:.1f} MiB: {said} {BESIDE_LIMIT / MIB:.0f}\n")
    sys.stdout.write(f"estimate MiB {out['estimate']}; nvml {out['nvml_before'] / MIB:.0f} -> {out['nvml_after'] / MIB:.0f}\n")
    sys.stdout.write(f"{out['kernels']}; spilling: {out['spills'][:5]}\n")
    for one in foreign[:6]:
        sys.stdout.write(f"  in no ledger: {one}\n")
    for one in segments[:6]:
        sys.stdout.write(f"  segments: {one}\n")
    model.close()
    marks.ledger = lambda: 0
    marks.add("closed")
    sys.stdout.write(f"{marks.table().splitlines()[-1]}\n")


def opened(name: str, layers: int | None = None) -> tuple[Any, Any]:
    """The model, and the options it was opened with. layers: fewer than it has."""
    from engine.placement.options import LoadOptions
    from tests.bench.gpu import hybrid_threads, synthetic
    from tests.helpers.runs import open_model

    kind, flags, chunk = MODELS[name]
    threads = hybrid_threads() if layers is None else 2
    options = LoadOptions(n_threads=threads, n_ctx=max(2048, chunk + 256), prefill_chunk=chunk, placement=flags)
    return open_model(synthetic(kind, {}, layers), options), options


def steps(model: Any, name: str, mark: Callable[[str], None]) -> None:
    """What a model is asked for in its life: prompts of several lengths, decode of one and of several."""
    import numpy as np

    from engine.runtime.step import StepBatch
    from tests.helpers.golden_models import batch

    chunk = MODELS[name][2]
    ids = np.random.default_rng(0).integers(0, model.spec.n_vocab, chunk + 64).tolist()
    for _ in range(2):
        model.step(batch(ids[:chunk], 0, 1))
        mark(f"prompt of {chunk}")
    for i in range(3):
        model.step(batch(ids[chunk + i : chunk + i + 1], chunk + i, 1))
    mark("decode")
    for n in (100, 60, chunk - 17):
        for _ in range(2):
            model.step(batch(ids[:n], 0, 1))
        mark(f"prompt of {n}")
    for n in (8,) if name.startswith("8b") else ():
        rows = np.arange(n, dtype=np.int32)
        tables = tuple(np.array([i], np.int32) for i in range(n))
        model.step(StepBatch("decode", rows, rows * 0, rows, tables, rows))
        mark(f"decode of {n} sequences")


def estimated(name: str, options: Any, context_bytes: int) -> dict[str, float]:
    """What is said of the GPU before anything is loaded, MiB by owner; `used` also with the context as it was measured."""
    from engine.estimate.memory import Estimator
    from engine.hardware.machine import this_machine
    from engine.placement.placement import Gpu
    from engine.placement.source import resolve_source
    from tests.bench.gpu import synthetic
    from tests.helpers.described import described

    kind, flags, _ = MODELS[name]
    one, machine = described(synthetic(kind, {})), this_machine()
    placement = resolve_source(flags, *one, machine.gpus, options).placement
    given = (one.spec, one.graph, one.file.tensors, options, machine)
    here = Estimator(*given).estimate(placement).of(Gpu(0))
    with_measured = Estimator(*given, context_bytes=context_bytes).estimate(placement).of(Gpu(0))
    owners = ("weights", "derived", "kv", "kept_windows", "state", "workspace", "other", "used")
    return {owner: round(getattr(here, owner) / MIB, 1) for owner in owners} | {
        "used_measured_context": round(with_measured.used / MIB, 1)
    }


def kernels() -> tuple[list[tuple[int, str]], str]:
    """(Spilled bytes a thread, name) of Triton's kernels, most first, and how many there are."""
    from triton.runtime.jit import JITFunction

    found, n, nbytes = [], 0, 0
    for module in [one for name, one in sys.modules.items() if name.startswith("engine.triton_kernels")]:
        for value in vars(module).values():
            if isinstance(value, JITFunction):
                for kernel in value.device_caches[0][0].values():
                    n, nbytes = n + 1, nbytes + len(kernel.asm["cubin"])
                    if getattr(kernel, "n_spills", 0):
                        found.append((kernel.n_spills, value.fn.__name__))
    return sorted(found, reverse=True), f"{n} kernels of {nbytes / MIB:.1f} MiB"


def unknown_blocks(model: Any) -> tuple[list[str], list[str]]:
    """Blocks that are dealt out and in no ledger, by who asked for them; segments by stream, pool and how full they are."""
    import torch

    known = {
        one.untyped_storage().data_ptr()
        for side in model.executor.sides
        for tensors in side.memory._held.values()
        for one in tensors
    }
    sizes: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    pools: dict[tuple[str, ...], list[int]] = defaultdict(lambda: [0, 0, 0])
    for segment in torch.cuda.memory._snapshot()["segments"]:
        key = (str(segment["stream"]), str(segment.get("segment_pool_id")), segment["segment_type"])
        pool = pools[key]
        pool[0] += 1
        pool[1] += segment["total_size"]
        pool[2] += segment["allocated_size"]
        for block in segment["blocks"]:
            if block["state"] != "active_allocated" or block["address"] in known:
                continue
            frames = [f"{Path(one['filename']).name}:{one['line']} {one['name']}" for one in block.get("frames", ())]
            text = " < ".join(frames[:5]) or "no frames"
            sizes[text] += block["size"]
            counts[text] += 1
    blocks = [f"{nbytes / MIB:.2f} MiB in {counts[text]} blocks: {text}" for text, nbytes in sizes.most_common(20)]
    ordered = sorted(pools.items(), key=lambda item: item[1][2] - item[1][1])
    segments = [
        f"stream {key[0]} pool {key[1]} {key[2]}: {n} segments of {total / MIB:.1f} MiB, {(total - used) / MIB:.1f} MiB idle"
        for key, (n, total, used) in ordered
    ]
    return blocks, segments


def used_by_all() -> int:
    """Bytes of the first GPU that are taken, as the driver's tool says."""
    command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "-i", "0"]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[0]) * MIB


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of: {' '.join(MODELS)}")
    parser.add_argument("--one", choices=("compile", "measure"))
    args = parser.parse_intermixed_args()
    names = args.names or list(MODELS)
    if args.one == "compile":
        model, _ = opened(names[0], SHORT)
        steps(model, names[0], lambda label: None)
        model.close()
        return 0
    if args.one == "measure":
        found: Result = {}
        try:
            measure(names[0], found)
        finally:
            args.out.write_text(json.dumps(found, indent=1), encoding="utf-8")
        return 0
    from tests.bench.gpu import build, synthetic

    begun = time.perf_counter()
    results: Result = {"build": {}}
    build(results["build"])
    kinds = sorted({MODELS[name][0] for name in names})
    for kind in kinds:
        synthetic(kind, {}, SHORT)
    command = [sys.executable, "-m", "tests.bench.gpu_memory", "-", "--one"]
    compiled = [
        name for name in names if name.removesuffix(" expandable") == name or name.removesuffix(" expandable") not in names
    ]
    others = [subprocess.Popen([*command, "compile", name], stderr=subprocess.DEVNULL) for name in compiled]
    for kind in kinds:
        synthetic(kind, {})
    written = time.perf_counter() - begun
    for other in others:
        other.wait()
    sys.stdout.write(f"built and written in {written:.0f} s, compiled after {time.perf_counter() - begun:.0f} s\n")
    for name in names:
        part = args.out.with_suffix(f".{name.replace(' ', '-')}.json")
        env = os.environ | ({"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"} if name.endswith("expandable") else {})
        done = subprocess.run([*command[:3], str(part), "--one", "measure", name], check=False, env=env)
        results[name] = json.loads(part.read_text(encoding="utf-8")) if part.exists() else {"rc": done.returncode}
        part.unlink(missing_ok=True)
        args.out.write_text(json.dumps(results, indent=1), encoding="utf-8")
    sys.stdout.write(f"{time.perf_counter() - begun:.0f} s\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
