"""The main job without a window, as a person does it: load a model, chat, stop an answer, chat again, close."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from engine.api.events import Finished, TokenDelta
from engine.api.values import SamplingParams
from tests.helpers.golden_models import LLAMAS, golden
from tests.helpers.models import need_included_model
from tests.helpers.recorder import Recorder, chat


@pytest.mark.parametrize("name", LLAMAS)
def test_load_chat_stop_chat_again(name: str) -> None:
    before = set(threading.enumerate())
    with Recorder() as recorder:
        info = recorder.load(golden(name).path)
        assert info.architecture == "llama"

        first = chat("What is a river?")
        assert recorder.finished(first).usage.n_generated > 0

        endless = SamplingParams(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, seed=1, max_tokens=1000)
        stopped = chat("What is a river?", recorder.text(first.request_id), "Go on forever.", sampling=endless)
        recorder.engine.submit(stopped)
        recorder.wait_for(lambda events: any(isinstance(e, TokenDelta) and e.request_id == stopped.request_id for e in events))
        recorder.cancel(stopped.request_id)
        end = recorder.end_of(stopped.request_id)
        assert isinstance(end, Finished) and end.reason in ("cancelled", "stop")
        assert end.usage.n_reused > 0

        # The answer so far is kept: it is part of the next prompt, and its cache is reused.
        said = recorder.text(stopped.request_id)
        again = chat("What is a river?", recorder.text(first.request_id), "Go on forever.", said, "Thank you.")
        assert recorder.finished(again).usage.n_reused >= end.usage.n_prompt - 1

        repeated = chat("What is a river?")
        recorder.finished(repeated)
        assert recorder.text(repeated.request_id) == recorder.text(first.request_id)
    assert not [thread for thread in set(threading.enumerate()) - before if thread.is_alive()]


def test_the_included_model_answers_a_question() -> None:
    with Recorder() as recorder:
        info = recorder.load(need_included_model())
        assert (info.quant, info.n_layers, info.has_template) == ("Q4_1", 30, True)
        command = chat("What is 2 + 2? Answer with one number.", sampling=SamplingParams(temperature=0.0, max_tokens=24))
        end = recorder.finished(command)
        text = recorder.text(command.request_id)
        assert text.strip() and "<|" not in text and "\ufffd" not in text
        assert end.usage.decode_tok_s is not None and end.usage.decode_tok_s > 0


def test_a_truncated_file_ends_the_answer_in_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(golden(LLAMAS[0]).path.read_bytes())
    with Recorder() as recorder:
        recorder.load(path)
        command = chat("Go on.", sampling=SamplingParams(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, seed=3, max_tokens=2000))
        recorder.engine.submit(command)
        recorder.wait_for(lambda events: any(isinstance(e, TokenDelta) for e in events))
        with path.open("r+b") as file:
            file.truncate(4096)
        recorder.end_of(command.request_id)
        after = recorder.run(chat("Still there?"))
        assert getattr(after, "kind", "") == "ModelChanged"
        # The process lives, and another model can take its place.
        recorder.load(golden(LLAMAS[1]).path)
        assert isinstance(recorder.run(chat("hello")), Finished)
