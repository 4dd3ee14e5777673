"""The golden models with latent attention: the same logits in chunks of any size, in every instruction set, after going back."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from engine.arch.registry import build_spec
from engine.gguf.reader import read_gguf
from engine.graph import reference
from engine.graph.build import build_graph
from engine.placement.options import LoadOptions
from kernels_pyx.isas import ISAS
from tests.helpers.golden_models import DEEPSEEKS, batch, golden
from tests.helpers.runs import EXACT, Steps, blocks, open_model

F32 = npt.NDArray[np.float32]


@pytest.mark.parametrize("name", DEEPSEEKS)
@pytest.mark.parametrize("chunk", [1, 7, 64, 512])
def test_chunks_of_any_size_give_the_recorded_logits(name: str, chunk: int) -> None:
    ids, recorded = golden(name).ids("long"), golden(name).logits("long")
    model = open_model(golden(name).path, EXACT)
    logits = Steps(model, blocks(0, 10)).prefill(ids, chunk)
    model.close()
    assert np.abs(logits[-len(recorded) :] - recorded).max() < 2e-3


@pytest.mark.parametrize("name", DEEPSEEKS[::2])
@pytest.mark.parametrize("isa", ISAS)
def test_every_instruction_set_gives_the_recorded_logits(tmp_path: Path, name: str, isa: str) -> None:
    script = (
        "import sys, numpy as np; from tests.helpers.runs import EXACT, Steps, blocks, open_model; "
        "from tests.helpers.golden_models import golden; "
        "ids = golden(sys.argv[1]).ids('long'); model = open_model(golden(sys.argv[1]).path, EXACT); "
        "found = [Steps(model, blocks(0, 10)).prefill(ids, n)[-8:] for n in (300, 30)]; np.save(sys.argv[2], found)"
    )
    out = tmp_path / "logits.npy"
    subprocess.run([sys.executable, "-c", script, name, str(out)], env=os.environ | {"LAYERDECK_ISA": isa}, check=True)
    assert np.abs(np.load(out) - golden(name).logits("long")).max() < 2e-3


@pytest.mark.parametrize("name", DEEPSEEKS)
def test_a_16_bit_cache_is_no_more_than_its_rounding(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = reference._store

    def rounded(model: reference.ReferenceModel, which: str, layer: int, rows: reference.Batch, x: F32) -> None:
        store(model, which, layer, rows, x.astype(np.float16).astype(np.float32))

    monkeypatch.setattr(reference, "_store", rounded)
    ids, file = golden(name).ids("long"), read_gguf(golden(name).path)
    spec = build_spec(file)
    truth = reference.ReferenceModel(file, spec, build_graph(spec)).step(batch(ids))
    model = open_model(golden(name).path, LoadOptions(n_threads=2))
    many, few = (Steps(model, blocks(0, 10)).prefill(ids, chunk) for chunk in (300, 40))
    model.close()
    assert np.sqrt(np.mean((many - truth) ** 2)) < 2e-3
    # Few rows are attended to in 16-bit integers. The median, for some rows choose experts by a hair.
    assert np.median(np.sqrt(np.mean((few - truth) ** 2, axis=1))) < 0.01


def test_after_going_back_to_an_earlier_token_the_answer_is_the_same() -> None:
    model, ids = open_model(golden("deepseek2-v3").path, EXACT), golden("deepseek2-v3").ids("medium")
    steps = Steps(model, blocks(0, 4))
    wanted = steps.prefill(ids, 20)
    for back in (1, 17, 33):
        steps._at = len(ids) - back
        np.testing.assert_allclose(steps.prefill(ids[-back:], 5), wanted[-back:], atol=1e-4)
    model.close()
