"""What is done to queries and keys between projection and attention: the compiled model against the numpy reference."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.arch.spec import ModelSpec, Norm, Temperature
from engine.graph.rotation import temperatures
from tests.helpers.runs import EXACT, Change, Steps, blocks, open_model, open_reference, some_ids, write_model

TURNS: dict[str, dict[str, Any]] = {
    "norm after the rotation": {"norm_last": True},
    "norm over all heads": {"whole_norm": True},
    "temperature": {"temperature": Temperature(0.7, 16)},
    "part of a head, all heads, temperature": {"whole_norm": True, "temperature": Temperature(0.2, 5), "part": True},
    "part of a head, norm after": {"norm_last": True, "part": True},
}


def _turned(norm: bool = True, part: bool = False, **how: Any) -> Change:
    def change(spec: ModelSpec) -> ModelSpec:
        changed = []
        for block in spec.blocks:
            at, mixer = f"blk.{block.index}.", block.mixer
            name = "test" if how.get("whole_norm") else "attn"
            q_norm, k_norm = (Norm(f"{at}{name}_{which}_norm.weight", 1e-6) if norm else None for which in "qk")
            rope = replace(mixer.rope, kind="neox", n_rot=mixer.head_dim // 2, attn_factor=1.1) if part else mixer.rope
            changed.append(replace(block, mixer=replace(mixer, q_norm=q_norm, k_norm=k_norm, rope=rope, **how)))
        return replace(spec, blocks=tuple(changed))

    return change


@pytest.mark.parametrize("n_kv_heads", [1, 2])
@pytest.mark.parametrize("name", TURNS)
def test_compiled_turns_equal_the_reference(tmp_path: Path, name: str, n_kv_heads: int) -> None:
    path = write_model(tmp_path / "m.gguf", n_kv_heads=n_kv_heads)
    change = _turned(**TURNS[name])
    reference = Steps(open_reference(path, change), blocks(0, 4))
    expected = np.concatenate((reference.prefill(some_ids(70)), reference.decode(5)[None], reference.decode(6)[None]))
    for n_threads, chunk in ((1, 70), (2, 7), (3, 33)):
        model = open_model(path, replace(EXACT, n_threads=n_threads), change)
        steps = Steps(model, blocks(0, 4))
        ours = np.concatenate((steps.prefill(some_ids(70), chunk), steps.decode(5)[None], steps.decode(6)[None]))
        model.close()
        np.testing.assert_allclose(ours, expected, atol=4e-4)


def test_temperature_alone(tmp_path: Path) -> None:
    path = write_model(tmp_path / "m.gguf")
    warm, cold = _turned(norm=False, temperature=Temperature(1.0, 8)), _turned(norm=False)
    ids = some_ids(20)
    first, second = (Steps(open_reference(path, change), blocks(0, 1)).prefill(ids) for change in (warm, cold))
    np.testing.assert_array_equal(first[:8], second[:8])  # within the context of training nothing changes
    assert np.abs(first[8:] - second[8:]).max() > 1e-3


def test_temperature_steps_with_the_logarithm_of_the_context() -> None:
    factors = temperatures(Temperature(0.1, 100), np.array([0, 99, 100, 250]))
    np.testing.assert_allclose(factors, [1, 1, 1 + 0.1 * np.log(2), 1 + 0.1 * np.log(3)], rtol=1e-6)
