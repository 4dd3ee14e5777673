"""What windows, sinks and post-norms become in a lane: no op of their own, except where two rows must be added."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.arch.registry import build_spec
from engine.arch.spec import Norm as NormSpec
from engine.arch.units import UnitId
from engine.gguf.reader import read_gguf
from engine.graph.build import build_graph
from engine.graph.ops import Add, Buffer, Embed, Linear, Norm
from engine.placement.options import LoadOptions
from engine.placement.placement import default_placement
from engine.program.fuse import Phase, fuse
from engine.program.lane_ops import LaneAdd, LaneAttend, LaneEmbed, LaneLinear, LaneNorm, LanePosition, LanePrepare
from engine.program.lower import lower
from tests.helpers.runs import write_model
from tests.helpers.windowed import windowed

FFN = UnitId("ffn", 0)


@pytest.mark.parametrize(("phase", "rows"), [("decode", 1), ("prefill", 512)])
def test_what_attention_sees_reaches_its_ops(tmp_path: Path, phase: Phase, rows: int) -> None:
    file = read_gguf(write_model(tmp_path / "m.gguf", n_layers=2))
    spec = windowed(24, None, softcap=4.0, post_norms=True, embed_scale=8.0)(build_spec(file))
    types = {name: tensor.type_id for name, tensor in file.tensors.items()}
    ops = lower(build_graph(spec), default_placement(spec, LoadOptions()), phase, rows, types).lanes[0].ops
    attends = [op for op in ops if isinstance(op, LaneAttend)]
    seen = [(op.heads.window, op.heads.sinks, op.heads.softcap) for op in attends]
    assert seen == [(24, "blk.0.test_sinks.weight", 4.0), (None, "blk.1.test_sinks.weight", 4.0)]
    merges = [op.source.merge for op in ops if isinstance(op, LaneLinear | LanePrepare) and op.source.merge is not None]
    assert merges == ([op.heads for op in attends] if phase == "decode" else [])
    assert sum(isinstance(op, LanePosition) for op in ops) == (0 if phase == "decode" else 2)
    assert [op.scale for op in ops if isinstance(op, LaneEmbed)] == [8.0]
    assert [op.softcap for op in ops if isinstance(op, LaneLinear)][-1] == 12.0
    post = [op for op in ops if isinstance(op, LaneNorm)]
    assert len(post) == 4 and all(op.add for op in post)
    assert not any(isinstance(op, LaneAdd) for op in ops)


def test_what_counts_for_a_share_is_not_added_with_its_norm() -> None:
    x, y, normed, share = Buffer("x", 64), Buffer("y", 64), Buffer("n", 64), Buffer("share", 1)
    ops = [
        Embed(UnitId("embed"), "token_embd.weight", x),
        Linear(FFN, x, y, "a.weight"),
        Linear(FFN, x, share, "share.weight"),
        Norm(FFN, y, normed, NormSpec("norm.weight", 1e-5)),
        Add(FFN, x, normed, share),
    ]
    lane, _ = fuse(ops, x, "prefill", 32)
    (add,) = (op for op in lane if isinstance(op, LaneAdd))
    assert add.share is not None
    assert [op.add for op in lane if isinstance(op, LaneNorm)] == [False]
