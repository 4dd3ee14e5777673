"""Layers with a window: compiled steps in bounded pools give what the numpy run gives over the whole context."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engine.errors import InvalidRequest
from engine.estimate import cache
from engine.placement.options import KvType, LoadOptions
from engine.runtime.cache_groups import BLOCK, ring_tables
from engine.runtime.loader import LoadedModel
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
    some_ids,
    write_model,
)
from tests.helpers.windowed import only_sequence, windowed

LONG = 1500
CHUNKS = replace(EXACT, prefill_chunk=64)
SHAPES = {
    "grouped": {"n_heads": 4, "n_kv_heads": 2, "head_dim": 16, "v_dim": 16},
    "one kv head": {"n_heads": 6, "n_kv_heads": 1, "head_dim": 10, "v_dim": 10},
    "k wider than v": {"n_heads": 4, "n_kv_heads": 4, "head_dim": 34, "v_dim": 18},
}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model") / "tiny.gguf", n_layers=4, n_ctx=4096)


@pytest.fixture(autouse=True)
def tight_pools(monkeypatch: pytest.MonkeyPatch) -> None:
    """No room beside the window and the chunk, so that every pool is gone through many times."""
    monkeypatch.setattr(cache, "KEPT_WINDOWS", 0)


def both(path: Path, change: Change, options: LoadOptions = CHUNKS) -> tuple[LoadedModel, Steps, Steps]:
    """The compiled model, a sequence on it, and one on the numpy model, which holds whole contexts."""
    model = open_model(path, options, change)
    for group in model.cache_groups:
        if group.window is not None:
            assert group.n_blocks * BLOCK <= group.window + options.prefill_chunk + 3 * BLOCK
    return model, only_sequence(model, LONG + 50), Steps(open_reference(path, change), blocks(0, 49))


@pytest.mark.parametrize("width", [1, 2, 24, 31, 32, 33, 100, 128, 300, 5000])
def test_windows_of_any_width(path: Path, width: int) -> None:
    model, ours, truth = both(path, windowed(width, None))
    np.testing.assert_allclose(ours.prefill(some_ids(LONG), 64), truth.prefill(some_ids(LONG)), atol=4e-4)
    for token in some_ids(40, seed=9):
        np.testing.assert_allclose(ours.decode(token), truth.decode(token), atol=4e-4)
    model.close()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    "change",
    [
        windowed(24, sinks=False),
        windowed(24, 70, None),
        windowed(40, None, softcap=5.0),
        windowed(40, None, post_norms=True, embed_scale=8.0),
        lambda spec: windowed(24, None, softcap=8.0, post_norms=True)(everything(spec)),
    ],
    ids=["windows only", "two widths", "soft caps", "post-norms", "everything"],
)
def test_every_part_equals_the_reference(tmp_path: Path, shape: str, change: Change) -> None:
    path = write_model(tmp_path / "m.gguf", n_layers=3, n_ctx=4096, **SHAPES[shape])  # type: ignore[arg-type]
    model, ours, truth = both(path, change)
    np.testing.assert_allclose(ours.prefill(some_ids(500), 64), truth.prefill(some_ids(500)), atol=4e-4)
    for token in some_ids(40, seed=9):
        np.testing.assert_allclose(ours.decode(token), truth.decode(token), atol=4e-4)
    model.close()


@pytest.mark.parametrize("chunk", [1, 7, 32, 64, 100, 512])
def test_chunks_of_any_size_give_the_same_logits(path: Path, chunk: int) -> None:
    model, ours, truth = both(path, windowed(40, None), replace(EXACT, prefill_chunk=chunk))
    np.testing.assert_allclose(ours.prefill(some_ids(LONG), chunk), truth.prefill(some_ids(LONG)), atol=4e-4)
    model.close()


@pytest.mark.parametrize("k_type", ["f16", "q8_0", "int8"])
@pytest.mark.parametrize("v_type", ["f16", "q8_0", "int8"])
@pytest.mark.parametrize("width", [40, 240])  # rows of a tile that see none of some 32 keys, of some 256 keys
def test_caches_of_every_type_stay_close(path: Path, k_type: KvType, v_type: KvType, width: int) -> None:
    model, ours, truth = both(path, windowed(width, None), replace(CHUNKS, k_type=k_type, v_type=v_type))
    for got, wanted in ((ours.prefill(some_ids(600), 64), truth.prefill(some_ids(600))), (ours.decode(3), truth.decode(3))):
        assert np.linalg.norm(got - wanted) < 0.06 * np.linalg.norm(wanted)
    model.close()


def test_a_context_of_500_windows(tmp_path: Path) -> None:
    n, change = 12_000, windowed(24, 70)
    path = write_model(tmp_path / "m.gguf", n_ctx=1 << 14)
    model = open_model(path, replace(CHUNKS, n_ctx=1 << 14), change)
    assert [one.n_blocks for one in model.cache_groups] == [6, 4]  # ceil(70 / 32) + 64 / 32 + 1 spare, and of the narrow one
    ours, truth = only_sequence(model, n + 50), Steps(open_reference(path, change), blocks(0, n // BLOCK + 2))
    ids = some_ids(n)
    np.testing.assert_allclose(ours.prefill(ids, 64)[-64:], truth.prefill(ids)[-64:], atol=4e-4)
    for token in some_ids(40, seed=9):
        np.testing.assert_allclose(ours.decode(token), truth.decode(token), atol=4e-4)
    model.close()


def test_nothing_outside_the_window_is_read(path: Path) -> None:
    change = windowed(40)
    model, truth = open_model(path, CHUNKS, change), Steps(open_reference(path, change), blocks(0, 49))
    whole = ring_tables(model.cache_groups, LONG + 50)
    only_sequence(model, LONG).prefill(some_ids(LONG), 64)
    truth.prefill(some_ids(LONG))
    seen = whole.copy()
    seen[:, : (LONG - 39) // 32] = -1  # a block id that would be refused, or crash
    logits = model.step(decode_batch([7], [LONG], [seen]))
    np.testing.assert_allclose(logits[0], truth.decode(7), atol=4e-4)
    model.close()


@pytest.mark.parametrize("bad", [-1, 1 << 20])
def test_a_block_that_the_window_reaches_must_exist(path: Path, bad: int) -> None:
    model = open_model(path, CHUNKS, windowed(40, None))
    tables = ring_tables(model.cache_groups, LONG)
    only_sequence(model, LONG).prefill(some_ids(200), 64)
    for position, block in ((200, 5), (198, 4), (230, 5)):  # the first block that the row sees
        broken = tables.copy()
        broken[1, block] = bad
        with pytest.raises(InvalidRequest, match="block id"):
            model.step(decode_batch([7], [position], [broken]))
    model.close()


def test_the_cost_of_a_window_does_not_grow_with_the_context(path: Path) -> None:
    model = open_model(path, replace(CHUNKS, n_threads=1, n_ctx=4096), windowed(40, None))
    executor, seconds = model.executor, []
    assert executor is not None
    for depth in (200, 3900):
        steps = only_sequence(model, 4096)
        steps.prefill(some_ids(depth), 64)
        executor.profile, least = True, {"mixer.0": 1.0, "mixer.1": 1.0}
        for token in range(100):
            steps.decode(token)
            for name, taken in executor.op_times():
                unit, _, kind = name.partition(" ")
                if kind == "attend" and unit in least:
                    least[unit] = min(least[unit], taken)
        executor.profile = False
        seconds.append(least)
    assert seconds[1]["mixer.0"] < 2 * seconds[0]["mixer.0"]
    assert seconds[1]["mixer.1"] > 4 * seconds[0]["mixer.1"]
    model.close()


@pytest.fixture(scope="module")
def model(path: Path) -> Iterator[LoadedModel]:
    opened = open_model(path, EXACT, windowed(40, None))
    yield opened
    opened.close()


@pytest.mark.parametrize("n_seqs", [2, 5, 8, 11])
def test_sequences_of_any_length_decoded_together_equal_each_alone(model: LoadedModel, n_seqs: int) -> None:
    lengths = [2 + 29 * i % 60 for i in range(n_seqs)]
    tables = [np.stack((blocks(2 * i, 2), blocks(2 * i, 2))) for i in range(n_seqs)]
    alone = []
    for i in range(n_seqs):
        steps = Steps(model, tables[i])
        steps.prefill(some_ids(lengths[i], seed=i))
        alone.append(steps.decode(i))
    together = model.step(decode_batch(list(range(n_seqs)), lengths, tables))
    np.testing.assert_allclose(together, np.array(alone), atol=2e-4)


def test_results_depend_neither_on_threads_nor_on_the_batch(path: Path) -> None:
    results = []
    for n_threads in (1, 2, 3):
        model = open_model(path, replace(CHUNKS, n_threads=n_threads), windowed(300, None))
        # The last block of each pool is the other sequence's.
        tables = ring_tables(tuple(replace(one, n_blocks=one.n_blocks - 1) for one in model.cache_groups), LONG + 50)
        other = np.array([[one.n_blocks - 1] for one in model.cache_groups], np.int32)
        steps = Steps(model, tables)
        logits = steps.prefill(some_ids(LONG), 64)
        alone = steps.decode(5)
        together = model.step(decode_batch([5, 1], [LONG, 0], [tables, other]))
        results.append(np.concatenate((logits[-8:], alone[None], together[:1])))
        assert np.array_equal(alone, together[0])
        model.close()
    assert np.array_equal(results[0], results[1])
    assert np.array_equal(results[0], results[2])


ISA_SCRIPT = """
import sys
from dataclasses import replace
from pathlib import Path
import numpy as np
from tests.helpers.runs import EXACT, open_model, some_ids
from tests.helpers.windowed import only_sequence, windowed
options = replace(EXACT, prefill_chunk=64, k_type=sys.argv[3], v_type=sys.argv[4])
steps = only_sequence(open_model(Path(sys.argv[1]), options, windowed(40, None, softcap=5.0)), 2000)
logits = np.concatenate((steps.prefill(some_ids(1000), 64), [steps.decode(token) for token in range(40)]))
np.save(sys.argv[2], logits)
"""


@pytest.mark.parametrize(("k_type", "v_type"), [("f32", "f32"), ("q8_0", "int8")])
def test_every_instruction_set_gives_the_same_logits(path: Path, tmp_path: Path, k_type: KvType, v_type: KvType) -> None:
    results = []
    for isa in ISAS:
        out = tmp_path / f"{isa}.npy"
        environment = os.environ | {"LAYERDECK_ISA": isa}
        subprocess.run([sys.executable, "-c", ISA_SCRIPT, path, out, k_type, v_type], env=environment, check=True, timeout=60)
        results.append(np.load(out))
    truth = Steps(open_reference(path, windowed(40, None, softcap=5.0)), blocks(0, 33))
    wanted = np.concatenate((truth.prefill(some_ids(1000)), [truth.decode(token) for token in range(40)]))
    for isa, got in zip(ISAS, results, strict=True):
        if k_type == "f32":
            np.testing.assert_allclose(got, wanted, atol=4e-4, err_msg=isa)
        else:
            assert np.linalg.norm(got - wanted) < 0.06 * np.linalg.norm(wanted), isa
