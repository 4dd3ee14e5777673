"""Weights come whole to a device, read from the file or carried from memory; a cancel leaves nobody copying."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from engine.errors import Cancelled
from engine.gguf.reader import read_gguf
from kernels_pyx.executor import AbortFlag
from tests.helpers.golden_models import golden
from tests.helpers.placed import need_torch


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> Any:
    """(weights, memory of an emulated GPU, pieces of all matrices, some of them spread) of a golden model."""
    need_torch()
    monkeypatch.setenv("LAYERDECK_GPU", "emulate:1")
    import torch

    from engine.runtime import gpu_upload
    from engine.runtime.gpu import GpuMemory, open_gpus
    from engine.runtime.weights import Weights

    file = read_gguf(golden("qwen3moe").path)
    weights, (device,) = Weights(file), open_gpus([0])
    pieces = []
    for i, tensor in enumerate(file.tensors.values()):
        for start in range(0, tensor.nbytes, 4096):
            n = min(4096, tensor.nbytes - start)
            if i % 2 and n % 32 == 0:
                into = torch.zeros((n // 32, 48), dtype=torch.uint8)[:, :32]
            else:
                into = torch.zeros((1, n), dtype=torch.uint8)
            pieces.append(gpu_upload.Piece(tensor, start, into))
    yield weights, GpuMemory(device), pieces
    weights.close()


def expected(weights: Any, piece: Any) -> bytes:
    room = np.empty(piece.nbytes, np.uint8)
    weights.read_into(piece.tensor, piece.start, room)
    return room.tobytes()


@pytest.mark.parametrize("way", ["read", "carry"])
def test_every_piece_comes_whole(found: Any, way: str) -> None:
    from engine.runtime.gpu_upload import Uploader

    weights, memory, pieces = found
    came: list[int] = []
    getattr(Uploader(memory, weights, AbortFlag(), came.append), way)(pieces)
    assert came == [piece.nbytes for piece in pieces]
    assert all(piece.into.numpy().tobytes() == expected(weights, piece) for piece in pieces)
    assert memory.nbytes == 0
    getattr(Uploader(memory, weights, AbortFlag(), came.append), way)([])


def test_a_cancel_ends_it_between_two_pieces(found: Any) -> None:
    from engine.runtime.gpu_upload import Uploader

    weights, memory, pieces = found
    abort = AbortFlag()
    came: list[int] = []

    def arrived(nbytes: int) -> None:
        came.append(nbytes)
        if len(came) == 3:
            abort.set()

    with pytest.raises(Cancelled):
        Uploader(memory, weights, abort, arrived).carry(pieces)
    assert len(came) == 3


def test_a_move_carries_what_the_cpu_had_and_reads_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    need_torch()
    monkeypatch.setenv("LAYERDECK_GPU", "emulate:2")
    from engine.runtime.gpu_upload import Piece, Uploader
    from tests.helpers.moves import target
    from tests.helpers.placed import SECOND, hybrid, open_placed, whole

    ways: list[tuple[str, int]] = []
    for way in ("read", "carry"):
        usual = getattr(Uploader, way)

        def noted(self: Any, pieces: Sequence[Piece], way: str = way, usual: Any = usual) -> None:
            ways.append((way, sum(piece.nbytes for piece in pieces)))
            usual(self, pieces)

        monkeypatch.setattr(Uploader, way, noted)
    model = open_placed(golden("qwen3moe").path, hybrid)
    assert [way for way, nbytes in ways if nbytes] == ["read"]
    ways.clear()
    move = model.move(target(model, whole))
    assert [(way, nbytes) for way, nbytes in ways if nbytes] == [("carry", move.uploaded_bytes)]
    ways.clear()
    model.move(target(model, lambda unit, spec: SECOND))
    assert [way for way, nbytes in ways if nbytes] == ["read"]
    model.close()
