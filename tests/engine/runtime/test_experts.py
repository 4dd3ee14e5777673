"""Compiled mixtures of experts against the numpy reference, at odd sizes, in batches of every kind."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engine.arch.spec import Routing
from engine.errors import Cancelled
from engine.placement.options import LoadOptions
from engine.runtime.loader import LoadedModel
from kernels_pyx.executor import AbortFlag
from tests.helpers.runs import (
    EXACT,
    Steps,
    blocks,
    decode_batch,
    mixture,
    open_model,
    open_reference,
    prefill_batch,
    some_ids,
    write_model,
)

SIZES = {  # n_embd, n_ff, n_experts, n_used
    "few": (64, 96, 5, 2),
    "one used": (48, 33, 7, 1),
    "all used": (32, 20, 3, 3),
    "many": (40, 12, 130, 8),
    "wide": (64, 257, 9, 4),
}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model") / "moe.gguf", n_ff=40, n_experts=11)


@pytest.fixture(scope="module")
def model(path: Path) -> Iterator[LoadedModel]:
    opened = open_model(path, change=mixture(11, 3))
    yield opened
    opened.close()


@pytest.mark.parametrize("norm_weights", [True, False])
@pytest.mark.parametrize("size", SIZES)
def test_prefill_and_decode_equal_the_reference(tmp_path: Path, size: str, norm_weights: bool) -> None:
    n_embd, n_ff, n_experts, n_used = SIZES[size]
    path = write_model(tmp_path / "m.gguf", n_embd=n_embd, n_ff=n_ff, n_experts=n_experts)
    change = mixture(n_experts, n_used, Routing(norm_weights=norm_weights))
    model, reference = open_model(path, change=change), open_reference(path, change)
    ids = some_ids(90)
    ours, truth = Steps(model, blocks(0, 8)), Steps(reference, blocks(0, 8))
    np.testing.assert_allclose(ours.prefill(ids, 33), truth.prefill(ids), atol=3e-4)
    for token in some_ids(10, seed=9):
        np.testing.assert_allclose(ours.decode(token), truth.decode(token), atol=3e-4)
    model.close()


def test_quantised_experts_stay_close_to_exact_ones(tmp_path: Path) -> None:
    path = write_model(tmp_path / "m.gguf", quant="Q8_0", n_embd=64, n_ff=96, n_experts=6)
    exact, default = open_model(path, change=mixture(6, 6)), open_model(path, LoadOptions(n_threads=2), mixture(6, 6))
    for chunk in (40, 7):  # groups of many rows, and of few
        truth = Steps(exact, blocks(0, 4)).prefill(some_ids(40))
        difference = Steps(default, blocks(0, 4)).prefill(some_ids(40), chunk) - truth
        assert np.sqrt(np.mean(difference**2)) < 0.05 * truth.std()
    exact.close()
    default.close()


@pytest.mark.parametrize("n_seqs", [2, 3, 8, 11])
def test_sequences_decoded_together_equal_each_alone(model: LoadedModel, n_seqs: int) -> None:
    lengths = [3 + 17 * i % 40 for i in range(n_seqs)]
    tables = [blocks(2 * i, 2) for i in range(n_seqs)]
    alone = []
    for i in range(n_seqs):
        steps = Steps(model, tables[i])
        steps.prefill(some_ids(lengths[i], seed=i))
        alone.append(steps.decode(i))
    together = model.step(decode_batch(list(range(n_seqs)), lengths, tables))
    np.testing.assert_allclose(together, np.array(alone), atol=2e-4)


def test_results_do_not_depend_on_the_number_of_threads(path: Path) -> None:
    results = []
    for n_threads in (1, 2, 3):
        model = open_model(path, replace(EXACT, n_threads=n_threads), mixture(11, 3))
        steps = Steps(model, blocks(0, 4))
        results.append(np.concatenate((steps.prefill(some_ids(70)), steps.decode(3)[None])))
        model.close()
    assert np.array_equal(results[0], results[1])
    assert np.array_equal(results[0], results[2])


def test_a_step_without_wanted_rows_fills_the_cache(model: LoadedModel) -> None:
    ids = some_ids(30)
    whole = Steps(model, blocks(0, 2)).prefill(ids)
    model.step(prefill_batch(ids[:20], 0, blocks(2, 2), ()))
    rest = model.step(prefill_batch(ids[20:], 20, blocks(2, 2), (9, 0)))
    np.testing.assert_allclose(rest, whole[[29, 20]], atol=2e-4)


def test_abort_stops_and_leaves_the_model_usable(path: Path) -> None:
    flag = AbortFlag()
    model = open_model(path, change=mixture(11, 3), abort=flag)
    before = Steps(model, blocks(0, 2)).prefill(some_ids(20))
    flag.set()
    with pytest.raises(Cancelled):
        model.step(prefill_batch(some_ids(20), 0, blocks(0, 2)))
    flag.clear()
    assert np.array_equal(Steps(model, blocks(0, 2)).prefill(some_ids(20)), before)
    model.close()
