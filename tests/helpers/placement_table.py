"""An open placement desk over the scripted planner, and the board on it, for tests; drags as Qt sends them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

from PySide6.QtCore import QMimeData, QPoint, QPointF, Qt
from PySide6.QtGui import QDragEnterEvent, QDragLeaveEvent, QDragMoveEvent, QDropEvent
from PySide6.QtWidgets import QApplication, QWidget
from pytestqt.qtbot import QtBot

from app.bridge.ui_thread import UiThread
from app.ops.placement_cards import CardId
from app.ops.placement_desk import PlacementDesk
from app.ops.placement_planning import MakePlanner
from app.placement.board import PlacementBoard
from app.placement.card_list import CardList
from app.qtmodels.placement_mime import card_mime
from engine.api.pure import Device, Machine, ModelOutline, UnitId
from engine.api.values import LoadOptions
from tests.helpers.fake_planner import ScriptedPlanner
from tests.helpers.fake_planner import machine as a_machine
from tests.helpers.fake_planner import outline as an_outline

MOVE, LEFT, NONE = Qt.DropAction.MoveAction, Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier


def experts(*layers: int) -> list[UnitId]:
    """The experts of layers."""
    return [UnitId("experts", layer) for layer in layers]


@contextmanager
def opened_desk(
    qtbot: QtBot,
    model: ModelOutline | None = None,
    machine: Machine | None = None,
    make_planner: MakePlanner = ScriptedPlanner,
    options: LoadOptions | None = None,
) -> Iterator[PlacementDesk]:
    """A desk with a model on it."""
    ui, pool = UiThread(), ThreadPoolExecutor(1)
    found, there = model or an_outline(), machine or a_machine()
    desk = PlacementDesk(ui, pool, make_planner=make_planner, read=lambda _path: found, machine=lambda: there)
    desk.open("/models/deepseek.gguf", options)
    qtbot.waitUntil(lambda: desk.state in ("ready", "does not fit"))
    yield desk
    desk.close()
    ui.close()
    pool.shutdown()


@dataclass
class Table:
    """A board that is shown, 1064 x 696."""

    qtbot: QtBot
    desk: PlacementDesk
    board: PlacementBoard
    notices: list[str] = field(default_factory=list)

    def device_of(self, unit: UnitId) -> Device:
        """Where a unit lies."""
        assert self.desk.placement is not None
        return self.desk.placement.device_of(unit)

    def list_of(self, device: Device) -> CardList:
        """The list of a device."""
        return self.board.column(device).cards

    def titles(self, device: Device) -> list[str]:
        """What the rows of a column say."""
        return [row.title for row in self.list_of(device).column.rows()]

    def enter(self, cards: Iterable[CardId], device: Device, at: tuple[int, int] = (100, 200)) -> QDragMoveEvent:
        """Drags cards into a column and holds them there."""
        viewport, data = self.list_of(device).viewport(), card_mime(cards)
        QApplication.sendEvent(viewport, QDragEnterEvent(QPoint(*at), MOVE, data, LEFT, NONE))
        return self.hold(data, device, at)

    def hold(self, data: QMimeData, device: Device, at: tuple[int, int]) -> QDragMoveEvent:
        """One more step of a drag."""
        event = QDragMoveEvent(QPoint(*at), MOVE, data, LEFT, NONE)
        QApplication.sendEvent(self.list_of(device).viewport(), event)
        return event

    def leave(self, device: Device) -> None:
        """Drags on, out of a column."""
        QApplication.sendEvent(self.list_of(device).viewport(), QDragLeaveEvent())

    def drop(self, cards: Iterable[CardId], device: Device, at: tuple[int, int] = (100, 200)) -> QDropEvent:
        """A whole drag, from its entry to its drop."""
        self.enter(cards, device, at)
        return self.let_go(card_mime(cards), device, at)

    def let_go(self, data: QMimeData, device: Device, at: tuple[int, int] = (100, 200)) -> QDropEvent:
        """The end of a drag."""
        event = QDropEvent(QPointF(*at), MOVE, data, LEFT, NONE)
        QApplication.sendEvent(self.list_of(device).viewport(), event)
        return event

    def row_of(self, device: Device, title: str) -> int:
        """The number of a row by its title."""
        return self.titles(device).index(title)

    def spot(self, device: Device, title: str) -> QPoint:
        """The middle of a card in the viewport of its list."""
        cards = self.list_of(device)
        index = cards.column.index(self.row_of(device, title))
        row = cards.row_at(index)
        assert row is not None
        return cards.box_of(index, row).center()

    def key(self, key: Qt.Key, modifiers: Qt.KeyboardModifier = NONE, on: QWidget | None = None) -> None:
        """Presses a key where the keyboard is, or on a widget."""
        self.qtbot.keyClick(on or QApplication.focusWidget() or self.board, key, modifiers)


@contextmanager
def shown_board(qtbot: QtBot, desk: PlacementDesk, size: tuple[int, int] = (1064, 696)) -> Iterator[Table]:
    """The board on a desk."""
    board = PlacementBoard(desk)
    board.resize(*size)
    table = Table(qtbot, desk, board)
    desk.notice.connect(table.notices.append)
    with qtbot.waitActive(board):
        board.show()
        board.activateWindow()
    yield table
    board.close()
    board.deleteLater()
