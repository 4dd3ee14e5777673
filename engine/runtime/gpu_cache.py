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
from engine.runtime.gpu import GpuMemory
from engine.triton_kernels.tensors import Cache, DeltaState

GROUP = 32
"""Values that share a scale in q8_0."""
_TYPES = {"f32": torch.float32, "f16": torch.float16, "q8_0": torch.int8, "int8": torch.int8}


class GpuCache:
    """caches, states: by layer. kv_bytes, kept_bytes: as `engine.runtime.residency` tells them apart."""

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
        self.kv_bytes = self.kept_bytes = 0
        self._memory = memory
        group_of: Mapping[int, int] = groups_of(spec)
        for block in spec.blocks:
            if block.index not in layers:
                continue
            if isinstance(block.mixer, DeltaNet):
                there = None if beside is None else beside.states.get(block.index)
                self.states[block.index] = self._state(block.mixer, n_slots) if there is None else self._share_state(there)
                continue
            index = group_of[block.index]
            group = groups[index]
            known = None if beside is None else beside.caches.get(block.index)
            made = self._cache(block.mixer, group.n_blocks + 1, index, k_type, v_type) if known is None else self._share(known)
            self.caches[block.index] = made
            nbytes = sum(one.nbytes for one in (made.keys, made.values, made.k_scales, made.v_scales) if one is not None)
            kept = nbytes * (group.n_blocks - group.n_needed) // (group.n_blocks + 1)
            self.kept_bytes += kept
            self.kv_bytes += nbytes - kept

    def _share(self, cache: Cache) -> Cache:
        for tensor in (cache.keys, cache.values, cache.k_scales, cache.v_scales):
            if tensor is not None:
                self._memory.share(tensor, "kv")
        return cache

    def _share_state(self, state: DeltaState) -> DeltaState:
        self._memory.share(state.inputs, "state")
        self._memory.share(state.matrices, "state")
        return state

    def _cache(self, mixer: Attention | Mla, n_blocks: int, group: int, k_type: KvType, v_type: KvType) -> Cache:
        if isinstance(mixer, Mla):
            keys, k_scales = self._part(n_blocks, 1, mixer.latent, k_type)
            return Cache(keys, None, k_scales, None, group)
        keys, k_scales = self._part(n_blocks, mixer.n_kv_heads, mixer.head_dim, k_type)
        values, v_scales = self._part(n_blocks, mixer.n_kv_heads, mixer.v_dim, v_type)
        return Cache(keys, values, k_scales, v_scales, group)

    def _part(self, n_blocks: int, n_heads: int, dim: int, kind: KvType) -> tuple[Tensor, Tensor | None]:
        what = f"the cache for {n_blocks * BLOCK} tokens"
        data = self._memory.allocate((n_blocks, n_heads, BLOCK, dim), _TYPES[kind], "kv", what, zeroed=True)
        if kind in ("f32", "f16"):
            return data, None
        n_groups = -(-dim // GROUP) if kind == "q8_0" else 1
        scales = self._memory.allocate((n_blocks, n_heads, BLOCK, n_groups), torch.float16, "kv", what, zeroed=True)
        return data, scales

    def _state(self, mixer: DeltaNet, n_slots: int) -> DeltaState:
        shape, what = mixer.shape, "the state of recurrent layers"
        inputs = (n_slots + 1, shape.n_taps - 1, shape.n_channels)
        matrices = (n_slots + 1, shape.n_v_heads, shape.dim, shape.dim)
        return DeltaState(
            self._memory.allocate(inputs, torch.float32, "state", what, zeroed=True),
            self._memory.allocate(matrices, torch.float32, "state", what, zeroed=True),
        )

    def close(self) -> None:
        """Lets go of every tensor. Idempotent."""
        self.caches.clear()
        self.states.clear()
