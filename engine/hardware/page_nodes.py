"""On which NUMA node pages of this process lie: asked of the system, which moves nothing for it (move_pages(2) without nodes)."""

from __future__ import annotations

from collections.abc import Sequence

from kernels_pyx import numa_memory

PAGE = 4096


def nodes_of(addresses: Sequence[int]) -> list[int | None]:
    """The node of the page at each address; None: it is not in memory, or the system does not say."""
    try:
        status = numa_memory.move_pages(addresses)
    except OSError:
        return [None] * len(addresses)
    return [found if found >= 0 else None for found in status]
