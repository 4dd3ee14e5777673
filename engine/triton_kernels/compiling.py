"""Whether a kernel has been compiled: while a graph is captured none may be, for its code could not be loaded."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_strict: set[int] = set()
"""Threads that compile nothing now."""


class NotCompiled(Exception):
    """A kernel that was called has not been compiled."""


@contextmanager
def nothing_compiled() -> Iterator[None]:
    """Within, a kernel that this thread calls and that is not compiled raises NotCompiled, instead of being compiled."""
    _listen()
    _strict.add(threading.get_ident())
    try:
        yield
    finally:
        _strict.discard(threading.get_ident())


def _listen() -> None:
    from triton import knobs

    if knobs.runtime.jit_cache_hook is None:
        knobs.runtime.jit_cache_hook = _refuse


def _refuse(**_: Any) -> bool:
    """Called by Triton before it compiles; False: it may."""
    if threading.get_ident() in _strict:
        raise NotCompiled
    return False
