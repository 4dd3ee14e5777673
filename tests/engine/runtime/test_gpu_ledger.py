"""Every tensor that a model on GPUs keeps is in the ledger of its device, however it is placed and whatever it has computed."""

from __future__ import annotations

import gc
from dataclasses import replace
from typing import Any

import pytest

from engine.program.plan import crossing_bytes
from engine.runtime.loader import LoadedModel
from tests.helpers.golden_models import batch, golden
from tests.helpers.placed import EXACT, Where, hybrid, need_torch, open_placed, split, whole

SMALL = 4 << 10
"""Bytes of a tensor that may be kept beside the ledger: words of flags, scalars."""


@pytest.fixture(autouse=True)
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    need_torch()
    monkeypatch.setenv("LAYERDECK_GPU", "emulate:2")


def storages() -> dict[int, int]:
    """(address, bytes) of what all living tensors lie in."""
    import torch

    found: dict[int, int] = {}
    gc.collect()
    for one in gc.get_objects():
        if issubclass(type(one), torch.Tensor):
            storage = one.untyped_storage()
            found[storage.data_ptr()] = storage.nbytes()
    return found


def known(model: LoadedModel) -> set[int]:
    """Addresses of what the ledgers hold, and of memory that the CPU shares with devices."""
    from engine.runtime.pinned import Pinned

    executor: Any = model.executor
    own = [one for side in executor._sides for tensors in side.memory._held.values() for one in tensors]
    shared = [one.bytes for one in gc.get_objects() if type(one) is Pinned]
    arenas = [] if executor._binder._slots is None else [executor._binder._slots]
    return {one.untyped_storage().data_ptr() for one in (*own, *shared, *arenas)}


@pytest.mark.parametrize("stream", ["off", "on"])
@pytest.mark.parametrize("where", [whole, hybrid, split], ids=lambda where: where.__name__)
@pytest.mark.parametrize("name", ["qwen3", "qwen3moe", "deepseek2-v3-legacy-kv_b", "qwen35moe", "gpt-oss"])
def test_nothing_is_kept_beside_the_ledger(name: str, where: Where, stream: str) -> None:
    before = storages()
    model = open_placed(golden(name).path, where, replace(EXACT, stream_experts=stream))
    ids, held = golden(name).ids("medium"), model.residency.nbytes()
    for rows in (ids, ids[:20], ids[:1]):
        model.step(batch(rows, 0, 1))
    assert model.residency.nbytes() == held  # nothing is made, or runs out of memory, with the first prompt
    there = known(model)
    beside = {at: nbytes for at, nbytes in storages().items() if at not in before and at not in there and nbytes > SMALL}
    model.close()
    assert not beside, f"{sum(beside.values())} bytes in {len(beside)} tensors are in no ledger"


def test_rows_that_cross_share_one_room() -> None:
    """It is as large as the largest buffer of any exchange, gaps between its rows included."""
    model = open_placed(golden("qwen3moe").path, hybrid)
    executor: Any = model.executor
    (side,) = executor._sides
    room = side._crossing.numel()
    widest = max(crossing_bytes(plan, lane) for plan in executor.plans if (lane := plan.lane_of(side.name)) is not None)
    assert room == widest > 0
    rows = 4 * executor.plans[-1].max_rows * model.spec.n_embd
    assert rows <= room < 2 * rows
    model.close()


def test_tensors_made_together_take_little_more_than_they_hold() -> None:
    import torch

    from engine.runtime.gpu import ALIGN, GpuDevice, GpuMemory

    memory = GpuMemory(GpuDevice(0, "emulated GPU", torch.device("cpu"), 1 << 30, emulated=True))
    parts = [((3, 5, 101 << 10), torch.int8), ((7, 3), torch.float16), ((0, 4), torch.float32)] * 20
    _, made = memory.piece(parts, "kv", "caches", zeroed=True)
    assert [(tuple(one.shape), one.dtype) for one in made] == parts
    assert all(not one.any() and one.is_contiguous() for one in made)
    assert all((one.data_ptr() - made[0].data_ptr()) % ALIGN == 0 for one in made if one.numel())
    for i, one in enumerate(made):
        one.fill_(i + 1)
    assert all(bool((one == i + 1).all()) for i, one in enumerate(made))
    assert memory.nbytes - sum(one.nbytes for one in made) < 4 << 20
    memory.close()
