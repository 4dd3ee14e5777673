"""What widgets are part of is destroyed on the thread of the window, whoever allocates."""

from __future__ import annotations

import gc
import threading

from pytestqt.qtbot import QtBot

from app.bridge.garbage import Garbage


class _Cycle:
    def __init__(self, where: list[int]) -> None:
        self.me = self
        self._where = where

    def __del__(self) -> None:
        self._where.append(threading.get_ident())


def test_other_threads_find_nothing(qtbot: QtBot) -> None:
    garbage = Garbage()
    where: list[int] = []
    try:
        _Cycle(where)
        busy = threading.Thread(target=lambda: [[i] for i in range(50_000)])
        busy.start()
        busy.join()
        assert not where
        kept = [[i] for i in range(5_000)]
        garbage.search()
        assert where == [threading.get_ident()]
        assert kept
    finally:
        garbage.close()
        assert gc.isenabled()
        gc.disable()
