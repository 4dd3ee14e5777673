"""Rooms for logits are used again once nobody reads what they gave, and not before."""

from __future__ import annotations

import numpy as np

from tests.helpers.placed import need_torch


def test_a_room_is_used_again_when_its_reader_lets_go() -> None:
    need_torch()
    from engine.runtime.gpu_logits import KEPT_OUT, KEPT_ROOMS, LogitRooms

    rooms = LogitRooms(5, pinned=False)
    first = rooms.take(2)
    first.floats[:] = 1.0
    row = first.logits(2)[1]
    assert first.in_use and rooms.take(2) is not first
    assert row.tolist() == [1.0] * 5
    del row
    assert not first.in_use and rooms.take(2) is first
    assert rooms.take(3) is not first
    held = [rooms.take(2).logits(2) for _ in range(KEPT_ROOMS + 2)]
    for i, one in enumerate(held):
        one[:] = i
    assert [float(one[0, 0]) for one in held] == list(range(KEPT_ROOMS + 2))
    many = rooms.take(KEPT_OUT + 1)
    assert rooms.take(KEPT_OUT + 1) is not many


def test_rows_are_finite_as_their_sums_are() -> None:
    need_torch()
    from engine.runtime.gpu_logits import LogitRooms

    room = LogitRooms(4, pinned=False).take(3)
    room.floats[:] = 0.0
    room.floats[3 * 4 + 2] = float("nan")
    assert room.finite(2) and not room.finite(3)
    assert np.array_equal(room.logits(3), np.zeros((3, 4), np.float32))
