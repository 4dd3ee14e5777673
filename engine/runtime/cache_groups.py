"""How many blocks each cache group has, and how many of them a sequence holds: all of its context, or what a window needs.

The session deals the blocks out (`session/block_manager`); callers that run one sequence take `ring_tables`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import psutil

from engine.arch.cache_groups import Window, windows
from engine.arch.spec import ModelSpec
from kernels_pyx.executor import BLOCK as _BLOCK

BLOCK = _BLOCK
"""Tokens per block."""

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


def plan_groups(spec: ModelSpec, n_ctx: int, chunk: int, block_bytes: tuple[int, ...]) -> tuple[CacheGroup, ...]:
    """The cache groups of a model with room for n_ctx tokens, in the order of `arch.cache_groups.windows`."""
    budget = int(min(KEPT_BYTES, KEPT_SHARE * psutil.virtual_memory().total))
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


def ring_tables(groups: tuple[CacheGroup, ...], n_tokens: int) -> npt.NDArray[np.int32]:
    """Block tables [n_groups, blocks of n_tokens] of the only sequence: pools of windows are gone through again and again."""
    order = np.arange(-(-n_tokens // BLOCK), dtype=np.int32)
    return np.stack([order % group.n_blocks for group in groups]).astype(np.int32)
