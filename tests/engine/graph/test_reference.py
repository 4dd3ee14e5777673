"""The numpy run of the graph gives the recorded logits and answers of every golden model."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from engine.arch.registry import build_spec
from engine.arch.spec import Rope, Yarn
from engine.errors import Cancelled, EngineError
from engine.gguf.reader import read_gguf
from engine.graph.build import build_graph
from engine.graph.reference import ReferenceModel
from engine.graph.rotation import rope_frequencies
from engine.runtime.step import StepBatch
from tests.helpers.golden_models import LLAMAS, MODELS, PROMPTS, batch, golden, greedy


def model_of(name: str, **options: object) -> ReferenceModel:
    file = read_gguf(golden(name).path)
    spec = build_spec(file)
    return ReferenceModel(file, spec, build_graph(spec), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("prompt", PROMPTS)
def test_logits_equal_the_recorded_ones(name: str, prompt: str) -> None:
    recorded = golden(name).logits(prompt)
    logits = model_of(name).step(batch(golden(name).ids(prompt)))[-len(recorded) :]
    assert np.abs(logits - recorded).max() < 2e-3


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("prompt", PROMPTS)
def test_greedy_answers_equal_the_recorded_ones(name: str, prompt: str) -> None:
    assert greedy(model_of(name), golden(name).ids(prompt), 32) == golden(name).greedy(prompt)


def test_rows_of_several_sequences_do_not_see_each_other() -> None:
    model = model_of(LLAMAS[0])
    ids = golden(LLAMAS[0]).ids("short")
    alone = model.step(batch([*ids, 7]))[-1]
    tables = (np.array([4], np.int32), np.array([2], np.int32))
    for table, last in zip(tables, (7, 9), strict=True):
        model.step(replace(batch([*ids[:-1], last]), block_tables=(table,)))
    both = StepBatch(
        phase="decode",
        token_ids=np.array([ids[-1], 9], np.int32),
        positions=np.array([len(ids) - 1, len(ids)], np.int32),
        seq_of_row=np.array([0, 1], np.int32),
        block_tables=tables,
        out_rows=np.array([0, 1], np.int32),
    )
    model.step(both)
    one = StepBatch("decode", *(np.array([x], np.int32) for x in (7, len(ids), 0)), tables[:1], np.array([0], np.int32))
    assert np.abs(model.step(one)[0] - alone).max() < 1e-4


def test_a_chunk_without_wanted_logits_gives_none() -> None:
    assert model_of(LLAMAS[0]).step(batch([1, 2, 3], n_out=0)).shape == (0, 512)


def test_the_step_stops_when_told() -> None:
    with pytest.raises(Cancelled):
        model_of(LLAMAS[0], stop=lambda: True).step(batch([1]))


def test_values_that_are_not_finite_are_an_error() -> None:
    model = model_of(LLAMAS[0])
    model.weight("output_norm.weight")
    model._weights["output_norm.weight"] = np.full(64, np.inf, np.float32)
    with pytest.raises(EngineError, match="not finite"):
        model.step(batch([1]))


def test_yarn_keeps_fast_pairs_and_stretches_slow_ones() -> None:
    yarn = Rope("neox", 64, 10000.0, yarn=Yarn(factor=4.0, original_context=2048))
    plain = rope_frequencies(replace(yarn, yarn=None), None)
    mixed = rope_frequencies(yarn, None)
    assert mixed[0] == pytest.approx(plain[0])
    assert mixed[-1] == pytest.approx(plain[-1] / 4)
    assert np.all((mixed <= plain * (1 + 1e-12)) & (mixed >= plain / 4 * (1 - 1e-12)))
