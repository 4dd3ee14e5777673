"""What is taken is pinned for the GPUs, and goes back little by little when nobody reads it any more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from engine.runtime import owning as module
from engine.runtime.owning import PIECE_BYTES, Owning, Piece
from engine.runtime.pins import Pins
from tests.helpers.fake_host import FakeHost
from tests.helpers.fake_map import HEADROOM, TOTAL, FakeMap, finish, pieces, weights_threads


def pinning(host: FakeHost | None = None, most: int = 1 << 60) -> Pins:
    pins = Pins(most)
    if host is not None:
        pins.use(host)
    return pins


def owned_by(fake: FakeMap, wanted: Sequence[Piece], taken: Sequence[Piece], pins: Pins | None = None) -> Owning:
    return Owning([cast(Any, fake)], wanted, 2, 0, lambda: TOTAL, TOTAL, taken, pins)


def test_what_is_taken_is_pinned_afterwards_and_no_more_than_may_be() -> None:
    fake, host = FakeMap(), FakeHost()
    pins = pinning(host, most=3 * PIECE_BYTES)
    owning = owned_by(fake, pieces(5), (), pins)
    while len(fake.owned) < 5:
        assert not host.known and not owning.done
        owning.advance()
    finish(owning)
    assert len(host.known) == 3 and set(host.known.values()) == {PIECE_BYTES}
    assert owning.done and weights_threads() == 0


def test_without_a_gpu_nothing_is_pinned_and_what_was_taken_is_when_one_comes() -> None:
    fake, host, pins = FakeMap(), FakeHost(), pinning()
    owning = owned_by(fake, pieces(3), (), pins)
    finish(owning)
    pins.use(host)
    again = owned_by(fake, pieces(3), owning.hand_over(), pins)
    assert not again.done and again.owned_bytes == 3 * PIECE_BYTES
    finish(again)
    assert len(host.known) == 3 and len(fake.owned) == 3


def test_what_nobody_reads_any_more_goes_back_little_by_little() -> None:
    fake, host = FakeMap(), FakeHost()
    pins = pinning(host)
    owning = owned_by(fake, pieces(7), (), pins)
    finish(owning)
    read = pieces(7)[:2]
    after = owned_by(fake, read, owning.hand_over(), pins)
    assert owning.owned_bytes == 0 and after.owned_bytes == 2 * PIECE_BYTES and after.unread_bytes == 5 * PIECE_BYTES
    assert not after.done
    after.advance()
    assert after.unread_bytes == 3 * PIECE_BYTES and len(host.known) == 5
    back = owned_by(fake, pieces(7), after.hand_over(), pins)  # what has not gone yet is there
    assert back.owned_bytes == 5 * PIECE_BYTES and back.unread_bytes == 0
    finish(back)
    assert back.owned_bytes == 7 * PIECE_BYTES and len(host.known) == 7
    last = owned_by(fake, (), back.hand_over(), pins)
    finish(last)
    assert not fake.owned and not host.known and last.done and last.unread_bytes == 0


def test_what_a_move_has_pinned_of_the_file_is_let_go_of_before_anything_is_taken() -> None:
    fake, host = FakeMap(), FakeHost()
    pins = pinning(host)
    pins.use(host)
    for i in range(9):
        assert pins.pin(fake.address + i * PIECE_BYTES // 2, PIECE_BYTES // 2)
    owning = owned_by(fake, pieces(7), (), pins)
    assert not owning.done
    while host.known:
        assert not fake.owned
        owning.advance()
    finish(owning)
    assert len(fake.owned) == len(host.known) == 7


def test_what_stays_in_the_file_is_pinned_there_until_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    now, free = [0.0], [TOTAL]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    fake, host = FakeMap(gives=False), FakeHost()
    fake.huge = {0, PIECE_BYTES}
    pins = pinning(host)

    def owning(wanted: Sequence[Piece], taken: Sequence[Piece]) -> Owning:
        return Owning([cast(Any, fake)], wanted, 1, 0, lambda: free[0], TOTAL, taken, pins)

    first = owning(pieces(9), ())
    finish(first)
    assert not fake.owned and len(fake.given_back) == module.MAX_REFUSED and len(host.known) == 9
    asked = host.asked
    again = owning(pieces(9), first.hand_over())  # what is pinned and still read stays so
    assert len(host.known) == 9
    finish(again)
    assert len(host.known) == 9 and host.asked <= asked + module.MAX_REFUSED
    now[0] += 2.0
    free[0] = HEADROOM // 4 - 1
    fake.huge, fake.owned = set(), {0: False}
    again._taken = pieces(1)
    again.relieve()
    assert not host.known and again.done


def test_unread_memory_goes_first_when_others_need_it(monkeypatch: pytest.MonkeyPatch) -> None:
    now, free = [0.0], [TOTAL]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    fake = FakeMap()
    pins = pinning(FakeHost())
    owning = owned_by(fake, pieces(4), (), pins)
    finish(owning)
    after = Owning([cast(Any, fake)], pieces(4)[1:], 1, 0, lambda: free[0], TOTAL, owning.hand_over(), pins)
    now[0] += 2.0
    free[0] = HEADROOM // 2 - PIECE_BYTES
    free[0] = min(free[0], HEADROOM // 4 - 1)
    after.relieve()
    assert fake.given_back[0] == 0 and after.unread_bytes == 0
    assert pins.nbytes == len(fake.owned) * PIECE_BYTES
