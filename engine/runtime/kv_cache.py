"""The paged cache of keys and values: one pool of blocks, each with the keys and values of every layer for its tokens.

So the pool takes memory block by block as contexts grow. Within a layer's part of a block, per KV head: keys as [head_dim][BLOCK]
(transposed: scores of a whole block come from contiguous loads), values as [BLOCK][v_dim rounded up to 16]; 8-bit ones with
their scales behind them, [group][BLOCK].
"""

from __future__ import annotations

from dataclasses import dataclass

import psutil

from engine.arch.spec import Attention, ModelSpec
from engine.errors import InvalidRequest, OutOfMemory
from engine.placement.options import KV_TYPES, KvType
from kernels_pyx.arena import Arena
from kernels_pyx.executor import BLOCK as _BLOCK
from kernels_pyx.executor import kv_head_bytes, v_pad

BLOCK = _BLOCK
"""Tokens per block."""
DEFAULT_CTX = 8192


@dataclass(frozen=True, slots=True)
class LayerCache:
    """Addresses of a layer's keys and values in block 0."""

    keys: int
    values: int


def context_of(spec: ModelSpec, n_ctx: int) -> int:
    """Tokens of context to hold for an asked n_ctx, 0 = min(model's, 8192).

    Raises:
        InvalidRequest: negative, or more than the model was made for.
    """
    if n_ctx < 0 or n_ctx > spec.context_length:
        raise InvalidRequest(f"a context of {n_ctx} tokens was asked for; this model takes 1 to {spec.context_length}")
    return n_ctx or min(spec.context_length, DEFAULT_CTX)


def token_bytes(spec: ModelSpec, k_type: KvType, v_type: KvType) -> int:
    """Bytes of cache that a token takes, and that attention reads of each earlier token, all layers together."""
    k, v = KV_TYPES.index(k_type), KV_TYPES.index(v_type)
    parts = [block.mixer for block in spec.blocks if isinstance(block.mixer, Attention)]
    heads = (part.n_kv_heads * (kv_head_bytes(k, part.head_dim) + kv_head_bytes(v, v_pad(part.v_dim))) for part in parts)
    return sum(heads) // BLOCK


class KvCache:
    """n_blocks blocks for every layer, zeroed, so that no stale value is ever read as a number that is not finite."""

    def __init__(self, spec: ModelSpec, n_ctx: int, k_type: KvType, v_type: KvType) -> None:
        """Room for n_ctx tokens.

        Raises:
            OutOfMemory: more than is free.
        """
        self.n_blocks = -(-n_ctx // BLOCK)
        offsets, at = [], 0
        for block in spec.blocks:
            part = block.mixer
            if not isinstance(part, Attention):
                offsets.append((at, at))  # a recurrent layer takes nothing
                continue
            key_bytes = part.n_kv_heads * kv_head_bytes(KV_TYPES.index(k_type), part.head_dim)
            offsets.append((at, at + key_bytes))
            at += key_bytes + part.n_kv_heads * kv_head_bytes(KV_TYPES.index(v_type), v_pad(part.v_dim))
        self.block_bytes = at
        self.nbytes = at * self.n_blocks
        self._arena = allocate(self.nbytes, f"the cache for a context of {n_ctx} tokens", "choose a shorter context")
        base = self._arena.address
        self.layers: tuple[LayerCache, ...] = tuple(LayerCache(base + keys, base + values) for keys, values in offsets)

    def close(self) -> None:
        """Gives the memory back. Idempotent."""
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
