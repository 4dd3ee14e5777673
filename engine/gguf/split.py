"""Models in several files: which shards belong together, by their names and by what each says of itself, and which model a folder
holds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import islice
from pathlib import Path

from engine.errors import GgufError
from engine.gguf import keys
from engine.gguf.info import MetaValue

_SHARD_NAME = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf")
_MAX_SHARDS = 512
"""Each is mapped and kept open: half of what a process may open, and of the guard's places."""
_MAX_LISTED = 100_000


def model_file(path: Path) -> Path:
    """A file of the model at `path`: the file itself, or in a folder of one model its only file or its lowest shard.

    Files that only see (`mmproj*`) are no models of their own.

    Raises: GgufError for a folder without a model, or with several.
    """
    if not path.is_dir():
        return path
    models: dict[str, Path] = {}
    try:
        for found in sorted(islice(path.iterdir(), _MAX_LISTED)):
            if found.suffix.lower() == ".gguf" and not found.name.lower().startswith("mmproj"):
                match = _SHARD_NAME.fullmatch(found.name)
                models.setdefault(f"{match[1]} of {match[3]}" if match else found.name, found)
    except OSError as error:
        raise GgufError(f"{path}: the folder cannot be read ({error.strerror}), at byte 0; check its permissions") from error
    if not models:
        raise GgufError(f"{path}: no file in this folder ends in .gguf, at byte 0; choose a GGUF file or the folder of its parts")
    if len(models) > 1:
        names = ", ".join(found.name for found in list(models.values())[:3]) + (" ..." if len(models) > 3 else "")
        raise GgufError(f"{path}: the folder holds {len(models)} models ({names}), at byte 0; choose one of these files")
    return next(iter(models.values()))


def _error(path: Path, key: str, offsets: Mapping[str, int], problem: str, advice: str) -> GgufError:
    return GgufError(f"{path.name}: {key} at byte {offsets.get(key, 0)}: {problem}; {advice}")


def _number(path: Path, metadata: Mapping[str, MetaValue], offsets: Mapping[str, int], key: str, default: int) -> int:
    value = metadata.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int):
        raise _error(path, key, offsets, "the value is not a whole number", "the file is broken, get another copy")
    return value


def shard_paths(path: Path, metadata: Mapping[str, MetaValue], offsets: Mapping[str, int]) -> list[Path]:
    """All shards of the model, in order, `path` among them; only `path` when the model is one file.

    Raises: GgufError for a name that does not fit what the file says, and for missing shards.
    """
    count = _number(path, metadata, offsets, keys.SPLIT_COUNT, 1)
    number = _number(path, metadata, offsets, keys.SPLIT_NO, 0)
    if count <= 1:
        return [path]
    if count > _MAX_SHARDS or not 0 <= number < count:
        problem = f"part {number + 1} of {count} makes no sense (up to {_MAX_SHARDS} parts are allowed)"
        raise _error(path, keys.SPLIT_COUNT, offsets, problem, "the file is broken, get another copy")
    match = _SHARD_NAME.fullmatch(path.name)
    expected = f"-{number + 1:05d}-of-{count:05d}.gguf"
    if match is None or not path.name.endswith(expected):
        problem = f"this is part {number + 1} of {count} but its name does not end in {expected}"
        raise _error(path, keys.SPLIT_COUNT, offsets, problem, "give the file its own name back; the other parts are found by it")
    paths = [path.with_name(f"{match[1]}-{i + 1:05d}-of-{count:05d}.gguf") for i in range(count)]
    missing = [p.name for p in paths if not p.exists()]
    if missing:
        problem = (
            f"{len(missing)} of {count} parts are missing beside it: {', '.join(missing[:3])}{' ...' if len(missing) > 3 else ''}"
        )
        raise _error(path, keys.SPLIT_COUNT, offsets, problem, "download the missing parts into the same folder")
    return paths


def check_shard(
    path: Path,
    metadata: Mapping[str, MetaValue],
    offsets: Mapping[str, int],
    number: int,
    first_path: Path,
    first: Mapping[str, MetaValue],
) -> None:
    """Raises: GgufError when the shard found at place `number` (from 0) is a copy of another one or belongs to another model."""
    count = _number(path, first, {}, keys.SPLIT_COUNT, 1)
    if count <= 1:
        return
    if _number(path, metadata, offsets, keys.SPLIT_COUNT, 1) != count:
        problem = f"the part says it is one of {metadata.get(keys.SPLIT_COUNT, 1)}, {first_path.name} says {count}"
        raise _error(path, keys.SPLIT_COUNT, offsets, problem, "it belongs to another model, put the right part in its place")
    says = _number(path, metadata, offsets, keys.SPLIT_NO, 0)
    if says != number:
        problem = f"part {number + 1} is expected here but the file repeats part {says + 1}"
        raise _error(path, keys.SPLIT_NO, offsets, problem, f"download part {number + 1} again")
    total, expected = metadata.get(keys.SPLIT_TENSORS), first.get(keys.SPLIT_TENSORS)
    if total is not None and expected is not None and total != expected:
        problem = f"the part counts {total} tensors in all parts, {first_path.name} counts {expected}"
        raise _error(path, keys.SPLIT_TENSORS, offsets, problem, "it belongs to another model, put the right part in its place")
    mine, theirs = metadata.get(keys.ARCHITECTURE), first.get(keys.ARCHITECTURE)
    if mine is not None and mine != theirs:
        problem = f"the part is of architecture {mine!r}, {first_path.name} of {theirs!r}"
        raise _error(path, keys.ARCHITECTURE, offsets, problem, "it belongs to another model, put the right part in its place")
