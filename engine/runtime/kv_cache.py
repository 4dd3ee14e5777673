"""The paged cache of keys and values: a pool of blocks for each cache group, a block with the keys and values of all its layers.

So a pool takes memory block by block as contexts grow; that of layers with a window never grows beyond some windows. Within a
layer's part of a block, per KV head: keys as [head_dim][BLOCK] (transposed: scores of a whole block come from contiguous loads),
values as [BLOCK][v_dim rounded up to 16]; 8-bit ones with their scales behind them, [group][BLOCK]. Latent attention has one row
for all heads instead, [BLOCK][rank + n_rot].
"""

from __future__ import annotations

from dataclasses import dataclass

import psutil

from engine.arch.cache_groups import groups_of
from engine.arch.spec import ModelSpec
from engine.errors import OutOfMemory
from engine.estimate.cache import BLOCK, DEFAULT_CTX, CacheGroup, context_of, layer_bytes, plan_groups, token_bytes
from engine.placement.options import KvType
from kernels_pyx.arena import Arena

__all__ = ["BLOCK", "DEFAULT_CTX", "KvCache", "LayerCache", "allocate", "context_of", "layer_bytes", "token_bytes"]


@dataclass(frozen=True, slots=True)
class LayerCache:
    """Addresses of a layer's keys and values in block 0, bytes from block to block, and the index of its cache group."""

    keys: int
    values: int
    block_bytes: int
    group: int


class KvCache:
    """The pools of all cache groups, zeroed, so that no stale value is ever read as a number that is not finite.

    block_bytes: by group, of the layers that lie here.
    """

    def __init__(
        self,
        spec: ModelSpec,
        n_ctx: int,
        k_type: KvType,
        v_type: KvType,
        chunk: int,
        *,
        layers: frozenset[int] | None = None,
    ) -> None:
        """Room for n_ctx tokens; chunk: most tokens in a step, for which layers with a window need room beside it.

        layers: those that lie here, None: all. The groups are those of the whole model, wherever its layers lie.

        Raises:
            OutOfMemory: more than is free.
        """
        per_token = token_bytes(spec, k_type, v_type)
        self.groups: tuple[CacheGroup, ...] = plan_groups(spec, n_ctx, chunk, tuple(BLOCK * one for one in per_token))
        here = {layer: index for layer, index in groups_of(spec).items() if layers is None or layer in layers}
        sizes = {layer: layer_bytes(spec, layer, k_type, v_type) for layer in here}
        self.block_bytes = tuple(
            sum(sum(sizes[layer]) for layer, group in here.items() if group == index) for index in range(len(self.groups))
        )
        pools = [group.n_blocks * nbytes for group, nbytes in zip(self.groups, self.block_bytes, strict=True)]
        self.nbytes = sum(pools)
        self.layers: dict[int, LayerCache] = {}
        self._arena: Arena | None = None
        if not self.nbytes:
            return
        self._arena = allocate(self.nbytes, f"the cache for a context of {n_ctx} tokens", "choose a shorter context")
        at = [self._arena.address]
        for nbytes in pools:
            at.append(at[-1] + nbytes)
        for layer, index in here.items():
            keys, values = sizes[layer]
            self.layers[layer] = LayerCache(at[index], at[index] + keys, self.block_bytes[index], index)
            at[index] += keys + values

    def close(self) -> None:
        """Gives the memory back. Idempotent."""
        if self._arena is not None:
            self._arena.close()


def allocate(nbytes: int, what: str, advice: str) -> Arena:
    """An arena, refused when it is larger than the memory that is free now.

    Raises:
        OutOfMemory: with the bytes asked for and free.
    """
    free = psutil.virtual_memory().available
    if nbytes <= free:
        try:
            return Arena(nbytes, huge=nbytes >= 2 << 20)
        except MemoryError:
            pass
    raise OutOfMemory(f"{what} needs {nbytes:,} bytes of memory and {free:,} are free; {advice}")
