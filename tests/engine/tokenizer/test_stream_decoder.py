"""Streaming never shows half a character and never invents one."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.gguf.reader import read_gguf
from engine.tokenizer.build import Tokenizer
from engine.tokenizer.stream_decoder import StreamDecoder
from engine.tokenizer.vocab import Vocab
from tests.helpers.gguf_builder import build_gguf, tiny_metadata
from tests.helpers.models import GOLDEN

SPM = Tokenizer(Vocab.from_gguf(read_gguf(GOLDEN / "models/llama-mha-spm.f16.gguf")))


@pytest.fixture(scope="module")
def bytewise(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    path: Path = tmp_path_factory.mktemp("bytes") / "t.gguf"
    path.write_bytes(build_gguf(tiny_metadata()))
    return Tokenizer(Vocab.from_gguf(read_gguf(path)))


def test_characters_come_whole(bytewise: Tokenizer) -> None:
    decoder = StreamDecoder(bytewise)
    shown = [decoder.push(b) for b in "é😀".encode()]
    assert shown == ["", "é", "", "", "", "😀"]
    assert decoder.flush() == ""


def test_cut_off_character_is_shown_as_broken_at_the_end(bytewise: Tokenizer) -> None:
    decoder = StreamDecoder(bytewise)
    assert "".join(decoder.push(b) for b in "😀".encode()[:3]) == ""
    assert decoder.flush() == "\ufffd"
    assert decoder.push(ord("a")) == "a"


def test_invalid_bytes_do_not_swallow_what_follows(bytewise: Tokenizer) -> None:
    decoder = StreamDecoder(bytewise)
    assert "".join(decoder.push(b) for b in b"\xff\xc3a") == "\ufffd\ufffda"


@settings(max_examples=300, deadline=None)
@given(st.text(st.characters(codec="utf-8", exclude_characters="\u2581"), max_size=40))
def test_valid_text_comes_back_without_replacement(text: str) -> None:
    decoder = StreamDecoder(SPM)
    ids = SPM.encode(text, special=False, bos=False)
    shown = "".join(map(decoder.push, ids)) + decoder.flush()
    assert shown.removeprefix(" " if text else "") == text


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 255), max_size=30))
def test_any_bytes_equal_decoding_at_once(data: list[int]) -> None:
    decoder = StreamDecoder(SPM)
    byte_ids = [i for i, kind in enumerate(SPM.vocab.types) if kind == 6]
    shown = "".join(decoder.push(byte_ids[b]) for b in data) + decoder.flush()
    assert shown == bytes(data).decode(errors="replace")
