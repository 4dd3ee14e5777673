"""Compiled gated DeltaNet against the numpy reference: shapes, layouts, chunks, batches, threads, and states in slots."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.arch.registry import build_spec
from engine.errors import Cancelled, InvalidRequest
from engine.estimate.states import MAX_RUNNING, MAX_SNAPSHOTS, plan_slots, state_bytes
from engine.gguf.reader import read_gguf
from engine.placement.options import LoadOptions
from engine.runtime.loader import LoadedModel
from engine.runtime.step import StepBatch
from kernels_pyx.executor import AbortFlag
from tests.helpers.hybrid import Hybrid, grouped, write_hybrid
from tests.helpers.runs import EXACT, Steps, blocks, decode_batch, open_model, open_reference, prefill_batch, same, some_ids

SHAPES = {
    "plain": Hybrid(),
    "joined and paired": Hybrid(joined=True, paired=True),
    "one head": Hybrid(n_k=1, n_v=1, dim=32),
    "as many keys as values": Hybrid(n_k=3, n_v=3, dim=16, n_taps=2),
    "six values a key, wide": Hybrid(n_k=2, n_v=12, dim=48, n_taps=5),
    "last block recurrent": Hybrid(recurrent=(False, True), dim=64),
}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_hybrid(tmp_path_factory.mktemp("model") / "hybrid.gguf", Hybrid())


@pytest.fixture(scope="module")
def model(path: Path) -> Iterator[LoadedModel]:
    opened = open_model(path)
    yield opened
    opened.close()


def with_states(batch: StepBatch, *use: tuple[int, int, int, int]) -> StepBatch:
    return replace(batch, states=np.array(use, np.int32))


@pytest.mark.parametrize("change", [same, grouped], ids=["tiled", "grouped"])
@pytest.mark.parametrize("name", SHAPES)
def test_prefill_and_decode_equal_the_reference(tmp_path: Path, name: str, change) -> None:  # type: ignore[no-untyped-def]
    path = write_hybrid(tmp_path / "m.gguf", SHAPES[name])
    model, reference = open_model(path, change=change), open_reference(path, change)
    ids = some_ids(150)
    ours, truth = Steps(model, blocks(0, 8)), Steps(reference, blocks(0, 8))
    np.testing.assert_allclose(ours.prefill(ids, 90), truth.prefill(ids), atol=5e-4)
    for token in some_ids(10, seed=9):
        np.testing.assert_allclose(ours.decode(token), truth.decode(token), atol=5e-4)
    model.close()


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 16, 63, 64, 65, 130])
def test_chunks_of_any_size_give_the_same(model: LoadedModel, chunk: int) -> None:
    ids = some_ids(140)
    whole = Steps(model, blocks(0, 8)).prefill(ids)
    np.testing.assert_allclose(Steps(model, blocks(8, 8)).prefill(ids, chunk), whole, atol=3e-4)


@pytest.mark.parametrize("n_seqs", [2, 3, 8, 11])
def test_sequences_decoded_together_equal_each_alone(model: LoadedModel, n_seqs: int) -> None:
    lengths = [3 + 17 * i % 40 for i in range(n_seqs)]
    tables = [blocks(2 * i, 2) for i in range(n_seqs)]
    for i in range(n_seqs):
        model.step(with_states(prefill_batch(some_ids(lengths[i], seed=i), 0, tables[i]), (-1, 3 * i, -1, 0)))
    uses = [(3 * i, 3 * i + 1, -1, 0) for i in range(n_seqs)]
    alone = [model.step(with_states(decode_batch([i], [lengths[i]], [tables[i]]), uses[i]))[0] for i in range(n_seqs)]
    together = model.step(with_states(decode_batch(list(range(n_seqs)), lengths, tables), *uses))
    np.testing.assert_allclose(together, np.array(alone), atol=2e-4)


def test_results_do_not_depend_on_the_number_of_threads(path: Path) -> None:
    results = []
    for n_threads in (1, 2, 3):
        model = open_model(path, replace(EXACT, n_threads=n_threads))
        steps = Steps(model, blocks(0, 4))
        results.append(np.concatenate((steps.prefill(some_ids(100)), steps.decode(3)[None])))
        model.close()
    assert np.array_equal(results[0], results[1])
    assert np.array_equal(results[0], results[2])


@pytest.mark.parametrize("quant", ["Q8_0", "Q4_0"])
def test_quantised_weights_stay_close_to_exact_products(tmp_path: Path, quant: str) -> None:
    path = write_hybrid(tmp_path / "m.gguf", Hybrid(n_ff=64), quant=quant)
    exact, default = open_model(path), open_model(path, LoadOptions(n_threads=2))
    for chunk in (40, 7):
        truth = Steps(exact, blocks(0, 4)).prefill(some_ids(40))
        difference = Steps(default, blocks(0, 4)).prefill(some_ids(40), chunk) - truth
        assert np.sqrt(np.mean(difference**2)) < 0.1 * truth.std()  # the norm of small heads makes noise larger
    exact.close()
    default.close()


def test_a_state_can_be_gone_back_to_from_any_slot_that_holds_one(model: LoadedModel) -> None:
    ids, table = some_ids(100), blocks(0, 4)
    model.step(with_states(prefill_batch(ids[:60], 0, table), (-1, 5, 6, 41)))
    wanted = Steps(model, blocks(8, 4)).prefill(ids)
    for slot, start in ((5, 60), (6, 41), (5, 60)):  # the mark is inside a chunk; a slot that was read is as it was
        after = model.step(with_states(prefill_batch(ids[start:], start, table), (slot, 7, -1, 0)))
        np.testing.assert_allclose(after, wanted[start:], atol=3e-4)


def test_a_mark_after_one_decoded_token(model: LoadedModel) -> None:
    ids, table = some_ids(12), blocks(0, 4)
    model.step(with_states(prefill_batch(ids[:10], 0, table), (-1, 0, -1, 0)))
    model.step(with_states(decode_batch(ids[10:11], [10], [table]), (0, 1, 2, 1)))
    last = [model.step(with_states(decode_batch(ids[11:], [11], [table]), (slot, 3, -1, 0))) for slot in (1, 2)]
    assert np.array_equal(last[0], last[1])


def test_a_stopped_step_can_be_repeated(path: Path) -> None:
    flag = AbortFlag()
    model = open_model(path, abort=flag)
    ids, table = some_ids(50), blocks(0, 4)
    wanted = Steps(model, table).prefill(ids)[-1]
    model.step(with_states(prefill_batch(ids[:49], 0, table), (-1, 0, -1, 0)))
    again = with_states(decode_batch(ids[49:], [49], [table]), (0, 1, -1, 0))
    flag.set()
    with pytest.raises(Cancelled):
        model.step(again)
    flag.clear()
    np.testing.assert_allclose(model.step(again)[0], wanted, atol=3e-4)
    model.close()


@pytest.mark.parametrize(
    ("use", "words"),
    [
        ([(-1, 1, -1, 0)], "out of range"),
        ([(0, 999, -1, 0)], "out of range"),
        ([(999, 1, -1, 0)], "out of range"),
        ([(0, 1, 999, 1)], "out of range"),
        ([(0, 0, -1, 0)], "still needed"),
        ([(0, 1, 0, 1)], "still needed"),
        ([(0, 1, 1, 1)], "does not reach"),
        ([(0, 1, 2, 2)], "does not reach"),
        ([(0, 1, 2, 0)], "does not reach"),
    ],
)
def test_slots_that_do_not_fit_are_refused(model: LoadedModel, use: list[tuple[int, int, int, int]], words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        model.step(with_states(decode_batch([3], [5], [blocks(0, 1)]), *use))


def test_two_sequences_may_read_one_slot_and_not_write_one(model: LoadedModel) -> None:
    model.step(with_states(prefill_batch(some_ids(5), 0, blocks(0, 1)), (-1, 0, -1, 0)))
    both = decode_batch([3, 3], [5, 5], [blocks(0, 1), blocks(0, 1)])
    rows = model.step(with_states(both, (0, 1, -1, 0), (0, 2, -1, 0)))
    assert np.array_equal(rows[0], rows[1])
    with pytest.raises(InvalidRequest, match="still needed"):
        model.step(with_states(both, (0, 1, -1, 0), (0, 1, -1, 0)))


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_state_and_cache_bytes_equal_the_formulas(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    draw = data.draw
    n_k = draw(st.integers(1, 4))
    shape = Hybrid(
        recurrent=(*draw(st.lists(st.booleans(), max_size=3)), False),
        n_k=n_k,
        n_v=n_k * draw(st.integers(1, 3)),
        dim=16 * draw(st.integers(1, 3)),
        n_taps=draw(st.integers(2, 6)),
        n_embd=32,
        head_dim=32,
        n_ff=32,
    )
    path = write_hybrid(tmp_path_factory.mktemp("model") / "m.gguf", shape)
    spec = build_spec(read_gguf(path))
    n_rec, inner = sum(shape.recurrent), shape.n_v * shape.dim
    size = n_rec * ((shape.n_taps - 1) * (2 * n_k * shape.dim + inner) + shape.dim * inner) * 4
    assert state_bytes(spec) == size
    if not n_rec:
        return
    model = open_model(path, LoadOptions(n_threads=1, n_ctx=64, snapshot_bytes=10 * size))
    n_slots, n_snapshots = model.state_slots
    assert n_snapshots == 10
    assert model.residency.nbytes("state") == n_slots * size
    n_full = len(shape.recurrent) - n_rec
    assert model.residency.nbytes("kv") == 64 * n_full * shape.n_kv_heads * 2 * shape.head_dim * 2
    model.close()


def test_slots_follow_the_budget(path: Path) -> None:
    spec = build_spec(read_gguf(path))
    size = state_bytes(spec)
    assert plan_slots(spec, 0) == (1 + 2 + 1, 1)  # one of each at least
    assert plan_slots(spec, 6 * size) == (6 + 2 * 3 + 1, 6)
    assert plan_slots(spec, 1 << 40) == (MAX_SNAPSHOTS + 2 * MAX_RUNNING + 1, MAX_SNAPSHOTS)
