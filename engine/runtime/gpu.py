"""The GPUs of this machine, or emulated ones in the memory of the CPU, and the ledger of what we hold on each.

Imports torch: only what runs a placement with a GPU may import this module. Everything goes through `torch.cuda`, which is also
how builds for AMD name their devices.
"""

from __future__ import annotations

import math
import os
import re
import threading
import weakref
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import accumulate

import psutil

# Devices are numbered as the driver's library numbers them, which is asked without torch; read when the first one is opened.
os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")

import torch
from torch import Tensor

from engine.errors import DeviceLost, OutOfDeviceMemory, PlacementError
from engine.hardware.gpus import find_gpus
from engine.runtime.driver import DRIVER
from engine.runtime.residency import Owner
from engine.triton_kernels.kernels import Allocate

SMALL_BYTES = 1 << 20
SMALL_ROUND = 512
SEGMENT = 2 << 20
"""How torch's allocator deals out: up to SMALL_BYTES in multiples of SMALL_ROUND from segments of 2 MiB, more in whole ones."""

ALIGN = 256
"""Where a tensor may begin: a multiple of what one load of any kernel takes."""
Part = tuple[tuple[int, ...], torch.dtype]


@dataclass(frozen=True, slots=True)
class GpuDevice:
    """One GPU. capacity: bytes that were free when it was opened."""

    index: int
    name: str
    torch_device: torch.device
    capacity: int
    emulated: bool

    def __str__(self) -> str:
        return f"gpu{self.index}"

    def synchronize(self, *, here: bool = False) -> None:
        """Waits for everything that was enqueued; here: without a stream of its own, as torch does where none is named.

        Raises:
            DeviceLost: the device met a fault.
        """
        if not self.emulated:
            with guarded(self):
                if here:
                    torch.cuda.default_stream(self.torch_device).synchronize()
                else:
                    torch.cuda.synchronize(self.torch_device)

    def trim(self) -> None:
        """Gives back what torch keeps for later: memory of captured graphs comes from elsewhere."""
        if not self.emulated:
            with guarded(self), DRIVER:
                torch.cuda.empty_cache()


@contextmanager
def guarded(device: GpuDevice) -> Iterator[None]:
    """Turns what torch raises when a device fails or is full into a sentence.

    Raises:
        DeviceLost, OutOfDeviceMemory.
    """
    try:
        yield
    except torch.OutOfMemoryError as error:
        free = 0 if device.emulated else torch.cuda.mem_get_info(device.torch_device)[0]
        raise OutOfDeviceMemory("the working memory of a kernel", str(device), _asked(error), free) from error
    except NotImplementedError:
        raise  # an op that torch has not for a device: a RuntimeError that names CUDA, and no fault of the device
    except RuntimeError as error:
        text = str(error)
        if not isinstance(error, torch.AcceleratorError) and not ("CUDA" in text or "HIP" in text):
            raise
        first = " ".join((text.splitlines()[0], *getattr(error, "__notes__", ())))
        raise DeviceLost(
            f"{device} ({device.name}) stopped working ({first}); load the model again, without it if it stays so"
        ) from error


def _asked(error: RuntimeError) -> int:
    """The bytes that torch says it tried to allocate, 0 where it does not say."""
    found = re.search(r"allocate ([\d.]+) (bytes|KiB|MiB|GiB)", str(error))
    return int(float(found[1]) * _UNITS[found[2]]) if found else 0


_UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def open_gpus(indices: Iterable[int]) -> tuple[GpuDevice, ...]:
    """The devices of these indices; others are left alone, for each that is opened takes some hundred megabytes of its memory.

    Raises:
        InvalidRequest: see `find_gpus`. PlacementError: one cannot be computed on; why, and what to do.
    """
    gpus = find_gpus()
    emulated = bool(gpus.found) and gpus.found[0].emulated
    problem = gpus.problem or ("" if emulated else _why_unusable())
    if problem:
        raise PlacementError(f"no part can be placed on a GPU: {problem}")
    known = {one.index: one for one in gpus.found}
    wanted = sorted(set(indices))
    n = len(known) if emulated else torch.cuda.device_count()
    absent = next((index for index in wanted if not 0 <= index < n), None)
    if absent is not None:
        there = ", ".join(f"gpu{index}" for index in range(n))
        raise PlacementError(f"the placement names gpu{absent}, but there is only {there}; place its parts elsewhere")
    if emulated:
        return tuple(GpuDevice(i, known[i].name, torch.device("cpu"), known[i].capacity, emulated=True) for i in wanted)
    if n == 1:
        _map_pages()
    return tuple(_real(i) for i in wanted)


