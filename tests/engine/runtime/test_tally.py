"""Counts of experts on the CPU and on emulated GPUs: exact, whoever routes, in steps of every size."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import engine.graph.reference as reference_run
from engine.graph.reference_experts import route
from engine.placement.options import LoadOptions
from engine.runtime.choices import Chosen, MoeLayers
from engine.runtime.loader import LoadedModel
from engine.runtime.tally import ExpertTally
from tests.helpers.golden_models import batch, golden
from tests.helpers.placed import anywhere, hybrid, need_torch, on_cpu, open_placed, whole
from tests.helpers.runs import blocks, decode_batch, mixture, open_model, open_reference, prefill_batch, some_ids, write_model

MIXTURES = ("qwen3moe", "qwen2moe", "glm4moe", "gpt-oss", "deepseek2-v3", "qwen35moe", "minimax-m2")
Counts = npt.NDArray[np.uint64]


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    need_torch()
    monkeypatch.setenv("LAYERDECK_GPU", "emulate:2")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_model(tmp_path / "moe.gguf", n_layers=4, n_ff=40, n_experts=11)


def counts_of(model: LoadedModel) -> Counts:
    assert model.experts is not None
    return model.experts.counts.copy()


def check_sums(model: LoadedModel, n_tokens: int, n_late: int) -> None:
    """tokens x experts of a token, in every layer; in the last one of prompts only the wanted tokens."""
    tally = model.experts
    assert tally is not None and tally.n_tokens == n_tokens
    assert tally.rows.tolist() == [n_tokens] * (len(tally.rows) - 1) + [n_late]
    np.testing.assert_array_equal(tally.counts.sum(axis=1), tally.rows * np.array(tally.moe.used))


def truth(monkeypatch: pytest.MonkeyPatch, run: Callable[[], object]) -> list[Counter[int]]:
    """What the numpy reference chose in each call of its router while `run` ran."""
    seen: list[Counter[int]] = []

    def noted(*arguments: object) -> object:
        chosen, weights = route(*arguments)  # type: ignore[arg-type]
        seen.append(Counter(chosen.reshape(-1).tolist()))
        return chosen, weights

    monkeypatch.setattr(reference_run, "route", noted)
    run()
    return seen


def as_counters(counts: Counts) -> list[Counter[int]]:
    return [Counter({e: int(n) for e, n in enumerate(row) if n}) for row in counts]


@pytest.mark.parametrize("n", [1, 5, 8, 9, 70])
def test_counts_are_those_of_the_reference(monkeypatch: pytest.MonkeyPatch, path: Path, n: int) -> None:
    change, ids = mixture(11, 3), some_ids(n)
    model = open_model(path, change=change)
    assert counts_of(model).sum() == 0  # the token that proves the load is not counted
    model.step(prefill_batch(ids, 0, blocks(0, 4)))
    reference = open_reference(path, change)
    assert as_counters(counts_of(model)) == truth(monkeypatch, lambda: reference.step(prefill_batch(ids, 0, blocks(0, 4))))
    check_sums(model, n, n)
    model.close()


@pytest.mark.parametrize("place", [on_cpu, hybrid, whole, anywhere(3), anywhere(4)])
@pytest.mark.parametrize("name", MIXTURES)
@pytest.mark.usefixtures("two_gpus")
def test_every_token_is_counted_once_wherever_routers_lie(name: str, place: Callable[..., object]) -> None:
    model = open_placed(golden(name).path, place)  # type: ignore[arg-type]
    ids = golden(name).ids("medium")
    n_late = 0
    for start, end, wanted in ((0, 3, 0), (3, 40, 0), (40, 48, 2), (48, len(ids) - 5, 1)):
        model.step(batch(ids[start:end], start, wanted))
        n_late += wanted
    for at in range(len(ids) - 5, len(ids)):
        model.step(batch(ids[at : at + 1], at))
    check_sums(model, len(ids), n_late + 5)
    model.close()


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize("place", [hybrid, whole, anywhere(5)])
def test_counts_do_not_depend_on_the_placement(path: Path, place: Callable[..., object]) -> None:
    found = []
    for where in (on_cpu, place):
        model = open_placed(path, where, change=mixture(11, 3))  # type: ignore[arg-type]
        model.step(prefill_batch(some_ids(50), 0, blocks(0, 2)))
        model.step(prefill_batch(some_ids(6, 9), 0, blocks(2, 1), [5]))
        model.step(decode_batch([7, 8, 9], [50, 6, 0], [blocks(0, 2), blocks(2, 1), blocks(3, 1)]))
        found.append(counts_of(model))
        model.close()
    np.testing.assert_array_equal(*found)


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize("place", [on_cpu, hybrid, whole])
@pytest.mark.parametrize("n_seqs", [1, 3, 8])
def test_rows_of_a_batch_are_told_apart(path: Path, place: Callable[..., object], n_seqs: int) -> None:
    """Three sequences are padded to a bucket of four; what padding chose belongs to nobody."""
    model = open_placed(path, place, change=mixture(11, 3))  # type: ignore[arg-type]
    assert model.experts is not None
    each = [ExpertTally(model.experts.moe) for _ in range(n_seqs)]
    tokens = some_ids(n_seqs)
    model.step(decode_batch(tokens, [0] * n_seqs, [blocks(i, 1) for i in range(n_seqs)]))
    for i, tally in enumerate(each):
        tally.add(model.chosen, i)
    np.testing.assert_array_equal(sum(tally.counts for tally in each), model.experts.counts)
    for token, tally in zip(tokens, each, strict=True):
        model.experts.clear()
        model.step(decode_batch([token], [0], [blocks(0, 1)]))
        np.testing.assert_array_equal(tally.counts, model.experts.counts)
    model.close()


def test_more_sequences_than_a_step_takes_are_counted_once(path: Path) -> None:
    model = open_model(path, LoadOptions(n_threads=1, n_ctx=96), mixture(11, 3))
    model.step(decode_batch(some_ids(70), [0] * 70, [blocks(i % 3, 1) for i in range(70)]))
    check_sums(model, 70, 70)
    model.close()


def test_a_decoded_token_of_a_large_model_costs_little_python() -> None:
    """A step of a model with 94 layers of 128 experts keeps a core for some ten milliseconds at least."""
    moe = MoeLayers(tuple(range(94)), (8,) * 94, 128)
    total, own = ExpertTally(moe), ExpertTally(moe)
    flat = (np.arange(94)[:, None] * 128 + np.arange(8)).reshape(-1)
    chosen = (Chosen(0, 1, 1, np.zeros(0, np.int64), flat, None),)
    started = time.process_time()
    for _ in range(1000):
        total.add(chosen)
        own.add(chosen, 0)
    assert time.process_time() - started < 1000 * 40e-6
    assert int(total.counts.sum()) == 1000 * 94 * 8
