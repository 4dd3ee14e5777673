"""The tokenizer of a checkpoint folder as keys of a GGUF file: tokens, types, merges or scores, special ids, chat templates."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.convert.config import read_json
from engine.convert.parts import f32_array, i32_array
from engine.convert.pretokenizer import recognise
from engine.convert.sentencepiece import read_pieces
from engine.errors import ConversionError
from engine.gguf import keys
from engine.tokenizer.rules import TokenType

_BYTE_TOKENS = frozenset(f"<0x{byte:02X}>" for byte in range(256))
_END_OF_TURN = ("<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|end_of_turn|>")
_END_OF_MESSAGE = "<|eom_id|>"


@dataclass(slots=True)
class _Tokens:
    """Tokens in the order of their ids; None where no file names one."""

    texts: list[str | None]
    types: list[int]

    def put(self, index: int, text: str, kind: int) -> None:
        """Sets the token of an id, beyond the end, too."""
        while len(self.texts) <= index:
            self.texts.append(None)
            self.types.append(TokenType.UNUSED)
        self.texts[index], self.types[index] = text, kind

    def filled(self, n_vocab: int) -> tuple[list[str], list[int]]:
        """n_vocab tokens: ids that the model has and no file names are unused ones."""
        for index in range(len(self.texts), n_vocab):
            self.put(index, f"[PAD{index}]", TokenType.UNUSED)
        return [f"[PAD{i}]" if text is None else text for i, text in enumerate(self.texts)], self.types


def vocabulary(folder: Path, n_vocab: int, config: Mapping[str, Any], *, glm: bool = False) -> dict[str, Any]:
    """The keys of the tokenizer and of the chat templates. n_vocab: rows of the embedding.

    Raises: ConversionError for files that are missing, or a kind of tokenizer that is not converted.
    """
    settings = read_json(folder / "tokenizer_config.json")
    text = (folder / "tokenizer.json").read_text(encoding="utf-8") if (folder / "tokenizer.json").is_file() else ""
    if (folder / "tokenizer.model").is_file():
        found = _from_pieces(folder, n_vocab, settings, text)
    elif text:
        found = _from_json(text, n_vocab, glm)
    else:
        raise ConversionError(f"{folder}: neither tokenizer.json nor tokenizer.model is here; download them")
    if len(found[keys.TOKENS]) > n_vocab:
        raise ConversionError(
            f"the tokenizer has {len(found[keys.TOKENS])} tokens, the model {n_vocab}; they do not belong together"
        )
    ids = {token: i for i, token in enumerate(found[keys.TOKENS])}
    found |= _special_ids(ids, settings, config, read_json(folder / "generation_config.json"))
    found[keys.ADD_BOS] = _adds_bos(settings, text, sentencepiece=found[keys.TOKENIZER_MODEL] == "llama")
    found[keys.ADD_EOS] = bool(settings.get("add_eos_token", False))
    return found | _templates(folder, settings)


def _from_json(text: str, n_vocab: int, glm: bool) -> dict[str, Any]:
    parsed = json.loads(text)
    model = parsed["model"]
    if model.get("type") not in (None, "BPE"):
        raise ConversionError(f"tokenizer.json: the tokenizer is a {model['type']}; only BPE is converted")
    tokens = _Tokens([], [])
    for token, index in model["vocab"].items():
        tokens.put(index, token, TokenType.NORMAL)
    merges = [tuple(merge.split(" ", 1)) if isinstance(merge, str) else tuple(merge) for merge in model["merges"]]
    _add(tokens, parsed.get("added_tokens", ()), n_vocab)
    if model.get("byte_fallback"):
        return _as_sentencepiece(tokens, merges, parsed, n_vocab)
    pre = recognise(text)
    texts, types = tokens.filled(n_vocab)
    return {
        keys.TOKENIZER_MODEL: "gpt2",
        keys.TOKENIZER_PRE: "glm4" if glm and pre == "llama-bpe" else pre,
        keys.TOKENS: texts,
        keys.TOKEN_TYPES: i32_array(types),
        keys.MERGES: [" ".join(merge) for merge in merges],
    }


def _as_sentencepiece(tokens: _Tokens, merges: Sequence[tuple[str, ...]], parsed: Any, n_vocab: int) -> dict[str, Any]:
    """Merges as scores: the token of the first merge has the highest, so that the same neighbours are joined first."""
    rank: dict[str, int] = {}
    for i, merge in enumerate(merges):
        rank.setdefault("".join(merge), i)
    texts, types = tokens.filled(n_vocab)
    for i, token in enumerate(texts):
        if token in _BYTE_TOKENS:
            types[i] = TokenType.BYTE
        elif token == (parsed["model"].get("unk_token") or "<unk>"):
            types[i] = TokenType.UNKNOWN
    lowest = -float(len(rank) + 1)
    return {
        keys.TOKENIZER_MODEL: "llama",
        keys.TOKENIZER_PRE: "default",
        keys.TOKENS: texts,
        keys.SCORES: f32_array([-float(rank[token]) if token in rank else lowest for token in texts]),
        keys.TOKEN_TYPES: i32_array(types),
        keys.ADD_SPACE_PREFIX: _prepends(parsed),
        **_id(keys.UNKNOWN_ID, _index(texts, parsed["model"].get("unk_token"))),
    }


def _prepends(parsed: Any) -> bool:
    """Whether a blank is put before the text: by a normalizer, or by the step that turns blanks into marks."""
    steps = json.dumps([parsed.get("normalizer"), parsed.get("pre_tokenizer")])
    return any(mark in steps for mark in ('"type": "Prepend"', '"prepend_scheme": "first"', '"prepend_scheme": "always"'))


def _from_pieces(folder: Path, n_vocab: int, settings: Mapping[str, Any], text: str) -> dict[str, Any]:
    pieces = read_pieces(folder / "tokenizer.model")
    tokens = _Tokens(list(pieces.tokens), list(pieces.types))
    if text:
        _add(tokens, json.loads(text).get("added_tokens", ()), n_vocab)
    for index, row in settings.get("added_tokens_decoder", {}).items():
        _add(tokens, [row | {"id": int(index)}], n_vocab)
    for token, index in read_json(folder / "added_tokens.json").items():
        if index < n_vocab and (index >= len(tokens.texts) or tokens.texts[index] is None):
            tokens.put(index, token, TokenType.USER_DEFINED)
    texts, types = tokens.filled(n_vocab)
    scores = [*pieces.scores, *([-1000.0] * (len(texts) - len(pieces.scores)))]
    return {
        keys.TOKENIZER_MODEL: "llama",
        keys.TOKENIZER_PRE: "default",
        keys.TOKENS: texts,
        keys.SCORES: f32_array(scores),
        keys.TOKEN_TYPES: i32_array(types),
        keys.ADD_SPACE_PREFIX: bool(settings.get("add_prefix_space", pieces.add_space_prefix)),
        **_id(keys.BOS_ID, pieces.bos_id),
        **_id(keys.EOS_ID, pieces.eos_id),
        **_id(keys.UNKNOWN_ID, pieces.unknown_id),
    }


def _add(tokens: _Tokens, added: Iterable[Mapping[str, Any]], n_vocab: int) -> None:
    """Tokens beside the merges: special ones structure the text, the others are words that are never cut. Those beyond the
    model's embedding, such as marks of pictures in a model of text, are left out."""
    for row in added:
        index, kind = row["id"], TokenType.CONTROL if row.get("special") else TokenType.USER_DEFINED
        if index >= n_vocab:
            continue
        known = tokens.types[index] if index < len(tokens.types) else TokenType.UNUSED
        if known not in (TokenType.UNKNOWN, TokenType.BYTE):
            tokens.put(index, row["content"], kind)


