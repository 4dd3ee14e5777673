"""A checkpoint folder to a GGUF file."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from engine.convert.build import CHUNK_VALUES, Made, Model
from engine.convert.config import Config
from engine.convert.families import (
    deepseek,
    delta,
    ernie,
    gemma,
    glm,
    gpt_oss,
    hunyuan,
    llama,
    minimax,
    mistral,
    qwen,
)
from engine.convert.quantise import quantise
from engine.convert.recipe import FILE_TYPES, OutType, type_of
from engine.convert.safetensors import F32, Checkpoint
from engine.convert.vocabulary import vocabulary
from engine.convert.writer import OutTensor, write_gguf
from engine.errors import ConversionError
from engine.gguf import keys

Build = Callable[[Model], None]

_MAX_THREADS = 8
"""Each quantises a piece of 2 million weights, which takes about 100 MB beside it."""

FAMILIES: dict[str, tuple[str, Build]] = {
    "LlamaForCausalLM": ("llama", llama.build),
    "MistralForCausalLM": ("llama", llama.build),
    "MixtralForCausalLM": ("llama", llama.build),
    "Qwen2ForCausalLM": ("qwen2", qwen.build_dense),
    "Qwen2MoeForCausalLM": ("qwen2moe", qwen.build_moe),
    "Qwen3ForCausalLM": ("qwen3", qwen.build_dense),
    "Qwen3MoeForCausalLM": ("qwen3moe", qwen.build_moe),
    "Qwen3NextForCausalLM": ("qwen3next", delta.build),
    "Qwen3_5ForCausalLM": ("qwen35", delta.build),
    "Qwen3_5ForConditionalGeneration": ("qwen35", delta.build),
    "Qwen3_5MoeForCausalLM": ("qwen35moe", delta.build),
    "Qwen3_5MoeForConditionalGeneration": ("qwen35moe", delta.build),
    "DeepseekV2ForCausalLM": ("deepseek2", deepseek.build),
    "DeepseekV3ForCausalLM": ("deepseek2", deepseek.build),
    "Glm4MoeForCausalLM": ("glm4moe", glm.build),
    "GptOssForCausalLM": ("gpt-oss", gpt_oss.build),
    "Gemma3ForCausalLM": ("gemma3", gemma.build),
    "Gemma3ForConditionalGeneration": ("gemma3", gemma.build),
    "MiniMaxM2ForCausalLM": ("minimax-m2", minimax.build),
    "Ernie4_5_MoeForCausalLM": ("ernie4_5-moe", ernie.build),
    "HunYuanMoEV1ForCausalLM": ("hunyuan-moe", hunyuan.build),
    "Ministral3ForCausalLM": ("mistral3", mistral.build),
    "Mistral3ForConditionalGeneration": ("mistral3", mistral.build),
}
"""The class that a checkpoint names -> architecture of the file, and what fills the model."""


@dataclass(frozen=True, slots=True)
class Converted:
    """What was written. notes: clauses about what was left out."""

    architecture: str
    n_tensors: int
    nbytes: int
    notes: tuple[str, ...]


def convert(folder: Path, out: Path, out_type: OutType, progress: Callable[[str, int, int], None]) -> Converted:
    """Writes the model in `folder` to the file `out`, which appears when it is whole. progress(tensor, bytes done, bytes in all).

    Raises: ConversionError for what cannot be converted, or written; nothing is left behind.
    """
    model = describe(folder)
    metadata = {
        keys.ARCHITECTURE: model.architecture,
        "general.type": "model",
        keys.NAME: model.config.name,
        "general.file_type": FILE_TYPES[out_type],
        "general.quantization_version": 2,
        **model.metadata,
        **vocabulary(folder, _n_vocab(model), model.config.values, glm=model.architecture == "glm4moe"),
    }
    tied = not any(made.name == "output.weight" for made in model.tensors)
    partial = out.with_name(out.name + ".part")
    n_threads = min(len(os.sched_getaffinity(0)), _MAX_THREADS)
    try:
        with ThreadPoolExecutor(n_threads, "quantise") as pool:
            tensors = [_out(made, out_type, model.config.n_layers, tied, pool, n_threads) for made in model.tensors]
            nbytes = write_gguf(partial, metadata, tensors, progress)
        partial.replace(out)
    except OSError as error:
        raise ConversionError(
            f"{out}: the file cannot be written ({error.strerror}); check the folder and its free space"
        ) from error
    finally:
        partial.unlink(missing_ok=True)
    return Converted(model.architecture, len(tensors), nbytes, tuple(model.notes))


def describe(folder: Path) -> Model:
    """What the file will hold; no weight is read yet. Raises: ConversionError."""
    config = Config.read(folder)
    if config.architecture not in FAMILIES:
        raise ConversionError(
            f"models of class {config.architecture[:60]} are not converted; converted are {', '.join(FAMILIES)}"
        )
    architecture, build = FAMILIES[config.architecture]
    model = Model(architecture, config, Checkpoint(folder))
    build(model)
    model.finish()
    return model


def _n_vocab(model: Model) -> int:
    return next(made.shape[0] for made in model.tensors if made.name == "token_embd.weight")


def _out(made: Made, out_type: OutType, n_layers: int, tied: bool, pool: ThreadPoolExecutor, n_threads: int) -> OutTensor:
    type_name = made.type_name or type_of(made.name, made.shape, out_type, n_layers, tied=tied)

    def blocks() -> Iterator[npt.NDArray[np.uint8]]:
        if made.type_name is not None:
            yield from made.parts()
            return
        waiting: deque[Future[npt.NDArray[np.uint8]]] = deque()
        for part in made.parts():
            for rows in _few(part):
                waiting.append(pool.submit(quantise, rows, type_name))
                if len(waiting) > n_threads:
                    yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    return OutTensor(made.name, made.shape, type_name, blocks)


def _few(part: F32) -> Iterator[F32]:
    """The rows of a part, so many at a time that quantising takes little memory beside them."""
    rows = part.reshape(-1, part.shape[-1])
    step = max(1, CHUNK_VALUES // 8 // rows.shape[-1])
    for start in range(0, len(rows), step):
        yield rows[start : start + step]
