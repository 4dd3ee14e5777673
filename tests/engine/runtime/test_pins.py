"""Memory that GPUs read where it lies: what is pinned, how far a range is, and what goes where."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import Cancelled
from engine.gguf.reader import read_gguf
from engine.runtime.pins import MAX_REFUSED, Part, Pins
from kernels_pyx.executor import AbortFlag
from tests.helpers.fake_host import FakeHost
from tests.helpers.golden_models import golden
from tests.helpers.placed import need_torch


def pinned(*ranges: tuple[int, int]) -> Pins:
    pins = Pins(1 << 40)
    pins.use(FakeHost())
    assert all(pins.pin(*one) for one in ranges)
    return pins


def test_nothing_is_pinned_without_a_driver_and_no_more_than_may_be() -> None:
    pins = Pins(100)
    assert not pins.pin(0, 50) and pins.nbytes == 0
    host = FakeHost()
    pins.use(host)
    assert pins.pin(0, 60) and not pins.pin(60, 60) and pins.pin(60, 40)
    assert pins.nbytes == 100 and host.known == {0: 60, 60: 40}
    pins.drop(0)
    pins.drop(0)
    assert pins.nbytes == 40 and not pins.holds(0, 60) and pins.holds(60, 40) and not pins.holds(60, 41)
    pins.close()
    pins.close()
    assert pins.nbytes == 0 and not host.known


def test_a_driver_that_refuses_is_asked_three_times() -> None:
    host, pins = FakeHost(refuses=True), Pins(1 << 40)
    pins.use(host)
    assert not any(pins.pin(i * 10, 10) for i in range(10))
    assert host.asked == MAX_REFUSED and pins.nbytes == 0 and not pins.has_room(1)


@given(
    st.lists(st.integers(0, 40), unique=True, max_size=12),
    st.integers(0, 400),
    st.integers(1, 200),
)
def test_a_range_comes_in_parts_that_end_where_pinned_ones_do(starts: list[int], address: int, nbytes: int) -> None:
    pins = pinned(*((10 * start, 10) for start in starts))
    parts = pins.parts(address, nbytes)
    assert parts[0].address == address and sum(part.nbytes for part in parts) == nbytes
    at = address
    for part in parts:
        assert part.address == at and part.nbytes > 0
        at += part.nbytes
        covered = {byte // 10 for byte in range(part.address, at)}
        assert part.pinned == all(one in starts for one in covered) == any(one in starts for one in covered)
        assert not part.pinned or len(covered) == 1


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> Any:
    """(weights, memory of an emulated GPU, pieces of all matrices, every other one spread) of a golden model."""
    need_torch()
    monkeypatch.setenv("LAYERDECK_GPU", "emulate:1")
    import torch

    from engine.runtime.gpu import GpuMemory, open_gpus
    from engine.runtime.gpu_upload import Piece
    from engine.runtime.weights import Weights

    file = read_gguf(golden("qwen3moe").path)
    weights, (device,) = Weights(file), open_gpus([0])
    pieces = []
    for i, tensor in enumerate(file.tensors.values()):
        for start in range(0, tensor.nbytes, 4096):
            n = min(4096, tensor.nbytes - start)
            rows = i % 2 and n % 32 == 0
            into = torch.zeros((n // 32, 48), dtype=torch.uint8)[:, :32] if rows else torch.zeros((1, n), dtype=torch.uint8)
            pieces.append(Piece(tensor, start, into))
    yield weights, GpuMemory(device), pieces
    weights.close()


@pytest.mark.parametrize("every", [1, 2, 5])
def test_what_is_pinned_comes_straight_and_the_rest_through_the_ring(
    found: Any, every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from engine.runtime import gpu_upload

    weights, memory, pieces = found
    host = FakeHost()
    weights.pins.use(host)
    monkeypatch.setattr(gpu_upload.PinAhead, "__init__", told_of_nothing)
    low = min(weights.address(piece.tensor) for piece in pieces)
    high = max(weights.address(piece.tensor) + piece.tensor.nbytes for piece in pieces)
    size = 10_007
    for i, address in enumerate(range(low, high, size)):
        if i % every == 0:
            assert weights.pins.pin(address, size)
    sent = [0]
    usual = gpu_upload.send_direct

    def noted(memory: Any, jobs: Any, *others: Any) -> None:
        jobs = list(jobs)
        sent[0] += sum(into.numel() for into, _ in jobs)
        assert all(sum(part.nbytes for part in parts) == into.numel() for into, parts in jobs)
        usual(memory, jobs, *others)

    monkeypatch.setattr(gpu_upload, "send_direct", noted)
    came: list[int] = []
    gpu_upload.Uploader(memory, weights, AbortFlag(), came.append).carry(pieces)
    total = sum(piece.nbytes for piece in pieces)
    assert sum(came) == total and memory.nbytes == 0
    assert sent[0] == total if every == 1 else 0.8 * total / every < sent[0] <= 1.2 * total / every
    for piece in pieces:
        room = np.empty(piece.nbytes, np.uint8)
        weights.read_into(piece.tensor, piece.start, room)
        assert piece.into.numpy().tobytes() == room.tobytes()
    weights.close()
    assert not host.known


def told_of_nothing(ahead: Any, pins: Pins, ranges: Any) -> None:
    """In the place of `PinAhead.__init__`: only what was pinned before."""
    from concurrent.futures import ThreadPoolExecutor

    ahead._windows, ahead._ends, ahead._told, ahead._thread = [], [], [], ThreadPoolExecutor(1)


@pytest.mark.parametrize("window", [4096, 3 * 4096, 16 << 20])
def test_the_driver_is_told_on_the_way_and_what_it_refuses_goes_through_the_ring(
    found: Any, window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from engine.runtime import gpu_direct, gpu_upload

    monkeypatch.setattr(gpu_direct, "WINDOW", window)
    weights, memory, pieces = found
    host = FakeHost()
    weights.pins.use(host)
    total = sum(piece.nbytes for piece in pieces)
    some = pieces[:: len(pieces) // 5]
    gpu_upload.Uploader(memory, weights, AbortFlag(), lambda n: None).carry(some)
    held = weights.pins.nbytes
    assert held and all(address % 4096 == 0 and nbytes % 4096 == 0 for address, nbytes in host.known.items())
    weights.pins.most_bytes = held + total // 2
    came: list[int] = []
    gpu_upload.Uploader(memory, weights, AbortFlag(), came.append).carry(pieces)
    assert sum(came) == total and memory.nbytes == 0
    assert held <= weights.pins.nbytes <= weights.pins.most_bytes
    assert sum(host.known.values()) == weights.pins.nbytes
    for piece in pieces:
        room = np.empty(piece.nbytes, np.uint8)
        weights.read_into(piece.tensor, piece.start, room)
        assert piece.into.numpy().tobytes() == room.tobytes()


def test_a_cancel_ends_it_between_two_pieces(found: Any) -> None:
    from engine.runtime.gpu_upload import Uploader

    weights, memory, pieces = found
    weights.pins.use(FakeHost())
    for address in {weights.address(piece.tensor) for piece in pieces}:
        tensor = next(piece.tensor for piece in pieces if weights.address(piece.tensor) == address)
        assert weights.pins.pin(address, tensor.nbytes)
    abort = AbortFlag()
    came: list[int] = []

    def arrived(nbytes: int) -> None:
        came.append(nbytes)
        if len(came) == 3:
            abort.set()

    with pytest.raises(Cancelled):
        Uploader(memory, weights, abort, arrived).carry(pieces)
    assert len(came) == 3 and memory.nbytes == 0


def test_parts_know_their_kind() -> None:
    assert pinned((10, 10)).parts(5, 20) == [Part(5, 5, False), Part(10, 10, True), Part(20, 5, False)]
