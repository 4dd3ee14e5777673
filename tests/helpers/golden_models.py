"""The golden models in the tree, and single-sequence steps over anything with `step`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from engine.runtime.step import StepBatch
from tests.helpers.models import GOLDEN

LLAMAS = ("llama-gqa-rope3", "llama-mha-spm")
DEEPSEEKS = tuple(f"deepseek2-{size}{layout}" for size in ("lite", "v3") for layout in ("", "-legacy-kv_b"))
HYBRIDS = ("qwen35", "qwen35moe", "qwen35moe-fused-gate_up", "qwen3next", "qwen3next-legacy-ssm_in")
TRANSFORMERS = ("ernie4_5-moe", "hunyuan-moe", "minimax-m2", "mistral3")
"""Recorded by `tests.helpers.hf_models`."""
MODELS = (
    *LLAMAS,
    "qwen3",
    "qwen3-yarn",
    "qwen3moe",
    "qwen2",
    "qwen2moe",
    "glm4moe",
    "gemma3",
    "gpt-oss",
    *DEEPSEEKS,
    *HYBRIDS,
    *TRANSFORMERS,
)
PROMPTS = ("short", "medium", "long")
BLOCK = 32

F32 = npt.NDArray[np.float32]


class Steps(Protocol):
    """A model that computes steps."""

    def step(self, batch: StepBatch) -> F32:
        """Logits [n_out, n_vocab]."""


@dataclass(frozen=True)
class Golden:
    """A model file and the recorded results for its three prompts."""

    path: Path
    arrays: Any

    def ids(self, prompt: str) -> list[int]:
        """Token ids of a prompt."""
        return [int(one) for one in self.arrays[f"{prompt}_tokens"]]

    def greedy(self, prompt: str) -> list[int]:
        """The 32 ids that follow."""
        return [int(one) for one in self.arrays[f"{prompt}_greedy"]]

    def logits(self, prompt: str) -> F32:
        """Recorded logits: of every position, or of the last 8 of the long prompt."""
        found: F32 = self.arrays["long_logits_last8" if prompt == "long" else f"{prompt}_logits"]
        return found

    @property
    def texts(self) -> list[str]:
        """The prompts as text."""
        found: list[str] = json.loads(str(self.arrays["texts"]))
        return found


def golden(name: str) -> Golden:
    """A golden model by name. Where another engine rounds less, its logits (`.hf.npz`) count."""
    path = GOLDEN / f"models/{name}.hf.npz"
    return Golden(
        GOLDEN / f"models/{name}.f16.gguf",
        arrays(GOLDEN / f"models/{name}.golden.npz") | (arrays(path) if path.exists() else {}),
    )


def arrays(path: Path) -> dict[str, Any]:
    """Every array of a file of arrays."""
    with np.load(path) as file:
        return dict(file)


def batch(ids: Sequence[int], position: int = 0, n_out: int | None = None) -> StepBatch:
    """Rows of one sequence from `position` on, with logits of the last n_out (None: all). Blocks lie in a shuffled order."""
    n = len(ids)
    n_blocks = -(-(position + n) // BLOCK)
    shuffled = [block ^ 1 for block in range(n_blocks + n_blocks % 2)][:n_blocks]
    return StepBatch(
        phase="decode" if n == 1 else "prefill",
        token_ids=np.asarray(ids, np.int32),
        positions=np.arange(position, position + n, dtype=np.int32),
        seq_of_row=np.zeros(n, np.int32),
        block_tables=(np.asarray(shuffled, np.int32),),
        out_rows=np.arange(n if n_out is None else n_out, dtype=np.int32) + (0 if n_out is None else n - n_out),
    )


def greedy(model: Steps, ids: Sequence[int], n: int, chunk: int = 100) -> list[int]:
    """The n likeliest next tokens, one at a time, after a prefill in chunks."""
    logits = np.empty((0, 0), np.float32)
    for start in range(0, len(ids), chunk):
        rows = ids[start : start + chunk]
        logits = model.step(batch(rows, start, int(start + len(rows) == len(ids))))
    answer = [int(logits[-1].argmax())]
    while len(answer) < n:
        answer.append(int(model.step(batch(answer[-1:], len(ids) + len(answer) - 1)).argmax()))
    return answer


def same_until_close_call(ours: Sequence[int], theirs: Sequence[int], margins: Sequence[float], least: float = 0.3) -> int:
    """How many leading ids must agree: up to the first step whose margin is below `least`. Asserts that they do."""
    close = next((i for i, margin in enumerate(margins) if margin < least), len(margins))
    assert list(ours[:close]) == list(theirs[:close])
    return close
