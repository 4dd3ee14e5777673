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
from engine.runtime.residency import Owner
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
    ) -> None:
        """Zeroed, so that no stale value is ever read as a number that is not finite. layers: those that lie here.

        Raises:
            OutOfMemory: more than the device has.
        """
        self.caches: dict[int, Cache] = {}
        self.states: dict[int, DeltaState] = {}
        self.kv_bytes = self.kept_bytes = self.state_bytes = 0
        group_of: Mapping[int, int] = groups_of(spec)
        mixers = {block.index: block.mixer for block in spec.blocks if block.index in layers}
        paged = {layer: mixer for layer, mixer in mixers.items() if not isinstance(mixer, DeltaNet)}
        recurrent = {layer: mixer for layer, mixer in mixers.items() if isinstance(mixer, DeltaNet)}
        of_layer = {layer: _pools(mixer, groups[group_of[layer]].n_blocks + 1, k_type, v_type) for layer, mixer in paged.items()}
        n_tokens = BLOCK * max((group.n_blocks + 1 for group in groups), default=0)
        made = _deal(memory, of_layer, "kv", f"the cache for {n_tokens} tokens")
        for layer, tensors in made.items():
            group = groups[group_of[layer]]
            self.caches[layer] = _cache(tensors, group_of[layer])
            nbytes = sum(one.nbytes for one in tensors)
            kept = nbytes * (group.n_blocks - group.n_needed) // (group.n_blocks + 1)
            self.kept_bytes += kept
            self.kv_bytes += nbytes - kept
        states = {layer: _state(mixer, n_slots + 1) for layer, mixer in recurrent.items()}
        for layer, (inputs, matrices) in _deal(memory, states, "state", "the state of recurrent layers").items():
            self.states[layer] = DeltaState(inputs, matrices)
            self.state_bytes += inputs.nbytes + matrices.nbytes

    def close(self) -> None:
        """Lets go of every tensor. Idempotent."""
        self.caches.clear()
        self.states.clear()


def _deal(memory: GpuMemory, parts: dict[int, list[Part]], owner: Owner, what: str) -> dict[int, list[Tensor]]:
    """The parts of each layer, all in one piece of memory."""
    made = iter(memory.allocate_together([part for own in parts.values() for part in own], owner, what, zeroed=True))
    return {layer: [next(made) for _ in own] for layer, own in parts.items()}


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
