"""Model files on this machine: their names, types and sizes as file names tell them. No Qt; reads folders, never files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

_SHARD = re.compile(r"-(\d{5})-of-(\d{5})$")
_QUANT = re.compile(r"[.\-_]((?:UD-)?(?:I?Q\d\w*|BF16|F16|F32|FP16|MXFP4\w*))$", re.IGNORECASE)
MAX_FOLDERS = 20_000


@dataclass(frozen=True, slots=True)
class ModelFile:
    """One model, all its shards together. path: the file, or the first shard. quant "" when the name does not tell."""

    path: str
    name: str
    quant: str
    bytes: int


def name_and_quant(stem: str) -> tuple[str, str]:
    """`SmolLM2-135M-Instruct.Q4_1` -> (`SmolLM2 135M Instruct`, `Q4_1`)."""
    stem = _SHARD.sub("", stem)
    found = _QUANT.search(stem)
    quant = found.group(1).upper() if found else ""
    name = stem[: found.start()] if found else stem
    return " ".join(name.replace("_", " ").replace("-", " ").split()) or stem, quant


def first_file(path: Path) -> Path:
    """What stands for the model here: the first shard for any shard, the file for a folder of one model, else the path."""
    if path.is_dir():
        found = tuple(_models_among(_files_in(path)))
        return found[0] if len(found) == 1 else path
    shard = _SHARD.search(path.stem)
    if shard is None:
        return path
    first = path.with_name(f"{path.stem[: shard.start()]}-00001-of-{shard.group(2)}{path.suffix}")
    return first if first.exists() else path


def describe(path: Path) -> ModelFile | None:
    """The model in this file; None when it is not there. The size of a split model is that of all shards present."""
    try:
        size = path.stat().st_size
    except OSError:
        return None
    name, quant = name_and_quant(path.stem)
    shard = _SHARD.search(path.stem)
    if shard is not None:
        pattern = f"{path.stem[: shard.start()]}-?????-of-{shard.group(2)}.gguf"
        size = sum(other.stat().st_size for other in path.parent.glob(pattern))
    return ModelFile(str(path), name, quant, size)


def known_models(paths: Iterable[str | Path]) -> tuple[ModelFile, ...]:
    """The models at these paths that are there, each once, in order."""
    found: dict[str, ModelFile] = {}
    for path in paths:
        first = first_file(Path(path))
        model = describe(first)
        if model is not None:
            found.setdefault(str(first.resolve()), model)
    return tuple(found.values())


def find_in_folder(folder: Path) -> tuple[ModelFile, ...]:
    """All models below a folder, by name; links to folders are not followed. Takes a while: not for the UI thread."""
    found: list[Path] = []
    for number, (root, folders, names) in enumerate(os.walk(folder)):
        if number > MAX_FOLDERS:
            break
        folders.sort()
        found += _models_among([Path(root) / name for name in sorted(names)])
    return known_models(found)


def _files_in(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _models_among(paths: Iterable[Path]) -> Iterator[Path]:
    """The files that are models or first shards of one."""
    for path in paths:
        if path.suffix.lower() != ".gguf" or path.name.lower().startswith("mmproj"):
            continue
        shard = _SHARD.search(path.stem)
        if shard is None or int(shard.group(1)) == 1:
            yield path
