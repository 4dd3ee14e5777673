"""What the tokenizer's metadata must fulfil, whatever its kind, and typed access to it. Imports little: `inspect` checks this."""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence
from enum import IntEnum

from engine.gguf import keys
from engine.gguf.info import GgufFile

ID_KEYS = (keys.BOS_ID, keys.EOS_ID, keys.EOT_ID, keys.EOM_ID, keys.UNKNOWN_ID, keys.PADDING_ID)

_BROKEN = "the file is broken; get another copy"
_BYTE_TOKEN = re.compile(r"<0x[0-9A-Fa-f]{2}>")
_NO_TOKEN = (0xFFFFFFFF, -1)
"""What files write for "there is no such token"."""


class TokenType(IntEnum):
    """What a token is, as stored in the file."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


def check_tokenizer(file: GgufFile) -> None:
    """Checks the metadata of the tokenizer, of whatever kind it is; a file without a tokenizer passes.

    Raises: GgufError for arrays of a wrong type or length, ids out of range, malformed merges and byte tokens.
    """
    for key in (keys.TOKENIZER_MODEL, keys.TOKENIZER_PRE, keys.CHAT_TEMPLATE):
        if not isinstance(file.metadata.get(key, ""), str):
            raise file.error(key, "the value is not a string", _BROKEN)
    for key in (keys.ADD_BOS, keys.ADD_EOS, keys.ADD_SPACE_PREFIX):
        flag(file, key, False)
    tokens = strings(file, keys.TOKENS)
    for key, codes in ((keys.SCORES, "fd"), (keys.TOKEN_TYPES, "bBhHiIqQ")):
        values = numbers(file, key, codes)
        if values is not None and len(values) != len(tokens):
            raise file.error(key, f"{len(values):,} entries for {len(tokens):,} tokens", _BROKEN)
    _check_types(file)
    for key in ID_KEYS:
        stored = token_id(file, key)
        if stored is not None and not 0 <= stored < len(tokens):
            raise file.error(key, f"token {stored:,} does not exist, there are {len(tokens):,}", _BROKEN)
    merges = strings(file, keys.MERGES)
    # The blank that parts the two halves stands after at least one character and before another.
    if not all([" " in merge[1:-1] for merge in merges]):
        bad = next(i for i, merge in enumerate(merges) if " " not in merge[1:-1])
        raise file.error(keys.MERGES, f"merge {bad} is {merges[bad]!r:.40}, not two parts with a blank between", _BROKEN)
    _check_byte_tokens(file, tokens)


def _check_types(file: GgufFile) -> None:
    types = numbers(file, keys.TOKEN_TYPES)
    bad = None if types is None else next((t for t in set(types) if not 0 <= t <= TokenType.BYTE), None)
    if bad is not None:
        raise file.error(keys.TOKEN_TYPES, f"token type {bad} does not exist (0 to 6 do)", _BROKEN)


def _check_byte_tokens(file: GgufFile, tokens: Sequence[str]) -> None:
    if file.metadata.get(keys.TOKENIZER_MODEL) in (None, "gpt2", "none"):
        return
    types = numbers(file, keys.TOKEN_TYPES)
    for i, token in enumerate(tokens):
        is_byte = types[i] == TokenType.BYTE if types is not None else token.startswith("<0x") and len(token) == 6
        if is_byte and not _BYTE_TOKEN.fullmatch(token):
            raise file.error(keys.TOKENS, f"token {i} is {token!r:.40}, not a byte from <0x00> to <0xFF>", _BROKEN)


def strings(file: GgufFile, key: str) -> tuple[str, ...]:
    """The array of strings at `key`, empty where it is absent. Raises: GgufError."""
    value = file.metadata.get(key, ())
    if not isinstance(value, tuple) or (value and not isinstance(value[0], str)):
        # An empty array keeps the item type it was stored with; nothing can go wrong with it.
        if isinstance(value, array) and not value:
            return ()
        raise file.error(key, "the value is not an array of strings", _BROKEN)
    return value  # type: ignore[return-value]  # the first item tells the type of all


def numbers(file: GgufFile, key: str, codes: str = "bBhHiIqQfd") -> Sequence[int] | None:
    """The array of numbers at `key`, None where it is absent; codes: the stored types allowed. Raises: GgufError."""
    value = file.metadata.get(key)
    if value is None or value == ():
        return None
    if not isinstance(value, array) or value.typecode not in codes:
        kind = "real" if codes == "fd" else "whole"
        raise file.error(key, f"the value is not an array of {kind} numbers", _BROKEN)
    return value  # type: ignore[return-value]  # a Sequence of int or float


def flag(file: GgufFile, key: str, default: bool) -> bool:
    """The boolean at `key`. Raises: GgufError."""
    value = file.metadata.get(key, default)
    if not isinstance(value, bool):
        raise file.error(key, "the value is not a boolean", _BROKEN)
    return value


def token_id(file: GgufFile, key: str) -> int | None:
    """The token id at `key`, None where it is absent or stands for no token. Raises: GgufError."""
    value = file.metadata.get(key)
    if value is None or value in _NO_TOKEN:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise file.error(key, "the value is not a whole number", _BROKEN)
    return value
