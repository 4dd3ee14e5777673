"""What an emulated GPU holds is counted as torch's allocator would count it, and its capacity is kept."""

from __future__ import annotations

from typing import Any

import pytest

from engine.errors import OutOfDeviceMemory, PlacementError
from tests.helpers.placed import need_torch

MIB = 1 << 20


def memory_of(mib: float) -> Any:
    need_torch()
    import torch

    from engine.runtime.gpu import GpuDevice, GpuMemory

    return GpuMemory(GpuDevice(0, "emulated GPU", torch.device("cpu"), int(mib * MIB), emulated=True))


def test_small_pieces_share_segments_and_large_ones_take_whole_ones() -> None:
    import torch

    memory = memory_of(64)
    memory.allocate((1,), torch.float32, "derived", "one")
    assert memory.nbytes == 2 * MIB
    for _ in range(4095):
        memory.allocate((513,), torch.uint8, "derived", "many")
    assert memory.nbytes == 4 * MIB
    memory.allocate((MIB + 1,), torch.uint8, "weights", "one more")
    assert memory.nbytes == 6 * MIB
    assert memory.held("weights") == MIB + 1 and memory.held("kv") == 0
    assert set(memory.owners()) == {"derived", "weights"}


def test_what_does_not_fit_is_refused_and_changes_nothing() -> None:
    import torch

    memory = memory_of(8)
    held = memory.allocate((5 * MIB,), torch.uint8, "kv", "the cache")
    with pytest.raises(OutOfDeviceMemory, match=r"the weights needs 3,145,728 bytes on gpu0 and 2,097,152 are free; place fewer"):
        memory.allocate((3 * MIB,), torch.uint8, "weights", "the weights")
    assert memory.nbytes == 6 * MIB and memory.held("weights") == 0
    memory.give_back(held, "kv")
    memory.give_back(held, "kv")
    assert memory.nbytes == 0
    assert not memory.allocate((2, 3), torch.float32, "state", "zeros", zeroed=True).any()
    memory.close()
    memory.close()
    assert memory.nbytes == 0


def test_devices_are_those_of_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    need_torch()
    from engine.runtime.gpu import open_gpus

    monkeypatch.setenv("LAYERDECK_GPU", "emulate:2x8")
    assert [(str(one), one.capacity, one.emulated) for one in open_gpus((1,))] == [("gpu1", 8 << 30, True)]
    assert [str(one) for one in open_gpus((1, 0, 1))] == ["gpu0", "gpu1"]
    with pytest.raises(PlacementError, match="names gpu2, but there is only gpu0, gpu1; place its parts elsewhere"):
        open_gpus((0, 2))
    monkeypatch.setenv("LAYERDECK_GPU", "none")
    with pytest.raises(PlacementError, match="no part can be placed on a GPU: GPUs are switched off"):
        open_gpus((0,))


def test_what_torch_raises_becomes_a_sentence() -> None:
    device = memory_of(8).device
    import torch

    from engine.errors import DeviceLost
    from engine.runtime.gpu import guarded

    with pytest.raises(OutOfDeviceMemory, match=r"needs 2,147,483,648 bytes on gpu0 and"), guarded(device):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 139 GiB")
    with pytest.raises(DeviceLost, match="HIP error: unspecified launch failure"), guarded(device):
        raise RuntimeError("HIP error: unspecified launch failure\nmore")
    with pytest.raises(RuntimeError, match="shape"), guarded(device):
        raise RuntimeError("shape '[2]' is invalid for input of size 3")
