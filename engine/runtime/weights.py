"""The weights of a model: its files mapped read-only, and where each tensor lies in them."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import numpy as np
import numpy.typing as npt

from engine.errors import Cancelled, GgufError, ModelChanged, UnsupportedModel
from engine.gguf.info import GgufFile, ShardInfo, TensorInfo
from engine.hardware.memory import total_bytes
from engine.quants.formats import BY_ID
from engine.quants.reference import dequantise
from engine.runtime.owning import Owning, pieces_of
from engine.runtime.pins import Pins
from kernels_pyx.executor import AbortFlag
from kernels_pyx.guard import MappedFile

TOUCH_BYTES = 8 << 20
"""Progress is told, and a cancel noticed, at least this often."""

PINNED_SHARE = 0.5
"""Of the machine's memory, that the driver of GPUs may keep from being swapped or moved."""


def no_pause(seconds: float) -> None:
    """Nobody waits."""


class Weights:
    """Owns the mappings; addresses are valid until `close`. Reading is for any thread: a placement is built beside another."""

    def __init__(self, file: GgufFile) -> None:
        """Maps every shard.

        Raises:
            GgufError: a shard that cannot be opened. ModelChanged: the file is not the one whose header was read.
        """
        self._file = file
        self.pins = Pins(int(PINNED_SHARE * total_bytes()))
        """What GPUs read where it lies."""
        self._maps: list[MappedFile] = []
        self._vectors: dict[str, npt.NDArray[np.float32]] = {}
        self._turned: dict[str, npt.NDArray[np.float32]] = {}
        self._lock = threading.RLock()  # who is given a vector has its address: there may be only one of each
        try:
            for shard in file.shards:
                self._maps.append(MappedFile(shard.path))
            self.check_identity()
        except OSError as error:
            self.close()
            raise GgufError(
                f"{error.filename or file.path}: {error.strerror or error}; check that the file can be read"
            ) from error
        except ModelChanged:
            self.close()
            raise

    def matrix(self, name: str, n_in: int) -> TensorInfo:
        """The tensor of a linear layer or embedding with rows of n_in values, known to have kernels.

        Raises:
            UnsupportedModel: a type without kernels. GgufError: absent, or of another shape.
        """
        tensor = self.tensor(name)
        fmt = BY_ID.get(tensor.type_id)
        if fmt is None:
            supported = ", ".join(sorted(row.name for row in BY_ID.values()))
            raise UnsupportedModel(f"tensor {name} is of type {tensor.type_name}, which has no kernels; supported: {supported}")
        if not tensor.shape or tensor.shape[0] != n_in or n_in % fmt.block:
            raise GgufError(f"tensor {name} has shape {tensor.shape}, but rows of {n_in} values are needed; get the file again")
        return tensor

    def address(self, tensor: TensorInfo) -> int:
        """Where the data of a tensor begins."""
        return self._maps[tensor.shard].address + tensor.offset

    def vector(self, name: str) -> npt.NDArray[np.float32]:
        """A small tensor in f32, [n]: a copy that lives as long as the weights.

        Raises:
            UnsupportedModel: a type that cannot be read. GgufError: absent.
        """
        with self._lock:
            if name not in self._vectors:
                self._vectors[name] = self.values(name).reshape(-1).copy()
            return self._vectors[name]

    def values(self, name: str) -> npt.NDArray[np.float32]:
        """A tensor in f32, numpy order; nothing of it is kept.

        Raises:
            UnsupportedModel: a type that cannot be read. GgufError: absent. ModelChanged: the file is gone.
        """
        tensor = self.tensor(name)
        if tensor.type_id not in BY_ID:
            raise UnsupportedModel(f"tensor {name} is of type {tensor.type_name}, which this version cannot read")
        return dequantise(tensor.type_name, self._bytes(tensor)).reshape(tuple(reversed(tensor.shape)))

    def transposed(self, name: str, n_rows: int) -> npt.NDArray[np.float32]:
        """A small matrix in f32, [n_rows, n] from what is [n, n_rows] in the file; raises like `vector`, lives until
        `keep_turned` is told of others."""
        with self._lock:
            if name not in self._turned:
                self._turned[name] = np.ascontiguousarray(self.vector(name).reshape(-1, n_rows).T)
            return self._turned[name]

    @property
    def derived_bytes(self) -> int:
        """Bytes of what was transposed."""
        return sum(one.nbytes for one in self._turned.values())

    def keep_turned(self, names: Collection[str]) -> None:
        """Nobody reads what was transposed of other tensors any more."""
        with self._lock:
            self._turned = {name: one for name, one in self._turned.items() if name in names}

    def tensor(self, name: str) -> TensorInfo:
        """Raises GgufError where the file has no such tensor."""
        tensor = self._file.tensors.get(name)
        if tensor is None:
            raise GgufError(f"tensor {name} is missing; the file is incomplete, get it again")
        return tensor

    def read_into(self, tensor: TensorInfo, start: int, into: npt.NDArray[np.uint8]) -> None:
        """Fills `into`, [n], with the bytes of a tensor from `start` on, by reading the file. For any thread.

        Raises:
            ModelChanged: the file has become shorter or cannot be read.
        """
        try:
            self._maps[tensor.shard].read_into(tensor.offset + start, into)
        except OSError as error:
            raise self._unreadable(tensor, error) from error

    def forget(self, tensor: TensorInfo, start: int, nbytes: int) -> None:
        """The system's cache of the file may let go of these bytes of a tensor, which were copied. For any thread."""
        self._maps[tensor.shard].forget(tensor.offset + start, nbytes)

    def _bytes(self, tensor: TensorInfo) -> npt.NDArray[np.uint8]:
        try:
            return np.frombuffer(self._maps[tensor.shard].read(tensor.offset, tensor.nbytes), np.uint8)
        except OSError as error:
            raise self._unreadable(tensor, error) from error

    def _unreadable(self, tensor: TensorInfo, error: OSError) -> ModelChanged:
        name = self._file.shards[tensor.shard].path.name
        return ModelChanged(f"{name} could not be read any more ({error}); load it again")

    def touch(
        self,
        names: Iterable[str],
        progress: Callable[[int, int], None],
        abort: AbortFlag,
        pause: Callable[[float], None] = no_pause,
        n_threads: int = 1,
    ) -> int:
        """Brings the named tensors into memory, in file order; returns their bytes. progress(done, total) in bytes.

        pause: told behind each piece how many seconds it took. n_threads: more than one where most of it is in memory already,
        which has to be found out.

        Raises:
            Cancelled: the flag was set. ModelChanged: part of the file is gone.
        """
        tensors = sorted((self.tensor(name) for name in set(names)), key=lambda one: (one.shard, one.offset))
        total = sum(tensor.nbytes for tensor in tensors)
        done = 0
        progress(0, total)

        def bring(window: tuple[int, int, int]) -> int:
            shard, start, size = window
            if abort.is_set:
                raise Cancelled("loading was stopped")
            started = time.perf_counter()
            self._maps[shard].touch(start, size, abort)
            pause(time.perf_counter() - started)
            if abort.is_set:
                raise Cancelled("loading was stopped")
            return size

        windows = list(_windows(tensors))
        with ThreadPoolExecutor(n_threads, "touch") if n_threads > 1 and windows else nullcontext() as threads:
            for size in map(bring, windows) if threads is None else threads.map(bring, windows):
                done += size
                progress(done, total)
        self.check_lost()
        return total

    def owning(self, shares: Mapping[str, float], n_threads: int, promised_bytes: int, earlier: Owning | None = None) -> Owning:
        """What takes the named tensors into memory of our own. shares: the part of each that a decoded token reads.

        earlier: what did so for others, and ends; what it took and is read no more is given back.
        """
        pieces = tuple(pieces_of(self._maps, map(self.tensor, shares), shares))
        taken = () if earlier is None else earlier.hand_over()
        return Owning(self._maps, pieces, n_threads, promised_bytes, taken=taken, pins=self.pins)

    def check_lost(self) -> None:
        """Raises ModelChanged when the system could not deliver a part of a mapped file."""
        for mapped in self._maps:
            if mapped.lost:
                raise ModelChanged(f"{mapped.path.name} became shorter or unreadable while it was in use; load it again")

    def check_identity(self) -> None:
        """Raises ModelChanged when a file is not the one that was opened, byte for byte as the system can tell."""
        for shard, mapped in zip(self._file.shards, self._maps, strict=True):
            if not _same(shard, mapped.stat()) or not _same_name(shard):
                raise ModelChanged(f"{shard.path.name} changed on disk since it was loaded; load it again")

    def close(self) -> None:
        """Unmaps everything. Idempotent."""
        self.pins.close()
        for mapped in self._maps:
            mapped.close()
        self._maps.clear()
        self._vectors.clear()
        self._turned.clear()


def _windows(tensors: Iterable[TensorInfo]) -> Iterator[tuple[int, int, int]]:
    for tensor in tensors:
        for start in range(0, tensor.nbytes, TOUCH_BYTES):
            yield tensor.shard, tensor.offset + start, min(TOUCH_BYTES, tensor.nbytes - start)


def _same(shard: ShardInfo, now: os.stat_result) -> bool:
    was = shard.identity
    return (was.dev, was.ino, was.size, was.mtime_ns) == (now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns)


def _same_name(shard: ShardInfo) -> bool:
    """Whether the path still names the open file. A deleted file goes on working: its bytes stay until it is closed."""
    try:
        now = shard.path.stat()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return (now.st_dev, now.st_ino) == (shard.identity.dev, shard.identity.ino)
