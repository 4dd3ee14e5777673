"""A gate for upgrades of PySide6: some versions lose a reference to True with each emitted signal and die within seconds."""

from __future__ import annotations

import sys
import threading

import pytest
from PySide6.QtCore import QObject, Qt, Signal
from pytestqt.qtbot import QtBot

N = 4000


class _Emitter(QObject):
    pair = Signal(object, object)
    flag = Signal(bool)
    nothing = Signal()


def _take(*values: object) -> None:
    """A slot that does nothing."""


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="True is immortal from Python 3.12 on")
def test_emitting_keeps_the_references_of_constants(qtbot: QtBot) -> None:
    direct, queued = _Emitter(), _Emitter()
    direct.pair.connect(_take)
    direct.flag.connect(_take)
    direct.nothing.connect(_take)
    queued.pair.connect(_take, Qt.ConnectionType.QueuedConnection)
    constants = (True, False, None)
    before = [sys.getrefcount(value) for value in constants]
    for _ in range(N):
        direct.pair.emit(1, 2)
        direct.flag.emit(True)
        direct.nothing.emit()
        queued.pair.emit(1, 2)
    thread = threading.Thread(target=lambda: [queued.pair.emit(1, 2) for _ in range(N)])
    thread.start()
    thread.join()
    qtbot.wait(20)
    after = [sys.getrefcount(value) for value in constants]
    assert all(now > then - N // 4 for now, then in zip(after, before, strict=True)), (before, after)
