"""Answers that begin inside a thought which the chat template opened."""

from __future__ import annotations

from pathlib import Path

from engine.api.events import AnswerOpened
from tests.helpers.gguf_builder import tiny_llama
from tests.helpers.recorder import Recorder, chat


def test_a_thought_that_the_template_opens_is_told_before_the_answer(tmp_path: Path) -> None:
    template = "{% for m in messages %}{{ m.content }}{% endfor %}{% if add_generation_prompt %}<think>\n{% endif %}"
    path = tmp_path / "thinks.gguf"
    path.write_bytes(tiny_llama(template=template))
    with Recorder() as recorder:
        recorder.load(path)
        command = chat("hello")
        recorder.run(command)
        events = recorder.of(command.request_id)
    assert events[0] == AnswerOpened(command.request_id, "<think>\n")
    assert sum(isinstance(event, AnswerOpened) for event in events) == 1
