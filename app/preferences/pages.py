"""The two pages of the settings that are not made from the schema: the shortcuts, and About."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QHBoxLayout, QVBoxLayout, QWidget

from app import theme
from app.actions.board_help import BOARD_KEYS
from app.actions.registry import ActionRow, shortcut_text
from app.i18n import filled, tr
from app.preferences.form import plain_label, quiet_label
from app.widgets import paint
from app.widgets.inputs import Card

TILE = 48


def shortcuts_page(actions: Sequence[ActionRow]) -> QWidget:
    """A card for each group of actions that have keys, and one for the keys of the placement board."""
    page = QWidget()
    column = QVBoxLayout(page)
    column.setContentsMargins(0, 0, 0, 0)
    column.setSpacing(8)
    shown = [row for row in actions if row.shortcut]
    for group in dict.fromkeys(row.group for row in shown):
        column.addWidget(quiet_label(tr("Actions", group)))
        column.addWidget(_group([(shortcut_text(row), row.text) for row in shown if row.group == group]))
        column.addSpacing(10)
    column.addWidget(quiet_label(tr("Actions", "Placement board")))
    column.addWidget(_group(BOARD_KEYS))
    return page


def _group(rows: Sequence[tuple[str, str]]) -> Card:
    """rows: (keys, what they do)."""
    card = Card()
    column = QVBoxLayout(card)
    column.setContentsMargins(0, 0, 0, 0)
    column.setSpacing(0)
    for keys, text in rows:
        row = QWidget(card)
        layout = QHBoxLayout(row)
        layout.setContentsMargins(18, 9, 18, 9)
        layout.addWidget(plain_label(tr("Actions", text), 13, 400), 1)
        layout.addWidget(_Keys(keys))
        card.rows.append(row)
        column.addWidget(row)
    return card


class _Keys(QWidget):
    """The keys of an action as a key cap."""

    def __init__(self, keys: str) -> None:
        super().__init__()
        self._keys = keys
        self.setAccessibleName(keys)
        self.setFixedSize(self.sizeHint())
        theme.hub().changed.connect(self.update)

    def sizeHint(self) -> QSize:
        return QSize(round(paint.key_width(self._keys)) + 2, 20)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        paint.begin(painter)
        paint.key_hint(painter, self.width(), 1.5, self._keys, "right")


def about_page(version: str) -> QWidget:
    """What this is, what it does not do, and whose work is in it."""
    card = Card()
    column = QVBoxLayout(card)
    column.setContentsMargins(22, 22, 22, 22)
    column.setSpacing(12)
    head = QHBoxLayout()
    head.setSpacing(16)
    head.addWidget(_Tile())
    names = QVBoxLayout()
    names.setSpacing(2)
    names.addWidget(plain_label("Layerdeck", 16, 600))
    names.addWidget(quiet_label(filled(tr("Settings", "Version %1"), version)))
    head.addLayout(names, 1)
    column.addLayout(head)
    for text in (
        tr(
            "Settings",
            "Runs language models on this machine. Nothing you write leaves it: there is no telemetry, and no connection is made "
            "unless you open a link.",
        ),
        tr(
            "Settings",
            "Apache License 2.0. With Qt and PySide6 (LGPL 3.0), Inter and JetBrains Mono (OFL), Lucide icons (ISC), SmolLM2 "
            "(Apache 2.0).",
        ),
    ):
        label = plain_label(text, 13, 400)
        label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        column.addWidget(label)
    return card


class _Tile(QWidget):
    def __init__(self) -> None:
        super().__init__()
        self.setFixedSize(TILE, TILE)
        theme.hub().changed.connect(self.update)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        paint.begin(painter)
        paint.tile(painter, QRectF(0, 0, TILE, TILE), 13, "layers", 24)
