"""Keys, values and states of the layers whose memory lies on one GPU: the same block ids and slots as on the CPU, other layouts.

Behind the blocks that are dealt out lies one more, and behind the slots too: what padding rows of a bucket write.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from engine.arch.cache_groups import groups_of
from engine.arch.spec import Attention, DeltaNet, Mla, ModelSpec
from engine.placement.options import KvType
from engine.runtime.cache_groups import BLOCK, CacheGroup
from engine.runtime.gpu import GpuMemory, Part
from engine.triton_kernels.tensors import Cache, DeltaState

GROUP = 32
"""Values that share a scale in q8_0."""
_TYPES = {"f32": torch.float32, "f16": torch.float16, "q8_0": torch.int8, "int8": torch.int8}


class GpuCache:
    """caches, states: by layer. kv_bytes, kept_bytes, state_bytes: as `engine.runtime.residency` tells them apart."""

    def __init__(
        self,
        memory: GpuMemory,
        spec: ModelSpec,
        layers: frozenset[int],
        groups: tuple[CacheGroup, ...],
        k_type: KvType,
        v_type: KvType,
        n_slots: int,
        beside: GpuCache | None = None,
    ) -> None:
        """Zeroed, so that no stale value is ever read as a number that is not finite. layers: those that lie here.

        beside: what another placement has on this device, whose layers are shared with it.

        Raises:
            OutOfMemory: more than the device has.
        """
        self.caches: dict[int, Cache] = {}
        self.states: dict[int, DeltaState] = {}
        self.kv_bytes = self.kept_bytes = self.state_bytes = 0
        self._memory = memory
        self._rooms: dict[int, Tensor] = {}
        group_of: Mapping[int, int] = groups_of(spec)
        for block in spec.blocks:
            index, mixer = block.index, block.mixer
            if index not in layers:
                continue
            if isinstance(mixer, DeltaNet):
                self._take_state(index, mixer, n_slots + 1, beside)
                continue
            group = groups[group_of[index]]
            nbytes = self._take_cache(index, mixer, group.n_blocks + 1, group_of[index], (k_type, v_type), beside)
            kept = nbytes * (group.n_blocks - group.n_needed) // (group.n_blocks + 1)
            self.kept_bytes += kept
            self.kv_bytes += nbytes - kept

    def _take_cache(
        self, layer: int, mixer: Attention | Mla, n_blocks: int, group: int, kinds: tuple[KvType, KvType], beside: GpuCache | None
    ) -> int:
        """The bytes of one layer's cache, shared or made in one piece: another for each part would take up to 2 MiB more."""
        if beside is not None and layer in beside.caches:
            self._rooms[layer] = self._memory.share(beside._rooms[layer], "kv")
            self.caches[layer] = beside.caches[layer]
        else:
            what = f"the cache for {n_blocks * BLOCK} tokens"
            self._rooms[layer], tensors = self._memory.piece(_pools(mixer, n_blocks, *kinds), "kv", what, zeroed=True)
            self.caches[layer] = _cache(tensors, group)
        made = self.caches[layer]
        return sum(one.nbytes for one in (made.keys, made.values, made.k_scales, made.v_scales) if one is not None)

    def _take_state(self, layer: int, mixer: DeltaNet, n_slots: int, beside: GpuCache | None) -> None:
        if beside is not None and layer in beside.states:
            self._rooms[layer] = self._memory.share(beside._rooms[layer], "state")
            made = beside.states[layer]
        else:
            what = "the state of recurrent layers"
            self._rooms[layer], tensors = self._memory.piece(_state(mixer, n_slots), "state", what, zeroed=True)
            made = DeltaState(*tensors)
        self.states[layer] = made
        self.state_bytes += made.inputs.nbytes + made.matrices.nbytes

    def close(self) -> None:
        """Lets go of every tensor. Idempotent."""
        self.caches.clear()
        self.states.clear()
        self._rooms.clear()


def _pools(mixer: Attention | Mla, n_blocks: int, k_type: KvType, v_type: KvType) -> list[Part]:
    """Keys and their scales, values and theirs; scales of nothing where numbers have none, values where rows are latent."""
    if isinstance(mixer, Mla):
        return _pool(n_blocks, 1, mixer.latent, k_type)
    return [
        *_pool(n_blocks, mixer.n_kv_heads, mixer.head_dim, k_type),
        *_pool(n_blocks, mixer.n_kv_heads, mixer.v_dim, v_type),
    ]


def _pool(n_blocks: int, n_heads: int, dim: int, kind: KvType) -> list[Part]:
    """Codes or numbers, and scales, of which numbers have none."""
    n_groups = 0 if kind in ("f32", "f16") else -(-dim // GROUP) if kind == "q8_0" else 1
    shape = n_blocks, n_heads, BLOCK
    return [((*shape, dim), _TYPES[kind]), ((*shape, n_groups), torch.float16)]


def _cache(tensors: list[Tensor], group: int) -> Cache:
    """The cache of what `_pools` lists."""
    pools = [one if one.numel() else None for one in tensors]
    values, v_scales = pools[2:] if len(pools) > 2 else (None, None)
    return Cache(tensors[0], values, pools[1], v_scales, group)


def _state(mixer: DeltaNet, n_slots: int) -> list[Part]:
    shape = mixer.shape
    inputs: Part = (n_slots, shape.n_taps - 1, shape.n_channels), torch.float32
    return [inputs, ((n_slots, shape.n_v_heads, shape.dim, shape.dim), torch.float32)]
