"""Which families exist, and the one door from a file to its `ModelSpec`. Families register themselves with `@family(name)`."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable

from engine.arch.hparams import Header, ModelFile
from engine.arch.spec import ModelSpec
from engine.errors import GgufError, UnsupportedModel

Build = Callable[[Header], ModelSpec]

FAMILY_MODULES: tuple[str, ...] = (
    "deepseek",
    "ernie",
    "gemma3",
    "glm4moe",
    "gpt_oss",
    "hunyuan",
    "llama",
    "minimax",
    "qwen2",
    "qwen3",
    "qwen35",
)
"""Modules of engine.arch.families, imported when the first model is described."""

NOT_YET = (
    *("deepseek", "deepseek2-ocr", "deepseek32", "deepseek4", "ernie4_5", "exaone-moe", "gemma", "gemma2", "gemma3n", "gemma4"),
    *("glm-dsa", "glm4", "granitemoe", "hunyuan-dense", "hunyuan_vl", "jamba", "lfm2moe", "llada", "llama-embed", "llama4"),
    *("mamba", "minimax-m3", "mistral4", "olmoe", "plamo", "qwen", "qwen2vl", "qwen3vl", "qwen3vlmoe", "rwkv6qwen2"),
)
"""Architectures that exist, are not run and sound like those that are, none of which is suggested in their place."""

_families: dict[str, Build] = {}


def family(name: str) -> Callable[[Build], Build]:
    """Registers a function as the description of the architecture `name` (the value of `general.architecture`)."""

    def register(build: Build) -> Build:
        _families[name] = build
        return build

    return register


def supported() -> tuple[str, ...]:
    """The architectures that this version runs, sorted."""
    for module in FAMILY_MODULES:
        importlib.import_module(f"engine.arch.families.{module}")
    return tuple(sorted(_families))


def build_spec(file: ModelFile) -> ModelSpec:
    """The description of the model in `file`; every tensor it names is known to exist with the right shape.

    Raises:
        UnsupportedModel: an architecture that no family describes; the message lists those that are.
        GgufError: metadata or tensors that are missing or contradict each other.
    """
    architecture = file.metadata.get("general.architecture")
    if not isinstance(architecture, str):
        raise GgufError("general.architecture is missing or no text; this file does not say what model it holds")
    names = supported()
    if architecture not in names:
        raise UnsupportedModel(_refusal(architecture, names))
    return _families[architecture](Header(architecture, file.metadata, file.tensors))


def _refusal(architecture: str, names: tuple[str, ...]) -> str:
    near = [] if architecture in NOT_YET else difflib.get_close_matches(architecture, names, n=1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    return f"architecture {architecture[:60]!r} is not supported{hint}; this version runs {', '.join(names)}"
