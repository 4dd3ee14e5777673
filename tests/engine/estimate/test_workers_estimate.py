"""Estimates follow the number of workers of a placement, on the machine that they are of."""

from __future__ import annotations

import os
from dataclasses import replace

from engine.api.pure import read_outline
from engine.estimate.planner import Planner
from engine.hardware.machine import Machine, NodeInfo
from engine.placement.options import LoadOptions
from engine.placement.placement import WorkerPlan
from tests.helpers.golden_models import golden


def rates(n_cores: int, *counts: int) -> list[float]:
    machine = Machine(1 << 36, 1 << 36, (), "", (NodeInfo(0, "", 1 << 36, 1 << 36, n_cores),))
    planner = Planner(read_outline(str(golden("qwen3moe").path)), LoadOptions(n_ctx=256, prefill_chunk=64), machine)
    usual = planner.default()
    return [planner.estimate(replace(usual, workers=WorkerPlan(tuple(range(n))))).prefill_tok_s for n in counts]


def test_more_workers_are_faster_here_and_a_machine_of_a_file_has_its_own() -> None:
    one, two = rates(len(os.sched_getaffinity(0)), 1, 2)
    assert two > 1.3 * one
    one, two = rates(999, 1, 2)
    assert one == two
