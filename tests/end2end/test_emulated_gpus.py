"""Every golden model over emulated GPUs: wholly on one, with experts on the CPU, split over two, and with each unit anywhere."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from engine.errors import UnsupportedModel
from engine.placement.options import LoadOptions
from engine.runtime.loader import LoadedModel
from tests.helpers.golden_models import HYBRIDS, MODELS, arrays, batch, golden, greedy, same_until_close_call
from tests.helpers.models import need_goldens
from tests.helpers.near_ties import clear_rows
from tests.helpers.placed import EXACT, Where, anywhere, hybrid, need_torch, on_cpu, open_placed, split, whole

PLACES: dict[str, Where] = {"whole": whole, "hybrid": hybrid, "split": split, "anywhere": anywhere(7)}
QUANTS = (
    *(f"q256-qwen3.{one}" for one in ("IQ4_NL", "IQ4_XS", "Q2_K", "Q3_K", "Q4_0", "Q4_1", "Q4_K_M-mix", "Q5_K", "Q6_K", "Q8_0")),
    *(f"q256-qwen3moe.{one}" for one in ("IQ4_XS", "MXFP4_MOE-mix", "Q2_K", "Q4_K", "Q6_K")),
    *(f"q256-qwen35moe.{one}" for one in ("IQ4_XS", "Q4_K_M-mix")),
    "q256-deepseek2.Q4_K_M-mix",
)


@pytest.fixture(autouse=True)
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    need_torch()
    monkeypatch.setenv("LAYERDECK_GPU", "emulate:2")


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", MODELS)
def test_exact_logits_and_answers_are_the_recorded_ones(name: str, place: str) -> None:
    model = open_placed(golden(name).path, PLACES[place])
    for prompt in ("short", "medium"):
        recorded, ids = golden(name).logits(prompt), golden(name).ids(prompt)
        assert np.abs(model.step(batch(ids))[-len(recorded) :] - recorded).max() < 2e-3
        assert greedy(model, ids, 16) == golden(name).greedy(prompt)[:16]
    model.close()


@pytest.mark.parametrize("name", MODELS)
def test_default_kernels_are_close_to_those_of_the_cpu(name: str) -> None:
    """Where experts stay on the CPU they have 8-bit activations, as in the run without a GPU."""
    path, ids = golden(name).path, golden(name).ids("medium")
    exact, model = open_placed(path, on_cpu), open_placed(path, hybrid, replace(EXACT, f32_activations=False))
    clear = clear_rows(path, ids)
    difference = (model.step(batch(ids)) - exact.step(batch(ids)))[clear]
    assert np.sqrt(np.mean(difference**2)) <= 0.05
    model.close()
    exact.close()


@pytest.mark.parametrize("name", MODELS)
def test_chunks_of_any_size_give_the_same_logits(name: str) -> None:
    ids = golden(name).ids("long")
    model = open_placed(golden(name).path, split)
    whole_prompt = model.step(batch(ids))
    for size in (7, 64):
        parts = [model.step(batch(ids[start : start + size], start)) for start in range(0, len(ids), size)]
        assert np.abs(np.concatenate(parts) - whole_prompt).max() < (1e-3 if name in HYBRIDS else 2e-4)
    model.close()


@pytest.mark.parametrize("seed", range(24))
def test_units_anywhere_give_the_logits_of_the_cpu(seed: int) -> None:
    name = MODELS[seed % len(MODELS)]
    ids = golden(name).ids("medium")
    model = open_placed(golden(name).path, anywhere(seed), replace(EXACT, prefill_chunk=(5, 32, 512)[seed % 3]))
    recorded = golden(name).logits("medium")
    chunk = (5, 32, 512)[seed % 3]
    parts = [model.step(batch(ids[start : start + chunk], start)) for start in range(0, len(ids), chunk)]
    assert np.abs(np.concatenate(parts)[-len(recorded) :] - recorded).max() < 2e-3
    model.close()


@pytest.mark.parametrize("name", QUANTS)
@pytest.mark.parametrize("place", ["whole", "hybrid", "split"])
def test_quantised_weights_give_the_logits_of_the_cpu(name: str, place: str) -> None:
    folder = need_goldens("quant")
    path, recorded = folder / f"{name}.gguf", arrays(folder / f"{name}.golden.npz")
    exact, model = open_placed(path, on_cpu), open_placed(path, PLACES[place])
    ids = recorded["medium_tokens"].tolist()
    ours, theirs = model.step(batch(ids)), exact.step(batch(ids))
    assert np.abs(ours - theirs).max() < 1e-2
    expected = recorded["medium_logits_last16_dequant_f32"]
    assert np.abs(ours[-len(expected) :] - expected).max() < 2e-3
    answer = greedy(model, ids, 12)
    logits = [exact.step(batch([*ids, *answer[:-1]]))[len(ids) - 1 :]]
    ordered = np.sort(np.concatenate(logits), axis=1)
    same_until_close_call(answer, greedy(exact, ids, 12), (ordered[:, -1] - ordered[:, -2]).tolist(), 0.05)
    model.close()
    exact.close()


def test_formats_without_gpu_kernels_are_refused_with_the_reason() -> None:
    path = need_goldens("quant") / "q256-qwen3.IQ3_S.gguf"
    with pytest.raises(UnsupportedModel, match=r"tensor .* cannot be used on gpu0: IQ3_S .*; place .* on the CPU"):
        open_placed(path, whole)


@pytest.mark.parametrize("place", ["whole", "hybrid"])
@pytest.mark.parametrize("kind", ["f16", "q8_0", "int8"])
def test_caches_of_fewer_bits_bring_the_noise_that_they_bring_on_the_cpu(kind: str, place: str) -> None:
    for name in ("qwen3", "gpt-oss", "deepseek2-lite"):
        path, ids = golden(name).path, golden(name).ids("medium")
        options: LoadOptions = replace(EXACT, k_type=kind, v_type=kind)  # type: ignore[arg-type]
        exact, theirs = logits_of(open_placed(path, on_cpu), ids), logits_of(open_placed(path, on_cpu, options), ids)
        ours = logits_of(open_placed(path, PLACES[place], options), ids)
        clear = clear_rows(path, ids)
        noise = [float(np.sqrt(np.mean((one - exact)[clear] ** 2))) for one in (ours, theirs)]
        assert noise[0] == pytest.approx(noise[1], rel=0.05)
        assert np.sqrt(np.mean((ours - theirs)[clear] ** 2)) < 0.25 * noise[1]


def logits_of(model: LoadedModel, ids: list[int]) -> npt.NDArray[np.float32]:
    """Logits of all rows, of a model that is closed then."""
    found = model.step(batch(ids))
    model.close()
    return found
