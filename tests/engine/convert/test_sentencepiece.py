"""Reading tokenizer.model: pieces, ids, and files that are damaged."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from engine.convert.sentencepiece import fields, read_pieces
from engine.errors import ConversionError


def varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value & (1 << 64) - 1)


def message(field: int, body: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(body)) + body


def piece(text: str, score: float, kind: int | None = None) -> bytes:
    body = message(1, text.encode()) + varint(2 << 3 | 5) + struct.pack("<f", score)
    return message(1, body + (b"" if kind is None else number(3, kind)))


def model(*, algorithm: int = 2, prefix: bool = True) -> bytes:
    pieces = [
        piece("<unk>", 0, 2),
        piece("<s>", 0, 3),
        piece("</s>", 0, 3),
        piece("<0x41>", 0, 6),
        piece("\u2581the", -1.5),
        piece("é", -2),
    ]
    trainer = number(3, algorithm) + number(40, 0) + number(41, 1) + number(42, 2) + number(43, -1) + message(1, b"corpus.txt")
    return b"".join(pieces) + message(2, trainer) + message(3, number(3, int(prefix)))


def test_pieces_come_back(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.model"
    path.write_bytes(model(prefix=False))
    found = read_pieces(path)
    assert found.tokens == ("<unk>", "<s>", "</s>", "<0x41>", "\u2581the", "é")
    assert found.scores[4:] == (-1.5, -2.0) and found.types == (2, 3, 3, 6, 1, 1)
    assert (found.unknown_id, found.bos_id, found.eos_id, found.add_space_prefix) == (0, 1, 2, False)


def test_other_algorithms_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.model"
    path.write_bytes(model(algorithm=1))
    with pytest.raises(ConversionError, match="no BPE of SentencePiece"):
        read_pieces(path)


@pytest.mark.parametrize("n", range(1, 120, 7))
def test_cut_files_are_refused_or_short(tmp_path: Path, n: int) -> None:
    path = tmp_path / "tokenizer.model"
    path.write_bytes(model()[:-n])
    with pytest.raises(ConversionError, match=r"tokenizer.model: the (file is damaged|tokenizer is no BPE)"):
        read_pieces(path)


def test_all_kinds_of_fields_are_passed_over() -> None:
    raw = number(1, 300) + varint(2 << 3 | 1) + bytes(8) + varint(3 << 3 | 5) + bytes(4) + message(4, b"x")
    assert list(fields(raw)) == [(1, 300), (2, bytes(8)), (3, bytes(4)), (4, b"x")]
