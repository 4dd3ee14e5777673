"""Ops that do not touch each other's buffers run side by side, and nothing that they read is overwritten meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.arch.registry import build_spec
from engine.gguf.reader import read_gguf
from engine.graph.build import build_graph
from engine.placement.options import LoadOptions
from engine.placement.placement import default_placement
from engine.program.fuse import Phase
from engine.program.lane_ops import reads, writes
from engine.program.lower import lower
from engine.program.plan import Lane
from tests.helpers.golden_models import golden
from tests.helpers.runs import mixture, same, write_model

MODELS = ("qwen3moe", "qwen2moe", "glm4moe", "llama-mha-spm")


def _lane(path: Path, phase: Phase, rows: int, *, shared: bool = False) -> Lane:
    file = read_gguf(path)
    spec = (mixture(8, 4, shared=True, gated=True) if shared else same)(build_spec(file))
    types = {name: tensor.type_id for name, tensor in file.tensors.items()}
    return lower(build_graph(spec), default_placement(spec, LoadOptions()), phase, rows, types).lanes[0]


def _groups(lane: Lane, layer: int) -> list[list[str]]:
    """Names of the ops of a layer's feed-forward part, those that run side by side together."""
    groups: list[list[str]] = [[]]
    for op, meets in zip(lane.ops, lane.meets, strict=True):
        if op.unit.layer == layer and op.unit.kind in ("ffn", "experts", "shared"):
            groups[-1].append(type(op).__name__.removeprefix("Lane"))
        if meets and groups[-1]:
            groups.append([])
    return [group for group in groups if group]


def test_a_shared_expert_costs_no_meeting(tmp_path: Path) -> None:
    path = write_model(tmp_path / "m.gguf", quant="Q8_0", n_embd=64, n_ff=96, n_experts=8)
    assert _groups(_lane(path, "decode", 1, shared=True), 1) == [
        ["Route", "Linear", "Linear"],  # who passes whom; gate and up of the shared expert; its own gate
        ["Linear", "ExpertsUp"],
        ["ExpertsDown"],
    ]
    assert _groups(_lane(path, "prefill", 64, shared=True), 1) == [
        ["Prepare"],
        ["Route", "Linear", "Linear"],
        ["Prepare", "ExpertsUp"],
        ["Linear", "Prepare"],
        ["ExpertsDown"],
    ]


def test_a_mixture_without_one_meets_after_each_op() -> None:
    assert _groups(_lane(golden("qwen3moe").path, "decode", 1), 1) == [["Route"], ["ExpertsUp"], ["ExpertsDown"]]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("phase", "rows"), [("decode", 1), ("decode", 8), ("prefill", 64)])
def test_ops_side_by_side_touch_nothing_in_common(name: str, phase: Phase, rows: int) -> None:
    lane = _lane(golden(name).path, phase, rows)
    assert not lane.meets[-1]

    def places(names: set[str]) -> list[tuple[int, int]]:
        slots = [lane.slots[name] for name in names if name != lane.logits.name]
        return [(slot.offset, slot.offset + slot.nbytes) for slot in slots]

    beside = []
    for op, meets in zip(lane.ops, lane.meets, strict=True):
        mine = {buffer.name for buffer in writes(op)}
        for other in beside:
            touched = {buffer.name for buffer in (*reads(other), *writes(other))}
            for start, end in places(mine):
                assert all(end <= low or high <= start for low, high in places(touched)), (op, other)
        beside = [] if meets else [*beside, op]
