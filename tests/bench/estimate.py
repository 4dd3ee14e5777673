"""Predicted speed against what happens, on this machine's CPU: calibrates, predicts and measures by turns.

Run as `python -m tests.bench.estimate OUT.json MODEL.gguf ...`. Every model is loaded with several options; rates are measured
anew before each, since the read rate of shared machines changes within minutes. The summary has the medians of the errors.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from engine.api.pure import Planner, read_outline
from engine.hardware.machine import this_machine
from engine.placement.options import LoadOptions
from engine.runtime.calibrate import calibrate, read_gbps
from tests.helpers.golden_models import batch
from tests.helpers.runs import open_model

OPTIONS = (
    LoadOptions(n_threads=2, n_ctx=2048),
    LoadOptions(n_threads=1, n_ctx=2048, prefill_chunk=256),
    LoadOptions(n_threads=2, n_ctx=2048, prefill_chunk=128, k_type="q8_0", v_type="q8_0"),
    LoadOptions(n_threads=2, n_ctx=8192, prefill_chunk=512, k_type="int8", v_type="int8"),
)
DEPTHS = (0, 0, 1024, 4096)
"""Tokens that are in the cache when decoding begins, for each of the options."""
N_DECODE = 16
CHUNKS = 2


def measured(path: Path, options: LoadOptions, depth: int) -> tuple[float, float, float]:
    """(decode, prefill, GB/s) in tok/s behind `depth` tokens and behind none, and what was read around the decoding."""
    model = open_model(path, options)
    try:
        while model.settling:
            model.settle()
        chunk = options.prefill_chunk
        ids = np.random.default_rng(0).integers(0, model.spec.n_vocab, max(depth, chunk) + N_DECODE + 8).tolist()
        taken = []
        for _ in range(CHUNKS + 1):
            started = time.perf_counter()
            model.step(batch(ids[:chunk], 0, 1))
            taken.append(time.perf_counter() - started)
        for at in range(0, depth, chunk):
            model.step(batch(ids[at : at + chunk], at, 1))
        steps, limits = [], [read_gbps(options.n_threads)]
        for i in range(N_DECODE):
            started = time.perf_counter()
            model.step(batch(ids[depth + i : depth + i + 1], depth + i, 1))
            steps.append(time.perf_counter() - started)
            if i % 8 == 7:
                limits.append(read_gbps(options.n_threads))
        return 1 / median(steps), chunk / min(taken[1:]), median(limits)
    finally:
        model.close()


def main() -> int:
    out, paths = Path(sys.argv[1]), [Path(one) for one in sys.argv[2:]]
    machine = this_machine({"LAYERDECK_GPU": "none"})
    rows: list[dict[str, Any]] = []
    for path in paths:
        outline = read_outline(str(path))
        for options, depth in zip(OPTIONS, DEPTHS, strict=True):
            if outline.info.context_length < options.n_ctx:
                continue
            calibration = calibrate(machine, gpus=False)
            decode, prefill, gbps = measured(path, options, depth)
            node = replace(calibration.nodes[0], read_gbps=((options.n_threads, gbps),))
            planner = Planner(outline, options, machine, replace(calibration, nodes=(node,)))
            found = planner.estimate(planner.default(), depth=depth)
            rows.append(
                {
                    "model": path.name,
                    "threads": options.n_threads,
                    "chunk": options.prefill_chunk,
                    "depth": depth,
                    "read_gbps": round(gbps, 1),
                    "decode": [round(found.decode_tok_s, 1), round(decode, 1)],
                    "prefill": [round(found.prefill_tok_s, 1), round(prefill, 1)],
                    "decode_error": round(found.decode_tok_s / decode - 1, 3),
                    "prefill_error": round(found.prefill_tok_s / prefill - 1, 3),
                }
            )
            sys.stdout.write(json.dumps(rows[-1]) + "\n")
            sys.stdout.flush()
    summary = {key: round(median(abs(row[f"{key}_error"]) for row in rows), 3) for key in ("decode", "prefill")}
    sys.stdout.write(json.dumps({"n": len(rows), **summary}) + "\n")
    out.write_text(json.dumps({"rows": rows, "median_error": summary}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
