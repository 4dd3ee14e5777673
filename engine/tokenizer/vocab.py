"""The vocabulary that a model file brings: tokens, merges, special ids and the switches of its tokenizer, checked and frozen."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from engine.errors import UnsupportedModel
from engine.gguf import keys
from engine.gguf.info import GgufFile
from engine.tokenizer.pretokenizers import PRETOKENIZERS

_BROKEN = "the file is broken; get another copy"
_BYTE_TOKEN = re.compile(r"<0x[0-9A-Fa-f]{2}>")
_ID_KEYS = (keys.BOS_ID, keys.EOS_ID, keys.EOT_ID, keys.EOM_ID, keys.UNKNOWN_ID, keys.PADDING_ID)
_SPM_IDS = {keys.UNKNOWN_ID: 0, keys.BOS_ID: 1, keys.EOS_ID: 2}
"""The special tokens of SentencePiece, where the file is silent."""

_NO_TOKEN = (0xFFFFFFFF, -1)
"""What files write for "there is no such token"."""

MODELS = ("gpt2", "llama")
"""The kinds of tokenizer that are run: byte-level BPE and SentencePiece BPE."""

_EOG_TEXTS = frozenset(
    {
        "<|eot_id|>",
        "<|im_end|>",
        "<|end|>",
        "<|return|>",
        "<|call|>",
        "<end_of_turn>",
        "<|endoftext|>",
        "<|eom_id|>",
        "<EOT>",
        "_<EOT>",
        "<|end_of_text|>",
        "<｜end▁of▁sentence｜>",
        "<end_of_utterance>",
        "[EOT]",
        "[EOS]",
    }
)
_END_OF_TEXT = "</s>"
"""Ends the text in vocabularies where it is a control token; in others it is a tag of HTML that is only parsed like one."""


class TokenType(IntEnum):
    """What a token is, as stored in the file."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True, slots=True)
class Vocab:
    """A checked vocabulary. Ids are positions in `tokens`; an absent special token is None."""

    model: str
    pre: str
    tokens: tuple[str, ...] = field(repr=False)
    types: Sequence[int] = field(repr=False)
    scores: Sequence[float] = field(repr=False)
    merges: tuple[str, ...] = field(repr=False)
    bos_id: int | None
    eos_id: int | None
    unknown_id: int | None
    eog_ids: frozenset[int]
    add_bos: bool
    add_eos: bool
    add_space_prefix: bool

    @property
    def n_vocab(self) -> int:
        """Number of tokens."""
        return len(self.tokens)

    @classmethod
    def from_gguf(cls, file: GgufFile) -> Vocab:
        """The vocabulary of a model.

        Raises: GgufError for broken metadata; UnsupportedModel for a kind of tokenizer that is not run, or none.
        """
        check_tokenizer(file)
        meta = file.metadata
        tokens, merges = _strings(file, keys.TOKENS), _strings(file, keys.MERGES)
        model = str(meta.get(keys.TOKENIZER_MODEL, "none"))
        pre = str(meta.get(keys.TOKENIZER_PRE, "default"))
        if model not in MODELS or not tokens:
            raise _unsupported(file, keys.TOKENIZER_MODEL, f"the tokenizer {model!r}", MODELS)
        if model == "gpt2" and pre not in PRETOKENIZERS:
            raise _unsupported(file, keys.TOKENIZER_PRE, f"the splitting rule {pre!r}", sorted(PRETOKENIZERS))
        types = _numbers(file, keys.TOKEN_TYPES) or bytes([TokenType.NORMAL]) * len(tokens)
        ids = {key: _token_id(file, key) for key in _ID_KEYS}
        spm = model == "llama"
        if spm:
            for key, default in _SPM_IDS.items():
                ids[key] = default if key not in file.metadata and default < len(tokens) else ids[key]
        return cls(
            model=model,
            pre=pre,
            tokens=tokens,
            types=_with_control_ends(tokens, types),
            scores=_numbers(file, keys.SCORES) or (),
            merges=merges,
            bos_id=ids[keys.BOS_ID],
            eos_id=ids[keys.EOS_ID],
            unknown_id=ids[keys.UNKNOWN_ID],
            eog_ids=_eog_ids(tokens, types, (ids[keys.EOS_ID], ids[keys.EOT_ID], ids[keys.EOM_ID])),
            add_bos=_flag(file, keys.ADD_BOS, spm or PRETOKENIZERS[pre].add_bos),
            add_eos=_flag(file, keys.ADD_EOS, False),
            add_space_prefix=_flag(file, keys.ADD_SPACE_PREFIX, spm),
        )


def _unsupported(file: GgufFile, key: str, what: str, supported: Iterable[str]) -> UnsupportedModel:
    at = file.key_offsets.get(key, 0)
    return UnsupportedModel(
        f"{file.path.name}: {key} at byte {at}: {what} is not supported; supported are {', '.join(supported)}"
    )


