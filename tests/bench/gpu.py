"""The GPU path on a machine with a GPU: builds, checks the golden models with Triton's kernels, and times synthetic models.

Run as `python -m tests.bench.gpu OUT.json [SECTION ...]` from a checkout; nothing needs to be installed but what is imported.
Each section survives the failure of another; its traceback is in the result. All together take less than 540 s on an H200.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
READ_LIMIT_GBPS = 4554.0
"""Of an H200, by a kernel that reads 4 GiB once; what is measured here stands beside it."""
N_DECODE = 64
SETTLE_SECONDS = 60.0
GOLDEN_SECONDS = 250.0
"""After which no further golden model is begun: each compiles kernels for its own sizes."""
PROMPT = 512

Result = dict[str, Any]


def build(out: Result) -> None:
    """Compiles the kernels of the CPU in place."""
    code = "import setuptools; setuptools.setup()"
    jobs = str(os.cpu_count() or 1)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, "-q", "build_ext", "--inplace", "-j", jobs],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    out["rc"] = done.returncode
    if done.returncode:
        out["output"] = (done.stdout + done.stderr)[-4000:]
        raise RuntimeError("the build failed")


def machine(out: Result) -> None:
    """What this is, and how fast its memories are read."""
    import torch
    import triton

    out |= {"torch": torch.__version__, "triton": triton.__version__, "python": platform.python_version()}
    out["gpus"] = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    out["cpus"] = os.cpu_count()
    data = torch.zeros(1 << 29, dtype=torch.float64, device="cuda")
    out["gpu_read_gbps"] = round(max(data.nbytes / event_seconds(data.sum) / 1e9 for _ in range(5)), 1)
    del data
    torch.cuda.empty_cache()
    from engine.cli.bench import read_limit_gbps

    threads = hybrid_threads()
    out["cpu_read_gbps"] = {str(threads): round(max(read_limit_gbps(threads) for _ in range(3)), 1)}


def goldens(out: Result) -> None:
    """Logits and answers of the golden models on the real GPUs against the exact ones of the CPU, placed in every way.

    Where the choice of experts of a row is a near tie, any other rounding may turn it, and then attention brings that row's other
    values to all rows behind it: max and rms are those of the rows before the first.
    """
    import numpy as np
    import torch

    from tests.helpers.golden_models import MODELS, batch, golden, greedy
    from tests.helpers.near_ties import clear_rows
    from tests.helpers.placed import EXACT, anywhere, hybrid, on_cpu, open_placed, split, whole

    places = {"whole": whole, "hybrid": hybrid}
    if torch.cuda.device_count() > 1:
        places |= {"split": split, "anywhere": anywhere(7)}
    kinds = {"default": default_options(), "f32": EXACT}
    began = time.perf_counter()
    theirs: dict[str, Any] = {}
    clear: dict[str, Any] = {}
    for (place, where), (kind, options) in itertools.product(places.items(), kinds.items()):
        for name in MODELS:
            row: Result = {}
            out[f"{name} {place} {kind}"] = row
            if time.perf_counter() - began > GOLDEN_SECONDS:
                row["skipped"] = f"after {GOLDEN_SECONDS:g} s"
                continue
            try:
                path, ids = golden(name).path, golden(name).ids("medium")
                if name not in theirs:
                    cpu = open_placed(path, on_cpu)
                    theirs[name], clear[name] = cpu.step(batch(ids)), clear_rows(path, ids, 2e-3)
                    cpu.close()
                started = time.perf_counter()
                model = open_placed(path, where, options)
                row["load_s"] = round(time.perf_counter() - started, 2)
                difference = model.step(batch(ids)) - theirs[name]
                before = int(clear[name].argmin()) or len(ids)
                row |= {"rows": len(ids), "rows_before_near_ties": before, "max_of_all": float(np.abs(difference).max())}
                row["rms_of_clear"] = float(np.sqrt(np.mean(difference[clear[name]] ** 2)))
                row |= {"max": float(np.abs(difference[:before]).max()), "rms": float(np.sqrt(np.mean(difference[:before] ** 2)))}
                answer, known = greedy(model, ids, 16), golden(name).greedy("medium")
                row["same_ids"] = same = next((i for i in range(16) if answer[i] != known[i]), 16)
                if same < 16:
                    row["margin_there"] = float(golden(name).arrays["medium_greedy_margin"][same])
                model.close()
                if kind == "default":
                    row["ok"] = min(row["rms"], row["rms_of_clear"]) < 0.1
                else:
                    row["ok"] = row["max_of_all"] < 1e-2
            except Exception as error:
                row["error"] = short(error)
    rows = list(out.values())
    out["summary"] = {
        "ok": sum(bool(row.get("ok")) for row in rows),
        "wrong": [name for name, row in out.items() if row.get("ok") is False or "error" in row],
        "skipped": sum("skipped" in row for row in rows),
        "of": len(rows),
    }


def default_options() -> Any:
    """Options of a usual run, with an exact cache."""
    from engine.placement.options import LoadOptions

    return LoadOptions(n_threads=2, k_type="f32", v_type="f32")


def speed(
    kind: str,
    flags: str,
    out: Result,
    *,
    threads: int = 1,
    chunk: int = PROMPT,
    prompt: int = PROMPT,
    repetitions: int = 6,
    layers: int | None = None,
) -> None:
    """Decode and prefill of a synthetic model, by step and by kind of op, beside what is read and what is held."""
    import numpy as np
    import torch

    from engine.placement.options import LoadOptions
    from tests.helpers.golden_models import batch
    from tests.helpers.runs import open_model

    path = synthetic(kind, out, layers)
    context_bytes, out["context_bytes"] = context_and_free()
    started = time.perf_counter()
    n_ctx = max(2048, prompt + 2 * N_DECODE)
    options = LoadOptions(n_threads=threads, n_ctx=n_ctx, prefill_chunk=chunk, placement=flags)
    model = open_model(path, options)
    try:
        out["load_s"] = round(time.perf_counter() - started, 2)
        out["settle_s"] = settle(model)
        ids = np.random.default_rng(0).integers(0, model.spec.n_vocab, prompt + N_DECODE).tolist()
        prefill = []
        for _ in range(repetitions):
            started = time.perf_counter()
            for at in range(0, prompt, chunk):
                part = ids[at : min(at + chunk, prompt)]
                model.step(batch(part, at, int(at + len(part) == prompt)))
            prefill.append(time.perf_counter() - started)
        out["prefill_tok_s"] = [round(prompt / one, 1) for one in prefill]
        bring(model, out)
        out["prefill_median"] = round(prompt / median(prefill[1:] or prefill), 1)
        steps = []
        for i in range(N_DECODE):
            started = time.perf_counter()
            model.step(batch(ids[prompt + i : prompt + i + 1], prompt + i, 1))
            steps.append(time.perf_counter() - started)
        rate = 1 / median(steps)
        out["step_beside_host_ms"] = round(1e3 * model.last_step_s, 3)
        out["decode_tok_s"], out["decode_slowest_ms"] = round(rate, 1), round(1e3 * max(steps), 2)
        read = model.residency.weight_bytes_per_token
        out |= {"weight_bytes_per_token": read, "decode_gbps": round(rate * read / 1e9, 1)}
        out["percent_of_gpu_limit"] = round(100 * rate * read / 1e9 / READ_LIMIT_GBPS, 1)
        assert model.executor is not None
        out["graph_ms"] = round(1e3 * model.executor.replay_s(), 3)
        model.executor.profile = True
        model.step(batch(ids[:chunk], 0, 1))
        out["prefill_ops_us"] = {name: round(1e6 * seconds, 1) for name, seconds in model.executor.op_times()}
        model.step(batch(ids[-1:], prompt + N_DECODE - 1, 1))
        model.executor.profile = False
        times = model.executor.op_times()
        out["ops_us"] = {name: round(1e6 * seconds, 1) for name, seconds in times}
        out["ops_us_all"] = round(1e6 * sum(seconds for _, seconds in times), 1)
        out["memory"] = memory(model, context_bytes)
    finally:
        model.close()
        torch.cuda.empty_cache()
        out["bytes_after_close"] = torch.cuda.memory_allocated()


def bring(model: Any, out: Result) -> None:
    """How the CPU's experts came to the GPU in the last chunk: GB/s, and the part of that time it computed meanwhile."""
    for times in model.executor.stream_times:
        out["stream"] = {
            "gbps": round(times.nbytes / times.copy_s / 1e9, 1),
            "first_layers_gbps": round(times.gbps, 1),
            "copy_ms": round(1e3 * times.copy_s, 1),
            "waited_ms": round(1e3 * times.waited_s, 1),
            "overlap": round(1 - times.waited_s / times.copy_s, 3),
            "from_rows": model.executor.stream_choice.least_rows,
        }


