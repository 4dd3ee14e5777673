"""Models in several files: they load and answer like the whole, and each file is watched."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from engine.arch.registry import build_spec
from engine.errors import ModelChanged
from engine.gguf.reader import read_gguf
from engine.graph.build import build_graph
from engine.graph.reference import ReferenceModel
from tests.helpers.gguf_parts import write_parts
from tests.helpers.runs import Steps, blocks, decode_batch, open_model, some_ids, write_model

FDS = Path("/proc/self/fd")


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    return write_model(tmp_path / "m.gguf", n_embd=256, n_ff=512, head_dim=64, v_dim=64)


@pytest.fixture
def parts(whole: Path, tmp_path: Path) -> list[Path]:
    (tmp_path / "parts").mkdir()
    return write_parts(whole, tmp_path / "parts", 3)


def test_parts_answer_like_the_whole(whole: Path, parts: list[Path]) -> None:
    ids = some_ids(40)
    logits = []
    for path in (whole, parts[2], parts[0].parent):
        model = open_model(path)
        logits.append(Steps(model, blocks(0, 2)).prefill(ids))
        model.close()
    np.testing.assert_array_equal(logits[0], logits[1])
    np.testing.assert_array_equal(logits[0], logits[2])


def test_a_part_that_is_replaced_is_named(parts: list[Path]) -> None:
    model = open_model(parts[0])
    model.check_identity()
    copy = parts[1].with_suffix(".new")
    copy.write_bytes(parts[1].read_bytes())
    copy.rename(parts[1])
    with pytest.raises(ModelChanged, match=rf"{parts[1].name} changed on disk since it was loaded"):
        model.check_identity()
    model.close()


SCRIPT = """
import faulthandler, os, sys
from pathlib import Path
from engine.arch.registry import build_spec
from engine.errors import ModelChanged
from engine.gguf.reader import read_gguf
from engine.graph.build import build_graph
from engine.graph.reference import ReferenceModel
from tests.helpers.runs import blocks, decode_batch, open_model
faulthandler.enable()
path = Path(sys.argv[1])
model = open_model(path)
model.step(decode_batch([1], [0], [blocks(0, 1)]))
os.truncate(path, 4096)
try:
    model.step(decode_batch([1], [0], [blocks(0, 1)]))
except ModelChanged as error:
    print(error)
model.close()
"""


@pytest.mark.parametrize("number", range(3))
def test_process_survives_any_truncated_part(parts: list[Path], number: int) -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT, parts[number]], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert done.stdout.startswith(f"{parts[number].name} became shorter or unreadable while it was in use")


def test_every_part_is_unmapped_at_close(parts: list[Path]) -> None:
    before = len(list(FDS.iterdir()))
    model = open_model(parts[1])
    assert len(list(FDS.iterdir())) >= before + 3
    model.close()
    assert len(list(FDS.iterdir())) == before


def test_the_reference_notices_a_truncated_part_too(parts: list[Path]) -> None:
    file = read_gguf(parts[0])
    spec = build_spec(file)
    reference = ReferenceModel(file, spec, build_graph(spec))
    os.truncate(parts[1], 4096)
    with pytest.raises(ModelChanged, match=rf"{parts[1].name} became shorter"):
        reference.step(decode_batch([1], [0], [blocks(0, 1)]))
    reference.close()
