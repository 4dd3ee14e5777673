"""Compiled latent attention, absorbed and with keys made on the way, against the naive numpy run at odd sizes."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engine.errors import EngineError
from engine.gguf.reader import read_gguf
from engine.placement.options import KV_TYPES, KvType, LoadOptions
from engine.program.lane_latent import ABSORBED_ROWS
from kernels_pyx.isas import ISAS
from tests.helpers.latent_models import Shape, write_latent_model
from tests.helpers.runs import EXACT, Steps, blocks, decode_batch, open_model, open_reference, prefill_batch, some_ids

SHAPES = {
    "plain": Shape(),
    "low rank queries": Shape(q_rank=24),
    "odd": Shape(n_heads=3, rank=40, nope=10, n_rot=6, v_dim=9, q_rank=17, n_embd=44, n_ff=50),
    "one head": Shape(n_heads=1, rank=16, nope=2, n_rot=2, v_dim=5),
    "more heads than a tile": Shape(n_heads=67, rank=16, nope=6, n_rot=4, v_dim=4),
    "wide": Shape(n_heads=2, rank=128, nope=64, n_rot=32, v_dim=72),
}


@pytest.mark.parametrize("split", [True, False], ids=["split", "legacy"])
@pytest.mark.parametrize("name", SHAPES)
def test_both_forms_equal_the_reference(tmp_path: Path, name: str, split: bool) -> None:
    path = write_latent_model(tmp_path / "m.gguf", SHAPES[name], split=split)
    reference = open_reference(path)
    ids = some_ids(200)
    truth = Steps(reference, blocks(0, 16)).prefill(ids)
    for chunk in (512, 150, 91, 33, 1):
        model = open_model(path)
        np.testing.assert_allclose(Steps(model, blocks(0, 16)).prefill(ids, chunk), truth, atol=3e-4)
        model.close()


def test_both_layouts_give_the_same_logits(tmp_path: Path) -> None:
    ids, found = some_ids(70), []
    for split in (True, False):
        model = open_model(write_latent_model(tmp_path / f"{split}.gguf", Shape(q_rank=24), split=split))
        found.append(Steps(model, blocks(0, 4)).prefill(ids))
        model.close()
    np.testing.assert_allclose(found[0], found[1], atol=1e-5)


@pytest.mark.parametrize("n_threads", [1, 2, 3, 7])
def test_the_number_of_workers_changes_nothing(tmp_path: Path, n_threads: int) -> None:
    path = write_latent_model(tmp_path / "m.gguf", Shape(n_heads=5))
    ids = some_ids(300)
    one, many = open_model(path, replace(EXACT, n_threads=1)), open_model(path, replace(EXACT, n_threads=n_threads))
    for chunk in (300, 40, 5):
        a, b = Steps(one, blocks(0, 12)).prefill(ids, chunk), Steps(many, blocks(0, 12)).prefill(ids, chunk)
        np.testing.assert_allclose(a, b, atol=2e-5)
    a, b = Steps(one, blocks(0, 12)), Steps(many, blocks(0, 12))
    a.prefill(ids)
    b.prefill(ids)
    np.testing.assert_allclose(a.decode(7), b.decode(7), atol=2e-5)
    one.close()
    many.close()


@pytest.mark.parametrize("n_seqs", [2, 3, 8, 11, ABSORBED_ROWS + 3])
def test_sequences_decoded_together_equal_each_alone(tmp_path: Path, n_seqs: int) -> None:
    model = open_model(write_latent_model(tmp_path / "m.gguf", Shape(q_rank=24, n_ctx=8192)))
    lengths = [1 + 17 * i % 31 for i in range(n_seqs)]
    tables = [np.array([i ^ 1], np.int32) for i in range(n_seqs)]
    alone = []
    for n, table in zip(lengths, tables, strict=True):
        steps = Steps(model, table)
        steps.prefill(some_ids(n, seed=n))
        alone.append(steps.decode(9))
    together = model.step(decode_batch([9] * n_seqs, lengths, tables))
    if n_seqs <= 8:
        np.testing.assert_array_equal(together, np.stack(alone))
    else:
        np.testing.assert_allclose(together, np.stack(alone), atol=1e-4)
    model.close()


@pytest.mark.parametrize("kind", KV_TYPES)
def test_every_cache_type_stays_close(tmp_path: Path, kind: KvType) -> None:
    path = write_latent_model(tmp_path / "m.gguf", Shape(rank=64, n_rot=16))
    truth = Steps(open_reference(path), blocks(0, 8)).prefill(some_ids(150))
    model = open_model(path, replace(EXACT, k_type=kind))
    bound = {"f32": 1e-4, "f16": 0.01, "q8_0": 0.06, "int8": 0.08}[kind]
    for chunk in (150, 30, 1):
        difference = Steps(model, blocks(0, 8)).prefill(some_ids(150), chunk) - truth
        assert np.sqrt(np.mean(difference**2)) < bound * truth.std()
    model.close()


INTEGERS = """
import sys
from pathlib import Path
import numpy as np
from engine.placement.options import LoadOptions
from tests.helpers.runs import Steps, blocks, open_model, some_ids
found = []
for kind in ("f16", "q8_0", "int8"):
    model = open_model(Path(sys.argv[1]), LoadOptions(n_threads=2, k_type=kind))
    steps = Steps(model, blocks(0, 12))
    found.append(np.concatenate((steps.prefill(some_ids(301), 43), steps.decode(1)[None])))
    model.close()
