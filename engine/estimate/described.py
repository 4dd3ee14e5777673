"""A model as its header describes it, without its weights: what everything that estimates starts from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from engine.arch.spec import ModelSpec
from engine.gguf.info import GgufFile
from engine.graph.ops import Graph


@dataclass(frozen=True, slots=True, eq=False)
class Described:
    """The header of a file, what it describes, and the ops of a step."""

    file: GgufFile
    spec: ModelSpec
    graph: Graph


class HasModel(Protocol):
    """Whatever knows a described model."""

    @property
    def model(self) -> Described:
        """The model."""
        ...
