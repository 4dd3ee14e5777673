"""The weights of one GPU: the bytes of the file, blocks padded where wide loads need it, and what its lane needs beside in f32.

Which tensors lie on the device is known before anything is read: their room is taken first, a piece for each unit, ops are
bound to it, then the bytes are brought. They go through small pinned buffers; no second copy of the model is made in the memory
of the machine. What lies on the device already, for another placement of the model, is shared with that.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from engine.arch.spec import HeadMatrices, Norm, Rope, Temperature
from engine.arch.units import UnitId
from engine.errors import EngineBug
from engine.gguf.info import TensorInfo
from engine.quants.padding import PADDED, padded_bytes
from engine.runtime.derived import derive
from engine.runtime.driver import DRIVER
from engine.runtime.gpu import GpuMemory, guarded
from engine.runtime.gpu_upload import STAGED_BYTES, Piece, Uploader
from engine.runtime.rope_table import RopeTables
from engine.runtime.weights import Weights, no_pause
from engine.triton_kernels.formats import padded as padded_format
from engine.triton_kernels.tensors import Matrix, NormWeight
from kernels_pyx.executor import AbortFlag

ALIGN = 256
"""Where a tensor may begin: a multiple of what one load of any kernel takes."""


class GpuWeights:
    """What the ops of one GPU's lanes name, as tensors there. Tensors live as long as `memory`."""

    def __init__(
        self,
        memory: GpuMemory,
        weights: Weights,
        ropes: RopeTables,
        matrices: Mapping[str, UnitId],
        *,
        f32: bool,
        beside: GpuWeights | None = None,
    ) -> None:
        """Takes the room of the named matrices; each counts once, whoever reads it. f32: see `derived_format`.

        matrices: with the unit that each moves with. beside: what another placement has on this device.

        Raises:
            OutOfMemory: more than the device has. UnsupportedModel, GgufError: see `Weights`.
        """
        self._memory = memory
        self._weights = weights
        self._ropes = ropes
        self._f32 = f32
        self._raw: dict[str, Tensor] = {}
        self._rooms: dict[frozenset[str], Tensor] = {}
        self._lent: set[str] = set()
        self._vectors: dict[str, Tensor] = {}
        self._derived: dict[HeadMatrices, Matrix] = {}
        self._tables: dict[Rope | Temperature, Tensor] = {}
        self._beside = beside
        units: dict[UnitId, set[str]] = {}
        for name, unit in matrices.items():
            units.setdefault(unit, set()).add(name)
        groups = [self._sorted(names) for names in units.values()]
        new = [tensors for tensors in groups if not self._has(tensors)]
        self._tensors = sorted((one for tensors in new for one in tensors), key=lambda one: (one.shard, one.offset))
        self.nbytes = sum(tensor.nbytes for tensor in self._tensors)
        """What is to be brought."""
        if new:
            memory.require(sum(map(_room_bytes, new)), f"the weights of {len(self._tensors)} tensors")
        for tensors in groups:
            self._take_room(tensors)

    def _sorted(self, names: Iterable[str]) -> tuple[TensorInfo, ...]:
        return tuple(sorted(map(self._weights.tensor, names), key=lambda one: (one.shard, one.offset)))

    def _has(self, tensors: tuple[TensorInfo, ...]) -> bool:
        """Whether the other placement has exactly these in a room of their own."""
        return self._beside is not None and frozenset(one.name for one in tensors) in self._beside._rooms

    def _take_room(self, tensors: tuple[TensorInfo, ...]) -> None:
        names = frozenset(one.name for one in tensors)
        if self._beside is not None and self._has(tensors):
            room = self._memory.share(self._beside._rooms[names], "weights")
        else:
            room = self._memory.allocate((_room_bytes(tensors),), torch.uint8, "weights", f"the weights of {len(names)} tensors")
        self._rooms[names] = room
        at = 0
        for tensor in tensors:
            size = padded_bytes(tensor.type_name, tensor.nbytes)
            self._raw[tensor.name] = room[at : at + size]
            at += _aligned(size)

    def format_of(self, name: str) -> str:
        """In which a matrix of the file lies there."""
        return self._weights.tensor(name).type_name

    def lend(self, name: str, room: Tensor) -> None:
        """The bytes of a matrix that somebody else brings as the file holds them, and keeps there while it is read."""
        self._lent.add(name)
        self._raw[name] = room

    def upload(
        self,
        progress: Callable[[int], None],
        abort: AbortFlag,
        pause: Callable[[float], None] = no_pause,
        near: Container[str] = (),
    ) -> None:
        """Brings the bytes of all matrices that were not here. progress(done): bytes so far; pause: see `Building`.

        near: those that lie in the machine's memory, where nobody moves them meanwhile.

        Raises:
            Cancelled: the flag was set. ModelChanged: part of the file is gone. DeviceLost, OutOfMemory.
        """
        done = 0

        def arrived(nbytes: int) -> None:
            nonlocal done
            done += nbytes
            progress(done)

        pieces = list(self._pieces())
        uploader = Uploader(self._memory, self._weights, abort, arrived, pause)
        uploader.carry([piece for piece in pieces if piece.tensor.name in near])
        uploader.read([piece for piece in pieces if piece.tensor.name not in near])

    def _pieces(self) -> Iterator[Piece]:
        for tensor in self._tensors:
            raw = self._raw[tensor.name]
            stored, padded = PADDED.get(tensor.type_name, (0, 0))
            if not stored:
                for start in range(0, tensor.nbytes, STAGED_BYTES):
                    yield Piece(tensor, start, raw[start : start + STAGED_BYTES].view(1, -1))
                continue
            blocks, at_once = raw.view(-1, padded)[:, :stored], STAGED_BYTES // stored
            for first in range(0, len(blocks), at_once):
                yield Piece(tensor, first * stored, blocks[first : first + at_once])

    def _form(self, tensor: TensorInfo, n_in: int) -> tuple[str, int]:
        """The format in which a matrix lies here, and bytes of its rows."""
        name, row_bytes = tensor.type_name, tensor.nbytes * n_in // tensor.n_elements
        return (name, row_bytes) if tensor.name in self._lent else (padded_format(name), padded_bytes(name, row_bytes))

    def matrix(
        self,
        name: str,
        n_in: int,
        *,
        n_matrices: int = 1,
        part: int = 0,
        n_parts: int = 1,
        first: int = 0,
        n_rows: int | None = None,
    ) -> Matrix:
        """One matrix, or n_matrices of one size in a row, of each only one of n_parts equal parts of its rows; or n_rows from
        `first` on.

        Raises:
            UnsupportedModel, GgufError: see `Weights`.
        """
        tensor = self._weights.matrix(name, n_in)
        all_rows = tensor.n_elements // n_in
        rows = all_rows // n_matrices // n_parts
        form, stride = self._form(tensor, n_in)
        return Matrix(
            data=self._bytes(name),
            format=form,
            n_in=n_in,
            n_out=rows if n_rows is None else n_rows,
            row_bytes=stride,
            first=(part * rows + first) * stride,
            n_matrices=n_matrices,
            step=n_parts * rows * stride if n_matrices > 1 else 0,
        )

    def heads(self, part: HeadMatrices) -> Matrix:
        """The matrices of all heads, n_matrices of them; made here where the file holds them the wrong way round."""
        if not part.transposed:
            tensor = self._weights.matrix(part.weight, part.n_in)
            format, row_bytes = self._form(tensor, part.n_in)
            first, step = part.first * row_bytes, part.step * row_bytes
            return Matrix(self._bytes(part.weight), format, part.n_in, part.n_out, row_bytes, first, part.n_heads, step)
        if self._beside is not None and part in self._beside._derived and part not in self._derived:
            there = self._beside._derived[part]
            self._memory.share(there.data, "derived")
            self._derived[part] = there
        if part not in self._derived:
            raw, form = derive(self._weights, part, f32=self._f32)
            row_bytes = form.row_bytes(part.n_in)
            data = self._kept(raw, f"a turned copy of {part.weight}")
            step = part.n_out * row_bytes
            self._derived[part] = Matrix(data, form.name, part.n_in, part.n_out, row_bytes, 0, part.n_heads, step)
        return self._derived[part]

    def vector(self, name: str) -> Tensor:
        """A small tensor in f32, [n]."""
        return self._once("_vectors", name, name, lambda: self._weights.vector(name))

    def transposed(self, name: str, n_rows: int) -> Tensor:
        """A small matrix in f32, [n_rows, n] from what is [n, n_rows] in the file."""
        key = f"{name} transposed"
        return self._once("_vectors", key, name, lambda: np.ascontiguousarray(self._weights.vector(name).reshape(-1, n_rows).T))

    def norm(self, norm: Norm) -> NormWeight:
        """The weight of a norm."""
        return NormWeight(self.vector(norm.weight), norm.eps)

    def rope(self, rope: Rope) -> Tensor:
        """Cosines and sines, [n_positions, n_rot] f32."""
        return self._once("_tables", rope, "the table of positions", lambda: self._ropes.of(rope))

    def factors(self, temperature: Temperature) -> Tensor:
        """What queries of each position are multiplied with, [n_positions] f32."""
        return self._once("_tables", temperature, "the table of positions", lambda: self._ropes.factors(temperature))

    def settle(self) -> None:
        """The other placement is no more: what is not shared by now will be made anew."""
        self._beside = None

    def close(self) -> None:
        """Lets go of every tensor. Idempotent."""
        self._beside = None
        for kept in (self._raw, self._rooms, self._vectors, self._derived, self._tables):
            kept.clear()

    def _bytes(self, name: str) -> Tensor:
        if name not in self._raw:
            raise EngineBug(f"{name} is read by {self._memory.device}, where it was not placed")
        return self._raw[name]

    def _once(self, kind: str, key: Hashable, what: str, make: Callable[[], npt.NDArray[np.generic]]) -> Tensor:
        """What is kept under a key: shared with the other placement, or made here."""
        kept: dict[Hashable, Tensor] = getattr(self, kind)
        if key not in kept:
            there = None if self._beside is None else getattr(self._beside, kind).get(key)
            kept[key] = self._kept(make(), what) if there is None else self._memory.share(there, "derived")
        return kept[key]

    def _kept(self, values: npt.NDArray[np.generic], what: str) -> Tensor:
        source = torch.from_numpy(values)
        tensor = self._memory.allocate(tuple(source.shape), source.dtype, "derived", what)
        with guarded(self._memory.device), DRIVER:
            tensor.copy_(source)
        return tensor


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGN) * ALIGN


def _room_bytes(tensors: Iterable[TensorInfo]) -> int:
    """Bytes of a room in which these lie one behind the other."""
    return sum(_aligned(padded_bytes(one.type_name, one.nbytes)) for one in tensors)
