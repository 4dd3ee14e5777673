"""On which NUMA node pages of this process lie: asked of the system, which moves nothing for it (move_pages(2) without nodes)."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Sequence

PAGE = 4096
_MOVE_PAGES = {"x86_64": 279, "aarch64": 239}


def nodes_of(addresses: Sequence[int]) -> list[int | None]:
    """The node of the page at each address; None: it is not in memory, or the system does not say."""
    n, number = len(addresses), _MOVE_PAGES.get(platform.machine())
    if not n or number is None:
        return [None] * n
    pages = (ctypes.c_void_p * n)(*(address // PAGE * PAGE for address in addresses))
    status = (ctypes.c_int * n)(*[-1] * n)
    if ctypes.CDLL(None).syscall(number, 0, ctypes.c_ulong(n), pages, None, status, 0) < 0:
        return [None] * n
    return [found if found >= 0 else None for found in status]
