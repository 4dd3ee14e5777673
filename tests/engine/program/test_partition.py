"""Steps spread over devices: what crosses, and that any placement and any order of events computes the same."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.arch.registry import build_spec
from engine.arch.spec import ModelSpec, Routing
from engine.arch.units import UnitId
from engine.errors import EngineBug, PlacementError
from engine.gguf.reader import read_gguf
from engine.graph.build import build_graph
from engine.graph.ops import Graph
from engine.placement.options import LoadOptions
from engine.placement.placement import Device, Gpu, Numa, Placement, default_placement, units_of
from engine.program.exchanges import exchanges, schedule
from engine.program.fuse import Phase, named_ops
from engine.program.lane_ops import (
    LaneAdd,
    LaneAttend,
    LaneExpertsDown,
    LaneLinear,
    LaneOp,
    LanePosition,
    LanePrepare,
    reads,
    writes,
)
from engine.program.lane_transfer import LaneChosen, LaneRecv, LaneSend, LaneTell
from engine.program.lower import lower, lower_lanes
from engine.program.outline import outline
from engine.program.partition import partition
from engine.program.plan import Plan
from engine.program.touches import Touches
from tests.helpers.golden_models import MODELS, golden
from tests.helpers.pieces import lane_each
from tests.helpers.runs import Change, everything, mixture, write_model
from tests.helpers.symbolic import Running, Terms, of_graph
from tests.helpers.windowed import windowed

HOME, CARD, SECOND = Numa(0), Gpu(0), Gpu(1)
DEVICES = (HOME, CARD, SECOND)
STEPS: tuple[tuple[Phase, int], ...] = (("decode", 1), ("decode", 8), ("prefill", 64), ("prefill", 512))


MADE: dict[str, Change] = {
    "dense": everything,
    "mixture": mixture(8, 3, biased=True, fused=True),
    "shared": mixture(8, 4, shared=True, act="gelu_tanh"),
    "gated": mixture(4, 2, Routing("sigmoid", bias="any"), shared=True, gated=True),
    "windows": windowed(24, None, softcap=4.0, post_norms=True, embed_scale=8.0),
}
"""What is changed in a model that is written for these tests."""


@cache
def _model(name: str) -> tuple[ModelSpec, Graph, dict[str, int]]:
    if name in MADE:
        with tempfile.TemporaryDirectory() as folder:
            options = {"n_layers": 2 if name == "windows" else 3, "n_experts": 8 if name != "gated" else 4}
            file = read_gguf(write_model(Path(folder) / "m.gguf", quant="Q8_0", n_ff=96, **options))  # type: ignore[arg-type]
            spec = MADE[name](build_spec(file))
    else:
        file = read_gguf(golden(name).path)
        spec = build_spec(file)
    return spec, build_graph(spec), {tensor: one.type_id for tensor, one in file.tensors.items()}


def _placed(spec: ModelSpec, where: Callable[[UnitId], Device]) -> Placement:
    """What `where` says, caches and states with their mixers."""

    def of(unit: UnitId) -> Device:
        return where(UnitId("mixer", unit.layer) if unit.kind in ("kv", "state") else unit)

    base = default_placement(spec, LoadOptions(n_threads=1))
    return replace(base, units=tuple((unit, of(unit)) for unit in units_of(spec)))


def _hybrid(unit: UnitId) -> Device:
    return HOME if unit.kind == "experts" else CARD


def _plan(name: str, where: Callable[[UnitId], Device], phase: Phase = "decode", rows: int = 1, *, f32: bool = False) -> Plan:
    spec, graph, types = _model(name)
    return lower(graph, _placed(spec, where), phase, rows, types, f32=f32)


def _truth(terms: Terms, name: str, phase: Phase) -> int:
    named, last = named_ops(_model(name)[1].ops, phase)
    return of_graph(terms, named, last[_model(name)[1].logits.name].name)


def _kinds(ops: tuple[LaneOp, ...]) -> list[str]:
    return [type(op).__name__.removeprefix("Lane") for op in ops]


@pytest.mark.parametrize("name", (*MODELS, *MADE))
@pytest.mark.parametrize("where", [lambda _: HOME, lambda _: CARD, _hybrid], ids=["cpu", "gpu", "hybrid"])
def test_usual_placements_compute_the_same(name: str, where: Callable[[UnitId], Device]) -> None:
    for phase, rows in STEPS:
        for f32 in (False, True):
            terms = Terms()
            assert Running(_plan(name, where, phase, rows, f32=f32), terms).run() == _truth(terms, name, phase)


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_any_placement_in_any_order_computes_the_same(data: st.DataObject) -> None:
    name, seed = data.draw(st.sampled_from((*MODELS, *MADE))), data.draw(st.integers(0, 1 << 30))
    (phase, rows), f32 = data.draw(st.sampled_from(STEPS)), data.draw(st.booleans())
    chance = random.Random(seed)
    homes: dict[UnitId, Device] = {}
    spec, graph, types = _model(name)
    placement = _placed(spec, lambda unit: homes.setdefault(unit, chance.choice(DEVICES)))
    plan = lower(graph, placement, phase, rows, types, f32=f32)
    terms = Terms()
    truth = _truth(terms, name, phase)
    assert Running(plan, terms).run() == truth
    for _ in range(3):
        running = Running(plan, terms)
        assert running.run(chance) == truth
        assert running.n_sent == len(plan.exchanges)
    _sent_once(plan)


def _sent_once(plan: Plan) -> None:
    """No lane is sent what it already holds, or what it does not read."""
    for lane in plan.lanes:
        read = {buffer.name for op in lane.ops for buffer in reads(op)}
        assert read.issuperset(buffer.name for op in lane.ops if isinstance(op, LaneRecv) for buffer in op.buffers)
    for source in plan.lanes:
        for to in plan.lanes:
            fresh: dict[str, bool] = {}
            for op in source.ops:
                if isinstance(op, LaneSend) and op.to == to.device:
                    for buffer in op.buffers:
                        assert not fresh.get(buffer.name), f"{buffer.name} crosses twice"
                        fresh[buffer.name] = True
                elif not isinstance(op, LaneSend):
                    fresh |= {buffer.name: False for buffer in writes(op)}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_on_one_gpu_is_one_lane_without_exchanges(name: str) -> None:
    for phase, rows in STEPS:
        plan = _plan(name, lambda _: CARD, phase, rows)
        (lane,) = plan.lanes
        assert lane.device == CARD and lane.logits is not None and plan.exchanges == ()
        assert [(one.lane, one.first, one.end) for one in plan.schedule] == [(0, 0, len(lane.ops))]
        assert not any(isinstance(op, LaneSend | LaneRecv | LaneChosen | LaneTell) for op in lane.ops)
        assert not any(slot.kind in ("partials", "routes") for slot in lane.slots.values())
        for op in lane.ops:
            assert not isinstance(op, LaneLinear) or op.acts is not None
            assert not isinstance(op, LanePrepare) or op.source.merge is None
            assert not isinstance(op, LaneAttend) or (op.position is None and op.rows == (phase == "decode"))


def test_experts_on_the_cpu_cost_two_exchanges_a_layer() -> None:
    plan = _plan("qwen3moe", _hybrid)
    gpu, cpu = plan.lanes
    n_layers = len(_model("qwen3moe")[0].blocks)
    assert (gpu.device, cpu.device, len(plan.exchanges)) == (CARD, HOME, 2 * n_layers)
    layer = [op for op in gpu.ops if op.unit.layer == 1]
    assert _kinds(tuple(layer)) == [
        *("Prepare", "Linear", "Position", "Attend", "Prepare", "Linear"),
        *("Norm", "Prepare", "Route", "Send", "Recv", "Add"),
    ]
    sent = next(op for op in layer if isinstance(op, LaneSend))
    assert [buffer.name.partition(".")[0] for buffer in sent.buffers] == ["h", "chosen", "weights"]
    theirs = [op for op in cpu.ops if op.unit.layer == 1]
    assert _kinds(tuple(theirs)) == ["Recv", "Chosen", "ExpertsUp", "ExpertsDown", "Send"]
    assert [meets for op, meets in zip(cpu.ops, cpu.meets, strict=True) if op.unit.layer == 1] == [False, True, True, True, False]


def test_a_shared_expert_runs_while_the_cpu_computes() -> None:
    for name in ("qwen2moe", "glm4moe"):
        gpu = _plan(name, _hybrid).lanes[0]
        layer = tuple(op for op in gpu.ops if op.unit.layer == 1 and op.unit.kind in ("ffn", "experts", "shared"))
        kinds = _kinds(layer)
        send, recv = kinds.index("Send"), kinds.index("Recv")
        assert "Linear" in kinds[send:recv] and kinds[recv + 1 :] == ["Add"]
        last = layer[-1]
        assert isinstance(last, LaneAdd) and last.share is None


def test_experts_and_their_shared_expert_on_one_device_send_one_sum() -> None:
    plan = _plan("qwen2moe", lambda unit: HOME if unit.kind in ("experts", "shared") else CARD)
    cpu = plan.lanes[1]
    downs = [op for op in cpu.ops if isinstance(op, LaneExpertsDown)]
    assert downs and all(op.beside is not None and op.share is not None for op in downs)
    sends = [op for op in cpu.ops if isinstance(op, LaneSend)]
    assert len(sends) == len(downs) and all(len(op.buffers) == 1 for op in sends)


def test_a_router_on_the_cpu_tells_whom_it_chose() -> None:
    plan = _plan("qwen3moe", lambda unit: CARD if unit.kind == "experts" else HOME, "prefill", 64)
    cpu, gpu = plan.lanes
    kinds = _kinds(tuple(op for op in cpu.ops if op.unit.layer == 1))
    assert kinds[kinds.index("Tell") + 1] == "Send" and kinds.index("Route") < kinds.index("Tell")
    assert cpu.slots[next(op for op in cpu.ops if isinstance(op, LaneTell)).choice.chosen.name].kind == "i32"
    assert not any(isinstance(op, LaneChosen) for op in gpu.ops)


def test_only_wanted_rows_cross_late(golden_name: str = "llama-gqa-rope3") -> None:
    plan = _plan(
        golden_name, lambda unit: CARD if unit.kind in ("ffn", "head") and unit.layer in (-1, 1) else HOME, "prefill", 64
    )
    sends = [op for lane in plan.lanes for op in lane.ops if isinstance(op, LaneSend)]
    n_layers = len(_model(golden_name)[0].blocks)
    late = [op for op in sends if op.out_rows]
    assert late or n_layers > 2
    assert all(buffer.name.startswith(("x_out", "y", "h_out")) for op in late for buffer in op.buffers)


def test_caches_lie_with_their_mixers() -> None:
    spec, graph, types = _model("qwen3")
    placement = _placed(spec, lambda _: HOME)
    moved = replace(placement, units=tuple((u, CARD if u == UnitId("kv", 1) else d) for u, d in placement.units))
    with pytest.raises(PlacementError, match=r"kv\.1 is placed on gpu0 and mixer\.1 on numa0"):
        lower(graph, moved, "decode", 1, types)


def test_two_nodes_are_one_lane_beside_a_gpu() -> None:
    plan = _plan("qwen3", lambda unit: CARD if unit.layer == 0 else Numa(abs(unit.layer) % 2))
    assert {lane.device for lane in plan.lanes} == {CARD, HOME}


def test_lanes_that_wait_for_each_other_are_noticed() -> None:
    spec, graph, _ = _model("qwen3moe")
    lanes = [list(one.ops) for one in outline(graph, _placed(spec, _hybrid), "decode", 1)]
    first = next(i for i, op in enumerate(lanes[0]) if isinstance(op, LaneSend))
    second = next(i for i, op in enumerate(lanes[0]) if isinstance(op, LaneRecv))
    lanes[0][first], lanes[0][second] = lanes[0][second], lanes[0][first]
    with pytest.raises(EngineBug, match="wait for each other"):
        schedule([Touches(ops) for ops in lanes])
    with pytest.raises(EngineBug, match="no lane takes"):
        exchanges([Touches(lanes[0]), Touches([])])


def test_sent_rows_stay_until_a_gpu_has_read_them() -> None:
    plan = _plan("qwen3", lambda unit: CARD if unit.kind == "ffn" else HOME)
    cpu = next(lane for lane in plan.lanes if lane.device == HOME)
    for one in plan.exchanges:
        send = plan.lanes[one.source].ops[one.send]
        if plan.lanes[one.source] is not cpu or not isinstance(send, LaneSend):
            continue
        back = [other.recv for other in plan.exchanges if plan.lanes[other.target] is cpu and other.send > one.recv]
        assert all(cpu.slots[buffer.name].last >= min(back) for buffer in send.buffers if back)


def test_a_part_names_each_buffer_it_is_sent_anew() -> None:
    spec, graph, _ = _model("qwen3")
    named, _ = named_ops(graph.ops, "decode")
    parts = partition(named, _placed(spec, lambda unit: CARD if unit.layer % 2 else HOME))
    names = [buffer.name for part in parts for op in part.ops if isinstance(op, LaneRecv) for buffer in op.buffers]
    assert len(names) == len(set(names)) and all("@" in name for name in names)
    assert [part.device for part in parts] == [CARD, HOME]  # the embedding, a layer of -1, is odd


def test_lanes_of_two_cpus_find_what_they_need() -> None:
    spec, graph, types = _model("qwen3moe")
    sketches = lane_each(graph, _placed(spec, lambda unit: Numa(1) if unit.kind == "experts" else HOME), "decode", 1)
    plan = lower_lanes(sketches, "decode", 1, types)
    terms = Terms()
    assert Running(plan, terms).run() == _truth(terms, "qwen3moe", "decode")


def test_explain_names_exchanges(tmp_path: Path) -> None:
    text = _plan("qwen3moe", _hybrid).explain()
    assert "-> numa0 (0)" in text and "gpu0 (0) ->" in text and "exchanges; in order: gpu0[0:" in text
    assert "exchanges" not in _plan("qwen3moe", lambda _: HOME).explain()


def test_positions_come_first_on_a_gpu() -> None:
    ops = _plan("gemma3", lambda _: CARD).lanes[0].ops
    attends = [i for i, op in enumerate(ops) if isinstance(op, LaneAttend)]
    assert attends and all(isinstance(ops[i - 1], LanePosition) for i in attends)
