"""The paged cache of keys and values: a pool of blocks for each cache group; each layer has its blocks in memory of its own.

So a layer can come or go while the others stay where they are, and memory is taken as contexts grow; that of layers with a window
never grows beyond some windows. Within a block, per KV head: keys as [head_dim][BLOCK] (transposed: scores of a whole block come
from contiguous loads), behind them values as [BLOCK][v_dim rounded up to 16]; 8-bit ones with their scales behind them,
[group][BLOCK]. Latent attention has one row for all heads instead, [BLOCK][rank + n_rot].
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import psutil

from engine.arch.cache_groups import groups_of
from engine.arch.spec import ModelSpec
from engine.errors import OutOfMemory
from engine.estimate.cache import BLOCK, DEFAULT_CTX, CacheGroup, context_of, layer_bytes, plan_groups, token_bytes
from engine.placement.options import KvType
from kernels_pyx.arena import Arena

__all__ = ["BLOCK", "DEFAULT_CTX", "KvCache", "LayerCache", "allocate", "context_of", "layer_bytes", "token_bytes"]


HUGE_BYTES = 16 << 20
"""From so many bytes a layer's memory is offered for huge pages: with less, the first token of a chat would take a page of 2 MiB
for each layer, more than short contexts fill."""


@dataclass(frozen=True, slots=True)
class LayerCache:
    """A layer's blocks: bytes of each, the index of its cache group, where the values lie behind the keys."""

    arena: Arena
    block_bytes: int
    group: int
    key_bytes: int

    @property
    def keys(self) -> int:
        """Address of the keys in block 0."""
        return self.arena.address

    @property
    def values(self) -> int:
        """Address of the values in block 0."""
        return self.arena.address + self.key_bytes


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
        beside: KvCache | None = None,
    ) -> None:
        """Room for n_ctx tokens; chunk: most tokens in a step, for which layers with a window need room beside it.

        layers: those that lie here, None: all. The groups are those of the whole model, wherever its layers lie. beside: a cache
        of the same model, whose layers are shared with it.

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
        self.nbytes = sum(group.n_blocks * nbytes for group, nbytes in zip(self.groups, self.block_bytes, strict=True))
        known = {} if beside is None else beside.layers
        wanted = {layer: self.groups[index].n_blocks * sum(sizes[layer]) for layer, index in here.items() if layer not in known}
        arenas = allocate_each(wanted, f"the cache for a context of {n_ctx} tokens", "choose a shorter context")
        self.layers: dict[int, LayerCache] = {
            layer: known[layer] if layer in known else LayerCache(arenas[layer], sum(sizes[layer]), index, sizes[layer][0])
            for layer, index in here.items()
        }

    def close(self) -> None:
        """Lets go of the memory, which goes back where no other cache shares it. Idempotent."""
        self.layers.clear()


def allocate_each(wanted: Mapping[int, int], what: str, advice: str) -> dict[int, Arena]:
    """Memory of so many bytes for each layer.

    Raises:
        OutOfMemory: all together are more than is free.
    """
    _require(sum(wanted.values()), what, advice)
    return {layer: allocate(nbytes, what, advice, huge=nbytes >= HUGE_BYTES) for layer, nbytes in wanted.items()}


def allocate(nbytes: int, what: str, advice: str, *, huge: bool | None = None) -> Arena:
    """An arena, refused when it is larger than the memory that is free now. huge: in huge pages; None: where it fills one.

    Raises:
        OutOfMemory: with the bytes asked for and free.
    """
    _require(nbytes, what, advice)
    try:
        return Arena(nbytes, huge=nbytes >= 2 << 20 if huge is None else huge)
    except MemoryError:
        raise _full(nbytes, what, advice) from None


def _require(nbytes: int, what: str, advice: str) -> None:
    if nbytes > psutil.virtual_memory().available:
        raise _full(nbytes, what, advice)


def _full(nbytes: int, what: str, advice: str) -> OutOfMemory:
    free = psutil.virtual_memory().available
    return OutOfMemory(f"{what} needs {nbytes:,} bytes of memory and {free:,} are free; {advice}")
