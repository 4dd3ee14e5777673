"""Writes a GGUF file: keys and tensor table first, then the data of each tensor as it is made. Nothing but the tensor under
way is in memory."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from engine.gguf import types

ALIGNMENT = types.DEFAULT_ALIGNMENT


@dataclass(frozen=True, slots=True)
class Typed:
    """A value whose stored type is given, where the Python type does not tell. item: of an array."""

    type_id: int
    value: Any
    item: int | None = None


@dataclass(frozen=True, slots=True)
class OutTensor:
    """A tensor to write. shape: contiguous axis last; blocks: makes its bytes, in order, a piece at a time."""

    name: str
    shape: tuple[int, ...]
    type_name: str
    blocks: Callable[[], Iterable[npt.NDArray[np.uint8]]]

    @property
    def nbytes(self) -> int:
        """Bytes of its data."""
        row = types.TENSOR_TYPES[types.TYPE_IDS[self.type_name]]
        n = 1
        for dim in self.shape:
            n *= dim
        return n // row.block * row.block_bytes


def write_gguf(
    path: Path, metadata: Mapping[str, Any], tensors: list[OutTensor], progress: Callable[[str, int, int], None]
) -> int:
    """Writes the file and gives its size. progress(tensor, bytes done, bytes in all) after each piece.

    Raises: OSError.
    """
    total = sum(tensor.nbytes for tensor in tensors)
    with path.open("wb") as file:
        file.write(_header(metadata, tensors))
        _pad(file)
        done = 0
        for tensor in tensors:
            for piece in tensor.blocks():
                file.write(np.ascontiguousarray(piece).data)
                done += piece.nbytes
                progress(tensor.name, done, total)
            _pad(file)
        return file.tell()


def _pad(file: BinaryIO) -> None:
    file.write(bytes(-file.tell() % ALIGNMENT))


def _header(metadata: Mapping[str, Any], tensors: list[OutTensor]) -> bytes:
    parts = [types.MAGIC, struct.pack("<IQQ", types.VERSIONS[-1], len(tensors), len(metadata))]
    for key, value in metadata.items():
        typed = _typed(value)
        parts += [_string(key), struct.pack("<I", typed.type_id), *_value(typed)]
    at = 0
    for tensor in tensors:
        dims = struct.pack(f"<{len(tensor.shape)}Q", *reversed(tensor.shape))
        place = struct.pack("<IQ", types.TYPE_IDS[tensor.type_name], at)
        parts += [_string(tensor.name), struct.pack("<I", len(tensor.shape)), dims, place]
        at += -(-tensor.nbytes // ALIGNMENT) * ALIGNMENT
    return b"".join(parts)


def _typed(value: Any) -> Typed:
    """The type that the tools of the format store a Python value with."""
    match value:
        case Typed():
            return value
        case bool():
            return Typed(types.BOOL, value)
        case int():
            return Typed(types.UINT32, value)
        case float():
            return Typed(types.FLOAT32, value)
        case str():
            return Typed(types.STRING, value)
    items = list(value)
    return Typed(types.ARRAY, items, _typed(items[0]).type_id if items else types.INT32)


def _value(typed: Typed) -> Iterator[bytes]:
    if typed.type_id == types.STRING:
        yield _string(typed.value)
    elif typed.type_id == types.ARRAY:
        assert typed.item is not None
        yield struct.pack("<IQ", typed.item, len(typed.value))
        if typed.item == types.STRING:
            yield from map(_string, typed.value)
        else:
            yield struct.pack(f"<{len(typed.value)}{types.STRUCT_CODES[typed.item]}", *typed.value)
    else:
        yield struct.pack("<" + types.STRUCT_CODES[typed.type_id], typed.value)


def _string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw
