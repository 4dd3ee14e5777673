"""Answers with models over emulated GPUs: several at once, prefixes and states that are reused, loads and steps that fail."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engine.api.events import Event, Failed, Finished
from engine.api.values import RequestId, SamplingParams
from engine.errors import Cancelled, DeviceLost, EngineError, OutOfMemory, PlacementError
from engine.placement.placement import Gpu
from engine.session.generate import Session
from kernels_pyx.executor import AbortFlag
from tests.helpers.fake_model import FakeTokenizer
from tests.helpers.golden_models import MODELS, batch, golden, greedy
from tests.helpers.placed import EXACT, Where, anywhere, hybrid, need_torch, on_cpu, open_placed, placed, split, whole
from tests.helpers.runs import blocks, decode_batch, open_model, prefill_batch, some_ids, write_model

PLACES: dict[str, Where] = {"whole": whole, "hybrid": hybrid, "split": split, "anywhere": anywhere(3)}


@pytest.fixture(autouse=True)
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    need_torch()
    monkeypatch.setenv("LAYERDECK_GPU", "emulate:2")


def session_of(model: object, events: list[Event], chunk: int = 64) -> Session:
    return Session(model, FakeTokenizer(n_vocab=512), chunk, events.append)  # type: ignore[arg-type]


def ask(session: Session, name: str, ids: list[int], n: int) -> None:
    session.add(RequestId(name), ids, SamplingParams(temperature=0.0, max_tokens=n), 0.0, ends_at_eog=False)


def run(session: Session) -> None:
    while not session.idle:
        session.step()


def ends(events: list[Event]) -> dict[str, Finished]:
    return {str(event.request_id): event for event in events if isinstance(event, Finished)}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", MODELS)
def test_answers_at_once_are_those_of_each_alone(name: str, place: str) -> None:
    """Three prompts in chunks between decode steps of a bucket with padding rows."""
    model = open_placed(golden(name).path, PLACES[place], replace(EXACT, prefill_chunk=32))
    events: list[Event] = []
    session = session_of(model, events, 32)
    for prompt in ("short", "medium"):
        ask(session, prompt, golden(name).ids(prompt), 12)
    ask(session, "again", golden(name).ids("medium")[:-7], 12)
    run(session)
    found = ends(events)
    for prompt in ("short", "medium"):
        assert list(found[prompt].usage.token_ids) == golden(name).greedy(prompt)[:12]
    assert list(found["again"].usage.token_ids) == greedy(model, golden(name).ids("medium")[:-7], 12, 32)
    model.close()


@pytest.mark.parametrize("name", ["qwen3", "gemma3", "gpt-oss", "deepseek2-lite", "qwen35", "qwen3next"])
def test_going_back_reuses_what_is_there_and_gives_the_same_ids(name: str) -> None:
    model, anew = open_placed(golden(name).path, anywhere(5)), open_placed(golden(name).path, on_cpu)
    events: list[Event] = []
    session = session_of(model, events)
    ids = golden(name).ids("medium")
    ask(session, "first", ids, 32)
    run(session)
    first = ends(events)["first"].usage.token_ids
    assert list(first) == golden(name).greedy("medium")
    tokens, reused = [*ids, *first], []
    for n in range(len(tokens) - 1, 4, -17):
        ask(session, str(n), tokens[:n], 6)
        run(session)
        end = ends(events)[str(n)]
        assert list(end.usage.token_ids) == greedy(anew, tokens[:n], 6)
        reused.append(end.usage.n_reused)
    assert max(reused) > 0
    model.close()
    anew.close()


@pytest.mark.parametrize("place", PLACES)
def test_batches_of_every_size_up_to_more_than_a_bucket(place: str, tmp_path: Path) -> None:
    path = write_model(tmp_path / "model.gguf", n_ctx=1024)
    theirs, ours = open_placed(path, on_cpu), open_placed(path, PLACES[place])
    for model in (theirs, ours):
        for i in range(11):
            model.step(prefill_batch(some_ids(5 + i, i), 0, blocks(i, 1)))
    for n in (1, 2, 3, 5, 8, 11):
        batch = decode_batch(some_ids(n, 50 + n), [5 + i for i in range(n)], [blocks(i, 1) for i in range(n)])
        assert np.abs(ours.step(batch) - theirs.step(batch)).max() < 1e-4
        some = replace(batch, out_rows=np.array([n - 1], np.int32))
        assert np.abs(ours.step(some) - theirs.step(some)).max() < 1e-4
        none = replace(batch, out_rows=np.array([], np.int32))
        assert ours.step(none).shape == (0, ours.spec.n_vocab)
    theirs.close()
    ours.close()


@pytest.mark.parametrize("place", ["whole", "split", "hybrid"])
def test_without_room_one_sentence_says_so_and_nothing_stays(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, storages: list[weakref.ref[object]]
) -> None:
    path = write_model(tmp_path / "model.gguf", n_layers=4, n_embd=256, n_ff=1024)
    for gib in np.geomspace(1e-4, 0.012, 9):
        monkeypatch.setenv("LAYERDECK_GPU", f"emulate:2x{gib:.6f}")
        try:
            open_placed(path, PLACES[place], replace(EXACT, n_ctx=1024)).close()
        except OutOfMemory as error:
            text = str(error)
            assert "bytes on gpu" in text and "are free" in text
        gc.collect()
        assert not [one for one in storages if one() is not None]
    with pytest.raises(OutOfMemory, match=r"needs [\d,]+ bytes on gpu\d and [\d,]+ are free; (move|place) "):
        monkeypatch.setenv("LAYERDECK_GPU", "emulate:2x0.0001")
        open_placed(path, PLACES[place], replace(EXACT, n_ctx=1024))


@pytest.fixture
def storages(monkeypatch: pytest.MonkeyPatch) -> list[weakref.ref[object]]:
    """What was allocated on emulated devices, as long as it lives."""
    from engine.runtime.gpu import GpuMemory

    found: list[weakref.ref[object]] = []
    usual = GpuMemory.allocate

    def allocate(self: GpuMemory, *args: object, **options: object) -> object:
        tensor = usual(self, *args, **options)  # type: ignore[arg-type]
        found.append(weakref.ref(tensor))
        return tensor

    monkeypatch.setattr(GpuMemory, "allocate", allocate)
    return found


@pytest.mark.parametrize("place", PLACES)
def test_closing_frees_everything_and_may_be_repeated(place: str, storages: list[weakref.ref[object]]) -> None:
    model = open_placed(golden("qwen35moe").path, PLACES[place])
    greedy(model, golden("qwen35moe").ids("short"), 3)
    assert storages
    model.close()
    model.close()
    with pytest.raises(EngineError, match="closed"):
        model.step(prefill_batch([1], 0, blocks(0, 1)))
    gc.collect()
    assert not [one for one in storages if one() is not None]


@pytest.mark.parametrize("phase", ["weights", "warmup"])
def test_a_cancelled_load_leaves_nothing(phase: str, storages: list[weakref.ref[object]]) -> None:
    from engine.arch.registry import build_spec
    from engine.gguf.reader import read_gguf
    from engine.graph.build import build_graph
    from engine.runtime.loader import load

    path, abort = golden("qwen3moe").path, AbortFlag()
    file = read_gguf(path)
    spec = build_spec(file)

    def progress(now: str, done: int, total: int) -> None:
        if now == phase:
            abort.set()

    with pytest.raises(Cancelled):
        load(file, spec, build_graph(spec), placed(path, hybrid), progress, abort)
    gc.collect()
    assert storages and not [one for one in storages if one() is not None]


def test_progress_counts_the_bytes_of_every_device() -> None:
    from engine.arch.registry import build_spec
    from engine.gguf.reader import read_gguf
    from engine.graph.build import build_graph
    from engine.runtime.loader import load

    path = golden("qwen3moe").path
    file = read_gguf(path)
    spec, told = build_spec(file), []

    def progress(phase: str, done: int, total: int) -> None:
        if phase == "weights":
            told.append((done, total))

    model = load(file, spec, build_graph(spec), placed(path, split), progress, AbortFlag())
    total = sum(one.nbytes for one in model.residency.holdings if one.owner == "weights")
    assert told[0][0] == 0 and told == sorted(told)
    assert told[-1][0] == told[-1][1] == pytest.approx(total, rel=0.01)
    assert {device for device, _, _ in model.shares} >= {Gpu(0), Gpu(1)}
    model.close()


def test_a_lost_gpu_fails_the_request_and_keeps_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    from engine.triton_kernels.torch.kernels import TorchKernels

    def broken(*args: object, **options: object) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be late")

    model = open_placed(golden("qwen3").path, split)
    events: list[Event] = []
    session = session_of(model, events)
    ids = golden("qwen3").ids("short")
    with monkeypatch.context() as patch:
        patch.setattr(TorchKernels, "attend", broken)
        ask(session, "lost", ids, 2)
        run(session)
    failed = [event for event in events if isinstance(event, Failed)]
    assert [(event.kind, event.is_bug) for event in failed] == [("DeviceLost", False)]
    assert failed[0].message.startswith(
        "gpu0 (emulated GPU) stopped working (CUDA error: an illegal memory access was encountered in mixer.0 attend)"
    )
    ask(session, "again", golden("qwen3").ids("medium"), 4)
    run(session)
    assert list(ends(events)["again"].usage.token_ids) == golden("qwen3").greedy("medium")[:4]
    model.close()


def test_values_that_are_not_finite_name_their_layer(tmp_path: Path) -> None:
    path = write_model(tmp_path / "model.gguf", n_layers=3)
    raw = bytearray(path.read_bytes())
    from engine.gguf.reader import read_gguf

    tensor = read_gguf(path).tensors["blk.1.ffn_norm.weight"]
    raw[tensor.offset : tensor.offset + 4] = b"\x00\x00\xc0\x7f"
    path.write_bytes(raw)
    for where in (whole, split):
        with pytest.raises(EngineError, match=r"non-finite values in layer 1 \(ffn\); the file is probably damaged"):
            open_placed(path, where)


@pytest.mark.parametrize("name", ["qwen3moe", "gpt-oss", "deepseek2-v3"])
@pytest.mark.expects_warnings
def test_gpus_that_cannot_write_to_each_other_send_through_memory(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.runtime.gpu_peers.WAYS", (lambda sender, sent, came: None,))
    ids, recorded = golden(name).ids("medium"), golden(name).logits("medium")
    for where in (split, anywhere(2)):
        model = open_placed(golden(name).path, where)
        assert np.abs(model.step(batch(ids))[-len(recorded) :] - recorded).max() < 2e-3
        assert greedy(model, ids, 8) == golden(name).greedy("medium")[:8]
        model.close()


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", ["qwen3moe", "gemma3", "gpt-oss", "deepseek2-v3", "qwen35moe", "qwen3next"])
def test_what_real_devices_do_to_get_warm_changes_nothing(name: str, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every plan runs on padding alone, behind a step of a real sequence it leaves that one's caches and states as they are."""
    monkeypatch.setattr("engine.runtime.gpu_warmup.needs_warmth", lambda sides: True)
    model = open_placed(golden(name).path, PLACES[place])
    ids, answer = golden(name).ids("medium"), golden(name).greedy("medium")
    assert greedy(model, ids, 5) == answer[:5]
    model.executor.warm_up(lambda done, total: None)  # type: ignore[union-attr, attr-defined]
    for i in range(4, 8):
        assert model.step(batch([answer[i]], len(ids) + i)).argmax() == answer[i + 1]
    model.close()


