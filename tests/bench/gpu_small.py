"""A small run of every mixer on a GPU, for tools that watch each access to memory and are a hundred times slower.

compute-sanitizer --tool memcheck --report-api-errors no --error-exitcode 9 python -m tests.bench.gpu_small [MODEL ...]: golden
models wholly on a GPU and with experts on the CPU, a prompt and some tokens each. Needs a card. Without that option a driver that
does not let torch share its memory with other devices counts as an error: torch asks, is told no, and asks for less.
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np

from tests.helpers.golden_models import batch, golden
from tests.helpers.placed import EXACT, hybrid, on_cpu, open_placed, whole

SMALL = ("qwen3moe", "gpt-oss", "deepseek2-lite", "qwen35moe")
N_TOKENS = 6


def main(names: tuple[str, ...]) -> int:
    """Exit 1 where logits are not those of the CPU."""
    wrong = 0
    for name in names:
        path, ids = golden(name).path, golden(name).ids("short")
        cpu = open_placed(path, on_cpu)
        known = cpu.step(batch(ids))
        cpu.close()
        for place, where in (("whole", whole), ("hybrid", hybrid)):
            started = time.perf_counter()
            model = open_placed(path, where, EXACT)
            difference = float(np.abs(model.step(batch(ids)) - known).max())
            token = int(known[-1].argmax())
            for i in range(N_TOKENS):
                token = int(model.step(batch([token], len(ids) + i, 1))[-1].argmax())
            model.close()
            wrong += difference >= 1e-2
            row = {"model": name, "place": place, "max": difference, "seconds": round(time.perf_counter() - started, 1)}
            sys.stdout.write(json.dumps(row) + "\n")
            sys.stdout.flush()
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(tuple(sys.argv[1:]) or SMALL))
