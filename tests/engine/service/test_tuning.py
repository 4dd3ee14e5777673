"""TuneWorkers through the engine: what it tells and keeps, that answers and the workers from before are not touched, its ends."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.api.commands import Generate, LoadModel, PinWorkers, TuneWorkers, UnloadModel
from engine.api.events import Failed, Finished, ModelReady, Notice, TokenDelta, TuneProgress, WorkersPinned, WorkersTuned
from engine.api.values import LoadOptions, SamplingParams
from engine.service import tuning, worker_handlers
from tests.helpers.golden_models import golden
from tests.helpers.recorder import Recorder, new_id

NAME = "qwen3moe"
COUNTS = (1, 2, 3)
OPTIONS = LoadOptions(k_type="f32", v_type="f32", f32_activations=True, n_threads=2)


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    monkeypatch.setattr(tuning, "thread_counts", lambda machine: COUNTS)
    monkeypatch.setattr(tuning, "PIECE_S", 0.02)
    with Recorder() as made:
        yield made


def answer(n: int = 32, name: str = NAME) -> Generate:
    ids = tuple(golden(name).ids("medium"))
    return Generate(new_id("answer"), ids=ids, sampling=SamplingParams(temperature=0.0, max_tokens=n), ignore_eog=True)


def tuned(recorder: Recorder, command: TuneWorkers) -> WorkersTuned:
    return next(e for e in recorder.of(command.request_id) if isinstance(e, WorkersTuned))


def workers(recorder: Recorder) -> tuple[int, ...]:
    """Who works now, as the engine tells when it is asked for nothing new."""
    loaded = recorder_state(recorder).loaded
    return loaded.model.placement.workers.cores


def recorder_state(recorder: Recorder) -> Any:
    import gc

    from engine.service.state import State

    return next(one for one in gc.get_objects() if type(one) is State and one.loaded is not None)


@pytest.mark.parametrize("name", ["qwen3moe", "qwen35", "gemma3"])
def test_everything_is_tried_in_rounds_and_the_model_is_as_before(recorder: Recorder, name: str) -> None:
    recorder.load(golden(name).path, OPTIONS)
    before, command = workers(recorder), TuneWorkers(new_id("tune"))
    alone = recorder.finished(answer(name=name)).usage.token_ids
    assert recorder.finished(command).reason == "done"
    events = recorder.of(command.request_id)
    told = [e for e in events if isinstance(e, TuneProgress) and e.what != "waiting"]
    assert [e.setting for e in told if e.what == "decode"] == [1, 2, 3, 3, 2, 1, 1, 2, 3]
    assert [e.done for e in told] == sorted({e.done for e in told}) and told[-1].done <= told[-1].total
    found = tuned(recorder, command)
    assert [(one.setting, one.n) for one in found.decode] == [(1, 3), (2, 3), (3, 3)]
    assert all(one.tok_s > 0 and one.spread >= 0 for one in (*found.decode, *found.prefill))
    assert found.threads in COUNTS and found.chunk in {one.setting for one in found.prefill} and found.kept
    assert workers(recorder) == before
    again = recorder.finished(answer(name=name)).usage
    assert (again.token_ids, again.n_reused > 0) == (alone, True)  # what the cache held is still right


def test_the_next_load_uses_it_and_says_so_until_it_is_forgotten(recorder: Recorder) -> None:
    recorder.load(golden(NAME).path, OPTIONS)
    command = TuneWorkers(new_id("tune"))
    recorder.finished(command)
    found = tuned(recorder, command)
    free = LoadOptions(k_type="f32", v_type="f32", f32_activations=True)

    def load(options: LoadOptions) -> tuple[int, list[str]]:
        loading = LoadModel(new_id("load"), str(golden(NAME).path), options)
        recorder.finished(loading)
        events = recorder.of(loading.request_id)
        info = next(e.info for e in events if isinstance(e, ModelReady))
        notices = [e.message for e in events if isinstance(e, Notice)]
        assert notices == [info.tuned] * bool(info.tuned) and info.placement is not None
        return info.placement.workers.n_workers, notices

    n, notices = load(free)
    words = "1 thread" if n == 1 else f"{n} threads"
    assert n == found.threads and notices[0].startswith(f"Works with {words}")
    assert load(OPTIONS) == (2, [])  # somebody asked for two
    forget = TuneWorkers(new_id("forget"), forget=True)
    recorder.finished(forget)
    assert (tuned(recorder, forget).decode, tuned(recorder, forget).why_not) == ((), "")
    assert load(free)[1] == []


def test_an_answer_comes_first_and_its_text_is_the_same(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "PIECE_S", 0.2)
    recorder.load(golden(NAME).path, OPTIONS)
    before, command, request = workers(recorder), TuneWorkers(new_id("tune")), answer(200)
    alone = recorder.finished(answer(200)).usage.token_ids
    recorder.engine.submit(command)
    recorder.wait_for(lambda events: any(isinstance(e, TuneProgress) and e.setting == 3 for e in events))
    recorder.engine.submit(request)
    recorder.wait_for(lambda events: any(isinstance(e, TokenDelta) and e.request_id == request.request_id for e in events))
    assert workers(recorder) == before
    end = recorder.end_of(request.request_id)
    assert isinstance(end, Finished) and end.usage.token_ids == alone
    assert not any(isinstance(e, WorkersTuned) for e in recorder.of(command.request_id))
    assert isinstance(recorder.end_of(command.request_id), Finished)
    assert any(e.what == "waiting" for e in recorder.of(command.request_id) if isinstance(e, TuneProgress))
    assert tuned(recorder, command).decode[0].n == 3


@pytest.mark.parametrize("how", ["cancel", "unload", "close"])
def test_it_ends_at_once_and_keeps_nothing(recorder: Recorder, how: str, monkeypatch: pytest.MonkeyPatch, own_home: Path) -> None:
    monkeypatch.setattr(tuning, "PIECE_S", 30.0)  # in the midst of a piece
    recorder.load(golden(NAME).path, OPTIONS)
    before, command = workers(recorder), TuneWorkers(new_id("tune"))
    recorder.engine.submit(command)
    time.sleep(0.3)
    started = time.monotonic()
    if how == "cancel":
        recorder.cancel(command.request_id)
    elif how == "unload":
        monkeypatch.setattr(tuning, "PIECE_S", 0.0)
        recorder.cancel(command.request_id)
        recorder.finished(UnloadModel(new_id()))
    else:
        recorder.engine.close()
    end = recorder.end_of(command.request_id)
    assert isinstance(end, Finished) and end.reason == "cancelled" and time.monotonic() - started < 2
    assert not list(own_home.rglob("tuned-*.json"))
    if how == "cancel":
        assert list(recorder.finished(answer()).usage.token_ids) == golden(NAME).greedy("medium")
        assert workers(recorder) == before


def test_one_at_a_time_and_pins_wait(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder.load(golden(NAME).path, OPTIONS)
    monkeypatch.setattr(tuning, "PIECE_S", 0.3)
    first = TuneWorkers(new_id("tune"))
    recorder.engine.submit(first)
    for command in (TuneWorkers(new_id("tune")), PinWorkers(new_id("pin"), "1")):
        end = recorder.run(command)
        assert isinstance(end, Failed) and "are being tried" in end.message
    recorder.cancel(first.request_id)
    assert recorder.end_of(first.request_id) == Finished(first.request_id, "cancelled")
    pin = PinWorkers(new_id("pin"), "1")
    recorder.finished(pin)
    assert any(isinstance(e, WorkersPinned) for e in recorder.of(pin.request_id))


def test_a_slow_model_is_tried_in_one_round(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "DECODE_S", 0.0)
    monkeypatch.setattr(tuning, "PROMPTS_S", 0.0)
    recorder.load(golden(NAME).path, OPTIONS)
    command = TuneWorkers(new_id("tune"))
    recorder.finished(command)
    found = tuned(recorder, command)
    assert [one.n for one in found.decode] == [1, 1, 1] and len(found.prefill) == 1 and found.chunk == 0


def test_what_cannot_be_kept_is_told(recorder: Recorder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setattr(worker_handlers, "user_data_dir", lambda: blocked / "below")
    recorder.load(golden(NAME).path, OPTIONS)
    command = TuneWorkers(new_id("tune"))
    recorder.finished(command)
    found = tuned(recorder, command)
    assert not found.kept and "check its permissions" in found.why_not and len(found.decode) == 3


def test_there_must_be_a_model_with_workers(recorder: Recorder) -> None:
    end = recorder.run(TuneWorkers(new_id()))
    assert isinstance(end, Failed) and "no model is loaded" in end.message
    recorder.load(golden(NAME).path, LoadOptions(reference=True))
    end = recorder.run(TuneWorkers(new_id()))
    assert isinstance(end, Failed) and "the reference model has no workers" in end.message
