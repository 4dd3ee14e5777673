"""Caches and states of layers that change their device: blocks and slots from one memory's layout to the other's.

Raw bytes, as the CPU has them, cross; the GPU takes them apart or puts them together, for which it has the bandwidth. Imports
torch: something moves only where a GPU has a part.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from engine.arch.cache_groups import groups_of
from engine.arch.spec import Attention, DeltaNet, Mla, ModelSpec
from engine.errors import OutOfMemory
from engine.estimate.cache import SCALE_GROUP
from engine.placement.options import KvType
from engine.placement.placement import Device, Gpu, Placement
from engine.runtime.driver import DRIVER
from engine.runtime.gpu import GpuDevice, guarded
from engine.runtime.gpu_executor import GpuExecutor
from engine.runtime.kv_cache import BLOCK, layer_bytes
from engine.runtime.pinned import bytes_of
from engine.runtime.placed import Placed
from engine.runtime.weights import no_pause
from engine.runtime.written import I64, Live
from kernels_pyx.arena import Arena
from kernels_pyx.executor import v_pad

PIECE_BYTES = 16 << 20
"""Copied at a time."""
_TYPES = {"f32": torch.float32, "f16": torch.float16, "q8_0": torch.int8, "int8": torch.int8}
Pairs = list[tuple[Tensor, Tensor]]
"""(view of raw bytes, the same values of a GPU's tensor); both [n, ...], n of blocks or slots."""


@dataclass(frozen=True, slots=True)
class _Host:
    """A layer's blocks or slots on the CPU: uint8 [n, nbytes]."""

    raw: Tensor


@dataclass(frozen=True, slots=True)
class _Card:
    """The same on a GPU, as its tensors. `pairs(raw)`: which values of raw bytes of some blocks are which of the tensors'."""

    device: GpuDevice
    tensors: tuple[Tensor, ...]
    views: Callable[[Tensor, tuple[Tensor, ...]], Pairs]


@dataclass(frozen=True, slots=True)
class _Layer:
    """One layer on its way. group: of its blocks, None: it has states. nbytes: of a block or slot on the CPU."""

    source: _Host | _Card
    target: _Host | _Card
    group: int | None
    nbytes: int


class CacheCopy:
    """All layers whose cache or state lies elsewhere in another placement of a model."""

    def __init__(self, spec: ModelSpec, now: Placed, then: Placed) -> None:
        self._apart = then.executor.peers.apart if isinstance(then.executor, GpuExecutor) else frozenset()
        was, will = places_of(now.placement), places_of(then.placement)
        moved = [block.index for block in spec.blocks if _moves(was[block.index], will[block.index])]
        self._layers = [
            _layer(spec, layer, _end(spec, layer, was[layer], now), _end(spec, layer, will[layer], then), now) for layer in moved
        ]
        self.nbytes = 0
        """Bytes that crossed by now."""
        ends = [end for one in self._layers for end in (one.source, one.target)]
        self._pinned = any(isinstance(end, _Card) and not end.device.emulated for end in ends)
        self._stage: Tensor | None = None

    @property
    def moves(self) -> bool:
        """Whether there is anything to copy."""
        return bool(self._layers)

    def take_room(self) -> None:
        """Takes the memory that copies go through. Raises: OutOfMemory."""
        if not self._layers:
            return
        size = max(PIECE_BYTES, *(one.nbytes for one in self._layers))
        try:
            with DRIVER:
                self._stage = torch.empty(size, dtype=torch.uint8, pin_memory=self._pinned)
        except RuntimeError as error:
            raise OutOfMemory(f"{size:,} bytes through which caches move could not be had; close other programs") from error

    def bring(self, live: Live, pause: Callable[[float], None] = no_pause) -> None:
        """Copies these blocks and slots of all layers, and waits for them. pause: see `Building`.

        Raises:
            OutOfDeviceMemory, DeviceLost.
        """
        for layer in self._layers:
            wanted = live.slots if layer.group is None else live.blocks[layer.group]
            for part in _parts(wanted, layer.nbytes):
                started = time.perf_counter()
                self._bring(layer, torch.from_numpy(part))
                self.nbytes += layer.nbytes * len(part)
                pause(time.perf_counter() - started)

    def _bring(self, layer: _Layer, index: Tensor) -> None:
        cards = [end.device for end in (layer.source, layer.target) if isinstance(end, _Card)]
        with guarded(cards[0]), torch.inference_mode():
            with DRIVER:
                arrives = self._enqueue(layer, index)
            for card in cards:
                if not card.emulated:
                    torch.cuda.current_stream(card.torch_device).synchronize()
            if isinstance(layer.target, _Host):
                # Not by torch, which would wake a thread for each core, among workers that have them all.
                layer.target.raw.numpy()[index.numpy()] = arrives.numpy()

    def _enqueue(self, layer: _Layer, index: Tensor) -> Tensor:
        """The copies that cards make; where bytes are on their way to or from."""
        source, target = layer.source, layer.target
        stage = self._staged(len(index), layer.nbytes)
        if isinstance(source, _Host) and isinstance(target, _Card):
            np.take(source.raw.numpy(), index.numpy(), axis=0, out=stage.numpy(), mode="clip")
            raw = stage.to(target.device.torch_device, non_blocking=True)
            here = index.to(target.device.torch_device)
            for view, tensor in target.views(raw, target.tensors):
                tensor.index_copy_(0, here, view)
        elif isinstance(source, _Card) and isinstance(target, _Card):
            there, here = index.to(source.device.torch_device), index.to(target.device.torch_device)
            reach = (Gpu(source.device.index), Gpu(target.device.index)) not in self._apart
            for one, other in zip(source.tensors, target.tensors, strict=True):
                rows = one.index_select(0, there)
                other.index_copy_(0, here, (rows if reach else rows.cpu()).to(other.device))
        elif isinstance(source, _Card):
            there = index.to(source.device.torch_device)
            raw = torch.zeros((len(index), layer.nbytes), dtype=torch.uint8, device=source.device.torch_device)
            for view, tensor in source.views(raw, source.tensors):
                view.copy_(tensor.index_select(0, there))
            stage.copy_(raw, non_blocking=True)
        return stage

    def _staged(self, n: int, nbytes: int) -> Tensor:
        assert self._stage is not None
        return self._stage[: n * nbytes].view(n, nbytes)


def _parts(wanted: I64, nbytes: int) -> Iterator[I64]:
    size = max(1, PIECE_BYTES // nbytes)
    for start in range(0, len(wanted), size):
        yield np.ascontiguousarray(wanted[start : start + size])


def places_of(placement: Placement) -> dict[int, Device]:
    """Where the cache or the state of each layer lies."""
    return {unit.layer: device for unit, device in placement.units if unit.kind in ("kv", "state")}


def _moves(was: Device, will: Device) -> bool:
    """From one node of memory to another the cache is the same memory, whose pages follow."""
    return was != will and (isinstance(was, Gpu) or isinstance(will, Gpu))


def _layer(spec: ModelSpec, layer: int, source: _Host | _Card, target: _Host | _Card, now: Placed) -> _Layer:
    mixer = spec.blocks[layer].mixer
    if isinstance(mixer, DeltaNet):
        return _Layer(source, target, None, 4 * mixer.shape.state_floats)
    nbytes = sum(layer_bytes(spec, layer, now.placement.k_type, now.placement.v_type))
    return _Layer(source, target, groups_of(spec)[layer], nbytes)


def _end(spec: ModelSpec, layer: int, where: Device, placed: Placed) -> _Host | _Card:
    mixer = spec.blocks[layer].mixer
    if not isinstance(where, Gpu):
        if isinstance(mixer, DeltaNet):
            state = placed.states.layers[layer]
            return _Host(_rows(state.arena, state.slot_bytes))
        cache = placed.cache.layers[layer]
        return _Host(_rows(cache.arena, cache.block_bytes))
    assert isinstance(placed.executor, GpuExecutor)
    side = next(one for one in placed.executor.sides if one.name == where)
    if isinstance(mixer, DeltaNet):
        own = side.cache.states[layer]
        return _Card(side.device, (own.inputs, own.matrices), _state_views)
    found = side.cache.caches[layer]
    form = _Form(mixer, placed.placement.k_type, placed.placement.v_type)
    tensors = (found.keys, found.k_scales, found.values, found.v_scales)
    return _Card(side.device, tuple(one for one in tensors if one is not None), form.views)


def _rows(arena: Arena, nbytes: int) -> Tensor:
    return bytes_of(arena).view(-1, nbytes)


def _state_views(raw: Tensor, tensors: tuple[Tensor, ...]) -> Pairs:
    """Inputs of the convolution, then matrices, as `StatePool` has them."""
    inputs, matrices = tensors
    floats = raw.view(torch.float32)
    n = inputs[0].numel()
    return [
        (floats[:, :n].view(-1, *inputs.shape[1:]), inputs),
        (floats[:, n:].view(-1, *matrices.shape[1:]), matrices),
    ]


@dataclass(frozen=True, slots=True)
class _Form:
    """How a block lies on the CPU (`ld_kv_head_bytes`, kernels_pyx/c/op.h) and on a GPU (`triton_kernels.tensors.Cache`)."""

    mixer: Attention | Mla
    k_type: KvType
    v_type: KvType

    def views(self, raw: Tensor, tensors: tuple[Tensor, ...]) -> Pairs:
        """tensors: keys, their scales if there are any, values, their scales."""
        mixer, left = self.mixer, list(tensors)
        if isinstance(mixer, Mla):
            return self._part(raw, left, 1, mixer.latent, mixer.latent, self.k_type, _latent)
        heads, pad = mixer.n_kv_heads, v_pad(mixer.v_dim)
        size = heads * _head_bytes(mixer.head_dim, self.k_type)
        found = self._part(raw[:, :size], left, heads, mixer.head_dim, mixer.head_dim, self.k_type, _turned)
        return found + self._part(raw[:, size:], left, heads, mixer.v_dim, pad, self.v_type, _straight)

    def _part(
        self,
        raw: Tensor,
        left: list[Tensor],
        heads: int,
        dim: int,
        width: int,
        kind: KvType,
        view: Callable[[Tensor, Tensor, int, int], tuple[Tensor, Tensor]],
    ) -> Pairs:
        """Keys or values. width: of a row on the CPU, of which dim are used; left: tensors to go, of which it takes its own."""
        per = _head_bytes(width, kind)
        by_head = raw.unflatten(1, (heads, per))
        size = width * BLOCK * _TYPES[kind].itemsize
        found = [view(by_head[:, :, :size].view(_TYPES[kind]), left.pop(0), dim, width)]
        if kind in ("q8_0", "int8"):
            scales = left.pop(0)
            rows = by_head[:, :, size:].view(torch.float16).unflatten(2, (-1, BLOCK))
            found.append((rows.transpose(2, 3), scales))
        return found


def _head_bytes(dim: int, kind: KvType) -> int:
    """Bytes of one head's part of a block on the CPU."""
    if kind in ("f32", "f16"):
        return dim * BLOCK * _TYPES[kind].itemsize
    return dim * BLOCK + (-(-dim // SCALE_GROUP) if kind == "q8_0" else 1) * BLOCK * 2


def _latent(values: Tensor, tensor: Tensor, dim: int, width: int) -> tuple[Tensor, Tensor]:
    """Rows as they are."""
    return values.unflatten(2, (BLOCK, width)), tensor


def _turned(values: Tensor, tensor: Tensor, dim: int, width: int) -> tuple[Tensor, Tensor]:
    """Keys: [dim][BLOCK], of 8 bits [dim / 2][BLOCK][2]."""
    if values.dtype != torch.int8:
        return values.unflatten(2, (width, BLOCK)).transpose(2, 3), tensor
    return values.unflatten(2, (width // 2, BLOCK, 2)).transpose(2, 3), tensor.unflatten(3, (-1, 2))


def _straight(values: Tensor, tensor: Tensor, dim: int, width: int) -> tuple[Tensor, Tensor]:
    """Values: [BLOCK][width], of 8 bits [BLOCK / 2][width][2]."""
    if values.dtype != torch.int8:
        return values.unflatten(2, (BLOCK, width))[..., :dim], tensor
    pairs = values.unflatten(2, (BLOCK // 2, width, 2))[..., :dim, :]
    return pairs.transpose(3, 4), tensor.unflatten(2, (-1, 2))
