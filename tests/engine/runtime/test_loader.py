"""Loading: progress, cancelling, refusals, and a model file that changes under a loaded model."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest

from engine.arch.registry import build_spec
from engine.errors import Cancelled, EngineError, GgufError, InvalidRequest, ModelChanged, OutOfMemory, UnsupportedModel
from engine.gguf.reader import read_gguf
from engine.graph.build import build_graph
from engine.placement.options import LoadOptions
from engine.runtime import owning
from engine.runtime.kv_cache import KvCache
from engine.runtime.loader import load
from kernels_pyx.executor import AbortFlag
from tests.helpers.models import need_included_model
from tests.helpers.runs import EXACT, Steps, blocks, decode_batch, open_model, some_ids, write_model


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_model(tmp_path / "tiny.gguf")


def test_progress_counts_the_bytes_of_the_weights(path: Path) -> None:
    file = read_gguf(path)
    spec = build_spec(file)
    told: list[tuple[str, int, int]] = []
    model = load(file, spec, build_graph(spec), EXACT, lambda *progress: told.append(progress), AbortFlag())
    matrices = sum(tensor.nbytes for tensor in file.tensors.values() if len(tensor.shape) == 2)
    weights = [(done, total) for phase, done, total in told if phase == "weights"]
    assert weights[0] == (0, matrices) and weights[-1] == (matrices, matrices)
    assert [done for done, _ in weights] == sorted(done for done, _ in weights)
    assert told[-1] == ("warmup", 1, 1)
    embedding = file.tensors["token_embd.weight"].nbytes
    assert model.residency.nbytes("weights") == matrices
    assert model.residency.weight_bytes_per_token == matrices - embedding
    assert model.residency.nbytes() > matrices
    model.close()


def test_reference_has_the_same_surface(path: Path) -> None:
    reference, model = open_model(path, replace(EXACT, reference=True)), open_model(path)
    ids = some_ids(40)
    np.testing.assert_allclose(Steps(model, blocks(0, 2)).prefill(ids), Steps(reference, blocks(0, 2)).prefill(ids), atol=3e-4)
    assert (reference.n_ctx, reference.cache_groups[0].n_blocks) == (model.n_ctx, model.cache_groups[0].n_blocks)
    assert reference.executor is None and reference.last_step_s == 0
    reference.check_identity()
    reference.close()
    model.close()


def test_closing_twice_is_harmless(path: Path) -> None:
    model = open_model(path)
    model.close()
    model.close()


def test_included_model_is_ready_within_a_second() -> None:
    path = need_included_model()
    open_model(path, LoadOptions()).close()
    started = time.perf_counter()
    model = open_model(path, LoadOptions())
    seconds = time.perf_counter() - started
    model.close()
    assert seconds < 1.0


@pytest.mark.parametrize("at", [0.0, 0.3, 0.9])
def test_cancelled_loading_gives_everything_back(at: float) -> None:
    path = need_included_model()
    process = psutil.Process()
    file = read_gguf(path)
    spec = build_spec(file)
    abort = AbortFlag()
    before, threads = process.memory_info().rss, process.num_threads()

    def progress(phase: str, done: int, total: int) -> None:
        if phase == "weights" and done >= at * total:
            abort.set()

    started = time.perf_counter()
    with pytest.raises(Cancelled):
        load(file, spec, build_graph(spec), LoadOptions(), progress, abort)
    assert time.perf_counter() - started < 1.5
    assert process.memory_info().rss - before < 50e6
    assert process.num_threads() <= threads  # one of another test may have ended meanwhile


def test_context_beyond_the_model_is_refused(path: Path) -> None:
    with pytest.raises(InvalidRequest, match="takes 1 to 1024"):
        open_model(path, replace(EXACT, n_ctx=1025))
    with pytest.raises(InvalidRequest, match="threads"):
        open_model(path, replace(EXACT, n_threads=-1))
    with pytest.raises(InvalidRequest, match="prefill chunk"):
        open_model(path, replace(EXACT, prefill_chunk=0))


def test_cache_that_does_not_fit_says_how_much_is_missing(path: Path) -> None:
    spec = build_spec(read_gguf(path))
    with pytest.raises(OutOfMemory, match=r"context of 10,?000000000 tokens needs [\d,]+ bytes of memory and [\d,]+ are free"):
        KvCache(spec, 10_000_000_000, "f16", "f16", 512)


def test_type_without_kernels_is_named(path: Path) -> None:
    file = read_gguf(path)
    spec = build_spec(file)
    odd = replace(file.tensors["blk.1.ffn_up.weight"], type_id=24, type_name="I8")
    file = replace(file, tensors={**file.tensors, odd.name: odd})
    with pytest.raises(UnsupportedModel, match=r"blk\.1\.ffn_up\.weight is of type I8"):
        load(file, spec, build_graph(spec), EXACT, lambda *_: None, AbortFlag())


def test_missing_and_misshapen_tensors_are_named(path: Path) -> None:
    file = read_gguf(path)
    spec = build_spec(file)
    name = "blk.0.attn_k.weight"
    without = replace(file, tensors={key: value for key, value in file.tensors.items() if key != name})
    bent = replace(file, tensors={**file.tensors, name: replace(file.tensors[name], shape=(32, 64))})
    for wrong, words in ((without, "missing"), (bent, "shape")):
        with pytest.raises(GgufError, match=rf"blk\.0\.attn_k\.weight.*{words}"):
            load(wrong, spec, build_graph(spec), EXACT, lambda *_: None, AbortFlag())


def test_identity_notices_what_happens_to_the_file(path: Path) -> None:
    copy = path.with_name("copy.gguf")
    for harm in ("touch", "replace"):
        shutil.copy(path, copy)
        model = open_model(copy)
        model.check_identity()
        if harm == "touch":
            os.utime(copy, ns=(1, 1))
        else:
            shutil.copy(path, path.with_name("new.gguf"))
            path.with_name("new.gguf").replace(copy)
        with pytest.raises(ModelChanged, match=r"copy\.gguf changed on disk"):
            model.check_identity()
        model.close()
    shutil.copy(path, copy)
    model = open_model(copy)
    copy.unlink()
    model.check_identity()
    model.close()


def test_file_of_another_time_than_its_header_is_refused(path: Path) -> None:
    file = read_gguf(path)
    spec = build_spec(file)
    os.utime(path, ns=(5, 5))
    with pytest.raises(ModelChanged):
        load(file, spec, build_graph(spec), EXACT, lambda *_: None, AbortFlag())


TRUNCATE_SCRIPT = """
import faulthandler, os, sys
from pathlib import Path
import numpy as np
from engine.errors import ModelChanged
from tests.helpers.runs import EXACT, blocks, decode_batch, open_model
faulthandler.enable()
path = Path(sys.argv[1])
model = open_model(path)
before = model.step(decode_batch([1], [0], [blocks(0, 1)]))
os.truncate(path, 8192)
try:
    model.step(decode_batch([1], [0], [blocks(0, 1)]))
