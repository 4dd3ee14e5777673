"""Parts of a move, what steps have written, and how work beside steps keeps out of their way: without a model."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.arch.units import UnitId
from engine.placement.placement import Device, Gpu, Numa, Placement, WorkerPlan
from engine.runtime import pace
from engine.runtime.batches import parts_of as batch_parts
from engine.runtime.cache_groups import CacheGroup
from engine.runtime.move_plan import moved_units, parts_of
from engine.runtime.owning import Piece, reaches
from engine.runtime.pace import Pace
from engine.runtime.step import StepBatch
from engine.runtime.written import Live, Written, everything

CPU, ONE, TWO = Numa(0), Gpu(0), Gpu(1)
UNITS = tuple(UnitId(kind, layer) for layer in range(6) for kind in ("mixer", "kv", "ffn"))


def placement(*devices: Device) -> Placement:
    """Layers on these devices, one after another."""
    found = tuple((unit, devices[unit.layer % len(devices)]) for unit in UNITS)
    return Placement(found, "f16", "f16", WorkerPlan((0,)))


def test_what_leaves_a_gpu_goes_first_and_by_way_of_the_machine() -> None:
    now, then = placement(ONE, TWO), placement(TWO, ONE)
    between, last = parts_of(now, then)
    assert last == then and {device for _, device in between.units} == {CPU}
    only_leaving = parts_of(placement(ONE), placement(CPU))
    assert only_leaving[-1] == placement(CPU)
    assert {unit.layer for unit, here, _ in moved_units(placement(ONE), only_leaving[0])} == {0, 1, 2}
    assert parts_of(now, now) == ()


@given(
    st.lists(st.sampled_from([CPU, ONE, TWO]), min_size=6, max_size=6),
    st.lists(st.sampled_from([CPU, ONE, TWO]), min_size=6, max_size=6),
)
def test_parts_lead_to_the_end_in_ever_smaller_steps(here: list[Device], there: list[Device]) -> None:
    def walk(now: Placement, then: Placement, depth: int) -> None:
        parts = parts_of(now, then)
        if not parts:
            assert len({unit.layer for unit, _, _ in moved_units(now, then)}) <= 1 or (depth == 0 and now == then)
            return
        assert depth < 12 and parts[-1] == then
        for part in parts:
            assert moved_units(now, part)
            walk(now, part, depth + 1)
            now = part

    walk(placement(*here), placement(*there), 0)


def test_what_steps_write_is_known_by_group_and_slot() -> None:
    written = Written(2, 8)
    tables = (np.array([[5, 6, 7], [2, -1, 3]], np.int32), np.array([[1, 4, 0], [0, 6, 5]], np.int32))
    positions = np.array([40, 70], np.int32)
    rows = np.arange(2, dtype=np.int32)
    states = np.array([[0, 1, -1, 0], [2, 3, 4, 7]], np.int32)
    written.note(StepBatch("decode", rows, positions, rows, tables, rows, states))
    found = written.found()
    assert [one.tolist() for one in found.blocks] == [[0, 6], [5]]  # what a window has passed is no block
    assert found.slots.tolist() == [1, 3, 4]
    chunk = np.arange(30, 66, dtype=np.int32)
    written.note(StepBatch("prefill", chunk, chunk, np.zeros(36, np.int32), (np.array([9, 8, 7], np.int32),), rows))
    found = written.found()
    assert [one.tolist() for one in found.blocks] == [[0, 6, 7, 8, 9], [5, 7, 8, 9]]
    assert found.slots.tolist() == [0, 1, 3, 4]
    groups = (CacheGroup(None, 8, 8, 8), CacheGroup(64, 6, 6, 6))
    kept = found.both(everything(groups, 4))
    assert [one.tolist() for one in kept.blocks] == [[0, 6, 7], [5]] and kept.slots.tolist() == [0, 1, 3]
    assert not len(found.both(Live((np.array([], np.int64),) * 2, np.array([], np.int64))).slots)


def test_work_rests_while_steps_are_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    rests: list[float] = []
    now = [10.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "sleep", rests.append)
    made = Pace(0.010)
    made.pause(0.01)
    made.stepped(0.011)
    made.pause(0.01)
    assert not rests
    for _ in range(3):
        made.stepped(0.02)
    made.pause(0.01)
    assert 0.002 < rests[-1] < 0.02
    for _ in range(20):
        made.stepped(0.02)
    made.pause(0.01)
    assert rests[-1] == pytest.approx(pace.MOST_REST * 0.01)
    made.pause(1.0)
    assert rests[-1] == pace.REST_S
    n = len(rests)
    now[0] += pace.QUIET_S + 0.1  # nobody steps
    made.pause(0.01)
    assert len(rests) == n
    for _ in range(40):
        made.stepped(0.01)
    made.pause(0.01)
    assert len(rests) == n


def test_pieces_that_reach_into_others() -> None:
    there = reaches([Piece(0, 100, 50, 1.0), Piece(0, 300, 10, 1.0), Piece(1, 0, 100, 1.0)])
    cases = {
        (0, 90, 10): False,
        (0, 90, 11): True,
        (0, 149, 1): True,
        (0, 150, 150): False,
        (0, 150, 151): True,
        (2, 0, 999): False,
    }
    for (shard, offset, nbytes), expected in cases.items():
        assert there(Piece(shard, offset, nbytes, 0.0)) == expected
    assert not reaches([])(Piece(0, 0, 1, 1.0))


def test_parts_of_a_batch_keep_its_order() -> None:
    rows = np.arange(5, dtype=np.int32)
    whole = StepBatch("decode", rows, rows, rows, tuple(np.full(1, i, np.int32) for i in range(5)), np.array([1, 4], np.int32))
    parts = list(batch_parts(whole, 2))
    assert [one.token_ids.tolist() for one in parts] == [[0, 1], [2, 3], [4]]
    assert [one.out_rows.tolist() for one in parts] == [[1], [], [0]]
    assert [one.seq_of_row.tolist() for one in parts] == [[0, 1], [0, 1], [0]]
    with pytest.raises(Exception, match="not in order"):
        list(batch_parts(replace(whole, out_rows=np.array([4, 1], np.int32)), 2))
