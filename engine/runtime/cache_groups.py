"""Block tables of a sequence that has the pools for itself. What pools there are is in `engine.estimate.cache`.

The session deals blocks out to several sequences (`session/block_manager`).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from engine.estimate.cache import BLOCK, CacheGroup, chunk_blocks, plan_groups, window_blocks

__all__ = ["BLOCK", "CacheGroup", "chunk_blocks", "plan_groups", "ring_tables", "window_blocks"]


def ring_tables(groups: tuple[CacheGroup, ...], n_tokens: int) -> npt.NDArray[np.int32]:
    """Block tables [n_groups, blocks of n_tokens] of the only sequence: pools of windows are gone through again and again."""
    order = np.arange(-(-n_tokens // BLOCK), dtype=np.int32)
    return np.stack([order % group.n_blocks for group in groups]).astype(np.int32)
