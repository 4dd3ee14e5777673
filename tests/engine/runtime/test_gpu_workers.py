"""How many workers a model over several devices gets."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.arch.units import UnitId
from engine.graph.ops import Buffer
from engine.placement.options import LoadOptions
from engine.placement.placement import WorkerPlan
from engine.program.lane_ops import LaneAdd, LaneEmbed
from tests.helpers.placed import need_torch


def test_cores_are_left_to_real_gpus_and_fetching_rows_takes_few(monkeypatch: pytest.MonkeyPatch) -> None:
    need_torch()
    import torch

    from engine.runtime.gpu import GpuDevice
    from engine.runtime.workers import workers_beside

    team, x = WorkerPlan(tuple(range(16))), Buffer("x", 8)
    played = GpuDevice(0, "emulated GPU", torch.device("cpu"), 1 << 30, emulated=True)
    real = replace(played, emulated=False)
    fetch, work = LaneEmbed(UnitId("embed"), "e", x), LaneAdd(UnitId("ffn", 0), x, x, False)
    assert workers_beside(team, [fetch], LoadOptions(), (real,)).n_workers == 4
    assert workers_beside(team, [fetch, work], LoadOptions(), (real,)).n_workers == 14
    assert workers_beside(team, [fetch, work], LoadOptions(), (played,)).n_workers == 16
    assert workers_beside(team, [fetch, work], LoadOptions(n_threads=16), (real,)).n_workers == 16
    assert workers_beside(WorkerPlan((0,)), [work], LoadOptions(), (real,)).n_workers == 1
