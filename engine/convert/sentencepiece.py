"""Reads the pieces of a tokenizer.model: a protobuf message of SentencePiece, of which a few fields are wanted."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from engine.errors import ConversionError

_PIECES, _TRAINER, _NORMALIZER = 1, 2, 3
_BPE = 2
_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5

Value = int | bytes


@dataclass(frozen=True, slots=True)
class SentencePieces:
    """Tokens with scores and types (the numbers of the format are those of GGUF); ids of the special ones, None where there is
    none."""

    tokens: tuple[str, ...]
    scores: tuple[float, ...]
    types: tuple[int, ...]
    bos_id: int | None
    eos_id: int | None
    unknown_id: int | None
    add_space_prefix: bool


def read_pieces(path: Path) -> SentencePieces:
    """The vocabulary in a tokenizer.model. Raises: ConversionError for a damaged file or another algorithm than BPE."""
    tokens, scores, types = [], [], []
    trainer: dict[int, Value] = {}
    normalizer: dict[int, Value] = {}
    try:
        for number, value in fields(path.read_bytes()):
            if number == _PIECES and isinstance(value, bytes):
                piece = dict(fields(value))
                tokens.append(_bytes(piece.get(1, b"")).decode())
                scores.append(struct.unpack("<f", _bytes(piece.get(2, bytes(4))))[0])
                types.append(_int(piece.get(3, 1)))
            elif number in (_TRAINER, _NORMALIZER) and isinstance(value, bytes):
                (trainer if number == _TRAINER else normalizer).update(fields(value))
    except (IndexError, struct.error, UnicodeDecodeError, TypeError) as error:
        raise ConversionError(f"{path.name}: the file is damaged; download it again") from error
    if _int(trainer.get(3, 1)) != _BPE:
        raise ConversionError(f"{path.name}: the tokenizer is no BPE of SentencePiece, the only kind that is converted")
    return SentencePieces(
        tokens=tuple(tokens),
        scores=tuple(scores),
        types=tuple(types),
        bos_id=_id(trainer.get(41, 1)),
        eos_id=_id(trainer.get(42, 2)),
        unknown_id=_id(trainer.get(40, 0)),
        add_space_prefix=bool(normalizer.get(3, 1)),
    )


def fields(message: bytes) -> Iterator[tuple[int, Value]]:
    """The fields of a protobuf message: number and value, bytes for strings, messages and numbers of fixed size.

    Raises: IndexError, struct.error for a message that is cut short.
    """
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        kind = key & 7
        if kind == _VARINT:
            value, at = _varint(message, at)
            yield key >> 3, value
            continue
        if kind not in (_BYTES, _EIGHT, _FOUR):
            raise IndexError(kind)
        n, at = _varint(message, at) if kind == _BYTES else (8 if kind == _EIGHT else 4, at)
        if at + n > len(message):
            raise IndexError(at)
        yield key >> 3, message[at : at + n]
        at += n


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value, shift = 0, 0
    while True:
        byte = message[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def _int(value: Value) -> int:
    if not isinstance(value, int):
        raise TypeError(value)
    return value


def _bytes(value: Value) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError(value)
    return value


def _id(value: Value) -> int | None:
    """Ids are 32 bits with a sign, stored as 64: -1 stands for none."""
    number = _int(value)
    return None if number >= 1 << 31 else number
