"""The in-process engine with a tiny model: chats, reuse, cancels in every phase, errors, and one end for each request."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.api.commands import Cancel, Command, CountTokens, Generate, LoadModel, UnloadModel, WatchSensors
from engine.api.events import (
    Failed,
    Finished,
    LoadProgress,
    ModelUnloaded,
    Notice,
    PrefillProgress,
    Queued,
    Sensors,
    TokenCount,
    TokenDelta,
)
from engine.api.values import ChatMessage, LoadOptions, RequestId, SamplingParams
from engine.errors import EngineBug
from engine.tokenizer import chat_template
from tests.helpers.golden_models import LLAMAS, golden
from tests.helpers.recorder import Recorder, chat, new_id

TINY = golden(LLAMAS[0]).path
ENDLESS = SamplingParams(temperature=0.0, max_tokens=3000)
EXACT = LoadOptions(k_type="f32", v_type="f32", f32_activations=True)


@pytest.fixture
def recorder() -> object:
    with Recorder() as made:
        yield made


@pytest.fixture
def ready(recorder: Recorder) -> Recorder:
    recorder.load(TINY)
    return recorder


def greedy_ids(prompt: str) -> Generate:
    ids = tuple(golden(LLAMAS[0]).ids(prompt))
    return Generate(new_id(), ids=ids, sampling=SamplingParams(temperature=0.0, max_tokens=32), ignore_eog=True)


def long_answer() -> Generate:
    return Generate(new_id("long"), ids=(1, 2, 3), sampling=ENDLESS, ignore_eog=True)


def long_prompt() -> Generate:
    return Generate(new_id("prompt"), ids=tuple(i % 500 for i in range(3000)), sampling=ENDLESS, ignore_eog=True)


def test_what_a_load_tells(recorder: Recorder) -> None:
    info = recorder.load(TINY)
    assert (info.name, info.architecture, info.quant) == ("tiny-llama-gqa-rope3", "llama", "F16")
    assert (info.n_layers, info.n_vocab, info.context_length, info.n_ctx) == (3, 512, 4096, 4096)
    assert info.has_template and info.warnings == ()
    assert info.file_bytes == TINY.stat().st_size and info.n_params > 100_000
    phases = [e.phase for e in recorder.events if isinstance(e, LoadProgress)]
    assert phases[0] == "header" and phases[-1] == "warmup" and "weights" in phases


@pytest.mark.parametrize("options", [EXACT, LoadOptions(reference=True)], ids=["compiled", "reference"])
def test_answers_equal_the_recorded_ones(recorder: Recorder, options: LoadOptions) -> None:
    recorder.load(TINY, options)
    for prompt in ("short", "medium", "long"):
        command = greedy_ids(prompt)
        end = recorder.finished(command)
        assert list(end.usage.token_ids) == golden(LLAMAS[0]).greedy(prompt)
        assert end.reason == "length"


def test_a_chat_reuses_what_is_in_the_cache(ready: Recorder) -> None:
    first = chat("Tell me about rivers and the sea, please.")
    end = ready.finished(first)
    assert end.usage.n_reused == 0 and end.usage.ttft_s is not None and end.usage.ttft_s > 0
    answer = ready.text(first.request_id)
    again = ready.finished(chat("Tell me about rivers and the sea, please."))
    assert again.usage.n_reused == again.usage.n_prompt - 1
    assert again.usage.token_ids == end.usage.token_ids
    following = ready.finished(chat("Tell me about rivers and the sea, please.", answer, "And the sky?"))
    assert following.usage.n_reused >= end.usage.n_prompt
    edited = ready.finished(chat("Tell me about rivers and the hills, please."))
    assert 8 < edited.usage.n_reused < edited.usage.n_prompt - 4
    events = ready.of(first.request_id)
    assert isinstance(events[0], Queued) and isinstance(events[1], PrefillProgress) and isinstance(events[-1], Finished)
    assert sum(e.n_tokens for e in events if isinstance(e, TokenDelta)) <= end.usage.n_generated


def test_two_requests_at_once_get_their_own_answers(ready: Recorder) -> None:
    one, two = chat("Hello there"), chat("Something else entirely")
    alone = [ready.finished(replace(command, request_id=new_id())).usage.token_ids for command in (one, two)]
    ready.engine.submit(one)
    ready.engine.submit(two)
    ends = [ready.end_of(command.request_id) for command in (one, two)]
    assert [end.usage.token_ids for end in ends] == alone


def test_many_requests_decode_in_batches_of_the_same_results(recorder: Recorder) -> None:
    recorder.load(TINY, EXACT)
    sampling = SamplingParams(temperature=0.0, max_tokens=24)
    asked = [Generate(new_id(), ids=(5, 40 + i, 9, 7 * i), sampling=sampling, ignore_eog=True) for i in range(11)]
    alone = [recorder.finished(replace(command, request_id=new_id())).usage.token_ids for command in asked]
    recorder.finished(UnloadModel(new_id()))
    recorder.load(TINY, EXACT)
    for command in asked:
        recorder.engine.submit(command)
    assert [recorder.end_of(command.request_id).usage.token_ids for command in asked] == alone


def test_continuing_an_answer_gives_the_rest_of_it(ready: Recorder) -> None:
    whole = chat("Count with me", sampling=SamplingParams(temperature=0.0, max_tokens=20))
    ready.finished(whole)
    text = ready.text(whole.request_id)
    half = len(text) // 2
    rest = chat("Count with me", text[:half], continue_last=True)
    end = ready.finished(rest)
    # The last message is cut anywhere, so its tokens may differ; but the prompt must end in its text, not behind it.
    assert end.usage.n_reused > 10
    assert ready.finished(chat("Count with me", text[:half], "more")).usage.n_prompt > end.usage.n_prompt


def test_continuing_without_an_answer_is_refused(ready: Recorder) -> None:
    end = ready.run(chat("Count with me", continue_last=True))
    assert isinstance(end, Failed) and "no answer to continue" in end.message


def test_without_the_template_helper_answers_come_with_a_notice(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_template, "WORKER", "engine.tokenizer.no_such_worker")
    recorder.load(TINY)
    first, second = chat("Hello"), chat("Hello again")
    for command in (first, second):
        assert recorder.finished(command).usage.n_generated > 0
    assert [type(event) for event in recorder.of(first.request_id)[:2]] == [Notice, Queued]
    assert not any(isinstance(event, Notice) for event in recorder.of(second.request_id))


def test_text_of_users_holds_no_control_tokens(ready: Recorder) -> None:
    def count(text: str) -> int:
        command = CountTokens(new_id(), (ChatMessage("user", text),))
        ready.finished(command)
        return next(e.n_tokens for e in ready.of(command.request_id) if isinstance(e, TokenCount))

    assert count("<|im_end|>") > count("x") + 3


def test_cancel_while_queued(ready: Recorder) -> None:
    busy, waiting = long_answer(), long_answer()
    ready.engine.submit(busy)
    ready.engine.submit(waiting)
    ready.cancel(waiting.request_id)
    end = ready.end_of(waiting.request_id)
    assert isinstance(end, Finished) and (end.reason, end.usage.n_generated) == ("cancelled", 0)
    ready.cancel(busy.request_id)
    assert ready.end_of(busy.request_id).usage.n_generated < 3000


def test_cancel_in_prefill(recorder: Recorder) -> None:
    recorder.load(TINY, LoadOptions(reference=True))
    command = long_prompt()
    recorder.engine.submit(command)
    recorder.wait_for(lambda events: any(isinstance(e, PrefillProgress) for e in events))
    recorder.cancel(command.request_id)
    end = recorder.end_of(command.request_id)
    assert isinstance(end, Finished) and (end.reason, end.usage.n_generated) == ("cancelled", 0)
    assert not any(isinstance(e, PrefillProgress) and e.done == 3000 for e in recorder.of(command.request_id))


def test_cancel_in_decode_keeps_the_text(ready: Recorder) -> None:
    command = long_answer()
    ready.engine.submit(command)
    ready.wait_for(lambda events: sum(isinstance(e, TokenDelta) for e in events) > 5)
    ready.cancel(command.request_id)
    end = ready.end_of(command.request_id)
    assert isinstance(end, Finished) and end.reason == "cancelled" and end.usage.n_generated > 5
    assert ready.text(command.request_id)


@pytest.mark.parametrize("at", [0, 1, 2, 3])
def test_cancel_while_loading(recorder: Recorder, at: int) -> None:
    recorder.load(TINY)
    command = LoadModel(new_id("load"), str(TINY), LoadOptions())
    seen: list[LoadProgress] = []
    cancel = Cancel(new_id("cancel"), command.request_id)

    def at_some_progress(event: object) -> None:
        if isinstance(event, LoadProgress) and event.request_id == command.request_id:
            seen.append(event)
            if len(seen) == at + 1:
                recorder.engine.submit(cancel)

    recorder.engine.subscribe(at_some_progress)
    end = recorder.run(command)
    assert isinstance(end, Failed) and end.kind == "Cancelled"
    assert isinstance(recorder.end_of(cancel.request_id), Finished)
    gone = any(isinstance(e, ModelUnloaded) for e in recorder.of(command.request_id))
    # While only the header was read, the old model is still there.
    assert gone == (at >= 2)
    assert isinstance(recorder.run(chat("hello")), Failed if gone else Finished)
    recorder.load(TINY)
    assert isinstance(recorder.run(chat("hello")), Finished)


def test_cancel_of_what_is_over_is_no_error(ready: Recorder) -> None:
    assert isinstance(ready.end_of(ready.cancel(RequestId("never"))), Finished)


def test_a_new_model_ends_the_answers_of_the_old_one(ready: Recorder) -> None:
    command = long_answer()
    ready.engine.submit(command)
    ready.wait_for(lambda events: any(isinstance(e, TokenDelta) for e in events))
    info = ready.load(golden(LLAMAS[1]).path)
    assert info.name == "tiny-llama-mha-spm"
    end = ready.end_of(command.request_id)
    assert isinstance(end, Finished) and end.reason == "cancelled"
    assert isinstance(ready.run(chat("hello")), Finished)


def test_a_broken_file_leaves_the_old_model(ready: Recorder, tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(TINY.read_bytes()[:1000])
    end = ready.run(LoadModel(new_id(), str(broken)))
    assert isinstance(end, Failed) and end.kind == "GgufError" and not end.is_bug
    assert isinstance(ready.run(chat("hello")), Finished)


def test_unload(ready: Recorder) -> None:
    command = UnloadModel(new_id())
    ready.finished(command)
    assert any(isinstance(e, ModelUnloaded) for e in ready.of(command.request_id))
    end = ready.run(chat("hello"))
    assert isinstance(end, Failed) and "no model is loaded" in end.message


def test_a_replaced_file_is_noticed_before_the_next_prompt(recorder: Recorder, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(TINY.read_bytes())
    recorder.load(path)
    other = tmp_path / "other.gguf"
    other.write_bytes(TINY.read_bytes())
    other.rename(path)
    end = recorder.run(chat("hello"))
    assert isinstance(end, Failed) and end.kind == "ModelChanged"


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (Generate(RequestId("a")), "0 of messages, prompt and ids are given"),
        (Generate(RequestId("a"), prompt="x", ids=(1,)), "2 of messages, prompt and ids are given"),
        (Generate(RequestId("a"), messages=()), "the conversation is empty"),
        (Generate(RequestId("a"), ids=()), "the prompt is empty"),
        (Generate(RequestId("a"), ids=(512,)), "token id 512 is out of range"),
        (Generate(RequestId("a"), ids=(1,) * 4097), "4097 tokens, the context holds 4096"),
    ],
)
def test_requests_that_cannot_be_served(ready: Recorder, command: Generate, words: str) -> None:
    end = ready.run(command)
    kind = "ContextFull" if "context" in words else "InvalidRequest"
    assert isinstance(end, Failed) and end.kind == kind and words in end.message


def test_a_raw_prompt_gets_one_bos(ready: Recorder) -> None:
    with_bos = ready.finished(Generate(new_id(), prompt="hello", sampling=SamplingParams(max_tokens=1)))
    ids = golden(LLAMAS[0]).ids("short")
    assert with_bos.usage.n_prompt >= 2
    assert ids[0] == 505


def test_one_seed_gives_one_answer(ready: Recorder) -> None:
    warm = SamplingParams(temperature=1.0, seed=7, max_tokens=20)
    ends = [ready.finished(chat("hello", sampling=warm)).usage.token_ids for _ in range(2)]
    other = ready.finished(chat("hello", sampling=replace(warm, seed=8))).usage.token_ids
    assert ends[0] == ends[1] != other


def test_sensors_come_until_they_are_stopped(recorder: Recorder) -> None:
    watch = WatchSensors(new_id(), 0.1)
    recorder.finished(watch)
    recorder.wait_for(lambda events: sum(isinstance(e, Sensors) for e in events) >= 2)
    assert all(e.request_id == watch.request_id for e in recorder.events if isinstance(e, Sensors))
    recorder.finished(WatchSensors(new_id(), 0.0))
    n = sum(isinstance(e, Sensors) for e in recorder.events)
    threading.Event().wait(0.3)
    assert sum(isinstance(e, Sensors) for e in recorder.events) == n


def test_a_used_request_id_is_refused(ready: Recorder) -> None:
    command = long_answer()
    ready.engine.submit(command)
    with pytest.raises(EngineBug, match="in use"):
        ready.engine.submit(command)
    ready.cancel(command.request_id)


def test_closing_ends_everything_and_leaves_no_thread(recorder: Recorder) -> None:
    before = {thread for thread in threading.enumerate() if thread.name in ("engine", "template warm-up")}
    recorder.load(TINY)
    commands = [long_answer(), long_answer(), long_prompt()]
    for command in commands:
        recorder.engine.submit(command)
    recorder.engine.close()
    recorder.engine.close()
    late = chat("too late")
    recorder.engine.submit(late)
    for command in (*commands, late):
        end = recorder.end_of(command.request_id)
        assert isinstance(end, Finished) and end.reason == "cancelled"
    assert not any(thread.is_alive() for thread in before)


@pytest.mark.expects_warnings
def test_a_listener_that_fails_does_not_end_the_engine(ready: Recorder, caplog: pytest.LogCaptureFixture) -> None:
    def broken(_event: object) -> None:
        raise ValueError("listener")

    ready.engine.subscribe(broken)
    assert isinstance(ready.run(chat("hello")), Finished)
    assert "a listener failed" in caplog.text


@pytest.mark.expects_warnings
def test_a_bug_in_a_step_fails_the_request_and_spares_the_engine(
    ready: Recorder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from engine.session import generate

    def broken(_work: object) -> None:
        raise ZeroDivisionError("oops")

    with monkeypatch.context() as patch:
        patch.setattr(generate, "_batch", broken)
        end = ready.run(chat("hello"))
    assert isinstance(end, Failed) and end.is_bug and end.kind == "ZeroDivisionError"
    assert "oops" in caplog.text
    assert isinstance(ready.run(chat("hello")), Finished)


commands = st.one_of(
    st.builds(lambda n: ("generate", n), st.integers(0, 60)),
    st.builds(lambda n: ("cancel", n), st.integers(0, 12)),
    st.sampled_from([("load", 0), ("load", 1), ("unload", 0), ("count", 0), ("bad", 0), ("watch", 0), ("watch", 1), ("wait", 0)]),
)


@given(st.lists(commands, min_size=1, max_size=12))
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_every_command_ends_exactly_once(script: list[tuple[str, int]]) -> None:
    submitted: list[RequestId] = []
    with Recorder() as recorder:
        for kind, n in [("load", 0), *script]:
            if kind == "wait":
                recorder.end_of(submitted[0])
                continue
            name = new_id()
            made: dict[str, Command] = {
                "generate": Generate(name, ids=(5, 6, 7), sampling=SamplingParams(max_tokens=n), ignore_eog=True),
                "cancel": Cancel(name, submitted[min(n, len(submitted) - 1)] if submitted else RequestId("none")),
                "load": LoadModel(name, str(golden(LLAMAS[n % 2]).path)),
                "unload": UnloadModel(name),
                "count": CountTokens(name, (ChatMessage("user", "hi"),)),
                "bad": Generate(name, ids=(-1,)),
                "watch": WatchSensors(name, n * 0.1),
            }
            submitted.append(name)
            recorder.engine.submit(made[kind])
        if script[-1][1] % 2:
            for name in submitted:
                recorder.end_of(name)
    ends = [event.request_id for event in recorder.events if isinstance(event, Finished | Failed)]
    assert sorted(ends) == sorted(submitted)
    assert not any(isinstance(event, Failed) and event.is_bug for event in recorder.events)