np.save(sys.argv[2], found)
"""


@pytest.mark.parametrize("name", ["odd", "more heads than a tile", "wide", "low rank queries"])
def test_integers_of_every_instruction_set_stay_close_to_the_reference(tmp_path: Path, name: str) -> None:
    path = write_latent_model(tmp_path / "m.gguf", SHAPES[name])
    steps = Steps(open_reference(path), blocks(0, 12))
    truth = np.concatenate((steps.prefill(some_ids(301)), steps.decode(1)[None]))
    for isa in ISAS:
        out = tmp_path / f"{isa}.npy"
        subprocess.run([sys.executable, "-c", INTEGERS, path, out], env=os.environ | {"LAYERDECK_ISA": isa}, check=True)
        for found, bound in zip(np.load(out), (0.01, 0.06, 0.08), strict=True):
            assert np.sqrt(np.mean((found - truth) ** 2)) < bound * truth.std(), isa


def test_a_key_that_is_no_number_is_found(tmp_path: Path) -> None:
    path = write_latent_model(tmp_path / "m.gguf")
    info = read_gguf(path).tensors["blk.1.attn_kv_a_mqa.weight"]
    with path.open("r+b") as file:
        file.seek(info.offset + 4 * 64 * 35)  # a row of the rotated part
        file.write(np.float32(np.nan).tobytes())
    with pytest.raises(EngineError, match="layer 1"):
        open_model(path, LoadOptions(n_threads=2))


@pytest.mark.parametrize("split", [True, False], ids=["split", "legacy"])
def test_quantised_weights_stay_close_and_are_exact_in_f32(tmp_path: Path, split: bool) -> None:
    path = write_latent_model(tmp_path / "m.gguf", Shape(nope=32, v_dim=32, q_rank=32), split=split, quant="Q8_0")
    truth = Steps(open_reference(path), blocks(0, 7)).prefill(some_ids(200))
    for options, bound in ((EXACT, 2e-4), (LoadOptions(n_threads=2), 0.05)):
        model = open_model(path, options)
        for chunk in (200, 20, 1):
            difference = Steps(model, blocks(0, 7)).prefill(some_ids(200), chunk) - truth
            assert np.sqrt(np.mean(difference**2)) < bound * truth.std()
        model.close()


def test_a_wanted_row_in_the_middle(tmp_path: Path) -> None:
    path = write_latent_model(tmp_path / "m.gguf")
    model, ids = open_model(path), some_ids(140)
    all_rows = model.step(prefill_batch(ids, 0, blocks(0, 5)))
    some = model.step(prefill_batch(ids, 0, blocks(0, 5), out_rows=(5, 139)))
    np.testing.assert_allclose(some, all_rows[[5, 139]], atol=1e-5)
    model.close()
