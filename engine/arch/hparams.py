"""Typed reading of a model's header: `{arch}.*` keys and the tensors a family needs.

Each getter states type, default and allowed range in one call and raises `GgufError` naming the
key. Families read through `Header` only.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from engine.arch.spec import Linear
from engine.errors import GgufError

MAX_BLOCKS = 4096
MAX_WIDTH = 1 << 24


class TensorHeader(Protocol):
    """The part of a tensor's description that families look at."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Dimensions in GGUF order."""


class ModelFile(Protocol):
    """A parsed model file: what `engine.gguf.info.GgufFile` offers to families."""

    @property
    def metadata(self) -> Mapping[str, object]:
        """Every key of the file."""

    @property
    def tensors(self) -> Mapping[str, TensorHeader]:
        """Every tensor of the file, by name."""


@dataclass(frozen=True, slots=True)
class Header:
    """Metadata under one architecture prefix, and the tensors beside it."""

    architecture: str
    metadata: Mapping[str, object]
    tensors: Mapping[str, TensorHeader]

    def key(self, name: str) -> str:
        """The full key of `name`."""
        return f"{self.architecture}.{name}"

    def integer(self, name: str, default: int | None = None, *, low: int = 0, high: int = MAX_WIDTH) -> int:
        """The whole number under `name`, within low..high; `default` where absent.

        Raises:
            GgufError: absent without a default, of another type, or out of range.
        """
        value = self._get(name, default)
        return self._whole(name, value, low, high)

    def number(self, name: str, default: float | None = None, *, low: float, high: float) -> float:
        """The number under `name`, within low..high; `default` where absent. Raises GgufError like `integer`."""
        value = self._get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise GgufError(f"{self.key(name)} is {_shown(value)}, a number is expected; the metadata is damaged")
        if not low <= value <= high:
            raise GgufError(f"{self.key(name)} is {value:g}, it must lie between {low:g} and {high:g}; the metadata is damaged")
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        """The yes or no under `name`; `default` where absent. Raises GgufError for anything else."""
        value = self._get(name, default)
        if not isinstance(value, bool):
            raise GgufError(f"{self.key(name)} is {_shown(value)}, true or false is expected; the metadata is damaged")
        return value

    @property
    def n_extra(self) -> int:
        """Blocks at the end that only guess further tokens (MTP); they are not run."""
        return self.integer("nextn_predict_layers", 0, high=MAX_BLOCKS)

    def text(self, name: str, default: str, choices: tuple[str, ...]) -> str:
        """One of `choices`, under `name`. Raises GgufError for anything else."""
        value = self._get(name, default)
        if not isinstance(value, str) or value not in choices:
            raise GgufError(f"{self.key(name)} is {_shown(value)}, supported are {', '.join(choices)}")
        return value

    def per_layer(
        self, name: str, n_layers: int, default: int | None = None, *, low: int = 1, high: int = MAX_WIDTH
    ) -> tuple[int, ...]:
        """One whole number a layer: a scalar stands for all, an array must have one for each (and may have one for each extra
        block). Raises like `integer`."""
        value = self._get(name, default)
        if not isinstance(value, list | tuple | array):
            return (self._whole(name, value, low, high),) * n_layers
        if len(value) not in (n_layers, n_layers + self.n_extra):
            raise GgufError(f"{self.key(name)} has {len(value)} values for {n_layers} layers; the metadata contradicts itself")
        return tuple(self._whole(name, one, low, high) for one in value[:n_layers])

    def of_layer(self, name: str, index: int, default: int | None = None, *, low: int = 1, high: int = MAX_WIDTH) -> int:
        """The whole number of one layer under `name`: a scalar stands for all layers. Raises like `integer`."""
        value = self._get(name, default)
        if not isinstance(value, list | tuple | array):
            return self._whole(name, value, low, high)
        if index >= len(value):
            raise GgufError(f"{self.key(name)} has {len(value)} values, none for layer {index}; the metadata contradicts itself")
        return self._whole(name, value[index], low, high)

    def has(self, tensor: str) -> bool:
        """Whether the file holds `tensor`."""
        return tensor in self.tensors

    def width(self, tensor: str) -> int | None:
        """Values per row of `tensor`; None where the file has it not."""
        found = self.tensors.get(tensor)
        return found.shape[0] if found is not None and found.shape else None

    def tensor(self, name: str, *shape: int) -> str:
        """`name`, once it is known to exist with exactly `shape` (GGUF order).

        Raises:
            GgufError: absent, or of another shape.
        """
        found = self.tensors.get(name)
        if found is None:
            raise GgufError(f"tensor {name} is missing; the file is no complete {self.architecture} model, download it again")
        if tuple(found.shape) != shape:
            raise GgufError(f"tensor {name} has shape {list(found.shape)}, the metadata asks for {list(shape)}")
        return name

    def linear(self, name: str, n_in: int, n_out: int) -> Linear:
        """The linear layer `name`.weight [n_in, n_out] and its bias [n_out], if there is one. Raises GgufError like `tensor`."""
        weight = self.tensor(f"{name}.weight", n_in, n_out)
        bias = self.tensor(f"{name}.bias", n_out) if self.has(f"{name}.bias") else None
        return Linear(weight, n_in, n_out, bias)

    def n_vocab(self) -> int:
        """Size of the vocabulary: `vocab_size`, else the number of tokens in the tokenizer."""
        tokens = self.metadata.get("tokenizer.ggml.tokens")
        return self.integer("vocab_size", len(tokens) if isinstance(tokens, list | tuple) else None, low=1)

    def _get(self, name: str, default: object) -> object:
        value = self.metadata.get(self.key(name), default)
        if value is None:
            raise GgufError(f"{self.key(name)} is missing; the file's metadata is incomplete, download it again")
        return value

    def _whole(self, name: str, value: object, low: int, high: int) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise GgufError(f"{self.key(name)} is {_shown(value)}, a whole number is expected; the metadata is damaged")
        if not low <= value <= high:
            raise GgufError(f"{self.key(name)} is {value}, it must lie between {low} and {high}; the metadata is damaged")
        return value


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
