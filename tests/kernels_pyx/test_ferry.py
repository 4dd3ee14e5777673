"""Loads come to their chunks in order and whole, however many threads carry them; a stop leaves nobody copying."""

from __future__ import annotations

import threading

import numpy as np
import numpy.typing as npt
import pytest

from kernels_pyx.ferry import Ferry

U8 = npt.NDArray[np.uint8]


def loads_of(data: U8, sizes: list[int]) -> npt.NDArray[np.uint64]:
    ends = np.cumsum([0, *sizes])
    return np.array([(data.ctypes.data + start, size) for start, size in zip(ends, sizes, strict=False)], np.uint64).reshape(
        -1, 2
    )


def carried(ferry: Ferry, ring: U8, sizes: list[int], loads: npt.NDArray[np.uint64]) -> bytes:
    """All loads, one after the other, as they came out of their chunks."""
    ferry.begin(loads)
    found = b""
    for i, size in enumerate(sizes):
        assert ferry.wait(i, 10.0)
        start = i % ferry.n_chunks * ferry.chunk
        found += ring[start : start + size].tobytes()
        ferry.freed(i + 1)
    return found


@pytest.mark.parametrize("n_threads", [1, 2, 5])
@pytest.mark.parametrize("n_chunks", [2, 3])
def test_loads_come_whole_and_in_order(n_threads: int, n_chunks: int) -> None:
    chunk = (2 << 20) + 4097
    ring = np.zeros(n_chunks * chunk + 100, np.uint8)
    random = np.random.default_rng(n_threads)
    sizes = [chunk, 1, *(int(n) for n in random.integers(1, chunk, 12)), 1 << 20, (1 << 20) + 1]
    data = random.integers(0, 256, sum(sizes), np.uint8)
    ferry = Ferry(ring, chunk, n_threads)
    assert ferry.n_chunks == n_chunks
    for _ in range(2):
        assert carried(ferry, ring, sizes, loads_of(data, sizes)) == data.tobytes()
    assert not ferry.wait(len(sizes), 10.0)  # there is no such load
    ferry.begin(np.zeros((0, 2), np.uint64))
    assert not ferry.wait(0, 10.0)


def test_chunks_are_not_overwritten_before_they_are_freed() -> None:
    ring = np.zeros(2 * 64, np.uint8)
    data = np.repeat(np.arange(1, 5, dtype=np.uint8), 64)
    ferry = Ferry(ring, 64, 3)
    ferry.begin(loads_of(data, [64] * 4))
    assert ferry.wait(1, 10.0) and not ferry.wait(2, 0.05)
    assert ring.tolist() == [1] * 64 + [2] * 64
    ferry.freed(1)
    assert ferry.wait(2, 10.0) and not ferry.wait(3, 0.05)
    assert ring.tolist() == [3] * 64 + [2] * 64


def test_a_stop_ends_waits_and_lets_another_begin() -> None:
    ring = np.zeros(2 << 20, np.uint8)
    data = np.arange(64 << 20, dtype=np.uint32).view(np.uint8)
    ferry = Ferry(ring, 1 << 20, 2)
    sizes = [1 << 20] * (len(data) >> 20)
    ferry.begin(loads_of(data, sizes))
    waits: list[bool] = []
    waiting = threading.Thread(target=lambda: waits.append(ferry.wait(200, 30.0)))
    waiting.start()
    ferry.stop()
    ferry.stop()
    waiting.join(10.0)
    assert waits == [False]
    ring[:] = 0
    assert not ring.any()  # nobody writes any more
    assert carried(ferry, ring, sizes[:9], loads_of(data, sizes)[:9]) == data[: 9 << 20].tobytes()


def test_what_cannot_be_carried_is_refused() -> None:
    ring = np.zeros(128, np.uint8)
    for chunk, n_threads in ((0, 1), (65, 1), (64, 0)):
        with pytest.raises(ValueError, match="threads for chunks"):
            Ferry(ring, chunk, n_threads)
    ferry = Ferry(ring, 64, 1)
    for n in (0, 65):
        with pytest.raises(ValueError, match="1 to 64 bytes"):
            ferry.begin(np.array([(ring.ctypes.data, n)], np.uint64))
