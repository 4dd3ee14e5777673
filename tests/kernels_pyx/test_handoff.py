"""Flags between a running program and a thread that plays the GPU; what experts are told that were chosen elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from engine.runtime.descriptor import Flag, Kind
from kernels_pyx.arena import Arena
from kernels_pyx.executor import OP_DTYPE, AbortFlag, CpuProgram
from kernels_pyx.handoff import FAR, LATE, LINE_BYTES, STOPPED, Handoff, handoff_bytes
from kernels_pyx.pool import Pool
from tests.helpers.adder import WIDTH, Adder

F32 = npt.NDArray[np.float32]


class Player(threading.Thread):
    """Plays the GPU for one step: sends rows, takes sums."""

    def __init__(self, adder: Adder, rows: list[F32]) -> None:
        super().__init__()
        self._adder, self._rows = adder, rows
        self.sums: list[F32] = []
        self.start()

    def run(self) -> None:
        for i, row in enumerate(self._rows):
            self._adder.x[:] = row
            self._adder.handoff.signal(2 * i)
            if not self._adder.handoff.wait(2 * i + 1):
                return
            self.sums.append(self._adder.y.copy())


@pytest.mark.parametrize("n_workers", [1, 2])
def test_ten_thousand_exchanges_each_see_what_was_sent(n_workers: int) -> None:
    adder, rng = Adder(50, n_workers), np.random.default_rng(n_workers)
    total = np.zeros(WIDTH, np.float32)
    for _ in range(100):
        adder.next_step()
        rows = [rng.standard_normal(WIDTH).astype(np.float32) for _ in range(adder.n)]
        player = Player(adder, rows)
        assert adder.run() == (False, -1)
        player.join()
        for row, found in zip(rows, player.sums, strict=True):
            total += row
            assert np.array_equal(found, total)
    waits = adder.handoff.stamps[::2]
    sends = adder.handoff.stamps[1::2]
    assert (waits[:, 1] >= waits[:, 0]).all() and (sends[:, 0] == sends[:, 1]).all()
    assert (np.diff(adder.handoff.stamps[:, 1]) >= 0).all()


@pytest.mark.parametrize("start", [0xFFFFFFFD, 0x7FFFFFFE])
def test_epochs_go_round(start: int) -> None:
    adder = Adder(2)
    adder.handoff.reset(start)
    for step in range(6):
        adder.next_step()
        player = Player(adder, [np.full(WIDTH, 1.0, np.float32)] * 2)
        assert adder.run() == (False, -1)
        player.join()
        assert player.sums[-1][0] == 2 * (step + 1)
    assert adder.handoff.flag(3) == adder.handoff.epoch == (start + 6) & 0xFFFFFFFF


def test_flags_of_the_step_before_are_not_enough() -> None:
    adder = Adder(1, limit_s=0.05)
    adder.next_step()
    adder.handoff.signal(0)
    assert adder.run() == (False, -1)
    adder.next_step()
    assert adder.run() == (True, -1) and adder.handoff.stopped == LATE + 0


def test_a_side_that_never_comes_is_waited_for_so_long_and_no_longer() -> None:
    adder = Adder(3, limit_s=0.2)
    adder.next_step()
    adder.handoff.signal(0)
    started = time.monotonic()
    assert adder.run() == (True, -1)
    assert 0.2 <= time.monotonic() - started < 10.0
    assert adder.handoff.stopped == LATE + 2
    assert not adder.handoff.wait(1 + 4)  # the other side is not held either
    with pytest.raises(ValueError, match="not reset"):
        adder.run()
    adder.handoff.reset()
    adder.next_step()
    player = Player(adder, [np.ones(WIDTH, np.float32)] * 3)
    assert adder.run() == (False, -1)
    player.join()


def _soon(do: Callable[[], None]) -> threading.Timer:
    timer = threading.Timer(0.05, do)
    timer.start()
    return timer


@pytest.mark.parametrize("n_workers", [1, 2])
def test_abort_ends_both_sides(n_workers: int) -> None:
    adder = Adder(2, n_workers)
    adder.next_step()
    player, timer = Player(adder, [np.ones(WIDTH, np.float32)]), _soon(adder.abort.set)  # sends one of two
    assert adder.run() == (True, -1)
    assert adder.handoff.stopped == STOPPED
    assert not adder.handoff.wait(3)
    player.join()
    timer.join()
    adder.abort.clear()


def test_the_other_side_can_give_up() -> None:
    adder = Adder(1)
    adder.next_step()
    timer = _soon(lambda: adder.handoff.stop(FAR + 1))
    assert adder.run() == (True, -1)
    timer.join()
    assert adder.handoff.stopped == FAR + 1


def test_without_a_handoff_exchanges_do_nothing() -> None:
    adder = Adder(4)
    adder.x[:] = 1.0
    zero, logits = np.zeros(1, np.int32), np.zeros((0, 1), np.float32)
    none, table = np.zeros(0, np.int32), np.zeros((1, 1, 1), np.int32)
    for first, end in ((0, 5), (5, -1)):
        assert adder.program().run(zero, zero, zero, table, none, logits, adder.abort, first=first, end=end) == (False, -1)
    assert (adder.y == 4.0).all() and adder.handoff.flag(1) == 0
    for first, end in ((-1, 3), (4, 3), (0, 13)):
        with pytest.raises(ValueError, match="no such ops"):
            adder.program().run(zero, zero, zero, table, none, logits, adder.abort, first=first, end=end)


def test_a_team_that_has_waited_sleeps_when_the_step_is_over() -> None:
    adder = Adder(1)
    adder.next_step()
    player = Player(adder, [np.ones(WIDTH, np.float32)])
    adder.run()
    player.join()
    deadline = time.monotonic() + 10.0
    while adder.pool.parked < 1 and time.monotonic() < deadline:
        time.sleep(0.001)
    assert adder.pool.parked == 1


def test_a_send_must_follow_a_meeting() -> None:
    adder = Adder(2)
    adder.ops[4]["flags"] = 0
    with pytest.raises(ValueError, match=r"op 5 \(kind 23\): workers do not meet before a send"):
        adder.program()


def test_flags_that_cannot_be_are_refused() -> None:
    adder = Adder(2)
    adder.ops[0]["flag"] = -1
    with pytest.raises(ValueError, match=r"op 0 \(kind 22\): a flag that cannot be"):
        adder.program()
    small = Adder(2)
    with pytest.raises(ValueError, match="too few flags"):
        small.run(Handoff(Arena(handoff_bytes(3)), 3))
    with pytest.raises(ValueError, match="192 are needed"):
        Handoff(np.zeros(100, np.uint8), 2)
    with pytest.raises(ValueError, match="multiple of 64"):
        Handoff(np.frombuffer(Arena(4096), np.uint8)[4:], 2)
    with pytest.raises(ValueError, match="at most"):
        Handoff(Arena(4096), 2, limit_s=0.0)
    handoff = Handoff(Arena(4096), 2)
    for flag in (-1, 2):
        with pytest.raises(IndexError):
            handoff.signal(flag)
    assert (handoff.n_flags, LINE_BYTES, handoff_bytes(2)) == (2, 64, 192)


class Chooser:
    """Routes from ids and weights, and told again."""

    N_EXPERTS, N_USED = 6, 3

    def __init__(self, rows: int) -> None:
        self.arena = Arena(16 * 1024)
        room = np.frombuffer(self.arena, np.uint8)
        at = [room[64 * rows * i : 64 * rows * (i + 1)].reshape(rows, 64) for i in range(4)]
        self.chosen, self.told = (one.view(np.int32)[:, : self.N_USED] for one in (at[0], at[2]))
        self.weights, self.told_weights = (one.view(np.float32)[:, : self.N_USED] for one in (at[1], at[3]))
        self.ops = np.zeros(2, OP_DTYPE)
        chosen, tell = self.ops
        for op, kind in ((chosen, Kind.CHOSEN), (tell, Kind.TELL)):
            op["kind"], op["flags"], op["routes_offset"] = kind, Flag.SYNC, 64 * rows * 4
            op["n_experts"], op["n_used"] = self.N_EXPERTS, self.N_USED
        chosen["x_stride"] = chosen["x2_stride"] = tell["y_stride"][0] = tell["y_stride"][1] = 16
        chosen["x2_offset"], tell["y_offset"][0], tell["y_offset"][1] = 64 * rows, 128 * rows, 192 * rows
        self.rows = rows
        self.pool = Pool([-1, -1])

    def run(self) -> tuple[bool, int]:
        program = CpuProgram(self.ops, self.arena, self.pool, max_rows=self.rows, max_position=1, n_blocks=1)
        zeros, none = np.zeros(self.rows, np.int32), np.zeros(0, np.int32)
        table, logits = np.zeros((1, 1, 1), np.int32), np.zeros((0, 1), np.float32)
        return program.run(zeros, zeros, zeros, table, none, logits, AbortFlag())


@pytest.mark.parametrize("rows", [1, 5, 40])
def test_what_is_told_is_what_was_chosen(rows: int) -> None:
    chooser, rng = Chooser(rows), np.random.default_rng(rows)
    for row in range(rows):
        chooser.chosen[row] = rng.permutation(chooser.N_EXPERTS)[: chooser.N_USED]
    chooser.chosen[rng.random(chooser.chosen.shape) < 0.3] = -1
    chooser.weights[:] = rng.standard_normal(chooser.weights.shape)
    assert chooser.run() == (False, -1)
    for row in range(rows):
        ids = [int(one) for one in chooser.chosen[row]]
        wanted = {one: chooser.weights[row, j] for j, one in enumerate(ids) if one >= 0}
        kept = sorted(wanted)
        assert chooser.told[row].tolist() == kept + [-1] * (chooser.N_USED - len(kept))
        assert chooser.told_weights[row, : len(kept)].tolist() == [wanted[one] for one in kept]


@pytest.mark.parametrize("bad", [6, 1 << 30, -2])
def test_ids_that_name_no_expert_are_noticed_and_read_nothing(bad: int) -> None:
    chooser = Chooser(2)
    chooser.chosen[:] = [[0, bad, 2], [1, 2, 3]]
    chooser.weights[:] = 1.0
    assert chooser.run() == (False, 0)
    assert chooser.told[0].tolist() == [0, 2, -1]


def test_choices_outside_the_arena_are_refused() -> None:
    for op, name, value in ((0, "x_offset", 1 << 20), (0, "x2_stride", 2), (1, "routes_offset", 1 << 20), (1, "n_used", 0)):
        chooser = Chooser(2)
        chooser.ops[op][name] = value
        with pytest.raises(ValueError, match=rf"op {op} .*(a choice|routes) outside|op {op} .*bad experts"):
            chooser.run()
