"""Reads the tensors of a checkpoint folder: safetensors files, mapped and never copied whole. A file is a u64 length, that many
bytes of JSON with the place of each tensor, and the data."""

from __future__ import annotations

import json
import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.convert.config import read_json
from engine.errors import ConversionError

F32 = npt.NDArray[np.float32]

MAX_HEADER_BYTES = 256 << 20
_SCALE_BLOCK = 128
_DTYPES: dict[str, type[np.generic]] = {
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
    "BF16": np.uint16,
    "F8_E4M3": np.uint8,
    "U8": np.uint8,
    "I32": np.int32,
    "I64": np.int64,
}
"""How the bytes of a type are viewed; BF16 and F8_E4M3 have no numpy type of their own."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One tensor of a checkpoint: where it lies. shape: outermost axis first; start: absolute byte in the file."""

    name: str
    path: Path
    dtype: str
    shape: tuple[int, ...]
    start: int
    nbytes: int

    @property
    def n_elements(self) -> int:
        """Number of values."""
        return math.prod(self.shape)


class Checkpoint:
    """The tensors of every safetensors file in a folder, by name."""

    def __init__(self, folder: Path) -> None:
        """Reads the headers.

        Raises: ConversionError for no such files, a damaged one, or a tensor that two of them hold.
        """
        self.entries: dict[str, Entry] = {}
        for path in _files(folder):
            for entry in read_header(path):
                if entry.name in self.entries:
                    first = self.entries[entry.name].path.name
                    raise ConversionError(f"{path.name}: tensor {entry.name} is already in {first}; keep one copy of the model")
                self.entries[entry.name] = entry

    def __contains__(self, name: str) -> bool:
        return name in self.entries

    def entry(self, name: str) -> Entry:
        """Where a tensor lies. Raises: ConversionError when there is none of this name."""
        if name not in self.entries:
            raise ConversionError(f"tensor {name} is missing; the model is incomplete, download it again")
        return self.entries[name]

    def raw(self, name: str, start: int = 0, stop: int | None = None) -> npt.NDArray[Any]:
        """Entries start to stop of the first axis, as stored: a view into the mapped file."""
        entry = self.entry(name)
        view = np.memmap(entry.path, _DTYPES[entry.dtype], "r", entry.start, entry.shape or (1,))
        return view[start:stop]

    def read(self, name: str, start: int = 0, stop: int | None = None) -> F32:
        """Entries start to stop of the first axis in f32. 8-bit weights are multiplied with the scales of their 128 x 128
        blocks."""
        entry = self.entry(name)
        values = to_f32(self.raw(name, start, stop), entry.dtype)
        scales = f"{name}_scale_inv"
        return values * self._block_scales(entry, scales, start, stop) if scales in self.entries else values

    def _block_scales(self, entry: Entry, scales: str, start: int, stop: int | None) -> F32:
        blocks = self.read(scales)
        if blocks.shape != tuple(-(-n // _SCALE_BLOCK) for n in entry.shape):
            raise ConversionError(f"tensor {scales} has shape {blocks.shape}: one scale for each 128 x 128 weights is converted")
        by_row = np.repeat(blocks, _SCALE_BLOCK, 0)[: entry.shape[0]][start:stop]
        return np.repeat(by_row, _SCALE_BLOCK, 1)[:, : entry.shape[1]]


def _files(folder: Path) -> list[Path]:
    """The files of the model: those that the index of a model in parts lists, else the one file, else all that there are. Some
    folders hold the same model once more in another form.

    Raises: ConversionError for parts that are missing, or no file at all.
    """
    index, whole = folder / "model.safetensors.index.json", folder / "model.safetensors"
    if index.is_file():
        listed = sorted(set(read_json(index).get("weight_map", {}).values()))
        missing = [name for name in listed if not (folder / name).is_file()]
        if missing:
            shown = ", ".join(missing[:3]) + (" ..." if len(missing) > 3 else "")
            raise ConversionError(f"{folder.name}: {len(missing)} parts of the model are missing ({shown}); download them")
        return [folder / name for name in listed]
    found = [whole] if whole.is_file() else sorted(folder.glob("*.safetensors"))
    if not found:
        raise ConversionError(f"{folder}: no *.safetensors files are here; give the folder of a downloaded model")
    return found


def to_f32(values: npt.NDArray[Any], dtype: str) -> F32:
    """Stored values as f32."""
    if dtype == "BF16":
        widened: F32 = (values.astype(np.uint32) << 16).view(np.float32)
        return widened
    if dtype == "F8_E4M3":
        return np.take(_E4M3, values)
    single: F32 = values.astype(np.float32)
    return single


def _e4m3_table() -> F32:
    """The value of each byte: sign, 4 bits of exponent (bias 7), 3 of mantissa; no infinities, 0x7F is no number."""
    codes = np.arange(256)
    exponent, mantissa = codes >> 3 & 15, codes & 7
    magnitude = np.where(exponent == 0, mantissa * 2.0**-9, (8 + mantissa) * 2.0 ** (exponent - 10.0))
    magnitude[codes & 127 == 127] = np.nan
    return np.where(codes & 128, -magnitude, magnitude).astype(np.float32)


_E4M3 = _e4m3_table()


def read_header(path: Path) -> list[Entry]:
    """The tensors of one file.

    Raises: ConversionError for a file that is damaged, cut short, or holds a type that is not read.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        first = file.read(8)
        length = struct.unpack("<Q", first)[0] if len(first) == 8 else size
        if length > min(size - 8, MAX_HEADER_BYTES):
            raise _damaged(path, f"its header takes {length:,} bytes")
        try:
            header = json.loads(file.read(length))
            rows = [(name, row) for name, row in header.items() if name != "__metadata__"]
            return [_entry(path, name, row, 8 + length, size) for name, row in rows]
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise _damaged(path, "its header is no JSON of tensors") from error


def _entry(path: Path, name: str, row: dict[str, Any], base: int, size: int) -> Entry:
    dtype, shape, (start, end) = row["dtype"], tuple(row["shape"]), row["data_offsets"]
    if dtype not in _DTYPES:
        raise ConversionError(f"{path.name}: tensor {name} is of type {dtype}; converted are {', '.join(_DTYPES)}")
    entry = Entry(name, path, dtype, shape, base + start, end - start)
    item = np.dtype(_DTYPES[dtype]).itemsize
    if start < 0 or base + end > size or entry.nbytes != entry.n_elements * item:
        raise _damaged(path, f"tensor {name} does not lie inside it")
    return entry


def _damaged(path: Path, problem: str) -> ConversionError:
    return ConversionError(f"{path.name}: the file is damaged or was cut short ({problem}); download it again")
