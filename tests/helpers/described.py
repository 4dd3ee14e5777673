"""Model files as everything above the file sees them: spec, graph and header, read once a run."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

from engine.arch.registry import build_spec
from engine.arch.spec import ModelSpec
from engine.gguf.info import GgufFile
from engine.gguf.reader import read_gguf
from engine.graph.build import build_graph
from engine.graph.ops import Graph
from tests.helpers.golden_models import golden


class Described(NamedTuple):
    """A model, without its weights."""

    spec: ModelSpec
    graph: Graph
    file: GgufFile


@cache
def described(path: Path) -> Described:
    """The model of a file."""
    file = read_gguf(path)
    spec = build_spec(file)
    return Described(spec, build_graph(spec), file)


def model(name: str) -> Described:
    """A golden model by name."""
    return described(golden(name).path)
