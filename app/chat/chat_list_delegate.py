"""Paints the rows of the chat list: a section heading above the first chat of a day, then one rounded line per chat."""

from __future__ import annotations

from PySide6.QtCore import QModelIndex, QPersistentModelIndex, QRect, QRectF, QSize, Qt
from PySide6.QtGui import QPainter
from PySide6.QtWidgets import QStyle, QStyledItemDelegate, QStyleOptionViewItem

from app.qtmodels.chat_list import ChatListRole
from app.widgets import paint
from app.widgets.icon import draw_icon

ROW_HEIGHT = 34
SECTION_HEIGHT = 34
MENU_WIDTH = 26
Index = QModelIndex | QPersistentModelIndex


def starts_section(index: Index) -> bool:
    """Whether this row is the first of its section."""
    if index.row() == 0:
        return True
    return bool(index.data(ChatListRole.SECTION) != index.sibling(index.row() - 1, 0).data(ChatListRole.SECTION))


def row_rect(rect: QRect, index: Index) -> QRect:
    """The chat's own box inside the item's rectangle, below a section heading if there is one."""
    top = rect.top() + (SECTION_HEIGHT if starts_section(index) else 0)
    return QRect(rect.left() + 10, top, rect.width() - 19, ROW_HEIGHT - 2)


def menu_rect(rect: QRect, index: Index) -> QRect:
    """Where the hovered row shows its menu button."""
    box = row_rect(rect, index)
    return QRect(box.right() - MENU_WIDTH, box.top() + 3, MENU_WIDTH, MENU_WIDTH)


class ChatListDelegate(QStyledItemDelegate):
    """Height 34 per chat, 34 more for a section heading."""

    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        gap = 22 - (SECTION_HEIGHT - 12) if starts_section(index) else 0
        return QSize(100, ROW_HEIGHT + (SECTION_HEIGHT + gap if starts_section(index) else 0))

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        painter.save()
        paint.begin(painter)
        outer: QRect = option.rect
        state: QStyle.StateFlag = option.state
        if starts_section(index):
            paint.text(
                painter, outer.left() + 24, outer.top() + 22, str(index.data(ChatListRole.SECTION) or ""), 11, 600, "text3"
            )
        box = row_rect(outer, index)
        selected = bool(state & QStyle.StateFlag.State_Selected)
        hovered = bool(state & QStyle.StateFlag.State_MouseOver)
        if selected or hovered:
            paint.rounded(painter, QRectF(box), 8, "overlay" if selected else "raised")
        streaming = bool(index.data(ChatListRole.STREAMING))
        room = box.width() - 28 - (MENU_WIDTH - 8 if hovered else (16 if streaming else 0))
        weight = 500 if selected else 400
        ink = "text" if selected else "text2"
        title = str(index.data(ChatListRole.TITLE) or index.data(Qt.ItemDataRole.DisplayRole) or self.tr("New chat"))
        paint.text(painter, box.left() + 14, box.top() + 20.5, title.replace("\n", " "), 13, weight, ink, max_width=room)
        if hovered:
            spot = menu_rect(outer, index)
            draw_icon(painter, "ellipsis", spot.left() + 5, spot.top() + 5, 16, "text2")
        elif streaming:
            paint.dot(painter, box.right() - 14, box.top() + 16, 3, "accent")
        if state & QStyle.StateFlag.State_HasFocus and state & QStyle.StateFlag.State_KeyboardFocusChange:
            paint.focus_ring(painter, QRectF(box), 8)
        painter.restore()