def _special_ids(
    ids: Mapping[str, int], settings: Mapping[str, Any], config: Mapping[str, Any], generation: Mapping[str, Any]
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, key in (("bos", keys.BOS_ID), ("eos", keys.EOS_ID), ("unk", keys.UNKNOWN_ID), ("pad", keys.PADDING_ID)):
        token = settings.get(f"{name}_token")
        text = token.get("content") if isinstance(token, dict) else token
        stored = _first_id(config.get(f"{name}_token_id"))
        found |= _id(key, ids.get(text, stored) if isinstance(text, str) else stored)
    ends = generation.get("eos_token_id", config.get("eos_token_id"))
    ends = ends if isinstance(ends, list) else []
    turn = next((ids[text] for text in _END_OF_TURN if text in ids), None)
    if turn is None:
        turn = next((end for end in ends if end != found.get(keys.EOS_ID)), None)
    return found | _id(keys.EOT_ID, turn) | _id(keys.EOM_ID, ids.get(_END_OF_MESSAGE))


def _first_id(stored: Any) -> int | None:
    value = stored[0] if isinstance(stored, list) and stored else stored
    return value if isinstance(value, int) else None


def _id(key: str, index: int | None) -> dict[str, Any]:
    return {} if index is None or index < 0 else {key: index}


def _index(texts: Sequence[str], token: str | None) -> int | None:
    return texts.index(token) if token in texts else None


def _adds_bos(settings: Mapping[str, Any], text: str, *, sentencepiece: bool) -> bool:
    """Whether texts begin with the token for it: as it is said, else as the tokenizer's last step does it."""
    if isinstance(settings.get("add_bos_token"), bool):
        return bool(settings["add_bos_token"])
    if not text:
        return sentencepiece
    step = json.loads(text).get("post_processor") or {}
    steps = step.get("processors", [step])
    return any("SpecialToken" in template for one in steps for template in (one.get("single") or [])[:1])


def _templates(folder: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The chat template and those with a name: files of their own come before the settings."""
    templates: dict[str, str] = {}
    stored = settings.get("chat_template") or read_json(folder / "chat_template.json").get("chat_template")
    if isinstance(stored, str):
        templates["default"] = stored
    elif isinstance(stored, list):
        templates |= {row["name"]: row["template"] for row in stored}
    own = folder / "chat_template.jinja"
    if own.is_file():
        templates["default"] = own.read_text(encoding="utf-8")
    for path in sorted(folder.glob("additional_chat_templates/*.jinja")):
        templates[path.stem] = path.read_text(encoding="utf-8")
    named = sorted(name for name in templates if name != "default")
    found: dict[str, Any] = {f"{keys.CHAT_TEMPLATE}.{name}": templates[name] for name in named}
    if named:
        found["tokenizer.chat_templates"] = named
    return found | ({keys.CHAT_TEMPLATE: templates["default"]} if "default" in templates else {})
