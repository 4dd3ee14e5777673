"""Whole models against logits that other engines computed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from engine.placement.options import LoadOptions
from engine.runtime.kv_cache import BLOCK
from tests.helpers.golden_models import DEEPSEEKS, HYBRIDS
from tests.helpers.models import need_goldens, need_included_model
from tests.helpers.runs import EXACT, Steps, blocks, open_model

MODELS = [
    "llama-gqa-rope3",
    "llama-mha-spm",
    "qwen3",
    "qwen3-yarn",
    "qwen3moe",
    "qwen2",
    "qwen2moe",
    "glm4moe",
    "gpt-oss",
    *DEEPSEEKS,
    *HYBRIDS,
]


def _table(n_tokens: int) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return blocks(0, -(-n_tokens // BLOCK))


@pytest.mark.parametrize("name", MODELS)
def test_logits_and_greedy_ids_are_exact_in_f32(name: str) -> None:
    folder = need_goldens("models")
    golden = np.load(folder / f"{name}.golden.npz")
    model = open_model(folder / f"{name}.f16.gguf", EXACT)
    for prompt in ("short", "medium", "long"):
        ids = golden[f"{prompt}_tokens"].tolist()
        steps = Steps(model, _table(len(ids) + 32))
        logits = steps.prefill(ids, 100)
        if prompt == "long":
            np.testing.assert_allclose(logits[-8:], golden["long_logits_last8"], atol=2e-3)
            top = np.take_along_axis(logits, golden["long_top10_ids"], axis=1)
            np.testing.assert_allclose(top, golden["long_top10_logits"], atol=2e-3)
        else:
            np.testing.assert_allclose(logits, golden[f"{prompt}_logits"], atol=2e-3)
        chosen, row = [], logits[-1]
        for _ in range(32):
            chosen.append(int(row.argmax()))
            row = steps.decode(chosen[-1])
        assert chosen == golden[f"{prompt}_greedy"].tolist()
    model.close()


@pytest.mark.parametrize("name", MODELS)
def test_default_kernels_stay_close(name: str) -> None:
    folder = need_goldens("models")
    golden = np.load(folder / f"{name}.golden.npz")
    model = open_model(folder / f"{name}.f16.gguf", LoadOptions(n_threads=2))
    for prompt in ("short", "medium"):
        ids = golden[f"{prompt}_tokens"].tolist()
        difference = Steps(model, _table(len(ids))).prefill(ids) - golden[f"{prompt}_logits"]
        assert np.sqrt((difference**2).mean()) < 0.05
    model.close()


def test_included_model_is_exact_in_f32() -> None:
    path, folder = need_included_model(), need_goldens("smollm2")
    golden = np.load(Path(folder) / "smollm2_first_logits.npz")
    model = open_model(path, EXACT)
    for prompt in ("p0", "p1", "p2"):
        ids = golden[f"{prompt}_ids"].tolist()
        logits = Steps(model, _table(len(ids))).prefill(ids)[-1]
        np.testing.assert_allclose(logits, golden[f"{prompt}_first_generated_logits_dequant_f32"], atol=2e-3)
    model.close()
