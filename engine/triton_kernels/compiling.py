"""What happens around the compilation of a kernel: none may be compiled while a graph is captured, for its code could not be loaded,
and nobody keeps the driver meanwhile, for which the thread that steps would wait, for seconds."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from engine.runtime.driver import DRIVER

_strict: set[int] = set()
"""Threads that compile nothing now."""
_lent: set[int] = set()
"""Threads that had the driver when they began to compile."""


class NotCompiled(Exception):
    """A kernel that was called has not been compiled."""


@contextmanager
def nothing_compiled() -> Iterator[None]:
    """Within, a kernel that this thread calls and that is not compiled raises NotCompiled, instead of being compiled."""
    listen()
    _strict.add(threading.get_ident())
    try:
        yield
    finally:
        _strict.discard(threading.get_ident())


def listen() -> None:
    """From now on Triton tells when it compiles; nothing to do where it is not installed."""
    with suppress(ImportError, AttributeError):
        from triton import knobs

        if knobs.runtime.jit_cache_hook is None and knobs.runtime.jit_post_compile_hook is None:
            knobs.runtime.jit_cache_hook, knobs.runtime.jit_post_compile_hook = _begins, _ended


def _begins(**_: Any) -> bool:
    """Before a kernel is compiled; False: it may be."""
    me = threading.get_ident()
    if me in _strict:
        raise NotCompiled
    _lent.discard(me)
    if DRIVER.is_mine:
        DRIVER.let_go()
        _lent.add(me)
    return False


def _ended(**_: Any) -> bool:
    """Behind that, before its code is loaded."""
    me = threading.get_ident()
    if me in _lent:
        _lent.discard(me)
        DRIVER.__enter__()
    return False
