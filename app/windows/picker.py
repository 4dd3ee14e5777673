"""Picker: a box over the window with a filter and a list; Enter takes the marked entry.

The palette and the model picker are pickers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from PySide6.QtCore import QAbstractListModel, QEvent, QModelIndex, QObject, QPersistentModelIndex, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QFocusEvent, QKeyEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import (
    QFrame,
    QLineEdit,
    QListView,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QVBoxLayout,
    QWidget,
)
from shiboken6 import isValid

from app import theme
from app.i18n import tr
from app.widgets import paint
from app.widgets.icon import draw_icon

WIDTH = 560
ROW_HEIGHT = 40
MAX_ROWS = 9
NOTHING = "Nothing found"
ENTRY_ROLE = Qt.ItemDataRole.UserRole + 1


@dataclass(frozen=True, slots=True)
class Entry:
    """key: what `chosen` tells. detail: quieter text after the title. keys: a shortcut shown at the right."""

    key: Any
    title: str
    detail: str = ""
    icon: str = ""
    keys: str = ""


class _Entries(QAbstractListModel):
    def __init__(self, parent: QObject) -> None:
        super().__init__(parent)
        self.entries: tuple[Entry, ...] = ()

    def rowCount(self, parent: QModelIndex | QPersistentModelIndex = QModelIndex()) -> int:  # noqa: B008  Qt's own default
        return 0 if parent.isValid() else len(self.entries)

    def data(self, index: QModelIndex | QPersistentModelIndex, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if not index.isValid():
            return None
        entry = self.entries[index.row()]
        if role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.AccessibleTextRole):
            return f"{entry.title} {entry.detail}".strip()
        return entry if role == ENTRY_ROLE else None

    def show_entries(self, entries: Sequence[Entry]) -> None:
        self.beginResetModel()
        self.entries = tuple(entries)
        self.endResetModel()


class _Delegate(QStyledItemDelegate):
    def sizeHint(self, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex) -> QSize:
        return QSize(WIDTH - 24, ROW_HEIGHT)

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex) -> None:
        entry: Entry = index.data(ENTRY_ROLE)
        rect = QRectF(option.rect)
        marked = bool(option.state & QStyle.StateFlag.State_Selected)
        painter.save()
        paint.begin(painter)
        if marked:
            paint.rounded(painter, rect.adjusted(0, 1, 0, -1), 8, "overlay")
        ink = "text" if marked else "text2"
        x, baseline = rect.left() + 12, rect.center().y() + 4.5
        if entry.icon:
            draw_icon(painter, entry.icon, x, rect.center().y() - 8, 16, ink)
        x += 28
        right = rect.right() - 12
        if entry.keys:
            right -= paint.key_hint(painter, right, rect.center().y() - 8.5, entry.keys, "right") + 10
        title_font = theme.font(13, 500)
        painter.setFont(title_font)
        title = painter.fontMetrics().elidedText(entry.title, Qt.TextElideMode.ElideRight, int(right - x))
        paint.text(painter, x, baseline, title, 13, 500, "text")
        x += paint.text_width(title, 13, 500) + 10
        if entry.detail and right - x > 40:
            painter.setFont(theme.font(12))
            detail = painter.fontMetrics().elidedText(entry.detail, Qt.TextElideMode.ElideMiddle, int(right - x))
            paint.text(painter, x, baseline, detail, 12, 400, "text2" if marked else "text3")
        painter.restore()


class Picker(QFrame):
    """`entries(query)` gives what matches. Emits chosen(key) once, after it has closed.

    It is a child of the window, not a window: no grab of the keyboard, and no position that Wayland would refuse.
    """

    chosen = Signal(object)

    def __init__(self, parent: QWidget, title: str, hint: str, entries: Callable[[str], Sequence[Entry]]) -> None:
        super().__init__(parent)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setAccessibleName(title)
        self._entries = entries
        self._before: QWidget | None = None
        self._edit = QLineEdit(self)
        self._edit.setPlaceholderText(hint)
        self._edit.setAccessibleName(title)
        self._edit.installEventFilter(self)
        self._model = _Entries(self)
        self._list = QListView(self)
        self._list.setFrameShape(QFrame.Shape.NoFrame)
        self._list.setModel(self._model)
        self._list.setItemDelegate(_Delegate(self._list))
        self._list.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self._list.setUniformItemSizes(True)
        self._list.setMouseTracking(True)
        self._list.setAccessibleName(title)
        self._list.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self._list.setStyleSheet("QListView { background: transparent; border: none; }")
        layout = QVBoxLayout(self)
        layout.setContentsMargins(12, 12, 12, 12)
        layout.setSpacing(8)
        layout.addWidget(self._edit)
        layout.addWidget(self._list)
        self._connect()
        self._refresh("")

    def _connect(self) -> None:
        self._edit.textChanged.connect(self._refresh)
        self._list.clicked.connect(self._take)
        self._list.entered.connect(self._list.setCurrentIndex)

    def open_over(self, window: QWidget) -> None:
        """Shows the box in the upper third of the window."""
        self.setFixedWidth(min(WIDTH, max(320, window.width() - 40)))
        self.move((window.width() - self.width()) // 2, max(56, window.height() // 8))
        self._before = window.focusWidget()
        self.raise_()
        self.show()
        self._edit.setFocus(Qt.FocusReason.OtherFocusReason)

    def shown_entries(self) -> tuple[Entry, ...]:
        """What the list holds now."""
        return self._model.entries

    def _refresh(self, query: str) -> None:
        self._model.show_entries(self._entries(query))
        self._list.setCurrentIndex(self._model.index(0, 0))
        self._list.setAccessibleDescription("" if self._model.entries else tr("Palette", NOTHING))
        rows = max(1, min(len(self._model.entries), MAX_ROWS))
        self._list.setFixedHeight(rows * ROW_HEIGHT)
        self.adjustSize()

    def _take(self, index: QModelIndex) -> None:
        entry = index.data(ENTRY_ROLE)
        if entry is None:
            return
        self._leave()
        self.chosen.emit(entry.key)

    def _leave(self) -> None:
        """Closes; the keyboard goes back to where it was."""
        if self._before is not None and isValid(self._before):
            self._before.setFocus(Qt.FocusReason.OtherFocusReason)
        self.close()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        paint.begin(painter)
        paint.rounded(painter, QRectF(self.rect()), 12, "raised", "line2")
        if not self._model.entries:
            paint.text(painter, 24, self._list.y() + ROW_HEIGHT / 2 + 4.5, tr("Palette", NOTHING), 13, 400, "text3")

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if watched is self._edit and isinstance(event, QFocusEvent) and event.lostFocus() and self._is_left(event):
            self.close()
            return False
        if watched is self._edit and isinstance(event, QKeyEvent) and event.type() == QEvent.Type.KeyPress:
            return self._on_key(event)
        return super().eventFilter(watched, event)

    @staticmethod
    def _is_left(event: QFocusEvent) -> bool:
        """True when the user turned to another widget, not to another window or a menu of the filter."""
        return event.reason() not in (Qt.FocusReason.ActiveWindowFocusReason, Qt.FocusReason.PopupFocusReason)

    def _on_key(self, event: QKeyEvent) -> bool:
        steps = {Qt.Key.Key_Down: 1, Qt.Key.Key_Up: -1, Qt.Key.Key_PageDown: MAX_ROWS, Qt.Key.Key_PageUp: -MAX_ROWS}
        if event.key() in steps and self._model.entries:
            row = self._list.currentIndex().row() + steps[Qt.Key(event.key())]
            row = min(max(row, 0), len(self._model.entries) - 1)
            self._list.setCurrentIndex(self._model.index(row, 0))
            return True
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self._take(self._list.currentIndex())
            return True
        if event.key() == Qt.Key.Key_Escape:
            self._leave()
            return True
        return False


def matching(query: str, entries: Sequence[Entry]) -> tuple[Entry, ...]:
    """The entries that hold every word of the query; those whose title begins with it come first."""
    words = query.lower().split()
    found = [entry for entry in entries if all(word in f"{entry.title} {entry.detail}".lower() for word in words)]
    start = query.lower().strip()
    return tuple(sorted(found, key=lambda entry: not entry.title.lower().startswith(start)))
