"""Reads the header of a GGUF model, of one file or of many, into a checked `GgufFile`. What the format forbids, and what no
honest file needs, is refused with the field, the byte offset and what to do."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, replace
from pathlib import Path

from engine.errors import GgufError, UnsupportedModel
from engine.gguf import keys, types
from engine.gguf.cursor import Cursor
from engine.gguf.info import FileIdentity, GgufFile, MetaValue, ShardInfo, TensorInfo
from engine.gguf.rules import check_metadata
from engine.gguf.split import check_shard, model_file, shard_paths

_MIN_PAIR_BYTES = 8 + 1 + 4 + 1
_MIN_TENSOR_BYTES = 8 + 1 + 4 + 8 + 4 + 8
_MAX_KEY_BYTES = 65535
_MAX_DIM = 1 << 40
_ALIGNMENTS = frozenset({8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096})
_EARLIER = "the file is broken; get another copy"


@dataclass(frozen=True, slots=True)
class _Header:
    shard: ShardInfo
    metadata: dict[str, MetaValue]
    key_offsets: dict[str, int]
    tensors: dict[str, TensorInfo]
    alignment: int
    version: int


def read_gguf(path: Path | str) -> GgufFile:
    """The model that the file at `path` holds or is one shard of, or that lies alone in the folder `path`.

    Raises: GgufError naming the field, the byte offset and what to do; UnsupportedModel for tensor types of ik_llama.cpp.
    """
    opened = _read_header(model_file(Path(path)))
    siblings = shard_paths(opened.shard.path, opened.metadata, opened.key_offsets)
    headers = [opened if p == opened.shard.path else _read_header(p) for p in siblings]
    for number, header in enumerate(headers):
        check_shard(header.shard.path, header.metadata, header.key_offsets, number, headers[0].shard.path, headers[0].metadata)
    file = _join(headers)
    check_metadata(file)
    return file


def _join(headers: list[_Header]) -> GgufFile:
    tensors: dict[str, TensorInfo] = {}
    for number, header in enumerate(headers):
        for name, info in header.tensors.items():
            if name in tensors:
                first = headers[tensors[name].shard].shard.path.name
                raise GgufError(
                    f"{header.shard.path.name}: tensor {name!r} at byte {info.offset}: it is already in {first}; "
                    "one shard is a copy of another or of another model, put the right one in its place"
                )
            tensors[name] = replace(info, shard=number)
    first_header = headers[0]
    expected = first_header.metadata.get(keys.SPLIT_TENSORS)
    if len(headers) > 1 and isinstance(expected, int) and expected != len(tensors):
        at = first_header.key_offsets[keys.SPLIT_TENSORS]
        raise GgufError(
            f"{first_header.shard.path.name}: {keys.SPLIT_TENSORS} at byte {at}: {expected} tensors are announced, the "
            f"{len(headers)} shards hold {len(tensors)}; a shard is from another model, put the right one in its place"
        )
    return GgufFile(
        shards=tuple(header.shard for header in headers),
        metadata=first_header.metadata,
        tensors=tensors,
        alignment=first_header.alignment,
        version=first_header.version,
        key_offsets=first_header.key_offsets,
    )


def _read_header(path: Path) -> _Header:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise GgufError(f"{path}: the file cannot be opened ({reason}) at byte 0; check the path and its permissions") from error
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise GgufError(f"{path}: not a regular file, at byte 0; choose a file that ends in .gguf")
        identity = FileIdentity(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        return _parse(Cursor(fd, path.name, status.st_size), ShardInfo(path, identity))
    except OSError as error:
        raise GgufError(f"{path}: reading failed ({error.strerror}) in the header from byte 0; check the disk") from error
    finally:
        os.close(fd)


def _parse(cursor: Cursor, shard: ShardInfo) -> _Header:
    version = _read_magic(cursor)
    n_tensors = _read_count(cursor, "tensor count", _MIN_TENSOR_BYTES)
    n_pairs = _read_count(cursor, "key count", _MIN_PAIR_BYTES)
    metadata, key_offsets, value_types = _read_pairs(cursor, n_pairs)
    alignment = _alignment(cursor, metadata, key_offsets, value_types)
    records = _read_tensor_records(cursor, n_tensors)
    tensors = _place_tensors(cursor, records, alignment)
    return _Header(shard, metadata, key_offsets, tensors, alignment, version)


def _read_magic(cursor: Cursor) -> int:
    cursor.where = "magic"
    magic = cursor.take(4)
    if magic != types.MAGIC:
        raise cursor.error(f"the file starts with {magic!r}, not with b'GGUF'", "choose a GGUF model file", at=0)
    cursor.where = "version"
    version = cursor.u32()
    if version in types.VERSIONS:
        return version
    swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
    if swapped in (1, *types.VERSIONS):
        problem = "the file is big-endian, made for another kind of processor"
        raise cursor.error(problem, "get the little-endian file of this model", at=4)
    raise cursor.error(f"version {version} is not supported (2 and 3 are)", "get a newer file of this model", at=4)


def _read_count(cursor: Cursor, what: str, least_bytes: int) -> int:
    cursor.where = what
    start = cursor.pos
    count = cursor.u64()
    if count > cursor.left // least_bytes:
        raise cursor.error(f"{count:,} are announced but only {cursor.left:,} bytes follow", at=start)
    return count


def _read_pairs(cursor: Cursor, n_pairs: int) -> tuple[dict[str, MetaValue], dict[str, int], dict[str, int]]:
    metadata: dict[str, MetaValue] = {}
    key_offsets: dict[str, int] = {}
    value_types: dict[str, int] = {}
    for index in range(n_pairs):
        cursor.where = f"key {index + 1} of {n_pairs}"
        start = cursor.pos
        key = cursor.string(_MAX_KEY_BYTES)
        if not key or "\0" in key:
            raise cursor.error("a key may not be empty nor hold a zero byte", _EARLIER, at=start)
        cursor.where = key if len(key) <= 100 and key.isprintable() else f"key {index + 1} of {n_pairs}"
        if key in metadata:
            raise cursor.error(f"the key is already at byte {key_offsets[key]}", _EARLIER, at=start)
        value_type = cursor.u32()
        metadata[key] = cursor.value(value_type)
        key_offsets[key] = start
        value_types[key] = value_type
    return metadata, key_offsets, value_types


def _alignment(cursor: Cursor, metadata: dict[str, MetaValue], offsets: dict[str, int], value_types: dict[str, int]) -> int:
    if keys.ALIGNMENT not in metadata:
        return types.DEFAULT_ALIGNMENT
    cursor.where, at = keys.ALIGNMENT, offsets[keys.ALIGNMENT]
    value, value_type = metadata[keys.ALIGNMENT], value_types[keys.ALIGNMENT]
    if value_type != types.UINT32 or not isinstance(value, int):
        raise cursor.error(f"the alignment is a u32, not a {types.VALUE_NAMES[value_type]}", _EARLIER, at=at)
    if value not in _ALIGNMENTS:
        raise cursor.error(f"an alignment of {value} is not a power of two from 8 to 4096", _EARLIER, at=at)
    return value


def _read_tensor_records(cursor: Cursor, n_tensors: int) -> list[tuple[int, TensorInfo]]:
    records: list[tuple[int, TensorInfo]] = []
    seen: dict[str, int] = {}
    for index in range(n_tensors):
        cursor.where = f"tensor {index + 1} of {n_tensors}"
        start = cursor.pos
        name = cursor.string(types.MAX_TENSOR_NAME_BYTES)
        _check_tensor_name(cursor, name, start)
        cursor.where = f"tensor {name!r}"
        if name in seen:
            raise cursor.error(f"the tensor is already described at byte {seen[name]}", _EARLIER, at=start)
        seen[name] = start
        records.append((start, _read_tensor(cursor, name)))
    return records


def _check_tensor_name(cursor: Cursor, name: str, start: int) -> None:
    if not name:
        raise cursor.error("the name is empty", _EARLIER, at=start)
    if not name.isprintable():
        raise cursor.error("the name holds a zero byte or another control character", _EARLIER, at=start)
    if "/" in name or "\\" in name or ".." in name:
        raise cursor.error("the name looks like a path of the file system", "get the file from a source you trust", at=start)


def _read_tensor(cursor: Cursor, name: str) -> TensorInfo:
    at_dims = cursor.pos
    n_dims = cursor.u32()
    if not 1 <= n_dims <= types.MAX_DIMS:
        raise cursor.error(f"{n_dims} dimensions; 1 to {types.MAX_DIMS} are allowed", _EARLIER, at=at_dims)
    shape = tuple(cursor.u64() for _ in range(n_dims))
    for axis, n in enumerate(shape):
        if not 1 <= n <= _MAX_DIM:
            raise cursor.error(f"dimension {axis} is {n:,}; 1 to 2^40 are allowed", _EARLIER, at=at_dims + 4 + 8 * axis)
    at_type = cursor.pos
    type_id = cursor.u32()
    row = types.TENSOR_TYPES.get(type_id)
    if type_id in types.IK_LLAMA_IDS:
        label = types.IK_LLAMA_NAMES.get(type_id, f"number {type_id}")
        raise UnsupportedModel(
            f"{cursor.file_name}: tensor {name} is of type {label}, which only ik_llama.cpp makes and runs; "
            "get the model in a type of llama.cpp, such as Q4_K or IQ4_XS"
        )
    if row is None:
        known = ", ".join(t.name for t in types.TENSOR_TYPES.values())
        raise cursor.error(f"tensor type {type_id} does not exist", f"the known types are {known}", at=at_type)
    if shape[0] % row.block:
        raise cursor.error(
            f"rows of {shape[0]} weights are no whole blocks of {row.block} ({row.name})", _EARLIER, at=at_dims + 4
        )
    n_elements = 1
    for n in shape:
        n_elements *= n
    nbytes = n_elements // row.block * row.block_bytes
    if nbytes > cursor.file_bytes:
        raise cursor.error(f"the tensor takes {nbytes:,} bytes, the file has {cursor.file_bytes:,}", at=at_dims + 4)
    at_offset = cursor.pos
    offset = cursor.u64()
    if offset > cursor.file_bytes - nbytes:
        raise cursor.error(f"the data would start {offset:,} bytes into the data part, past the end of the file", at=at_offset)
    return TensorInfo(name, shape, type_id, row.name, nbytes, 0, offset)


def _place_tensors(cursor: Cursor, records: list[tuple[int, TensorInfo]], alignment: int) -> dict[str, TensorInfo]:
    data_start = -(-cursor.pos // alignment) * alignment
    end_of_last, last_name = 0, ""
    for start, info in sorted(records, key=lambda record: record[1].offset):
        cursor.where = f"tensor {info.name!r}"
        end = info.offset + info.nbytes
        if info.offset % alignment:
            raise cursor.error(f"the data offset {info.offset} is no multiple of the alignment {alignment}", _EARLIER, at=start)
        if info.offset < end_of_last:
            raise cursor.error(f"its data overlaps that of {last_name!r}", _EARLIER, at=start)
        if data_start + end > cursor.file_bytes:
            missing = data_start + end - cursor.file_bytes
            raise cursor.error(f"its data ends {missing:,} bytes after the end of the file", at=start)
        end_of_last, last_name = end, info.name
    return {info.name: replace(info, offset=data_start + info.offset) for _, info in records}
