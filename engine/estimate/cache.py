"""What the cache of keys and values takes, before anything is allocated: blocks of each cache group, bytes of a layer in a block.

The runtime allocates by these figures, estimates add them up. On the CPU a layer's part of a block holds, per KV head, keys as
[head_dim][BLOCK] and values as [BLOCK][v_dim rounded up to 16], 8-bit ones with their scales behind them; on a GPU rows without
gaps (`engine.triton_kernels.tensors.Cache`), and one block more, which padding rows write.
"""

from __future__ import annotations

from dataclasses import dataclass

import psutil

from engine.arch.cache_groups import Window, groups_of, windows
from engine.arch.spec import Attention, Mla, ModelSpec
from engine.errors import InvalidRequest
from engine.placement.options import KV_TYPES, KvType
from kernels_pyx.executor import BLOCK as _BLOCK
from kernels_pyx.executor import kv_head_bytes, v_pad

BLOCK = _BLOCK
"""Tokens per block."""

DEFAULT_CTX = 8192
SCALE_GROUP = 32
"""Values that share a scale in q8_0."""

KEPT_WINDOWS = 8
"""Windows for which a pool has room beside the one that is being computed: other answers, and ends of prompts to go back to."""
KEPT_SHARE = 0.05
"""The most that those windows may take of the machine's memory, all groups together."""
KEPT_BYTES = 4 << 30


@dataclass(frozen=True, slots=True)
class CacheGroup:
    """A pool of blocks for the layers of one window.

    n_blocks: all of the pool; n_needed: those that one sequence takes, which is what the formulas for a model's cache count;
    n_decoding: of them, those that it still takes once its prompt is computed. block_bytes: of all layers of the group together.
    """

    window: Window
    n_blocks: int
    n_needed: int
    n_decoding: int
    block_bytes: int = 0

    @property
    def nbytes(self) -> int:
        """Bytes of the pool."""
        return self.n_blocks * self.block_bytes


def context_of(spec: ModelSpec, n_ctx: int) -> int:
    """Tokens of context to hold for an asked n_ctx, 0 = min(model's, 8192).

    Raises:
        InvalidRequest: negative, or more than the model was made for.
    """
    if n_ctx < 0 or n_ctx > spec.context_length:
        raise InvalidRequest(f"a context of {n_ctx} tokens was asked for; this model takes 1 to {spec.context_length}")
    return n_ctx or min(spec.context_length, DEFAULT_CTX)


def token_bytes(spec: ModelSpec, k_type: KvType, v_type: KvType) -> tuple[int, ...]:
    """Bytes of cache that a token takes in each cache group, and that attention reads of each key it sees."""
    found = [0] * (max(groups_of(spec).values(), default=-1) + 1)
    for layer, group in groups_of(spec).items():
        found[group] += sum(layer_bytes(spec, layer, k_type, v_type)) // BLOCK
    return tuple(found)


def layer_bytes(spec: ModelSpec, layer: int, k_type: KvType, v_type: KvType) -> tuple[int, int]:
    """Bytes of a layer's keys and values in a block on the CPU. Latent rows, of the keys' type, are both."""
    mixer = spec.blocks[layer].mixer
    k, v = KV_TYPES.index(k_type), KV_TYPES.index(v_type)
    if isinstance(mixer, Mla):
        return kv_head_bytes(k, mixer.latent), 0
    assert isinstance(mixer, Attention)  # other layers are in no group
    return mixer.n_kv_heads * kv_head_bytes(k, mixer.head_dim), mixer.n_kv_heads * kv_head_bytes(v, v_pad(mixer.v_dim))


def gpu_layer_bytes(spec: ModelSpec, layer: int, k_type: KvType, v_type: KvType) -> int:
    """Bytes of a layer's keys and values in a block on a GPU."""
    mixer = spec.blocks[layer].mixer
    if isinstance(mixer, Mla):
        return BLOCK * row_bytes(mixer.latent, k_type)
    assert isinstance(mixer, Attention)  # other layers are in no group
    return BLOCK * mixer.n_kv_heads * (row_bytes(mixer.head_dim, k_type) + row_bytes(mixer.v_dim, v_type))


def row_bytes(dim: int, kind: KvType) -> int:
    """Bytes of the values of one token and KV head on a GPU, with their scales."""
    if kind in ("f32", "f16"):
        return dim * (4 if kind == "f32" else 2)
    return dim + 2 * (-(-dim // SCALE_GROUP) if kind == "q8_0" else 1)


def window_blocks(window: int) -> int:
    """Blocks of a row's own position and of the `window` positions before it, wherever in a block it lies."""
    return -(-window // BLOCK) + 1


def chunk_blocks(window: int, chunk: int) -> int:
    """Blocks that steps of up to `chunk` rows touch in layers with a window: those of min(context, window + chunk) tokens.

    Chunks of whole blocks are cut at block boundaries, so they need no more than the tokens' own; others may lie across one more.
    """
    if chunk % BLOCK == 0:
        return -(-window // BLOCK) + chunk // BLOCK
    return -(-(window + chunk - 1) // BLOCK) + 1


def plan_groups(
    spec: ModelSpec, n_ctx: int, chunk: int, block_bytes: tuple[int, ...], ram_bytes: int = 0
) -> tuple[CacheGroup, ...]:
    """The cache groups of a model with room for n_ctx tokens, in the order of `arch.cache_groups.windows`.

    ram_bytes: of the machine; 0: this one.
    """
    budget = int(min(KEPT_BYTES, KEPT_SHARE * (ram_bytes or psutil.virtual_memory().total)))
    groups = []
    for window, nbytes in zip(windows(spec), block_bytes, strict=True):
        all_blocks = -(-n_ctx // BLOCK)
        if window is None:
            groups.append(CacheGroup(None, all_blocks, all_blocks, all_blocks, nbytes))
            continue
        needed = min(all_blocks, chunk_blocks(window, chunk))
        decoding = min(needed, window_blocks(window))
        # At least one, so that chunks need not begin at block boundaries.
        kept = min(max(1, min(KEPT_WINDOWS * decoding, budget // max(1, nbytes))), all_blocks - needed)
        budget -= kept * nbytes
        groups.append(CacheGroup(window, needed + kept, needed, decoding, nbytes))
    return tuple(groups)