def test_a_gpu_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    options = placed(golden("qwen3").path, split)
    monkeypatch.setenv("LAYERDECK_GPU", "emulate:1")
    with pytest.raises(PlacementError, match="gpu1"):
        open_model(golden("qwen3").path, options)


def test_a_model_on_the_cpu_imports_no_torch() -> None:
    code = (
        "import os, sys\n"
        "os.environ['LAYERDECK_GPU'] = 'none'\n"
        "from tests.helpers.golden_models import golden, greedy\n"
        "from tests.helpers.runs import EXACT, open_model\n"
        "model = open_model(golden('qwen3moe').path, EXACT)\n"
        "greedy(model, golden('qwen3moe').ids('short'), 3)\n"
        "import engine.service.loop, engine.cli.bench\n"
        "sys.exit('torch' in sys.modules or 'triton' in sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=100).returncode == 0


def test_without_a_placement_the_gpus_are_used_as_far_as_they_go(monkeypatch: pytest.MonkeyPatch) -> None:
    path, ids = golden("qwen3moe").path, golden("qwen3moe").ids("medium")
    recorded = golden("qwen3moe").logits("medium")
    for setting, used in (("emulate:1", True), ("emulate:1x0.002", False), ("none", False)):
        monkeypatch.setenv("LAYERDECK_GPU", setting)
        model = open_model(path, EXACT)
        assert np.abs(model.step(batch(ids))[-len(recorded) :] - recorded).max() < 2e-3
        assert any(isinstance(device, Gpu) for device, _, _ in model.shares) == used
        model.close()


def test_gpus_that_nobody_asked_for_and_that_fail_leave_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*args: object, **options: object) -> None:
        raise DeviceLost("gpu0 (emulated GPU) stopped working")

    monkeypatch.setattr("engine.runtime.gpu_loader.GpuSide", fails)
    model = open_model(golden("qwen3").path, EXACT)
    assert model.notes == ("No GPU is used: gpu0 (emulated GPU) stopped working.",)
    assert greedy(model, golden("qwen3").ids("short"), 4) == golden("qwen3").greedy("short")[:4]
    model.close()
    with pytest.raises(DeviceLost):
        open_placed(golden("qwen3").path, whole)
