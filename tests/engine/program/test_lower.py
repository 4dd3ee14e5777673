"""Plans: what is fused, how often workers meet, and where buffers lie."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from engine.arch.registry import build_spec
from engine.arch.spec import Norm as NormSpec
from engine.arch.units import UnitId
from engine.gguf.reader import read_gguf
from engine.graph.build import build_graph
from engine.graph.ops import Add, Buffer, GatedAct, Graph, Linear, Norm, OutRows
from engine.placement.options import LoadOptions
from engine.placement.placement import default_placement
from engine.program.fuse import Phase, fuse
from engine.program.lane_ops import (
    LaneAdd,
    LaneExpertsDown,
    LaneExpertsUp,
    LaneGatedAct,
    LaneLinear,
    LaneNorm,
    LaneOp,
    LaneRoute,
    LaneRows,
    reads,
    writes,
)
from engine.program.lower import lower
from engine.program.plan import Plan
from tests.helpers.golden_models import golden
from tests.helpers.runs import everything, write_model

FFN = UnitId("ffn", 0)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model") / "tiny.gguf", quant="Q8_0", n_layers=3)


def _plan(path: Path, phase: Phase, rows: int, *, f32: bool = False, rich: bool = False) -> Plan:
    file = read_gguf(path)
    spec = everything(build_spec(file)) if rich else build_spec(file)
    types = {name: tensor.type_id for name, tensor in file.tensors.items()}
    return lower(build_graph(spec), default_placement(spec, LoadOptions()), phase, rows, types, f32=f32)


def _kinds(ops: tuple[LaneOp, ...], layer: int) -> list[str]:
    return [type(op).__name__ for op in ops if op.unit.layer == layer]


@pytest.mark.parametrize("rich", [False, True])
def test_a_decoded_layer_is_five_ops(path: Path, rich: bool) -> None:
    ops = _plan(path, "decode", 1, rich=rich).lanes[0].ops
    assert _kinds(ops, 1) == ["LaneLinear", "LaneAttend", "LaneLinear", "LaneLinear", "LaneLinear"]
    assert len(ops) == 1 + 3 * 5 + 1
    qkv, _, out, gate, down = (op for op in ops if op.unit.layer == 1)
    assert isinstance(qkv, LaneLinear) and len(qkv.weights) == 3 and qkv.source.norm is not None
    assert isinstance(out, LaneLinear) and out.epilogue == "add" and out.source.merge is not None
    assert isinstance(gate, LaneLinear) and gate.epilogue == ("gelu_tanh" if rich else "silu")
    assert isinstance(down, LaneLinear) and down.epilogue == "add" and down.acts is None


def test_a_decoded_mixture_is_three_ops() -> None:
    ops = _plan(golden("qwen3moe").path, "decode", 1).lanes[0].ops
    assert _kinds(ops, 1)[3:] == ["LaneRoute", "LaneExpertsUp", "LaneExpertsDown"]
    _, up, down = (op for op in ops if op.unit.layer == 1 and isinstance(op, LaneRoute | LaneExpertsUp | LaneExpertsDown))
    assert isinstance(up, LaneExpertsUp) and up.acts is None and up.source.norm is not None
    assert isinstance(down, LaneExpertsDown) and down.add


def test_a_prefilled_mixture_quantises_once_for_all_workers() -> None:
    ops = _plan(golden("qwen3moe").path, "prefill", 64).lanes[0].ops
    assert _kinds(ops, 1)[-4:] == ["LanePrepare", "LaneRoute", "LaneExpertsUp", "LaneExpertsDown"]  # f16: no second input stage


def test_a_prefilled_layer_quantises_once_for_all_workers(path: Path) -> None:
    ops = _plan(path, "prefill", 64).lanes[0].ops
    assert Counter(_kinds(ops, 1)) == {"LanePrepare": 4, "LaneLinear": 4, "LanePosition": 1, "LaneAttend": 1}


def test_the_last_feed_forward_part_has_only_the_wanted_rows(path: Path) -> None:
    for phase, late in (("prefill", True), ("decode", False)):
        ops = _plan(path, phase, 64).lanes[0].ops  # type: ignore[arg-type]
        assert [op.out_rows for op in ops if isinstance(op, LaneLinear) and op.unit == UnitId("ffn", 2)] == [late, late]
        assert not any(
            op.out_rows for op in ops if isinstance(op, LaneLinear) and op.unit in (UnitId("ffn", 1), UnitId("mixer", 2))
        )


def test_rows_that_are_read_from_before_stay(path: Path) -> None:
    file = read_gguf(path)
    ops = list(build_graph(build_spec(file)).ops)
    norms = [i for i, op in enumerate(ops) if isinstance(op, Norm) and op.unit == UnitId("ffn", 2)]
    odd = [*ops[: norms[0]], Norm(UnitId("ffn", 2), Buffer("y", 64), Buffer("h", 64), NormSpec("n", 1e-6)), *ops[norms[0] + 1 :]]
    fused, _ = fuse(odd, Buffer("logits", 260), "prefill", 64)
    assert not any(op.out_rows for op in fused if isinstance(op, LaneLinear) and op.unit.kind == "ffn")


def test_f32_rows_are_read_where_they_lie(path: Path) -> None:
    ops = _plan(path, "prefill", 64, f32=True).lanes[0].ops
    assert Counter(_kinds(ops, 1)) == {"LanePrepare": 2, "LaneLinear": 4, "LanePosition": 1, "LaneAttend": 1}


@pytest.mark.parametrize("phase", ["decode", "prefill"])
@pytest.mark.parametrize("rows", [1, 8, 100])
@pytest.mark.parametrize("f32", [False, True])
def test_live_buffers_never_overlap(path: Path, phase: Phase, rows: int, f32: bool) -> None:
    lane = _plan(path, phase, rows, f32=f32, rich=True).lanes[0]
    used: dict[str, tuple[int, int]] = {}
    for i, op in enumerate(lane.ops):
        for buffer in (*reads(op), *writes(op)):
            used[buffer.name] = (used.get(buffer.name, (i, i))[0], i)
    assert set(used) - {lane.logits.name} == set(lane.slots)
    slots = list(lane.slots.values())
    for slot in slots:
        assert (slot.first, slot.last) == used[slot.name]
        assert slot.offset + slot.nbytes <= lane.arena_bytes
    for i, a in enumerate(slots):
        for b in slots[:i]:
            if a.first <= b.last and b.first <= a.last:
                assert a.offset + a.nbytes <= b.offset or b.offset + b.nbytes <= a.offset, (a, b)


def test_explain_lists_every_op(path: Path) -> None:
    plan = _plan(path, "decode", 2)
    lines = plan.explain().splitlines()
    assert lines[0].startswith("decode[2]: ") and "numa0: 17 ops" in lines[1]
    assert len(lines) == 2 + 17 and "attend" in lines[4]


def test_what_cannot_be_fused_is_done_alone() -> None:
    x, h, a, b, c, y, picked, logits = (Buffer(name, 64) for name in ("x", "h", "a", "b", "c", "y", "p", "logits"))
    norm = NormSpec("n", 1e-5)
    ops = (
        Linear(FFN, x, h, "w0"),
        Norm(FFN, h, a, norm),
        Linear(FFN, a, b, "w1"),
        Linear(FFN, a, c, "w2"),
        GatedAct(FFN, c, b, y, "silu"),  # the other way round
        Add(FFN, a, y),
        OutRows(FFN, a, picked),
        Add(FFN, picked, picked),
        Linear(FFN, picked, logits, "w3"),
    )
    lane, _ = fuse((_source(x), *ops), logits, "decode", 1)
    kinds = [type(op) for op in lane[1:]]
    assert kinds == [LaneLinear, LaneNorm, LaneLinear, LaneGatedAct, LaneAdd, LaneRows, LaneAdd, LaneLinear]
    assert Graph(ops, logits).logits == logits


def test_norm_of_a_buffer_that_changes_before_its_last_use_is_done_at_once() -> None:
    x, h, a, b, logits = (Buffer(name, 64) for name in ("x", "h", "a", "b", "logits"))
    ops = (
        Norm(FFN, x, h, NormSpec("n", 1e-5)),
        Linear(FFN, h, a, "w0"),
        Add(FFN, x, a),
        Linear(FFN, h, b, "w1"),
        Linear(FFN, b, logits, "w2"),
    )
    lane, _ = fuse((_source(x), *ops), logits, "decode", 1)
    assert [type(op) for op in lane[1:]] == [LaneNorm, LaneLinear, LaneLinear, LaneLinear]


def _source(x: Buffer):  # type: ignore[no-untyped-def]
    from engine.graph.ops import Embed

    return Embed(UnitId("embed"), "e", x)
