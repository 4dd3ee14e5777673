"""Tokenizers of checkpoints as keys of a file: what is read back encodes as they did."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import models, pre_tokenizers

from engine.convert.config import read_json
from engine.convert.vocabulary import _adds_bos, vocabulary
from engine.convert.writer import write_gguf
from engine.errors import ConversionError
from engine.gguf import keys
from engine.gguf.reader import read_gguf
from engine.tokenizer.build import Tokenizer
from engine.tokenizer.rules import TokenType
from engine.tokenizer.vocab import Vocab
from tests.engine.convert.test_sentencepiece import model as pieces_model
from tests.helpers.checkpoints import N_VOCAB, write_tokenizer

TEXTS = ("Hello the thing, 1234!", " the  inner\n\nring", "é中文 <think>the</think> <|im_end|>", "")


def written(folder: Path, found: dict[str, Any]) -> Vocab:
    path = folder / "v.gguf"
    write_gguf(path, {keys.ARCHITECTURE: "llama", **found}, [], lambda *_: None)
    return Vocab.from_gguf(read_gguf(path))


@pytest.mark.parametrize("pre", ["llama-bpe", "qwen2", "gpt-4o", "deepseek-v3", "gpt-2"])
def test_byte_level_vocabulary_encodes_as_before(tmp_path: Path, pre: str) -> None:
    theirs = write_tokenizer(tmp_path, pre)
    vocab = written(tmp_path, vocabulary(tmp_path, N_VOCAB, {}))
    assert (vocab.pre, vocab.n_vocab, vocab.add_bos) == (pre, N_VOCAB, False)
    ours = Tokenizer(vocab)
    for text in TEXTS:
        assert ours.encode(text, special=True, bos=True) == theirs.encode(text).ids


def test_types_and_special_ids(tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [264, 265]}))
    vocab = written(tmp_path, vocabulary(tmp_path, N_VOCAB, {"bos_token_id": 265, "eos_token_id": 265}))
    kinds = {vocab.tokens[i]: kind for i, kind in enumerate(vocab.types)}
    assert kinds["<|im_end|>"] == TokenType.CONTROL and kinds["<think>"] == TokenType.USER_DEFINED
    assert kinds["a"] == TokenType.NORMAL and kinds[f"[PAD{N_VOCAB - 1}]"] == TokenType.UNUSED
    assert vocab.tokens[vocab.eos_id or 0] == "<|im_end|>" and vocab.bos_id == 265
    assert {vocab.tokens[i] for i in vocab.eog_ids} == {"<|im_end|>", "<|endoftext|>"}


@pytest.mark.parametrize(
    ("post", "settings", "expected"),
    [
        (None, {}, False),
        (
            {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "a", "type_id": 0}}, {"Sequence": {"id": "A"}}]},
            {},
            True,
        ),
        ({"type": "Sequence", "processors": [{"type": "ByteLevel"}]}, {}, False),
        (None, {"add_bos_token": True}, True),
    ],
)
def test_whether_texts_begin_with_a_token(tmp_path: Path, post: Any, settings: dict[str, Any], expected: bool) -> None:
    write_tokenizer(tmp_path, settings=settings)
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"post_processor": post}))
    # The step after merging does not change how text is cut, which is all that is looked at.
    found = json.loads(path.read_text())
    found["post_processor"] = None if post is None else found["post_processor"]
    assert _add_bos(tmp_path, found) is expected


def _add_bos(folder: Path, parsed: dict[str, Any]) -> bool:
    return _adds_bos(read_json(folder / "tokenizer_config.json"), json.dumps(parsed), sentencepiece=False)


def sentencepiece_like(folder: Path) -> tokenizers.Tokenizer:
    tokens = [
        "<unk>",
        "<s>",
        "</s>",
        *(f"<0x{b:02X}>" for b in range(256)),
        "\u2581",
        *"abcdefghinort",
        "th",
        "in",
        "the",
        "\u2581the",
        "an",
    ]
    vocab = {token: i for i, token in enumerate(tokens)}
    merges = [("t", "h"), ("i", "n"), ("th", "e"), ("\u2581", "the"), ("a", "n")]
    made = tokenizers.Tokenizer(models.BPE(vocab, merges, byte_fallback=True, unk_token="<unk>", fuse_unk=False))
    made.pre_tokenizer = pre_tokenizers.Metaspace("\u2581", "first", split=False)  # type: ignore[assignment]
    made.add_special_tokens(["<unk>", "<s>", "</s>"])
    made.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": {"content": "</s>"}}))
    return made


def test_byte_fallback_vocabulary_encodes_as_before(tmp_path: Path) -> None:
    theirs = sentencepiece_like(tmp_path)
    vocab = written(tmp_path, vocabulary(tmp_path, 400, {}))
    assert vocab.model == "llama" and vocab.add_space_prefix and vocab.types[3] == TokenType.BYTE and vocab.unknown_id == 0
    ours = Tokenizer(vocab)
    for text in ("the thing in the inn", "ant é中", "a  b", "hinthe"):
        assert ours.encode(text, special=True, bos=False) == theirs.encode(text, add_special_tokens=False).ids


def test_sentencepiece_file_comes_first(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.model").write_bytes(pieces_model())
    (tmp_path / "added_tokens.json").write_text(json.dumps({"<mask>": 6}))
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"added_tokens_decoder": {"7": {"content": "<turn>", "special": True}}})
    )
    vocab = written(tmp_path, vocabulary(tmp_path, 10, {"bos_token_id": 1, "eos_token_id": 2}))
    assert vocab.tokens[4:8] == ("\u2581the", "é", "<mask>", "<turn>")
    assert list(vocab.types) == [2, 3, 3, 6, 1, 1, TokenType.USER_DEFINED, TokenType.CONTROL, TokenType.UNUSED, TokenType.UNUSED]
    assert vocab.add_bos and vocab.add_space_prefix and (vocab.bos_id, vocab.eos_id, vocab.unknown_id) == (1, 2, 0)
    assert list(vocab.scores[4:6]) == [-1.5, -2.0]


def test_templates_with_and_without_names(tmp_path: Path) -> None:
    templates = [{"name": "default", "template": "D"}, {"name": "tool_use", "template": "T"}]
    write_tokenizer(tmp_path, settings={"chat_template": templates})
    found = vocabulary(tmp_path, N_VOCAB, {})
    assert (found[keys.CHAT_TEMPLATE], found["tokenizer.chat_template.tool_use"]) == ("D", "T")
    assert found["tokenizer.chat_templates"] == ["tool_use"]
    (tmp_path / "chat_template.jinja").write_text("own")
    assert vocabulary(tmp_path, N_VOCAB, {})[keys.CHAT_TEMPLATE] == "own"


def test_what_does_not_belong_together_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConversionError, match=r"neither tokenizer.json nor tokenizer.model is here"):
        vocabulary(tmp_path, N_VOCAB, {})
    write_tokenizer(tmp_path)
    with pytest.raises(ConversionError, match="the tokenizer has 263 tokens, the model 200"):
        vocabulary(tmp_path, 200, {})
    # Added tokens that the embedding has no rows for are no reason to refuse.
    assert vocabulary(tmp_path, 265, {})[keys.TOKENS][263:] == ["<|im_start|>", "<|im_end|>"]
    path = tmp_path / "tokenizer.json"
    parsed = json.loads(path.read_text())
    parsed["model"]["type"] = "WordPiece"
    path.write_text(json.dumps(parsed))
    with pytest.raises(ConversionError, match="the tokenizer is a WordPiece; only BPE is converted"):
        vocabulary(tmp_path, N_VOCAB, {})
