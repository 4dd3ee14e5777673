"""Every way to choose experts, every kind of expert: the compiled model against the numpy reference, in batches of every kind."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.arch.spec import ClampedSwiglu, Routing
from engine.graph.reference_experts import route
from engine.placement.options import LoadOptions
from tests.helpers.runs import EXACT, Steps, blocks, mixture, open_model, open_reference, some_ids, write_model

N_EXPERTS, N_USED = 12, 4
ROUTINGS = {
    "softmax": Routing(norm_weights=False, scale=1.5),
    "softmax, bias": Routing(bias="pick", norm_weights=True),
    "softmax, groups": Routing(n_groups=4, n_groups_used=2, norm_weights=False),
    "softmax, groups of one": Routing(n_groups=12, n_groups_used=5),
    "sigmoid": Routing("sigmoid", norm_weights=False, scale=0.7),
    "sigmoid, bias, groups": Routing("sigmoid", bias="pick", n_groups=3, n_groups_used=2, scale=2.5),
    "softmax of the chosen": Routing("softmax_chosen", norm_weights=False),
    "softmax of the chosen, bias": Routing("softmax_chosen", bias="pick"),
}
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "biases": {"biased": True},
    "gelu": {"act": "gelu_tanh"},
    "clamped": {"act": ClampedSwiglu(limit=0.5), "biased": True},
    "fused": {"fused": True},
    "fused, biases": {"fused": True, "biased": True},
    "shared": {"shared": True},
    "shared and gated": {"shared": True, "gated": True, "biased": True},
}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model") / "moe.gguf", n_embd=48, n_ff=40, n_layers=3, n_experts=N_EXPERTS)


def _compare(path: Path, routing: Routing, **kind: Any) -> None:
    change = mixture(N_EXPERTS, N_USED, routing, **kind)
    reference = Steps(open_reference(path, change), blocks(0, 4))
    expected = np.concatenate((reference.prefill(some_ids(60)), reference.decode(5)[None]))
    for n_threads, chunk in ((1, 60), (2, 7), (3, 33)):
        model = open_model(path, replace(EXACT, n_threads=n_threads), change)
        steps = Steps(model, blocks(0, 4))
        ours = np.concatenate((steps.prefill(some_ids(60), chunk), steps.decode(5)[None]))
        model.close()
        np.testing.assert_allclose(ours, expected, atol=4e-4)


@pytest.mark.parametrize("name", ROUTINGS)
def test_choices_equal_the_reference(path: Path, name: str) -> None:
    _compare(path, ROUTINGS[name])


@pytest.mark.parametrize("name", KINDS)
def test_experts_equal_the_reference(path: Path, name: str) -> None:
    _compare(path, Routing(), **KINDS[name])


def test_everything_at_once(path: Path) -> None:
    _compare(path, ROUTINGS["sigmoid, bias, groups"], **KINDS["clamped"], fused=True, shared=True, gated=True)


@pytest.mark.parametrize("n_used", [9, 12])
def test_more_experts_a_row_than_a_kernel_takes_rows_in_decode(path: Path, n_used: int) -> None:
    change = mixture(N_EXPERTS, n_used, shared=True)
    reference, model = open_reference(path, change), open_model(path, EXACT, change)
    for token in some_ids(3):
        ours, truth = Steps(model, blocks(0, 1)), Steps(reference, blocks(0, 1))
        np.testing.assert_allclose(ours.decode(token), truth.decode(token), atol=4e-4)
    model.close()


def test_quantised_shared_experts_stay_close_to_exact_ones(tmp_path: Path) -> None:
    path = write_model(tmp_path / "m.gguf", quant="Q8_0", n_embd=64, n_ff=96, n_experts=6)
    change = mixture(6, 6, Routing("sigmoid"), shared=True, gated=True, fused=True, biased=True)
    exact, default = open_model(path, EXACT, change), open_model(path, LoadOptions(n_threads=2), change)
    for chunk in (40, 7, 1):
        truth = Steps(exact, blocks(0, 4)).prefill(some_ids(40))
        difference = Steps(default, blocks(0, 4)).prefill(some_ids(40), chunk) - truth
        assert np.sqrt(np.mean(difference**2)) < 0.05 * truth.std()
    exact.close()
    default.close()


def test_a_bias_chooses_but_does_not_weigh() -> None:
    logits, bias = np.array([[2.0, 1.0, 0.0]], np.float32), np.array([0.0, -10.0, 0.0], np.float32)
    chosen, weights = route(logits, Routing("sigmoid", norm_weights=False, scale=2.0), bias, 2)
    assert chosen.tolist() == [[0, 2]]
    np.testing.assert_allclose(weights, [[2 / (1 + np.exp(-2)), 1.0]], rtol=1e-6)


def test_groups_count_by_their_two_best() -> None:
    logits = np.array([[3.0, 0.0, 2.0, 1.5]], np.float32)  # 3.0 is the best, but 2.0 + 1.5 is more than 3.0 + 0.0
    chosen, weights = route(logits, Routing("softmax_chosen", n_groups=2, n_groups_used=1), None, 2)
    assert chosen.tolist() == [[2, 3]]
    np.testing.assert_allclose(weights, [[1 / (1 + np.exp(-0.5)), 1 / (1 + np.exp(0.5))]], rtol=1e-6)


def test_of_equals_the_lower_ids_are_chosen() -> None:
    logits = np.zeros((1, 6), np.float32)
    assert route(logits, Routing(), None, 2)[0].tolist() == [[0, 1]]
    assert route(logits, Routing(n_groups=3, n_groups_used=1), None, 2)[0].tolist() == [[0, 1]]
