"""The vocabulary: defaults, special tokens, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.errors import GgufError, UnsupportedModel
from engine.gguf import types
from engine.gguf.reader import read_gguf
from engine.tokenizer.rules import TokenType
from engine.tokenizer.vocab import Vocab
from tests.helpers.gguf_builder import array_of, build_gguf, tiny_metadata
from tests.helpers.models import GOLDEN


def vocab_of(tmp_path: Path, **changes: Any) -> Vocab:
    metadata = tiny_metadata() | {f"tokenizer.ggml.{key}": value for key, value in changes.items()}
    path = tmp_path / "v.gguf"
    path.write_bytes(build_gguf({key: value for key, value in metadata.items() if value is not None}))
    return Vocab.from_gguf(read_gguf(path))


def test_tiny_vocabulary(tmp_path: Path) -> None:
    vocab = vocab_of(tmp_path)
    assert (vocab.model, vocab.pre, vocab.n_vocab, vocab.merges) == ("gpt2", "smollm", 260, ("h e",))
    assert (vocab.bos_id, vocab.eos_id, vocab.add_bos, vocab.add_eos) == (257, 258, False, False)
    assert vocab.eog_ids == {258, 259}


@pytest.mark.parametrize("none", [0xFFFFFFFF, -1])
def test_number_for_no_token_is_none(tmp_path: Path, none: int) -> None:
    assert vocab_of(tmp_path, bos_token_id=none).bos_id is None


def test_named_ends_join_the_ends_by_text(tmp_path: Path) -> None:
    assert vocab_of(tmp_path, eot_token_id=5, eom_token_id=6).eog_ids == {5, 6, 258, 259}


def test_forgotten_control_type_of_an_end_is_mended(tmp_path: Path) -> None:
    vocab = vocab_of(tmp_path, token_type=array_of(types.INT32, [1] * 260))
    assert vocab.types[258] == vocab.types[259] == TokenType.CONTROL
    assert vocab.types[257] == TokenType.NORMAL
    # As user-defined ones they would end an answer from within what people write.
    vocab = vocab_of(tmp_path, token_type=array_of(types.INT32, [1] * 256 + [4] * 4))
    assert list(vocab.types[256:]) == [TokenType.USER_DEFINED] * 2 + [TokenType.CONTROL] * 2


def test_defaults_of_the_rule_apply_where_the_file_is_silent(tmp_path: Path) -> None:
    assert vocab_of(tmp_path, pre="llama-bpe", add_bos_token=None).add_bos
    assert not vocab_of(tmp_path, pre="qwen2", add_bos_token=None).add_bos
    assert not vocab_of(tmp_path, pre="llama-bpe", add_bos_token=False).add_bos


def test_sentencepiece_defaults() -> None:
    vocab = Vocab.from_gguf(read_gguf(GOLDEN / "models/llama-mha-spm.f16.gguf"))
    assert vocab.model == "llama" and vocab.add_bos and vocab.add_space_prefix
    assert 2 in vocab.eog_ids and vocab.tokens[2] == "</s>"


@pytest.mark.parametrize(("key", "value"), [("model", "bert"), ("model", "none"), ("model", None), ("pre", "unheard-of")])
def test_unknown_kind_says_what_is_supported(tmp_path: Path, key: str, value: str | None) -> None:
    with pytest.raises(UnsupportedModel, match=r"at byte \d+: .* supported are"):
        vocab_of(tmp_path, **{key: value})


def test_model_without_tokens_is_unsupported(tmp_path: Path) -> None:
    empty = {"tokens": None, "token_type": None, "bos_token_id": None, "eos_token_id": None}
    with pytest.raises(UnsupportedModel):
        vocab_of(tmp_path, **empty)


def test_broken_metadata_is_refused(tmp_path: Path) -> None:
    with pytest.raises(GgufError, match=r"tokenizer.ggml.bos_token_id at byte \d+: token 260 does not exist, there are 260"):
        vocab_of(tmp_path, bos_token_id=260)
    with pytest.raises(GgufError, match="the value is not a boolean"):
        vocab_of(tmp_path, add_bos_token=1)
