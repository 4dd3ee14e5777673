"""Steps cut in pieces, and spread over lanes of their own memory, give what the whole gives."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

from engine.arch.units import UnitId
from engine.placement.placement import Device, Numa
from engine.program.lane_transfer import LaneChosen, LaneTell
from kernels_pyx.executor import BLOCK
from tests.helpers.golden_models import MODELS, batch, golden
from tests.helpers.pieces import Pieced
from tests.helpers.runs import EXACT, open_model

HOME, AWAY = Numa(0), Numa(1)


def _experts_away(unit: UnitId) -> Device:
    return AWAY if unit.kind == "experts" else HOME


def _experts_alone(unit: UnitId) -> Device:
    return HOME if unit.kind == "experts" else AWAY


def _anywhere(seed: int) -> Callable[[UnitId], Device]:
    chance = random.Random(seed)
    homes: dict[UnitId, Device] = {}
    return lambda unit: homes.setdefault(unit, chance.choice((HOME, AWAY)))


def _compare(name: str, where: Callable[[UnitId], Device]) -> None:
    model, pieced = open_model(golden(name).path, EXACT), Pieced(golden(name).path, where)
    ids = golden(name).ids("medium")[:60]
    for start, end, n_out in ((0, 20, 20), (20, 40, 0), (40, len(ids), 3)):
        part = batch(ids[start:end], start, n_out)
        np.testing.assert_allclose(pieced.step(part), model.step(part), atol=2e-4, rtol=2e-4)
    for i in range(4):
        one = batch([ids[i]], len(ids) + i)
        np.testing.assert_allclose(pieced.step(one), model.step(one), atol=2e-4, rtol=2e-4)
    for at in (model, pieced):
        at.close()


@pytest.mark.parametrize("name", MODELS)
def test_lanes_anywhere_give_what_the_whole_gives(name: str) -> None:
    _compare(name, _anywhere(sum(map(ord, name))))


@pytest.mark.parametrize("name", ["qwen3moe", "qwen2moe", "glm4moe", "gpt-oss", "deepseek2-v3"])
@pytest.mark.parametrize("where", [_experts_away, _experts_alone])
def test_experts_of_their_own_lane_give_what_the_whole_gives(name: str, where: Callable[[UnitId], Device]) -> None:
    pieced = Pieced(golden(name).path, where)
    ops = [type(op) for lane in pieced.plans["decode"].lanes for op in lane.ops]
    assert ops.count(LaneChosen) == ops.count(LaneTell) > 0
    pieced.close()
    _compare(name, where)


@pytest.mark.parametrize("cuts", [1, 5])
def test_a_whole_plan_in_pieces_gives_the_same_bits(cuts: int) -> None:
    path = golden("qwen3moe").path
    whole, pieced = Pieced(path, lambda _: HOME), Pieced(path, lambda _: HOME)
    for i, n in ((0, 40), (40, 1), (41, 1)):
        step = batch(list(range(3, 3 + n)), i)
        phase = "decode" if n == 1 else "prefill"
        program, arguments = pieced.programs[phase][0], pieced._arguments(step)
        for first in range(0, program.n_ops, cuts):
            assert program.run(*arguments, first=first, end=min(first + cuts, program.n_ops)) == (False, -1)
        assert np.array_equal(arguments[5], whole.step(step))
    for at in (whole, pieced):
        at.close()


@pytest.mark.parametrize("name", ["qwen3moe", "qwen35moe", "llama-gqa-rope3"])
@pytest.mark.parametrize("n_threads", [1, 2])
def test_a_lane_beside_another_gives_the_same_bits_as_in_pieces(name: str, n_threads: int) -> None:
    where = _anywhere(5) if name.startswith("llama") else _experts_alone
    path, ids = golden(name).path, golden(name).ids("short")
    pieced, beside = Pieced(path, where, n_threads), Pieced(path, where, n_threads)
    for at in (pieced, beside):
        at.step(batch(ids))
    for i in range(BLOCK + 3):
        one = batch([ids[i % len(ids)]], len(ids) + i)
        assert np.array_equal(beside.step_beside(one), pieced.step(one)), i
    stamps = beside.handoff.stamps
    assert (stamps[:, 1] >= stamps[:, 0]).all() and (stamps > 0).all()
    for at in (pieced, beside):
        at.close()
