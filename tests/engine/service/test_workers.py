"""PinWorkers through the engine: other workers between two steps, where they really run, and what is refused."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.api.commands import ApplyPlacement, Generate, LoadModel, PinWorkers
from engine.api.events import Failed, TokenDelta, WorkersPinned
from engine.api.values import LoadOptions, ModelInfo, SamplingParams
from engine.runtime import repin, workers
from engine.runtime.workers import allowed_cpus
from engine.service import worker_handlers
from kernels_pyx.pool import Pool
from tests.helpers.golden_models import golden
from tests.helpers.recorder import Recorder, new_id

NAME = "qwen3moe"
HERE = tuple(sorted(os.sched_getaffinity(0)))
EXACT = LoadOptions(n_threads=1, k_type="f32", v_type="f32", f32_activations=True, placement="-ngl 0")

pytestmark = pytest.mark.skipif("PYTEST_XDIST_WORKER" in os.environ, reason="tests that run side by side pin nobody")


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    with Recorder() as made:
        yield made


def pinned(recorder: Recorder, cpus: str) -> WorkersPinned:
    command = PinWorkers(new_id("pin"), cpus)
    assert recorder.finished(command).reason == "done"
    return next(e for e in recorder.of(command.request_id) if isinstance(e, WorkersPinned))


def refused(recorder: Recorder, cpus: str) -> Failed:
    end = recorder.run(PinWorkers(new_id("pin"), cpus))
    assert isinstance(end, Failed) and not end.is_bug
    return end


def answer(n: int) -> Generate:
    ids = tuple(golden(NAME).ids("medium"))
    return Generate(new_id("answer"), ids=ids, sampling=SamplingParams(temperature=0.0, max_tokens=n), ignore_eog=True)


def threads() -> set[int]:
    return {int(one.name) for one in Path("/proc/self/task").iterdir()}


def cores_of(info: ModelInfo) -> tuple[int, ...]:
    assert info.placement is not None
    return info.placement.workers.cores


def test_workers_change_in_mid_answer_and_the_text_does_not(recorder: Recorder) -> None:
    recorder.load(golden(NAME).path, EXACT)
    request = answer(400)
    alone = recorder.finished(answer(400)).usage.token_ids
    recorder.engine.submit(request)
    recorder.wait_for(lambda events: any(isinstance(e, TokenDelta) and e.request_id == request.request_id for e in events))
    lists = [f"{HERE[0]},{HERE[-1]}", str(HERE[-1]) + f"-{HERE[-1]}", "5", "", "2"]
    for cpus in lists:
        assert pinned(recorder, cpus).pause_s < 0.1
    end = recorder.end_of(request.request_id)
    assert end.usage.token_ids == alone and list(alone[:32]) == golden(NAME).greedy("medium")


def test_every_new_worker_runs_on_its_core_alone(recorder: Recorder) -> None:
    recorder.load(golden(NAME).path, EXACT)
    for cores in ((HERE[0], HERE[-1]), HERE, HERE[:1]):
        before = threads()
        told = pinned(recorder, ",".join(map(str, cores)) if len(cores) > 1 else f"{cores[0]}-{cores[0]}")
        assert cores_of(told.info) == tuple(sorted(cores))
        assert sorted(allowed_cpus(thread) for thread in threads() - before) == [(core,) for core in sorted(cores)[1:]]
    recorder.finished(answer(4))


def test_the_one_that_asks_is_pinned_while_it_works_and_only_then() -> None:
    seen: list[tuple[int, ...]] = []
    pool, done = Pool([HERE[-1], -1]), threading.Event()
    caller = threading.get_native_id()

    def look() -> None:
        while not done.is_set():
            seen.append(allowed_cpus(caller))

    watcher = threading.Thread(target=look)
    watcher.start()
    pool.tally(30_000_000)
    done.set()
    watcher.join()
    pool.close()
    assert (HERE[-1],) in seen and allowed_cpus(caller) == HERE


def test_the_memory_of_more_workers_is_counted(recorder: Recorder) -> None:
    info = recorder.load(golden(NAME).path, EXACT)
    held = [one.nbytes for one in pinned(recorder, "4").info.holdings if one.owner == "workspace"]
    assert held > [one.nbytes for one in info.holdings if one.owner == "workspace"]
    assert [one.nbytes for one in pinned(recorder, "1").info.holdings if one.owner == "workspace"] < held


@pytest.mark.parametrize(
    ("cpus", "words"),
    [
        ("x", "is no list of processors"),
        ("0-1,1", "processor 1 listed twice"),
        ("7000-7001", "processors 7000-7001 are not in this machine; this program may use"),
        ("900", "use 0 (one per core) to 256"),
    ],
)
def test_lists_that_cannot_be_are_one_sentence(recorder: Recorder, cpus: str, words: str) -> None:
    info = recorder.load(golden(NAME).path, EXACT)
    end = refused(recorder, cpus)
    assert end.kind == "InvalidRequest" and words in end.message
    assert cores_of(pinned(recorder, "1").info) == cores_of(info)


@pytest.mark.parametrize(("error", "words"), [(errno.EPERM, "as some containers do"), (errno.EINVAL, "was switched off")])
def test_a_core_that_the_system_refuses_leaves_everything(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch, error: int, words: str
) -> None:
    recorder.load(golden(NAME).path, EXACT)
    pinned(recorder, ",".join(map(str, HERE)))
    before = threads()

    class Refused:
        cores = HERE
        refused = ((HERE[-1], error),)

    monkeypatch.setattr(repin, "check_pins", lambda pool: workers.check_pins(Refused()))  # type: ignore[arg-type]
    monkeypatch.setattr(worker_handlers, "repin", lambda *a, **k: repin.repin(*a, **k, check=repin.check_pins))
    end = refused(recorder, "1")
    assert words in end.message and end.message.endswith("; the workers stay where they were")
    assert threads() == before
    assert list(recorder.finished(answer(32)).usage.token_ids) == golden(NAME).greedy("medium")


def test_a_processor_that_went_off_since_is_refused_by_the_system_itself(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder.load(golden(NAME).path, EXACT)
    from engine.placement.placement import WorkerPlan

    monkeypatch.setattr(worker_handlers, "plan_workers", lambda n, cores: WorkerPlan((HERE[0], 1023)))
    end = refused(recorder, "2")
    assert "the system has no processor 1023 for this program" in end.message
    assert list(recorder.finished(answer(32)).usage.token_ids) == golden(NAME).greedy("medium")


def test_there_must_be_workers_to_pin(recorder: Recorder) -> None:
    assert "no model is loaded" in refused(recorder, "1").message
    recorder.finished(LoadModel(new_id(), str(golden(NAME).path), LoadOptions(reference=True)))
    assert "the reference model has no workers" in refused(recorder, "1").message


def test_a_placement_that_is_applied_brings_its_workers(recorder: Recorder) -> None:
    recorder.load(golden(NAME).path, EXACT)
    info: Any = pinned(recorder, ",".join(map(str, HERE))).info
    assert recorder.finished(ApplyPlacement(new_id(), info.placement)).reason == "done"
    assert list(recorder.finished(answer(32)).usage.token_ids) == golden(NAME).greedy("medium")
    assert len(pinned(recorder, "3").info.placement.workers.cores) == 3  # type: ignore[union-attr]
