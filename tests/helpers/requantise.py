"""A model file with some of its matrices in another format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np

from engine.gguf import types
from engine.gguf.reader import read_gguf
from engine.quants.reference import dequantise
from tests.helpers.gguf_builder import Tensor, array_of, build_gguf


def requantised(source: Path, path: Path, formats: dict[str, str]) -> Path:
    """Writes `source` to `path`; matrices whose name holds a key of `formats` get that format."""
    file, raw = read_gguf(source), source.read_bytes()
    tensors: list[Tensor] = []
    for name, info in file.tensors.items():
        data, type_id = raw[info.offset : info.offset + info.nbytes], info.type_id
        wanted = next((one for part, one in formats.items() if part in name), None)
        if wanted is not None and len(info.shape) > 1 and name.endswith(".weight"):
            values = dequantise(info.type_name, np.frombuffer(data, np.uint8)).reshape(tuple(reversed(info.shape)))
            type_id = types.TYPE_IDS[wanted]
            data = gguf.quants.quantize(values, gguf.GGMLQuantizationType(type_id)).tobytes()
        tensors.append((name, info.shape, type_id, data))
    kinds: dict[str, Any] = {"tokenizer.ggml.token_type": array_of(types.INT32, file.metadata["tokenizer.ggml.token_type"])}
    path.write_bytes(build_gguf({**file.metadata, **kinds}, tensors))
    return path
