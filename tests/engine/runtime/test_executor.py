"""Compiled steps against the numpy reference, and against each other in every way a step can be cut."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engine.errors import Cancelled, EngineError, InvalidRequest
from engine.gguf.reader import read_gguf
from engine.placement.options import KvType, LoadOptions
from engine.runtime.loader import LoadedModel
from kernels_pyx.executor import AbortFlag
from kernels_pyx.isas import ISAS
from tests.helpers.runs import (
    EXACT,
    Change,
    Steps,
    blocks,
    decode_batch,
    everything,
    open_model,
    open_reference,
    prefill_batch,
    same,
    some_ids,
    write_model,
)

SHAPES = {
    "grouped": {"n_heads": 4, "n_kv_heads": 2, "head_dim": 16, "v_dim": 16},
    "one kv head": {"n_heads": 6, "n_kv_heads": 1, "head_dim": 10, "v_dim": 10},
    "multi-head": {"n_heads": 4, "n_kv_heads": 4, "head_dim": 64, "v_dim": 64},
    "k wider than v": {"n_heads": 4, "n_kv_heads": 2, "head_dim": 34, "v_dim": 18},
    "v wider than k": {"n_heads": 2, "n_kv_heads": 2, "head_dim": 8, "v_dim": 40},
    "128": {"n_heads": 16, "n_kv_heads": 1, "head_dim": 128, "v_dim": 128},
}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model") / "tiny.gguf")


@pytest.fixture(scope="module")
def model(path: Path) -> Iterator[LoadedModel]:
    opened = open_model(path)
    yield opened
    opened.close()


@pytest.mark.parametrize("change", [same, everything])
@pytest.mark.parametrize("shape", SHAPES)
def test_prefill_and_decode_equal_the_reference(tmp_path: Path, shape: str, change: Change) -> None:
    path = write_model(tmp_path / "m.gguf", **SHAPES[shape])  # type: ignore[arg-type]
    model, reference = open_model(path, change=change), open_reference(path, change)
    table, ids = blocks(0, 8), some_ids(150)
    ours, truth = Steps(model, table), Steps(reference, table)
    np.testing.assert_allclose(ours.prefill(ids, 64), truth.prefill(ids), atol=3e-4)
    for token in some_ids(20, seed=9):
        np.testing.assert_allclose(ours.decode(token), truth.decode(token), atol=3e-4)
    model.close()


@pytest.mark.parametrize("chunk", [1, 7, 16, 64, 512])
def test_chunks_of_any_size_give_the_same_logits(model: LoadedModel, chunk: int) -> None:
    ids = some_ids(200)
    whole = Steps(model, blocks(0, 8)).prefill(ids)
    cut = Steps(model, blocks(8, 8)).prefill(ids, chunk)
    np.testing.assert_allclose(cut, whole, atol=2e-4)


@pytest.mark.parametrize("wanted", [(), (0,), (39, 3, 3), tuple(range(40))])
def test_logits_of_any_rows_are_those_of_all(model: LoadedModel, wanted: tuple[int, ...]) -> None:
    ids = some_ids(40)
    whole = Steps(model, blocks(0, 2)).prefill(ids)
    picked = model.step(prefill_batch(ids, 0, blocks(2, 2), wanted))
    np.testing.assert_allclose(picked, whole[list(wanted)], atol=2e-4)


def test_block_tables_in_any_order(model: LoadedModel) -> None:
    ids = some_ids(300)
    results = []
    for table in (blocks(0, 12), np.random.default_rng(5).permutation(model.cache_groups[0].n_blocks)[:12].astype(np.int32)):
        steps = Steps(model, table)
        results.append((steps.prefill(ids), steps.decode(7)))
    assert np.array_equal(results[0][0], results[1][0])
    assert np.array_equal(results[0][1], results[1][1])


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


@pytest.mark.parametrize("matrix", ["attn_k", "attn_v"])
def test_8_bit_caches_show_values_that_are_not_finite(tmp_path: Path, matrix: str) -> None:
    path = write_model(tmp_path / "m.gguf")
    tensor = read_gguf(path).tensors[f"blk.1.{matrix}.weight"]
    with path.open("r+b") as stream:
        stream.seek(tensor.offset)
        stream.write(np.full(tensor.shape[0], np.nan, np.float32).tobytes())
    with pytest.raises(EngineError, match="layer 1"):
        open_model(path, replace(EXACT, k_type="q8_0", v_type="int8"))


def test_long_past_is_attended_in_chunks_like_the_reference(tmp_path: Path) -> None:
    path = write_model(tmp_path / "m.gguf", n_layers=1, n_ctx=4096)
    model, reference = open_model(path, replace(EXACT, n_ctx=4096)), open_reference(path)
    ids, table = some_ids(3000), blocks(0, 100)
    ours, truth = Steps(model, table), Steps(reference, table)
    np.testing.assert_allclose(ours.prefill(ids)[-5:], truth.prefill(ids)[-5:], atol=3e-4)
    np.testing.assert_allclose(ours.decode(5), truth.decode(5), atol=3e-4)
    model.close()


def test_only_wanted_rows_come_back(model: LoadedModel) -> None:
    ids = some_ids(40)
    everything_wanted = model.step(prefill_batch(ids, 0, blocks(0, 4)))
    some = model.step(prefill_batch(ids, 0, blocks(4, 4), out_rows=[39, 3]))
    none = model.step(prefill_batch(ids, 0, blocks(8, 4), out_rows=[]))
    np.testing.assert_allclose(some, everything_wanted[[39, 3]], atol=1e-5)
    assert none.shape == (0, 260)


def test_number_of_threads_changes_no_bit(path: Path) -> None:
    results = []
    for n_threads in (1, 2, 3):
        model = open_model(path, replace(EXACT, n_threads=n_threads))
        steps = Steps(model, blocks(0, 8))
        results.append((steps.prefill(some_ids(100)), steps.decode(1)))
        model.close()
    for prefill, decode in results[1:]:
        assert np.array_equal(prefill, results[0][0])
        assert np.array_equal(decode, results[0][1])


def test_more_workers_than_cores_do_each_others_tasks_and_change_no_bit(path: Path) -> None:
    ids, results = some_ids(40), []
    for n_threads in (1, 4 * len(os.sched_getaffinity(0))):
        model = open_model(path, replace(EXACT, n_threads=n_threads))
        steps = Steps(model, blocks(0, 8))
        steps.prefill(ids)
        results.append(np.concatenate([steps.decode(token) for token in some_ids(60, seed=3)]))
        model.close()
    assert np.array_equal(results[0], results[1])


def test_half_cache_is_close_to_the_full_one(path: Path, model: LoadedModel) -> None:
    half = open_model(path, replace(EXACT, k_type="f16", v_type="f16"))
    mixed = open_model(path, replace(EXACT, k_type="f32", v_type="f16"))
    ids = some_ids(100)
    exact = Steps(model, blocks(0, 4)).prefill(ids)
    for other in (half, mixed):
        logits = Steps(other, blocks(0, 4)).prefill(ids)
        assert 0 < np.abs(logits - exact).max() < 2e-2
        other.close()


@pytest.mark.parametrize(
    ("k_type", "v_type"), [("q8_0", "q8_0"), ("int8", "int8"), ("q8_0", "f16"), ("f32", "int8"), ("int8", "q8_0")]
)
@pytest.mark.parametrize("shape", ["one kv head", "k wider than v", "v wider than k", "128"])
def test_8_bit_caches_are_close_to_the_full_one(tmp_path: Path, k_type: KvType, v_type: KvType, shape: str) -> None:
    path = write_model(tmp_path / "m.gguf", **SHAPES[shape])  # type: ignore[arg-type]
    model, full = open_model(path, replace(EXACT, k_type=k_type, v_type=v_type)), open_model(path)
    ours, truth = Steps(model, blocks(0, 8)), Steps(full, blocks(0, 8))
    ids = some_ids(150)
    for got, wanted in ((ours.prefill(ids, 40), truth.prefill(ids, 40)), (ours.decode(5), truth.decode(5))):
        assert np.abs(got - wanted).max() > 0
        assert np.linalg.norm(got - wanted) < 0.06 * np.linalg.norm(wanted)
    model.close()
    full.close()


@pytest.mark.parametrize("kind", ["q8_0", "int8"])
def test_8_bit_caches_in_threads_chunks_and_batches(path: Path, kind: KvType) -> None:
    results = []
    for n_threads in (1, 2, 3):
        model = open_model(path, replace(EXACT, n_threads=n_threads, k_type=kind, v_type=kind))
        steps = [Steps(model, blocks(4 * i, 4)) for i in range(2)]
        whole, cut = steps[0].prefill(some_ids(100)), steps[1].prefill(some_ids(100), 7)
        np.testing.assert_allclose(cut, whole, atol=0.1)  # a value on the edge may be rounded the other way
        together = model.step(decode_batch([3, 3], [100, 100], [blocks(0, 4), blocks(4, 4)]))
        results.append(np.concatenate((whole, together[:1])))
        model.close()
    assert np.array_equal(results[0], results[1])
    assert np.array_equal(results[0], results[2])


@pytest.mark.parametrize("quant", ["F16", "Q8_0", "Q4_0", "Q4_1"])
def test_quantised_activations_stay_close_to_the_reference(tmp_path: Path, quant: str) -> None:
    path = write_model(tmp_path / "m.gguf", quant=quant)
    model, reference = open_model(path, LoadOptions(n_threads=2)), open_reference(path)
    ids = some_ids(60)
    ours, truth = Steps(model, blocks(0, 4)), Steps(reference, blocks(0, 4))
    for got, wanted in ((ours.prefill(ids), truth.prefill(ids)), (ours.decode(4), truth.decode(4))):
        assert np.linalg.norm(got - wanted) < 0.1 * np.linalg.norm(wanted)
    model.close()


ISA_SCRIPT = """
import sys
from pathlib import Path
from dataclasses import replace
import numpy as np
from tests.helpers.runs import EXACT, Steps, blocks, open_model, some_ids
model = open_model(Path(sys.argv[1]), replace(EXACT, k_type=sys.argv[3], v_type=sys.argv[4]))
steps = Steps(model, blocks(0, 8))
logits = np.concatenate((steps.prefill(some_ids(100)), steps.decode(1)[None]))
np.save(sys.argv[2], logits)
"""


@pytest.mark.parametrize(("k_type", "v_type"), [("f32", "f32"), ("q8_0", "int8")])
def test_every_instruction_set_gives_the_same_logits(path: Path, tmp_path: Path, k_type: KvType, v_type: KvType) -> None:
    model = open_model(path, replace(EXACT, k_type=k_type, v_type=v_type))
    steps = Steps(model, blocks(0, 8))
    wanted = np.concatenate((steps.prefill(some_ids(100)), steps.decode(1)[None]))
    for isa in ISAS:
        out = tmp_path / f"{isa}.npy"
        environment = os.environ | {"LAYERDECK_ISA": isa}
        command = [sys.executable, "-c", ISA_SCRIPT, path, out, k_type, v_type]
        subprocess.run(command, env=environment, check=True, timeout=60)
        atol = 3e-4 if k_type == "f32" else 0.1  # a value on the edge may be rounded the other way
        np.testing.assert_allclose(np.load(out), wanted, atol=atol, err_msg=isa)
    model.close()


def test_abort_stops_a_prefill_soon_and_the_model_lives_on(tmp_path: Path) -> None:
    path = write_model(tmp_path / "m.gguf", quant="Q8_0", n_layers=8, n_embd=256, n_ff=1024, head_dim=64, v_dim=64)
    abort = AbortFlag()
    model = open_model(path, EXACT, abort=abort)
    ids = some_ids(512)
    model.step(prefill_batch(ids, 0, blocks(0, 16)))
    whole = model.last_step_s
    stopper = threading.Timer(whole / 4, abort.set)
    stopper.start()
    started = time.perf_counter()
    with pytest.raises(Cancelled):
        model.step(prefill_batch(ids, 0, blocks(0, 16)))
    assert time.perf_counter() - started < whole / 4 + 0.25
    stopper.join()
    with pytest.raises(Cancelled):
        model.step(decode_batch([1], [0], [blocks(0, 1)]))
    abort.clear()
    assert np.isfinite(model.step(decode_batch([1], [0], [blocks(0, 1)]))).all()
    model.close()


def test_values_that_are_not_finite_name_the_layer(tmp_path: Path) -> None:
    path = write_model(tmp_path / "m.gguf", n_layers=3)
    tensor = read_gguf(path).tensors["blk.1.ffn_down.weight"]
    with path.open("r+b") as stream:
        stream.seek(tensor.offset)
        stream.write(b"\xff\xff\xff\x7f" * 8)
    with pytest.raises(EngineError, match=r"non-finite values in layer 2 \(mixer\)"):
        open_model(path)


@pytest.mark.parametrize(
    ("ids", "positions", "table", "words"),
    [
        ([260], [0], [0], "token id"),
        ([-1], [0], [0], "token id"),
        ([1], [1024], [0], "beyond the context"),
        ([1], [-1], [0], "beyond the context"),
        ([1], [40], [0], "block id"),
        ([1], [0], [99], "block id"),
        ([1], [0], [-3], "block id"),
    ],
)
def test_batches_that_do_not_fit_are_refused(
    model: LoadedModel, ids: list[int], positions: list[int], table: list[int], words: str
) -> None:
    with pytest.raises(InvalidRequest, match=words):
        model.step(decode_batch(ids, positions, [np.asarray(table, np.int32)]))


def test_more_rows_than_a_chunk_are_refused(model: LoadedModel) -> None:
    with pytest.raises(InvalidRequest, match="600 rows"):
        model.step(prefill_batch(some_ids(600), 0, blocks(0, 20)))


def test_python_takes_little_of_a_decode_step(model: LoadedModel) -> None:
    batch = decode_batch([1], [0], [blocks(0, 32)])
    assert model.executor is not None
    overheads = []
    for _ in range(200):
        started = time.perf_counter()
        model.step(batch)
        overheads.append(time.perf_counter() - started - model.last_step_s)
    assert sorted(overheads)[20] < 100e-6


def test_times_of_each_op_add_up(model: LoadedModel) -> None:
    assert model.executor is not None
    model.executor.profile = True
    model.step(decode_batch([1], [0], [blocks(0, 32)]))
    times = model.executor.op_times()
    model.executor.profile = False
    assert len(times) == 12 and times[0][0] == "embed embed"
    assert 0 < sum(seconds for _, seconds in times) <= model.last_step_s
