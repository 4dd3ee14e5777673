"""Arenas: aligned, zeroed, writable, given back only when nobody looks at them."""

from __future__ import annotations

import numpy as np
import psutil
import pytest

from kernels_pyx.arena import Arena


@pytest.mark.parametrize(("huge", "align"), [(False, 4096), (True, 2 << 20)])
def test_memory_is_aligned_zeroed_and_writable(huge: bool, align: int) -> None:
    arena = Arena(3_000_001, huge=huge)
    view = np.frombuffer(arena, np.uint8)
    assert arena.address % align == 0 and arena.nbytes == len(view) == 3_000_001
    assert not view.any()
    view[-1] = 7
    assert np.frombuffer(arena, np.uint8)[-1] == 7


def test_close_waits_for_its_readers() -> None:
    arena = Arena(4096)
    view = memoryview(arena)
    with pytest.raises(BufferError, match="1 buffers"):
        arena.close()
    view.release()
    arena.close()
    arena.close()
    with pytest.raises(BufferError, match="closed"):
        memoryview(arena)


def test_closed_memory_goes_back() -> None:
    before = psutil.Process().memory_info().rss
    arena = Arena(64 << 20)
    view = np.frombuffer(arena, np.uint8)
    view[:] = 1
    assert psutil.Process().memory_info().rss - before > 50 << 20
    del view
    arena.close()
    assert psutil.Process().memory_info().rss - before < 10 << 20


def test_impossible_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="no bytes"):
        Arena(0)
    with pytest.raises(MemoryError, match="cannot map"):
        Arena(1 << 60)


def test_memory_that_somebody_gave_is_neither_cleared_nor_given_back() -> None:
    giver = Arena(8192)
    theirs = np.frombuffer(giver, np.uint8)
    theirs[4096:] = 9
    arena = Arena(4096, address=giver.address + 4096)
    view = np.frombuffer(arena, np.uint8)
    assert arena.address == giver.address + 4096 and (view == 9).all()
    view[0] = 3
    del view
    arena.close()
    assert theirs[4096] == 3 and theirs[4097] == 9
    with pytest.raises(ValueError, match="no multiple of 4096"):
        Arena(4096, address=giver.address + 64)
