"""Cuts a model file into shards, as the tools of llama.cpp do: the first has all keys, every one has its own tensors."""

from __future__ import annotations

from array import array
from pathlib import Path
from typing import Any

from engine.gguf import types
from engine.gguf.info import MetaValue
from engine.gguf.reader import read_gguf
from tests.helpers.gguf_builder import Typed, array_of, build_gguf, infer

_CODES = {code: type_id for type_id, code in types.STRUCT_CODES.items()}


def write_parts(whole: Path, folder: Path, n: int) -> list[Path]:
    """The paths of n shards in `folder`, which hold every n-th tensor of the model at `whole` each."""
    file = read_gguf(whole)
    data = whole.read_bytes()
    paths = []
    for number in range(n):
        metadata: dict[str, Any] = {key: _typed(value) for key, value in file.metadata.items()} if number == 0 else {}
        metadata |= {
            "split.no": Typed(types.UINT16, number),
            "split.count": Typed(types.UINT16, n),
            "split.tensors.count": Typed(types.INT32, len(file.tensors)),
        }
        mine = list(file.tensors.values())[number::n]
        tensors = [(one.name, one.shape, one.type_id, data[one.offset : one.offset + one.nbytes]) for one in mine]
        paths.append(folder / f"{whole.stem}-{number + 1:05d}-of-{n:05d}.gguf")
        paths[-1].write_bytes(build_gguf(metadata, tensors))
    return paths


def _typed(value: MetaValue) -> Typed:
    return array_of(_CODES[value.typecode], value) if isinstance(value, array) else infer(value)
