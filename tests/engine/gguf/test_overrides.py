"""Metadata set by hand: what is understood, what is refused, and what the file contradicts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.arch.registry import build_spec
from engine.errors import GgufError, InvalidRequest
from engine.gguf.info import GgufFile
from engine.gguf.overrides import override, parse_override
from engine.gguf.reader import read_gguf
from tests.helpers.gguf_builder import tiny_llama


@pytest.fixture
def file(tmp_path: Path) -> GgufFile:
    path = tmp_path / "m.gguf"
    path.write_bytes(tiny_llama())
    return read_gguf(path)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("rope_freq_base=1000000", ("rope_freq_base", 1000000)),
        ("llama.rope.freq_base=1e6", ("llama.rope.freq_base", 1e6)),
        ("a.b=int:3", ("a.b", 3)),
        ("a.b=float:3", ("a.b", 3.0)),
        ("a.b=str:3", ("a.b", "3")),
        ("a.b=false", ("a.b", False)),
        ("a.b=bool:true", ("a.b", True)),
        ("general.name=a=b:c", ("general.name", "a=b:c")),
        ("rope.scaling.type = yarn", ("rope.scaling.type", " yarn")),
    ],
)
def test_texts_are_understood(text: str, expected: Any) -> None:
    key, value = parse_override(text)
    assert (key, value) == expected and type(value) is type(expected[1])


@pytest.mark.parametrize("text", ["", "a", "=3", "a=", "a=int:x", "a=bool:1", "a=float:"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_override(text)


@pytest.mark.parametrize("key", ["rope_freq_base", "rope.freq_base", "llama.rope.freq_base", "llama_rope_freq_base"])
def test_rope_base_against_the_file_warns(file: GgufFile, key: str) -> None:
    if key.startswith("llama_"):
        with pytest.raises(InvalidRequest, match="is no key of this file"):
            override(file, [(key, 500000)])
        return
    changed, warnings = override(file, [(key, 500000)])
    assert build_spec(changed).blocks[0].mixer.rope.freq_base == 500000.0  # type: ignore[union-attr]
    assert warnings == (
        "the override of llama.rope.freq_base (500,000) contradicts the file (10,000): a model that turns its heads otherwise "
        "than it was trained repeats itself or writes garbage",
    )
    assert file.metadata["llama.rope.freq_base"] == 10000.0


def test_what_the_file_says_too_is_no_reason_to_warn(file: GgufFile) -> None:
    changed, warnings = override(file, [("rope_freq_base", 10000), ("llama.context_length", 256)])
    assert warnings == () and changed.metadata == file.metadata


def test_what_the_file_does_not_say_is_set_and_told(file: GgufFile) -> None:
    changed, warnings = override(file, [("rope.scaling.factor", 4), ("tokenizer.ggml.add_eos_token", True)])
    assert changed.metadata["llama.rope.scaling.factor"] == 4.0 and changed.metadata["tokenizer.ggml.add_eos_token"] is True
    assert warnings[0] == "the override of llama.rope.scaling.factor (4) adds what the file does not say"


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("general.alignment", 64, "cannot be overridden"),
        ("general.architecture", "qwen3", "cannot be overridden"),
        ("no.such.key", 1, "no.such.key is no key of this file"),
        ("rope_freq_base", "much", "rope.freq_base is a number in this file, not 'much'"),
        ("context_length", 1.5, "context_length is a whole number in this file, not 1.5"),
        ("tokenizer.ggml.tokens", "a", "is a list in this file"),
    ],
)
def test_what_makes_no_sense_is_refused(file: GgufFile, key: str, value: Any, sentence: str) -> None:
    with pytest.raises(InvalidRequest, match=sentence):
        override(file, [(key, value)])


def test_values_out_of_range_are_refused(file: GgufFile) -> None:
    with pytest.raises(GgufError, match=r"freq_base at byte .* out of range"):
        override(file, [("rope_freq_base", -1.0)])


def test_without_overrides_the_file_is_the_same(file: GgufFile) -> None:
    assert override(file, ()) == (file, ())