def settle(model: Any) -> float:
    """Waits until the CPU's weights are in memory of our own; the seconds it took."""
    started = time.perf_counter()
    while model.settling and time.perf_counter() - started < SETTLE_SECONDS:
        model.settle()
    return round(time.perf_counter() - started, 2)


def soak(out: Result, seconds: float) -> None:
    """Decode with experts on the CPU for so long: no growth of memory, no token much slower than others."""
    import numpy as np
    import psutil
    import torch

    from engine.placement.options import LoadOptions
    from tests.helpers.golden_models import batch
    from tests.helpers.runs import open_model

    path = synthetic("qwen3-30b-a3b", out)
    model = open_model(path, LoadOptions(n_threads=hybrid_threads(), n_ctx=2048, placement=EXPERTS_ON_CPU))
    process, marks = psutil.Process(), []
    try:
        out["settle_s"] = settle(model)
        ids = np.random.default_rng(1).integers(0, model.spec.n_vocab, 2000).tolist()
        started, steps, at = time.perf_counter(), [], 0
        while time.perf_counter() - started < seconds:
            before = time.perf_counter()
            model.step(batch(ids[at : at + 1], at, 1))
            steps.append(time.perf_counter() - before)
            at = (at + 1) % len(ids)
            if at % 500 == 0:
                free, _ = torch.cuda.mem_get_info()
                marks.append({"s": round(before - started, 1), "rss": process.memory_info().rss, "free": free})
        settled = steps[len(steps) // 10 :]
        middle = median(settled)
        out |= {"tokens": len(steps), "tok_s": round(1 / middle, 1), "slowest_in_medians": round(max(settled) / middle, 2)}
        out["over_3_medians"] = sum(one > 3 * middle for one in settled)
        out["marks"] = [marks[i] for i in sorted({0, len(marks) // 2, len(marks) - 1}) if marks]
    finally:
        model.close()


def memory(model: Any, before: int) -> Result:
    """What is held by owner and device, and what the driver and the allocator say of all of it."""
    import torch

    held = {f"{one.device} {one.owner}": one.nbytes for one in model.residency.holdings}
    free, _ = torch.cuda.mem_get_info()
    gpu = sum(nbytes for name, nbytes in held.items() if name.startswith("gpu0"))
    return {
        **held,
        "reserved": torch.cuda.memory_reserved(),
        "allocated": torch.cuda.memory_allocated(),
        "device": before - free,
        "device_beside_what_is_declared": before - free - gpu,
    }


def context_and_free() -> tuple[int, int]:
    """(bytes that are free with a context and nothing else of ours, those that all processes' contexts and the driver take)."""
    import torch

    torch.zeros(1, device="cuda")
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info()
    return int(free), int(total - free)


def synthetic(kind: str, out: Result, layers: int | None = None) -> Path:
    """The path of a model, written where it is not there yet."""
    from tests.bench.synthetic import write_synthetic

    folder = Path(os.environ.get("LAYERDECK_BENCH_MODELS", "/tmp/layerdeck_bench"))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / (f"{kind}.gguf" if layers is None else f"{kind}-{layers}l.gguf")
    if not path.exists():
        started = time.perf_counter()
        out["file_bytes"] = write_synthetic(kind, path, layers)
        out["write_s"] = round(time.perf_counter() - started, 1)
    return path


def hybrid_threads() -> int:
    """Workers beside a GPU: its driver and the thread that waits need a core each."""
    return max(1, len(os.sched_getaffinity(0)) - 2)


def event_seconds(call: Callable[[], object]) -> float:
    """Seconds of a call on the GPU."""
    import torch

    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    call()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / 1e3


def short(error: BaseException) -> str:
    """The end of a traceback."""
    return "".join(traceback.format_exception(error))[-1500:]


EXPERTS_ON_CPU = "-ngl 99 -ot exps=CPU"
SECTIONS: dict[str, Callable[[Result], None]] = {
    "build": build,
    "machine": machine,
    "goldens": goldens,
    "8b": lambda out: speed("qwen3-8b", "-ngl 99", out),
    "30b": lambda out: speed("qwen3-30b-a3b", "-ngl 99", out),
    "30b-hybrid": lambda out: speed("qwen3-30b-a3b", EXPERTS_ON_CPU, out, threads=hybrid_threads()),
    "30b-hybrid-2048": lambda out: speed("qwen3-30b-a3b", EXPERTS_ON_CPU, out, threads=hybrid_threads(), chunk=2048, prompt=2048),
    "dsv2lite": lambda out: speed("deepseek-v2-lite", "-ngl 99", out),
    "8b-deep": lambda out: speed("qwen3-8b", "-ngl 99", out, prompt=16384, chunk=2048, repetitions=1),
    "30b-deep": lambda out: speed("qwen3-30b-a3b", "-ngl 99", out, prompt=16384, chunk=2048, repetitions=1),
}
APART: dict[str, Callable[[Result], None]] = {
    "soak": lambda out: soak(out, 300.0),
    "30b-hybrid-2l": lambda out: speed("qwen3-30b-a3b", EXPERTS_ON_CPU, out, threads=hybrid_threads(), layers=2),
}
"""Sections that run only when they are named."""


def main() -> int:
    """Runs the sections that are named, or all; writes what they found after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="where the JSON goes")
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"some of: {' '.join((*SECTIONS, *APART))}")
    parser.add_argument("--seconds", type=float, default=540.0, help="start no section after so many")
    args = parser.parse_args()
    known = SECTIONS | APART
    unknown = set(args.sections) - set(known)
    if unknown:
        parser.error(f"no section {', '.join(sorted(unknown))}")
    started = time.perf_counter()
    found: Result = {}
    for name in args.sections or SECTIONS:
        if time.perf_counter() - started > args.seconds:
            break
        section: Result = {}
        found[name] = section
        begun = time.perf_counter()
        try:
            known[name](section)
        except Exception as error:
            section["error"] = short(error)
        section["seconds"] = round(time.perf_counter() - begun, 1)
        args.out.write_text(json.dumps(found, indent=1), encoding="utf-8")
        shown = {key: value for key, value in section.items() if name != "goldens" or key in ("summary", "error", "seconds")}
        sys.stdout.write(f"{name}: {json.dumps(shown)[:3000]}\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
