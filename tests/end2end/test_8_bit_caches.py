"""What 8-bit caches cost is the rounding of keys and values: the measure is a numpy run in which only the cache is rounded.

Tiny random models feel that rounding more than real ones do, above all where experts are chosen by a hair.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from engine.arch.registry import build_spec
from engine.gguf.reader import read_gguf
from engine.graph import reference
from engine.graph.build import build_graph
from engine.placement.options import KvType
from tests.helpers.golden_models import F32, batch, golden
from tests.helpers.runs import EXACT, open_model
from tests.helpers.windowed import only_sequence


def in_8_bits(x: F32, size: int) -> F32:
    """Rounded to 127 steps of an f16 scale for each `size` values."""
    groups = x.reshape(-1, size)
    scale = (np.abs(groups).max(1, keepdims=True) / 127).astype(np.float16).astype(np.float32)
    steps = np.round(np.divide(groups, scale, out=np.zeros_like(groups), where=scale > 0)).clip(-127, 127)
    return (steps * scale).reshape(x.shape)


def by_row(difference: F32) -> F32:
    rms: F32 = np.sqrt(np.mean(difference**2, axis=1))
    return rms


@pytest.mark.parametrize("name", ["gpt-oss", "gemma3", "qwen3", "qwen35moe", "glm4moe"])
@pytest.mark.parametrize("kind", ["q8_0", "int8"])
def test_the_cost_is_that_of_a_rounded_cache(name: str, kind: KvType, monkeypatch: pytest.MonkeyPatch) -> None:
    ids, file, store = golden(name).ids("medium"), read_gguf(golden(name).path), reference._store
    spec = build_spec(file)
    graph = build_graph(spec)
    truth = reference.ReferenceModel(file, spec, graph).step(batch(ids))

    def rounded(model: reference.ReferenceModel, which: str, layer: int, rows: reference.Batch, x: F32) -> None:
        store(model, which, layer, rows, in_8_bits(x, 32 if kind == "q8_0" else x.shape[-1]))

    monkeypatch.setattr(reference, "_store", rounded)
    ideal = reference.ReferenceModel(file, spec, graph).step(batch(ids))
    model = open_model(golden(name).path, replace(EXACT, k_type=kind, v_type=kind))
    ours = only_sequence(model, 512).prefill(ids)
    model.close()
    cost, beside = by_row(ideal - truth), by_row(ours - ideal)
    # The median: a value that lies between two steps may take the other one, and then an expert may change.
    assert np.median(cost) > 1e-3
    assert np.median(beside) < 0.2 * np.median(cost)
    assert np.median(by_row(ours - truth)) < 1.1 * np.median(cost)
