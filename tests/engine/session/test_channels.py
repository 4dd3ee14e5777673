"""Answers in channels: shown as thought and answer, given back without the thought, continued where they stopped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.api.commands import Generate
from engine.api.values import ChatMessage, RequestId
from engine.gguf import types
from engine.gguf.reader import read_gguf
from engine.session.channels import ChannelDecoder, answer_of, continued, decoder_for, is_in_thought
from engine.session.prompt import PromptBuilder
from engine.tokenizer.build import Tokenizer
from engine.tokenizer.chat_template import TemplateHelper
from engine.tokenizer.rules import TokenType
from engine.tokenizer.vocab import Vocab
from tests.helpers.gguf_builder import array_of, build_gguf, byte_alphabet, tiny_metadata
from tests.helpers.models import need_goldens

MARKS = ("<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|end|>", "<|return|>", "<|call|>")
WRITTEN = (
    "<|channel|>analysis<|message|>Hm, é.<|end|><|start|>assistant<|channel|>commentary<|message|>Note.<|end|>"
    "<|start|>assistant<|channel|>final<|message|>Yes."
)
SHOWN = "<think>\nHm, é.\n</think>\n\nNote.Yes."


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    texts = [*byte_alphabet(), *MARKS]
    metadata = tiny_metadata() | {
        "tokenizer.ggml.tokens": array_of(types.STRING, texts),
        "tokenizer.ggml.token_type": array_of(types.INT32, [TokenType.NORMAL] * 256 + [TokenType.CONTROL] * len(MARKS)),
        "tokenizer.ggml.merges": array_of(types.STRING, []),
        "llama.vocab_size": len(texts),
    }
    path: Path = tmp_path_factory.mktemp("channels") / "v.gguf"
    path.write_bytes(build_gguf(metadata))
    return Tokenizer(Vocab.from_gguf(read_gguf(path)))


@pytest.fixture(scope="module")
def helper() -> Iterator[TemplateHelper]:
    with TemplateHelper() as made:
        yield made


def shown(decoder: ChannelDecoder, tokenizer: Tokenizer, written: str) -> str:
    ids = tokenizer.encode(written, special=True, bos=False)
    return "".join(decoder.push(token) for token in ids) + decoder.flush()


def test_channels_are_shown_as_thought_and_answer(tokenizer: Tokenizer) -> None:
    assert shown(ChannelDecoder(tokenizer), tokenizer, WRITTEN) == SHOWN


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("no channels at all", "no channels at all"),
        ("<|channel|>final<|message|>Yes.", "Yes."),
        ("<|channel|>analysis<|message|>cut o", "<think>\ncut o"),
        ("<|channel|>analysis<|message|>a<|start|>assistant<|channel|>final<|message|>b", "<think>\na\n</think>\n\nb"),
        ("<|channel|>commentary to=functions.x <|constrain|>json<|message|>{}", "{}"),
        ("<|message|>a<|end|>b", "ab"),
        ("<|channel|>ana", ""),
    ],
)
def test_odd_answers_lose_nothing_but_headers(tokenizer: Tokenizer, written: str, expected: str) -> None:
    assert shown(ChannelDecoder(tokenizer), tokenizer, written) == expected


def test_a_continued_thought_is_not_opened_again(tokenizer: Tokenizer) -> None:
    going_on = ChannelDecoder(tokenizer, thinking=True)
    assert shown(going_on, tokenizer, "m.<|end|><|start|>assistant<|channel|>final<|message|>Yes.") == "m.\n</think>\n\nYes."


def test_what_was_shown_tells_what_was_written() -> None:
    assert answer_of(SHOWN) == "Note.Yes." and answer_of("plain") == "plain"
    assert is_in_thought("<think>\nHm") and not is_in_thought(SHOWN) and not is_in_thought("plain")
    assert continued("plain") == "<|channel|>final<|message|>plain"
    assert continued("<think>\nHm\n") == "<|channel|>analysis<|message|>Hm\n"
    whole = "<|channel|>analysis<|message|>Hm<|end|><|start|>assistant<|channel|>final<|message|>Yes"
    assert continued("<think>\nHm\n</think>\n\nYes") == whole


def test_conversations_go_through_the_published_template(helper: TemplateHelper, tokenizer: Tokenizer) -> None:
    builder = PromptBuilder(tokenizer, helper, (need_goldens("chat") / "openai-gpt-oss-120b.jinja").read_text())
    question, answer, again = ChatMessage("user", "q"), ChatMessage("assistant", SHOWN), ChatMessage("user", "r")
    text = tokenizer.decode(builder.of_messages((question, answer, again), {})).decode()
    assert text.endswith(
        "<|start|>user<|message|>q<|end|><|start|>assistant<|channel|>final<|message|>Note.Yes.<|end|>"
        "<|start|>user<|message|>r<|end|><|start|>assistant"
    )
    going_on = tokenizer.decode(builder.of_messages((question, ChatMessage("assistant", "<think>\nHm")), {}, continue_last=True))
    assert going_on.decode().endswith("<|start|>user<|message|>q<|end|><|start|>assistant<|channel|>analysis<|message|>Hm")


def test_raw_prompts_show_what_is_written(tokenizer: Tokenizer) -> None:
    raw = decoder_for(tokenizer, Generate(RequestId("a"), prompt="x"))
    assert not isinstance(raw, ChannelDecoder)
    chat = Generate(RequestId("a"), messages=(ChatMessage("assistant", "<think>\nHm"),), continue_last=True)
    going_on = decoder_for(tokenizer, chat)
    assert isinstance(going_on, ChannelDecoder) and shown(going_on, tokenizer, "<|end|>") == "\n</think>\n\n"
