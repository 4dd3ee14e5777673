"""The units that ops belong to are those that `inspect` gives their tensors."""

from __future__ import annotations

import pytest

from engine.arch.registry import build_spec
from engine.gguf.info import unit_of
from engine.gguf.reader import read_gguf
from engine.graph.build import build_graph
from engine.graph.ops import Embed, Experts, Linear
from engine.placement.placement import units_of
from tests.helpers.golden_models import MODELS, golden


@pytest.mark.parametrize("name", MODELS)
def test_tensors_and_ops_agree(name: str) -> None:
    file = read_gguf(golden(name).path)
    spec = build_spec(file)
    graph = build_graph(spec)
    assert {op.unit for op in graph.ops} == set(units_of(spec))
    named = [(op.unit, op.weight) for op in graph.ops if isinstance(op, Embed | Linear)]
    named += [(op.unit, one) for op in graph.ops if isinstance(op, Experts) for one in (op.gate, op.up, op.down)]
    for unit, tensor in named:
        if (unit.kind, tensor) != ("head", "token_embd.weight"):  # a tied head
            assert unit_of(tensor, spec.architecture) == str(unit)
