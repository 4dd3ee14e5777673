"""The board over the scripted planner in a window of its own, for drags with a real pointer.

Prints JSON lines: where things are on the screen (`places`, again after each move), every move (`moved`), every column that
something is held over (`held`). Ends when standard input closes.
"""

from __future__ import annotations

import json
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

from PySide6.QtCore import QPoint, QTimer
from PySide6.QtWidgets import QApplication, QWidget

from app import theme
from app.bridge.ui_thread import UiThread
from app.ops.placement_desk import PlacementDesk
from app.placement.board import PlacementBoard
from app.placement.card_list import CardList
from engine.api.pure import Gpu, Numa, UnitId
from tests.helpers.fake_planner import ScriptedPlanner, machine, outline


def say(**what: object) -> None:
    """One line."""
    print(json.dumps(what), flush=True)


def spots(cards: CardList) -> dict[str, list[int]]:
    """The middles of the cards that are in sight, on the screen."""
    found = {}
    for number, row in enumerate(cards.column.rows()):
        middle = cards.box_of(cards.column.index(number), row).center()
        if cards.viewport().rect().contains(middle):
            found[row.title] = list(cards.viewport().mapToGlobal(middle).toTuple())
    return found


def main() -> None:
    """Runs until standard input closes."""
    app = QApplication(sys.argv)
    theme.apply(app, theme.DARK)
    ui, pool = UiThread(), ThreadPoolExecutor(1)
    desk = PlacementDesk(ui, pool, make_planner=ScriptedPlanner, read=lambda _path: outline(), machine=machine)
    window = QWidget()
    window.setWindowTitle("board")
    window.resize(1100, 720)
    board = PlacementBoard(desk, window)
    board.setGeometry(10, 10, 1080, 700)
    window.show()

    def places() -> None:
        target = board.column(Gpu(1)).cards.viewport().mapToGlobal(QPoint(110, 300)).toTuple()
        say(places=spots(board.column(Numa(0)).cards), to=list(target))

    def tell_moves(devices: frozenset[object]) -> None:
        assert desk.placement is not None
        lie = {str(layer): str(desk.placement.device_of(UnitId("experts", layer))) for layer in (4, 5, 6)}
        say(moved=lie, devices=sorted(map(str, devices)))
        QTimer.singleShot(300, window, places)

    def tell_held() -> None:
        trial = board.drag.trial
        if trial is not None:
            say(held=str(trial.device))

    desk.outline_changed.connect(lambda: QTimer.singleShot(600, window, places))
    desk.open("/models/deepseek.gguf")
    QTimer.singleShot(1500, window, lambda: desk.changed.connect(tell_moves))
    board.drag.tried.connect(tell_held)

    def wait_for_end() -> None:
        sys.stdin.read()
        ui.call(app.quit)

    threading.Thread(target=wait_for_end, daemon=True).start()
    app.exec()
    ui.close()
    pool.shutdown()


if __name__ == "__main__":
    main()
