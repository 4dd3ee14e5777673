"""Weights into memory of our own: which pieces, in which order, how many of them, and what happens when one fails."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterator, Sequence
from errno import EIO, ENOMEM
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from engine.gguf.info import TensorInfo
from engine.runtime import owning as module
from engine.runtime.owning import PIECE_BYTES, Owning, Piece, pieces_of
from engine.runtime.residency import Holding, Residency
from kernels_pyx.executor import AbortFlag
from kernels_pyx.guard import MappedFile
from tests.helpers.fake_map import HEADROOM, TOTAL, FakeMap, finish, pieces, weights_threads

MIB = 1 << 20
UNIT = 2 * MIB


class Untold:
    """A mapping of which the system does not tell which pages are huge: everything is taken."""

    def __init__(self, mapped: MappedFile) -> None:
        self.own, self.disown = mapped.own, mapped.disown

    def in_huge_pages(self, offset: int, n: int) -> int | None:
        return None


def made(fake: FakeMap, wanted: Sequence[Piece], *, free: int = TOTAL, n_threads: int = 1, promised: int = 0) -> Owning:
    def left() -> int:
        return free - sum(PIECE_BYTES for _ in fake.owned)

    return Owning([cast(Any, fake)], wanted, n_threads, promised, left, TOTAL)


def test_pieces_cover_what_lies_side_by_side_and_know_what_of_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PIECE_BYTES", 32 * MIB)
    path = tmp_path / "weights"
    with path.open("wb") as stream:
        stream.truncate(200 * MIB)
    mapped = MappedFile(path)
    tensors = [
        TensorInfo("dense", (1,), 0, "F32", 40 * MIB, 0, 4 * MIB),
        TensorInfo("experts", (1,), 0, "F32", 40 * MIB, 0, 45 * MIB),
        TensorInfo("far", (1,), 0, "F32", 3 * MIB, 0, 150 * MIB + 1),
    ]
    found = list(pieces_of([mapped], tensors, {"dense": 1.0, "experts": 0.25, "far": 1.0}))
    assert sum(one.nbytes for one in found[:3]) >= 78 * MIB
    assert all((mapped.address + one.offset) % UNIT == 0 and one.nbytes % UNIT == 0 for one in found)
    assert all(one.offset + one.nbytes == after.offset for one, after in pairwise(found[:3]))
    read = sum(one.nbytes * one.worth for one in found[:3])
    assert 40 * MIB - 2 * UNIT <= read <= 50 * MIB
    assert found[0].worth == pytest.approx(1.0) and found[2].worth == pytest.approx(0.25)
    assert [one.offset // MIB for one in found[3:]] in ([], [152 - (mapped.address // MIB) % 2])
    mapped.close()


def test_what_tokens_read_most_is_taken_first_and_what_they_never_read_stays() -> None:
    fake = FakeMap()
    finish(made(fake, pieces(5, (0.1, 1.0, 0.0, 1.0, 0.5))))
    assert [offset // PIECE_BYTES for offset in fake.owned] == [1, 3, 4, 0]


def test_thirteen_of_twenty_four_gigabytes_are_taken_and_their_cache_is_given_up() -> None:
    fake = FakeMap()
    owning = made(fake, pieces(13_000_000_000 // PIECE_BYTES), free=21 << 30, promised=1 << 30)
    assert owning.headroom_bytes == HEADROOM
    finish(owning)
    assert owning.owned_bytes == 13_000_000_000 // PIECE_BYTES * PIECE_BYTES
    assert set(fake.owned.values()) == {True}


def test_a_model_that_fits_twice_stays_in_the_cache_too() -> None:
    fake = FakeMap()
    finish(made(fake, pieces(100), free=20 << 30))
    assert set(fake.owned.values()) == {False}


@pytest.mark.parametrize("n_threads", [1, 3])
def test_of_too_large_a_model_so_much_is_taken_that_others_keep_a_quarter(n_threads: int) -> None:
    fake = FakeMap()
    owning = made(fake, pieces(18_500_000_000 // PIECE_BYTES), free=22 << 30, promised=1 << 30, n_threads=n_threads)
    finish(owning)
    limit = (22 << 30) - HEADROOM - (1 << 30)
    assert limit - (n_threads + 1) * PIECE_BYTES < owning.owned_bytes <= limit


@pytest.mark.parametrize(("total", "left"), [(4 << 30, 2 << 30), (16 << 30, 4 << 30), (512 << 30, 8 << 30)])
def test_others_are_left_a_quarter_within_bounds(total: int, left: int) -> None:
    assert Owning([], (), 1, 0, lambda: total, total).headroom_bytes == left


def test_what_lies_in_huge_pages_already_is_left_alone() -> None:
    fake = FakeMap()
    fake.huge = {0, 2 * PIECE_BYTES}
    owning = made(fake, pieces(3))
    finish(owning)
    assert list(fake.owned) == [PIECE_BYTES]
    assert owning.owned_bytes == PIECE_BYTES


def test_a_system_without_huge_pages_is_asked_three_times() -> None:
    fake = FakeMap(gives=False)
    owning = made(fake, pieces(10))
    finish(owning)
    assert not fake.owned
    assert len(fake.given_back) == module.MAX_REFUSED
    assert owning.owned_bytes == 0


@pytest.mark.parametrize("error", [EIO, ENOMEM])
def test_a_piece_that_fails_stays_mapped_and_is_the_last(error: int) -> None:
    fake = FakeMap(broken=2 * PIECE_BYTES, error=error)
    owning = made(fake, pieces(6))
    finish(owning)
    assert owning.done
    assert list(fake.owned) == [0, PIECE_BYTES]
    owning.advance()
    assert owning.owned_bytes == 2 * PIECE_BYTES


def test_between_steps_a_tenth_of_their_time_is_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])

    class Slow(FakeMap):
        def own(self, offset: int, n: int, *, drop: bool = False) -> None:
            super().own(offset, n, drop=drop)
            now[0] += 0.03

    fake = Slow()
    owning = made(fake, pieces(100))
    for _ in range(200):
        owning.beside_steps(0.05)
        now[0] += 0.05
    spent = 0.03 * len(fake.owned)
    assert 0.08 < spent / (200 * 0.05) < 0.11


def test_memory_goes_back_least_read_first_when_others_need_it(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    others = [0]
    fake = FakeMap()

    def free() -> int:
        return TOTAL - others[0] - len(fake.owned) * PIECE_BYTES

    owning = Owning([cast(Any, fake)], pieces(200, [1 - i / 1000 for i in range(200)]), 1, 0, free, TOTAL)
    finish(owning)
    owning.relieve()
    assert len(fake.owned) == 200
    others[0] = free() - (1 << 30)
    owning.relieve()
    assert len(fake.owned) == 200  # looked at a moment ago
    now[0] += 1.5
    owning.relieve()
    assert 0 <= free() - HEADROOM // 2 < PIECE_BYTES
    assert owning.owned_bytes == len(fake.owned) * PIECE_BYTES
    assert fake.given_back == [i * PIECE_BYTES for i in range(199, 199 - len(fake.given_back), -1)]
    assert owning.done


@pytest.fixture
def content() -> bytes:
    return np.random.default_rng(5).integers(0, 256, 9 * MIB + 77, np.uint8).tobytes()


@pytest.fixture
def mapped(tmp_path: Path, content: bytes) -> Iterator[MappedFile]:
    path = tmp_path / "weights"
    with path.open("wb") as stream:
        stream.write(content)
        os.fsync(stream.fileno())
    found = MappedFile(path)
    yield found
    found.close()


def taking(mapped: MappedFile, monkeypatch: pytest.MonkeyPatch, *, twice: bool) -> Owning:
    """What takes two pieces of two units each, one at a time."""
    monkeypatch.setattr(module, "PIECE_BYTES", 2 * UNIT)
    tensor = TensorInfo("w", (1,), 0, "F32", mapped.nbytes, 0, 0)
    wanted = list(pieces_of([mapped], [tensor], {"w": 1.0}))
    room = HEADROOM + (100 if twice else 1) * sum(one.nbytes for one in wanted)
    return Owning([cast(Any, Untold(mapped))], wanted, 1, 0, lambda: room, TOTAL)


def in_cache(path: Path, offset: int, n: int) -> int:
    """How many of the pages of a file are in the system's cache."""
    libc = ctypes.CDLL(None, use_errno=True)
    there = (ctypes.c_ubyte * (n // mmap.PAGESIZE))()
    with path.open("r+b") as stream, mmap.mmap(stream.fileno(), 0) as seen:
        start = ctypes.addressof(ctypes.c_char.from_buffer(seen))
        assert libc.mincore(ctypes.c_void_p(start + offset), ctypes.c_size_t(n), there) == 0
    return sum(one & 1 for one in there)


@pytest.mark.parametrize("twice", [True, False])
def test_the_cache_behind_is_given_up_where_both_do_not_fit(
    mapped: MappedFile, content: bytes, monkeypatch: pytest.MonkeyPatch, twice: bool
) -> None:
    mapped.touch(0, mapped.nbytes, AbortFlag())
    owning = taking(mapped, monkeypatch, twice=twice)
    finish(owning)
    assert owning.owned_bytes == mapped.whole_units(0, mapped.nbytes)[1]
    start, n = mapped.whole_units(0, mapped.nbytes)
    assert in_cache(mapped.path, start, n) == (n // mmap.PAGESIZE if twice else 0)
    assert bytes((ctypes.c_uint8 * mapped.nbytes).from_address(mapped.address)) == content


def test_a_file_that_ends_while_it_is_taken_keeps_what_was_taken(
    mapped: MappedFile, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    owning = taking(mapped, monkeypatch, twice=True)
    owning.advance()
    taken = owning.owned_bytes
    assert taken == 2 * UNIT
    os.truncate(mapped.path, 4096)
    finish(owning)
    assert owning.owned_bytes == taken
    start, _ = mapped.whole_units(0, mapped.nbytes)
    assert bytes((ctypes.c_uint8 * taken).from_address(mapped.address + start)) == content[start : start + taken]
    assert mapped.lost == 0
    mapped.touch(0, mapped.nbytes, AbortFlag())
    assert mapped.lost > 0


def test_what_is_given_back_is_the_file_again(mapped: MappedFile, content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    owning = taking(mapped, monkeypatch, twice=False)
    finish(owning)
    monkeypatch.setattr(owning, "_free", lambda: 0)
    owning._looked -= 2 * module.LOOK_S
    owning.relieve()
    assert owning.owned_bytes == 0
    assert bytes((ctypes.c_uint8 * mapped.nbytes).from_address(mapped.address)) == content
    os.truncate(mapped.path, 4096)
    mapped.touch(0, mapped.nbytes, AbortFlag())
    assert mapped.lost > 0


def test_closing_in_the_middle_ends_the_threads_and_frees_the_memory(mapped: MappedFile, monkeypatch: pytest.MonkeyPatch) -> None:
    owning = taking(mapped, monkeypatch, twice=True)
    owning.advance()
    address = mapped.address
    assert weights_threads() == 1
    owning.close()
    owning.close()
    assert owning.done
    assert weights_threads() == 0
    mapped.close()
    assert not any(line.startswith(f"{address:x}-") for line in Path("/proc/self/maps").read_text().splitlines())
    owning.advance()
    assert owning.owned_bytes == 0


def test_the_ledger_tells_owned_from_mapped() -> None:
    residency = Residency((Holding(cast(Any, 0), "weights", 100, mapped=True), Holding(cast(Any, 0), "kv", 7)), 50)
    assert residency.owned(0) is residency
    after = residency.owned(30)
    assert {(one.nbytes, one.mapped) for one in after.holdings if one.owner == "weights"} == {(70, True), (30, False)}
    assert after.nbytes() == residency.nbytes()
    assert residency.beside(cast(Any, 0), 0) is residency
    assert residency.beside(cast(Any, 0), 5).nbytes("weights") == 105
    assert [one.mapped for one in residency.owned(200).holdings if one.owner == "weights"] == [False]
