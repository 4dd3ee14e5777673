"""A model over two GPUs of one host: the same answer as on one, and how much of its speed is kept.

python -m tests.bench.gpu_pair OUT.json [--kind qwen3-30b-a3b]. Each placement is opened twice, in turn with the others. `split`:
the first half of the layers on one GPU, the rest on the other, a crossing a token; `experts`: those of some layers on the other
GPU, two crossings in each of those layers. Where an answer parts from that on one GPU, `gap` is how far ahead the token was
there: another order of rounding turns what hangs on little. Needs two cards.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

from tests.bench.gpu import short, synthetic

PLACES = {
    "one": "-ngl 99 -ts 1,0",
    "split": "-ngl 99 -ts 1,1",
    "experts of 12": r"-ngl 99 -ts 1,0 -ot blk\.(3[6-9]|4[0-9])\.ffn_.*_exps=CUDA1",
    "experts of 24": r"-ngl 99 -ts 1,0 -ot blk\.(2[4-9]|3[0-9]|4[0-9])\.ffn_.*_exps=CUDA1",
}
N_PROMPT, N_ANSWER, ROUNDS = 512, 128, 2
NEAR_TIE = 0.05

Found = dict[str, Any]


def run(path: Path, flags: str) -> Found:
    """One load: tokens a second in prefill and decode, the answer, what is held where, and what the model says of its peers."""
    import numpy as np

    from engine.placement.options import LoadOptions
    from tests.helpers.golden_models import batch
    from tests.helpers.runs import open_model

    model = open_model(path, LoadOptions(n_threads=1, n_ctx=2048, prefill_chunk=N_PROMPT, placement=flags))
    try:
        ids = np.random.default_rng(3).integers(0, model.spec.n_vocab, N_PROMPT).tolist()
        prefill = []
        for _ in range(3):
            started = time.perf_counter()
            logits = model.step(batch(ids, 0, 1))
            prefill.append(time.perf_counter() - started)
        answer, gaps, steps = [int(logits[-1].argmax())], [gap(logits[-1])], []
        while len(answer) < N_ANSWER:
            started = time.perf_counter()
            logits = model.step(batch(answer[-1:], N_PROMPT + len(answer) - 1, 1))
            steps.append(time.perf_counter() - started)
            answer.append(int(logits[-1].argmax()))
            gaps.append(gap(logits[-1]))
        return {
            "prefill_tok_s": round(N_PROMPT / min(prefill), 1),
            "decode_tok_s": round(1 / median(steps), 1),
            "slowest_ms": round(1e3 * max(steps[1:]), 2),
            "answer": answer,
            "gaps": gaps,
            "held": {str(device): nbytes for device, _, nbytes in model.shares},
            "notes": list(model.notes),
        }
    finally:
        model.close()


def gap(logits: Any) -> float:
    """How far the likeliest token is ahead of the next, in the unit of logits."""
    import numpy as np

    last, first = np.partition(logits, -2)[-2:].tolist()
    return float(first - last)


def parted(ours: Found, theirs: Found) -> Found | None:
    """Where two answers part, and by how much the token was ahead there; None: nowhere."""
    at = next((i for i in range(N_ANSWER) if ours["answer"][i] != theirs["answer"][i]), N_ANSWER)
    return None if at == N_ANSWER else {"at": at, "gap": theirs["gaps"][at]}


def peers() -> Found:
    """What is written into the other card's memory and read back, both ways, by the driver and by a kernel."""
    import torch

    data = torch.randint(0, 1 << 30, (1 << 26,), dtype=torch.int32, device="cuda:0")
    there = data.to("cuda:1")
    started = time.perf_counter()
    for _ in range(8):
        there.copy_(data)
    torch.cuda.synchronize(0)
    torch.cuda.synchronize(1)
    gbps = 8 * data.nbytes / (time.perf_counter() - started) / 1e9
    sums = [int(one.to(torch.int64).sum()) for one in (data, there)]
    return {"copy_gbps": round(gbps, 1), "checksums": sums, "same": sums[0] == sums[1]}


def main() -> int:
    """Runs all placements in turn; exit 1 where an answer differs by more than a near tie, or a load failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--kind", default="qwen3-30b-a3b")
    options = parser.parse_args()
    found: Found = {"peers": peers()}
    path = synthetic(options.kind, found)
    rows: dict[str, list[Found]] = {name: [] for name in PLACES}
    for _ in range(ROUNDS):
        for name, flags in PLACES.items():
            try:
                rows[name].append(run(path, flags))
            except Exception as error:
                rows[name].append({"error": short(error)})
    one = [row for row in rows["one"] if "error" not in row]
    for name, runs in rows.items():
        good = [row for row in runs if "error" not in row]
        summary: Found = {"errors": [row["error"] for row in runs if "error" in row]}
        if good and one:
            rate = median(row["decode_tok_s"] for row in good)
            summary |= {key: value for key, value in good[-1].items() if key not in ("answer", "gaps")}
            summary["decode_tok_s"] = [row["decode_tok_s"] for row in good]
            summary["share_of_one"] = round(rate / median(row["decode_tok_s"] for row in one), 3)
            summary["parted"] = [parted(row, one[0]) for row in good]
        found[name] = summary
    options.out.write_text(json.dumps(found, indent=1), encoding="utf-8")
    sys.stdout.write(json.dumps(found) + "\n")
    clear = [part for name in PLACES for part in found[name].get("parted", [{"gap": 9.0}]) if part and part["gap"] > NEAR_TIE]
    return int(len(clear) > 0)


if __name__ == "__main__":
    sys.exit(main())
