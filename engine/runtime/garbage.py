"""The interpreter's search for unreachable objects, kept away from what a process has for good.

A full search looks at every object, 200,000 with torch alone: 100 ms with the interpreter's lock held, in the midst of an answer.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_done = False


def keep_imports_out() -> None:
    """What is there by now is searched no more. Once a process: what comes later may go again.

    Called when all large modules are imported and before a model is built, whose objects must be found when it is dropped.
    """
    global _done
    if not _done:
        _done = True
        gc.freeze()


@contextmanager
def left_lying() -> Iterator[None]:
    """No search while it lasts: for a second of work that makes many objects which stay."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
