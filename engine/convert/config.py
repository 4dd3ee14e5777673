"""Typed reading of a checkpoint's config.json. A model of text and pictures keeps the numbers of its text half in
`text_config`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from engine.errors import ConversionError


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file, empty where there is no file. Raises: ConversionError when it is broken."""
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConversionError(f"{path.name}: the file cannot be read as JSON ({error}); download it again") from error
    if not isinstance(found, dict):
        raise ConversionError(f"{path.name}: the file holds no JSON object; download it again")
    return found


@dataclass(frozen=True, slots=True)
class Config:
    """The numbers of a model's text half."""

    values: Mapping[str, Any]
    name: str
    architecture: str
    """The class that the checkpoint was saved from, e.g. `LlamaForCausalLM`."""

    @classmethod
    def read(cls, folder: Path) -> Config:
        """The configuration in a folder. Raises: ConversionError."""
        values = read_json(folder / "config.json")
        if not values:
            raise ConversionError(f"{folder}: there is no config.json; give the folder of a downloaded model")
        classes = values.get("architectures")
        if not isinstance(classes, list) or not classes or not isinstance(classes[0], str):
            raise ConversionError("config.json: `architectures` is missing; it says which kind of model this is")
        text = values.get("text_config")
        return cls(values | text if isinstance(text, dict) else values, folder.resolve().name, classes[0])

    def with_defaults(self, defaults: Mapping[str, Any]) -> Config:
        """The configuration with what a family takes for granted where it is silent."""
        return replace(self, values={**defaults, **{key: value for key, value in self.values.items() if value is not None}})

    def integer(self, *names: str, default: int | None = None) -> int:
        """The whole number under the first of the names that is there and not null. Raises: ConversionError."""
        value = self.first(*names, default=default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(names[0], "a whole number is expected")
        return value

    def number(self, *names: str, default: float | None = None) -> float:
        """The number under the first of the names that is there. Raises: ConversionError."""
        value = self.first(*names, default=default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error(names[0], "a number is expected")
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        """The boolean under the name."""
        return bool(self.first(name, default=default))

    def first(self, *names: str, default: Any = None) -> Any:
        """The value under the first of the names that is there and not null."""
        return next((self.values[name] for name in names if self.values.get(name) is not None), default)

    def error(self, name: str, problem: str) -> ConversionError:
        """The error to raise about a key."""
        return ConversionError(f"config.json: {name} is {str(self.values.get(name))[:60]}; {problem}")

    def require(self, name: str, allowed: tuple[object, ...], default: object) -> None:
        """Raises: ConversionError when the value is none of those that the family is converted with."""
        value = self.first(name, default=default)
        if value not in allowed:
            raise self.error(name, f"converted are models with {' or '.join(map(str, allowed))}")

    @property
    def n_layers(self) -> int:
        """Layers that text passes."""
        return self.integer("num_hidden_layers")

    @property
    def n_heads(self) -> int:
        """Attention heads."""
        return self.integer("num_attention_heads")

    @property
    def head_dim(self) -> int:
        """Values of a head."""
        given = self.first("head_dim")
        return self.integer("hidden_size") // self.n_heads if given is None else self.integer("head_dim")

    @property
    def n_experts(self) -> int:
        """Routed experts of a layer, 0 for a dense model."""
        return self.integer("num_experts", "n_routed_experts", "num_local_experts", default=0)

    def layer_types(self) -> tuple[str, ...]:
        """What each layer attends with: `full_attention`, `sliding_attention`, `linear_attention`; empty where it is not said."""
        return tuple(self.first("layer_types", default=()))