except ModelChanged as error:
    print("survived:", error)
try:
    model.check_identity()
except ModelChanged:
    print("noticed")
model.close()
"""


def test_process_survives_a_truncated_file(tmp_path: Path) -> None:
    path = write_model(tmp_path / "m.gguf", n_embd=256, n_ff=512, head_dim=64, v_dim=64)
    done = subprocess.run([sys.executable, "-c", TRUNCATE_SCRIPT, path], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "survived: m.gguf became shorter" in done.stdout and "noticed" in done.stdout
    assert done.stderr == ""


def test_one_wrong_first_token_refuses_the_model(path: Path) -> None:
    tensor = read_gguf(path).tensors["output.weight"]
    with path.open("r+b") as stream:
        stream.seek(tensor.offset)
        stream.write(b"\xff\xff\xff\x7f" * 64)
    threads = psutil.Process().num_threads()
    with pytest.raises(EngineError, match="the head"):
        open_model(path)
    assert psutil.Process().num_threads() <= threads  # one of another test may have ended meanwhile


def test_steps_after_close_are_refused(path: Path) -> None:
    model = open_model(path)
    model.close()
    with pytest.raises(InvalidRequest):
        model.step(decode_batch([1], [0], [blocks(0, 1)]))


def test_cache_takes_memory_as_the_context_grows() -> None:
    path, process = need_included_model(), psutil.Process()

    def own_bytes() -> int:
        info = process.memory_info()
        return int(info.rss - info.shared)

    before = own_bytes()
    model = open_model(path, LoadOptions(n_ctx=8192))
    assert model.residency.nbytes("kv") > 180e6
    assert not model.owns
    assert own_bytes() - before < 60e6
    model.close()


def test_a_loaded_model_settles_and_answers_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "copy.gguf"
    path.write_bytes(need_included_model().read_bytes())

    def take(self: owning.Owning, piece: owning.Piece) -> str:
        self._maps[piece.shard].own(piece.offset, piece.nbytes)
        return "taken"  # whether or not the file lies in huge pages already

    monkeypatch.setattr(owning.Owning, "_take", take)
    model = open_model(path, LoadOptions(n_ctx=256))
    total = model.residency.nbytes("weights")
    batch = decode_batch([1], [0], [blocks(0, 1)])
    before = model.step(batch)
    assert model.settling
    model.settle()
    assert model.owns
    middle = model.step(batch)
    while model.settling:
        model.settle()
    after = model.step(batch)
    taken = sum(one.nbytes for one in model.residency.holdings if one.owner == "weights" and not one.mapped)
    assert 0.6 * total < taken <= total == model.residency.nbytes("weights")  # the embedding is read by the row
    assert (before == middle).all() and (before == after).all()
    os.truncate(path, 1 << 20)
    with pytest.raises(ModelChanged):
        model.step(decode_batch([2], [0], [blocks(0, 1)]))
        model.check_identity()
    model.close()
