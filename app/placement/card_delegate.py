"""Paints the rows of a column: a box with a mark in the colour of its kind, a title, what it takes, its type or its experts."""

from __future__ import annotations

from collections import OrderedDict

from PySide6.QtCore import QModelIndex, QObject, QPersistentModelIndex, QRect, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QPainter, QPixmap
from PySide6.QtWidgets import QStyle, QStyledItemDelegate, QStyleOptionViewItem

from app import theme
from app.placement import heat_strip
from app.qtmodels.placement_columns import CardRole
from app.qtmodels.placement_rows import Row
from app.widgets import paint
from app.widgets.icon import draw_icon

Index = QModelIndex | QPersistentModelIndex
GAP = 6
SIDE = 8
"""Free to the left and right of cards: a rubber band can be begun there."""
INSET = 12
"""Of cards that belong to an open group."""
HEIGHT, STRIP_HEIGHT = 44, 52
CHEVRON_WIDTH = 32
KEPT_BYTES = 8 << 20
"""Of pictures, for each column."""
FADED = 0.5
"""Cards on a device that is not there, and figures that are being worked out."""
TOKENS = {"attention": "attn", "ffn": "ffn", "experts": "experts", "kv": "kv"}


def card_rect(rect: QRect, row: Row, right: int = SIDE) -> QRect:
    """The box of a row inside the rectangle of its item. right: free beside it."""
    left = rect.left() + SIDE + (INSET if row.inside else 0)
    return QRect(left, rect.top(), rect.right() + 1 - right - left, rect.height() - GAP)


def chevron_rect(box: QRect) -> QRect:
    """Where a group is opened and closed with the mouse."""
    return QRect(box.left(), box.top(), CHEVRON_WIDTH, box.height())


def selected_fill() -> QColor:
    """The ground of what is chosen."""
    return theme.mixed("raised", "accent_dim", 0.72)


def draw_card(painter: QPainter, box: QRectF, row: Row, *, selected: bool = False, hovered: bool = False) -> None:
    """One card. The title ends in an ellipsis where the size leaves it no room."""
    fill: str | QColor = selected_fill() if selected else "overlay" if hovered else "raised"
    paint.rounded(painter, box, 8, fill, "accent" if selected else "line")
    paint.rounded(painter, QRectF(box.x() + 7, box.y() + 9, 3, box.height() - 18), 1.5, TOKENS[row.kind])
    x = box.x() + 18
    if row.is_group:
        draw_icon(painter, "chevron-down" if row.expanded else "chevron-right", x - 2, box.center().y() - 7, 14, "text3")
        x += 18
    right = box.right() - 10
    first = box.y() + 18
    size_width = paint.text_width(row.size, 12, 500)
    width = paint.text(painter, x, first, row.title, 12, 600, "text", max_width=right - x - size_width - 18)
    if row.moved:
        paint.dot(painter, x + width + 8, first - 4, 2.5, "accent")
    paint.text(painter, right, first, row.size, 12, 500, "text2", "right")
    if row.has_strip:
        card = row.cards[0]
        n_hot = card.n_hot if row.family == "hot" else 0
        strip = QRectF(box.x() + 18, box.bottom() - 14, box.width() - 28 - (18 if row.pinned else 0), heat_strip.HEIGHT)
        heat_strip.draw_strip(painter, strip, card.heat, n_hot)
    else:
        paint.text(painter, x, box.y() + 33.5, row.detail, 11, 400, "text3", max_width=right - x - (20 if row.pinned else 0))
    if row.pinned:
        draw_icon(painter, "lock", right - 12, box.bottom() - (19 if row.has_strip else 21), 12, "text3")


class CardDelegate(QStyledItemDelegate):
    """Height 44 for a line of text below the title, 52 for a strip, and the gap to the next card.

    Cards are painted once and kept as pictures: a board of five columns is painted in 2 ms instead of 11.
    """

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.right = SIDE
        self.faded = False
        self._pictures: OrderedDict[tuple[object, ...], tuple[Row, QPixmap]] = OrderedDict()
        theme.hub().changed.connect(self._forget)

    def _forget(self) -> None:
        self._pictures.clear()

    def set_scrolled(self, scrolled: bool) -> None:
        """A scroll bar stands where otherwise room is left free."""
        self.right = 0 if scrolled else SIDE

    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        row: Row = index.data(CardRole.ROW)
        return QSize(120, (STRIP_HEIGHT if row.has_strip else HEIGHT) + GAP)

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        row: Row = index.data(CardRole.ROW)
        state: QStyle.StateFlag = option.state
        selected, hovered = bool(state & QStyle.StateFlag.State_Selected), bool(state & QStyle.StateFlag.State_MouseOver)
        box = card_rect(option.rect, row, self.right)
        painter.save()
        if self.faded:
            painter.setOpacity(FADED)
        # Of the painter, not of the screen: windows are also painted into pictures of another resolution.
        ratio = painter.deviceTransform().m11()
        painter.drawPixmap(box.topLeft(), self._picture(row, box.size(), ratio, selected, hovered))
        if state & QStyle.StateFlag.State_HasFocus and state & QStyle.StateFlag.State_KeyboardFocusChange:
            paint.begin(painter)
            paint.focus_ring(painter, QRectF(box), 8)
        painter.restore()

    def _picture(self, row: Row, size: QSize, ratio: float, selected: bool, hovered: bool) -> QPixmap:
        # By identity: rows are values that stay the same object as long as they say the same.
        key = (id(row), size.width(), size.height(), ratio, selected, hovered)
        known = self._pictures.get(key)
        if known is not None and known[0] is row:
            self._pictures.move_to_end(key)
            return known[1]
        picture = QPixmap(size * ratio)
        picture.setDevicePixelRatio(ratio)
        picture.fill(Qt.GlobalColor.transparent)
        painter = QPainter(picture)
        paint.begin(painter)
        draw_card(painter, QRectF(0, 0, size.width(), size.height()), row, selected=selected, hovered=hovered)
        painter.end()
        self._pictures[key] = (row, picture)
        kept = max(1, int(KEPT_BYTES / (4 * ratio * ratio * size.width() * size.height())))
        while len(self._pictures) > kept:
            self._pictures.popitem(last=False)
        return picture