def check_tokenizer(file: GgufFile) -> None:
    """Checks the metadata of the tokenizer, of whatever kind it is; a file without a tokenizer passes.

    Raises: GgufError for arrays of a wrong type or length, ids out of range, malformed merges and byte tokens.
    """
    for key in (keys.TOKENIZER_MODEL, keys.TOKENIZER_PRE, keys.CHAT_TEMPLATE):
        if not isinstance(file.metadata.get(key, ""), str):
            raise file.error(key, "the value is not a string", _BROKEN)
    for key in (keys.ADD_BOS, keys.ADD_EOS, keys.ADD_SPACE_PREFIX):
        _flag(file, key, False)
    tokens = _strings(file, keys.TOKENS)
    for key, codes in ((keys.SCORES, "fd"), (keys.TOKEN_TYPES, "bBhHiIqQ")):
        values = _numbers(file, key, codes)
        if values is not None and len(values) != len(tokens):
            raise file.error(key, f"{len(values):,} entries for {len(tokens):,} tokens", _BROKEN)
    _check_types(file)
    for key in _ID_KEYS:
        token_id = _token_id(file, key)
        if token_id is not None and not 0 <= token_id < len(tokens):
            raise file.error(key, f"token {token_id:,} does not exist, there are {len(tokens):,}", _BROKEN)
    merges = _strings(file, keys.MERGES)
    # The blank that parts the two halves stands after at least one character and before another.
    bad = next((i for i, m in enumerate(merges) if not 0 < m.find(" ", 1) < len(m) - 1), None)
    if bad is not None:
        raise file.error(keys.MERGES, f"merge {bad} is {merges[bad]!r:.40}, not two parts with a blank between", _BROKEN)
    _check_byte_tokens(file, tokens)


def _check_types(file: GgufFile) -> None:
    types = _numbers(file, keys.TOKEN_TYPES)
    bad = None if types is None else next((t for t in set(types) if not 0 <= t <= TokenType.BYTE), None)
    if bad is not None:
        raise file.error(keys.TOKEN_TYPES, f"token type {bad} does not exist (0 to 6 do)", _BROKEN)


def _check_byte_tokens(file: GgufFile, tokens: Sequence[str]) -> None:
    if file.metadata.get(keys.TOKENIZER_MODEL) in (None, "gpt2", "none"):
        return
    types = _numbers(file, keys.TOKEN_TYPES)
    for i, token in enumerate(tokens):
        is_byte = types[i] == TokenType.BYTE if types is not None else token.startswith("<0x") and len(token) == 6
        if is_byte and not _BYTE_TOKEN.fullmatch(token):
            raise file.error(keys.TOKENS, f"token {i} is {token!r:.40}, not a byte from <0x00> to <0xFF>", _BROKEN)


def _strings(file: GgufFile, key: str) -> tuple[str, ...]:
    value = file.metadata.get(key, ())
    if not isinstance(value, tuple) or (value and not isinstance(value[0], str)):
        # An empty array keeps the item type it was stored with; nothing can go wrong with it.
        if isinstance(value, array) and not value:
            return ()
        raise file.error(key, "the value is not an array of strings", _BROKEN)
    return value  # type: ignore[return-value]  # the first item tells the type of all


def _numbers(file: GgufFile, key: str, codes: str = "bBhHiIqQfd") -> Sequence[int] | None:
    value = file.metadata.get(key)
    if value is None or value == ():
        return None
    if not isinstance(value, array) or value.typecode not in codes:
        kind = "real" if codes == "fd" else "whole"
        raise file.error(key, f"the value is not an array of {kind} numbers", _BROKEN)
    return value  # type: ignore[return-value]  # a Sequence of int or float


def _flag(file: GgufFile, key: str, default: bool) -> bool:
    value = file.metadata.get(key, default)
    if not isinstance(value, bool):
        raise file.error(key, "the value is not a boolean", _BROKEN)
    return value


def _token_id(file: GgufFile, key: str) -> int | None:
    value = file.metadata.get(key)
    if value is None or value in _NO_TOKEN:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise file.error(key, "the value is not a whole number", _BROKEN)
    return value


def _with_control_ends(tokens: Sequence[str], types: Sequence[int]) -> Sequence[int]:
    """The types, with the tokens that end a text made control tokens where a converter forgot it."""
    forgotten = [i for i, t in enumerate(tokens) if types[i] == TokenType.NORMAL and (t in _EOG_TEXTS or t == _END_OF_TEXT)]
    if not forgotten:
        return types
    fixed = list(types)
    for i in forgotten:
        fixed[i] = TokenType.CONTROL
    return fixed


def _eog_ids(tokens: Sequence[str], types: Sequence[int], stored: Iterable[int | None]) -> frozenset[int]:
    by_text = {token: i for i, token in enumerate(tokens) if token in _EOG_TEXTS}
    by_text |= {token: i for i, token in enumerate(tokens) if token == _END_OF_TEXT and types[i] == TokenType.CONTROL}
    if "<|return|>" in by_text and "<|call|>" in by_text:
        # In this vocabulary <|end|> closes a message, not the answer.
        by_text.pop("<|end|>", None)
    return frozenset(by_text.values()) | frozenset(i for i in stored if i is not None)