def _map_pages() -> None:
    """Has torch's allocator map pages into long ranges of addresses: pieces of 2 to 20 MiB in segments of their own left 140 MiB
    idle on an H200. Where GPUs read each other's memory it stays as it is known to work."""
    choose = getattr(torch._C, "_accelerator_setAllocatorSettings", None) or getattr(
        torch._C, "_cuda_cudaCachingAllocator_set_allocator_settings", None
    )
    if choose is not None:
        with suppress(RuntimeError, ValueError):
            choose("expandable_segments:True")


def _why_unusable() -> str:
    """Why torch cannot use the GPUs that are there, or ""."""
    if torch.version.cuda is None and torch.version.hip is None:
        return "this PyTorch is built for the CPU alone; install the build for your GPU (https://pytorch.org/get-started/locally)"
    if not torch.cuda.is_available():
        return "PyTorch does not get along with the driver; install a newer driver"
    return ""


def _real(index: int) -> GpuDevice:
    free, _ = torch.cuda.mem_get_info(index)
    return GpuDevice(index, torch.cuda.get_device_name(index), torch.device("cuda", index), free, emulated=False)


def _clear_libraries() -> None:
    """Lets go of what the library of matrix products keeps for each stream, 32 MiB on Hopper; torch makes it anew when needed."""
    clear = getattr(torch._C, "_cuda_clearCublasWorkspaces", None)
    if clear is not None:
        clear()


