"""The loop that Qt and asyncio share. The only file that knows which library joins them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import qasync
from PySide6.QtWidgets import QApplication

T = TypeVar("T")


def run(app: QApplication, main: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine while Qt's events are served; its result."""
    loop = qasync.QEventLoop(app)
    asyncio.set_event_loop(loop)
    with loop:
        result: T = loop.run_until_complete(main)
    return result
