"""Quantised models against logits recorded from the same file with every tensor dequantised: the numpy run within f32
rounding, the compiled run in f32 alike, and with its default kernels within twice the noise that 8-bit activations bring."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.api.values import LoadOptions
from engine.arch.registry import build_spec
from engine.gguf.info import GgufFile
from engine.gguf.reader import read_gguf
from engine.graph.build import build_graph
from engine.graph.reference import ReferenceModel
from tests.helpers.golden_models import arrays, batch, greedy
from tests.helpers.models import goldens, need_goldens
from tests.helpers.runs import EXACT, open_model

DENSE = ["IQ3_S", "IQ4_NL", "IQ4_XS", "Q2_K", "Q3_K", "Q4_0", "Q4_1", "Q4_K", "Q4_K_M-mix", "Q5_K", "Q6_K", "Q8_0"]
MOE = ["IQ4_XS", "MXFP4_MOE-mix", "Q2_K", "Q4_K", "Q6_K"]
HYBRID = ["IQ4_XS", "Q4_K_M-mix"]
NAMES = [
    *(f"q256-qwen3.{quant}" for quant in DENSE),
    *(f"q256-qwen3moe.{quant}" for quant in MOE),
    *(f"q256-qwen35moe.{quant}" for quant in HYBRID),
    "q256-deepseek2.Q4_K_M-mix",
]
PROMPTS = {"short": "short_logits", "medium": "medium_logits_last16"}


def need(name: str) -> tuple[Path, GgufFile, Any]:
    """Path, header and records of a quantised model; skips the test where they are absent."""
    folder = need_goldens("quant")
    path = folder / f"{name}.gguf"
    return path, read_gguf(path), arrays(folder / f"{name}.golden.npz")


def test_every_file_is_named_here() -> None:
    folder = goldens()
    if folder is None:
        pytest.skip("LAYERDECK_GOLDENS is unset")
    found = {path.stem for path in (folder / "quant").glob("q256-*.gguf")}
    assert found == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_the_numpy_run_is_exact(name: str) -> None:
    _, file, recorded = need(name)
    spec = build_spec(file)
    model = ReferenceModel(file, spec, build_graph(spec))
    for prompt, key in PROMPTS.items():
        ids, expected = recorded[f"{prompt}_tokens"].tolist(), recorded[f"{key}_dequant_f32"]
        assert np.abs(model.step(batch(ids))[-len(expected) :] - expected).max() < 2e-3
        assert greedy(model, ids, 32) == recorded[f"{prompt}_greedy_dequant_f32"].tolist()


@pytest.mark.parametrize("name", NAMES)
def test_the_compiled_run_is_exact_in_f32_and_close_in_8_bit(name: str) -> None:
    path, _, recorded = need(name)
    for options, exact in ((EXACT, True), (LoadOptions(n_threads=2), False)):
        model = open_model(path, options)
        for prompt, key in PROMPTS.items():
            expected, theirs = recorded[f"{key}_dequant_f32"], recorded[f"{key}_llamacpp"]
            ids = recorded[f"{prompt}_tokens"].tolist()
            difference = model.step(batch(ids))[-len(expected) :] - expected
            if exact:
                assert np.abs(difference).max() < 2e-3
                assert greedy(model, ids, 32) == recorded[f"{prompt}_greedy_dequant_f32"].tolist()
            else:
                assert np.sqrt(np.mean(difference**2)) <= 2 * np.sqrt(np.mean((theirs - expected) ** 2))
        model.close()