class Ledger:
    """All that is held on one device, each tensor once, whoever shares it. For any thread."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._users: dict[int, int] = {}
        self._small = 0
        self._large = 0
        _ledgers.add(self)

    @property
    def nbytes(self) -> int:
        """Bytes that the allocator takes for it."""
        return -(-self._small // SEGMENT) * SEGMENT + self._large

    def take(self, tensor: Tensor) -> None:
        """One more holder of a tensor."""
        with self.lock:
            users = self._users.get(id(tensor), 0)
            self._users[id(tensor)] = users + 1
            if not users:
                self._count(tensor.nbytes, 1)

    def drop(self, tensor: Tensor) -> None:
        """One holder less."""
        with self.lock:
            self._users[id(tensor)] -= 1
            if not self._users[id(tensor)]:
                del self._users[id(tensor)]
                self._count(tensor.nbytes, -1)

    def _count(self, nbytes: int, sign: int) -> None:
        if nbytes <= SMALL_BYTES:
            self._small += sign * -(-nbytes // SMALL_ROUND) * SMALL_ROUND
        else:
            self._large += sign * -(-nbytes // SEGMENT) * SEGMENT


_ledgers: weakref.WeakSet[Ledger] = weakref.WeakSet()
"""Of all devices: what libraries keep goes when nothing of ours is on any of them, for captured graphs point into it."""


class GpuMemory:
    """What one holder has on a device, by owner. Tensors live until all that hold them gave them back or were closed."""

    def __init__(self, device: GpuDevice, ledger: Ledger | None = None) -> None:
        """ledger: of the device, None: nothing else of ours is there."""
        self.device = device
        self.ledger = ledger or Ledger()
        self._held: defaultdict[Owner, list[Tensor]] = defaultdict(list)

    def beside(self) -> GpuMemory:
        """Another holder on the same device."""
        return GpuMemory(self.device, self.ledger)

    @property
    def nbytes(self) -> int:
        """Bytes that the allocator takes for what is held on the device."""
        return self.ledger.nbytes

    @property
    def free(self) -> int:
        """Bytes that are left of the capacity, or that the device has left where others took some."""
        left = self.device.capacity - self.nbytes
        if self.device.emulated:
            return max(0, min(left, psutil.virtual_memory().available))
        there, _ = torch.cuda.mem_get_info(self.device.torch_device)
        stats = torch.cuda.memory_stats_as_nested_dict(self.device.torch_device)  # as one flat dict it takes ten times as long
        reserved, allocated = (
            int(stats[kind]["all"]["current"]) if stats else 0 for kind in ("reserved_bytes", "allocated_bytes")
        )
        return max(0, min(left, int(there) + reserved - allocated))

    def held(self, owner: Owner) -> int:
        """Bytes of one owner, without what rounding adds."""
        with self.ledger.lock:
            return sum(tensor.nbytes for tensor in self._held[owner])

    def owners(self) -> tuple[Owner, ...]:
        """Who holds something."""
        return tuple(owner for owner, tensors in self._held.items() if tensors)

    def require(self, nbytes: int, what: str) -> None:
        """Raises OutOfDeviceMemory where so much is not free."""
        if nbytes > self.free:
            raise self._full(what, nbytes)

    def allocate(self, shape: tuple[int, ...], dtype: torch.dtype, owner: Owner, what: str, *, zeroed: bool = False) -> Tensor:
        """A tensor of the device, uninitialised unless zeroed. what: its name in the sentence of an error.

        Raises:
            OutOfDeviceMemory: nothing has changed. DeviceLost.
        """
        nbytes = math.prod(shape) * dtype.itemsize
        make = torch.zeros if zeroed else torch.empty
        with DRIVER, self.ledger.lock:
            self.require(nbytes, what)
            try:
                with guarded(self.device):
                    tensor = make(shape, dtype=dtype, device=self.device.torch_device)
            except OutOfDeviceMemory as error:
                raise self._full(what, nbytes) from error
            except RuntimeError as error:  # the CPU's allocator
                if not self.device.emulated:
                    raise
                raise self._full(what, nbytes) from error
            return self.share(tensor, owner)

    def share(self, tensor: Tensor, owner: Owner) -> Tensor:
        """Holds a tensor too that another holder has on this device."""
        with self.ledger.lock:
            self._held[owner].append(tensor)
            self.ledger.take(tensor)
            return tensor

    def piece(self, parts: Sequence[Part], owner: Owner, what: str, *, zeroed: bool = False) -> tuple[Tensor, list[Tensor]]:
        """One tensor, which is what is held, and within it tensors of these shapes and types, each from a multiple of ALIGN on.

        A piece of its own for each would take up to 2 MiB more than it holds.

        Raises:
            OutOfDeviceMemory, DeviceLost: see `allocate`.
        """
        sizes = [math.prod(shape) * dtype.itemsize for shape, dtype in parts]
        starts = list(accumulate((-(-nbytes // ALIGN) * ALIGN for nbytes in sizes), initial=0))
        if not starts[-1]:
            room = torch.empty(0, dtype=torch.uint8, device=self.device.torch_device)
            return self.share(room, owner), [torch.empty(shape, dtype=dtype, device=room.device) for shape, dtype in parts]
        room = self.allocate((starts[-1],), torch.uint8, owner, what, zeroed=zeroed)
        pieces = [room[start : start + nbytes] for start, nbytes in zip(starts, sizes, strict=False)]
        return room, [piece.view(dtype).view(shape) for piece, (shape, dtype) in zip(pieces, parts, strict=True)]

    def allocator(self, owner: Owner, what: str) -> Allocate:
        """`allocate` as kernels call it: with the name of a dtype."""

        def allocate(shape: tuple[int, ...], dtype: str) -> Tensor:
            return self.allocate(shape, getattr(torch, dtype), owner, what)

        return allocate

    def give_back(self, tensor: Tensor, owner: Owner) -> None:
        """Drops one tensor."""
        with self.ledger.lock:
            kept = [one for one in self._held[owner] if one is not tensor]
            if len(kept) < len(self._held[owner]):
                self._held[owner] = kept
                self.ledger.drop(tensor)

    def close(self) -> None:
        """Drops everything. Idempotent. Whoever still holds one of the tensors keeps its memory."""
        with self.ledger.lock:
            for tensors in self._held.values():
                for tensor in tensors:
                    self.ledger.drop(tensor)
            self._held.clear()
        if not self.device.emulated:
            with suppress(RuntimeError), DRIVER:  # a lost device has nothing to give back
                if not any(ledger.nbytes for ledger in _ledgers):
                    _clear_libraries()
                torch.cuda.empty_cache()

    def _full(self, what: str, nbytes: int) -> OutOfDeviceMemory:
        return OutOfDeviceMemory(what, str(self.device), nbytes, self.free)
