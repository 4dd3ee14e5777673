"""TextView: paints a SafeDocument and lets its text be selected, copied, searched; links are reported, never opened.

A QTextBrowser would do all this with a scroll area, two scroll bars and its own ideas about links for every paragraph.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from PySide6.QtCore import QEvent, QPoint, QPointF, QRectF, Qt, Signal
from PySide6.QtGui import (
    QAbstractTextDocumentLayout,
    QContextMenuEvent,
    QFocusEvent,
    QGuiApplication,
    QKeyEvent,
    QKeySequence,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QPalette,
    QTextBlockFormat,
    QTextCursor,
)
from PySide6.QtWidgets import QMenu, QWidget

from app import theme
from app.chat.blocks.rich_text import MARKER_PROPERTY
from app.chat.blocks.safe_document import SafeDocument
from app.widgets import paint

_PROPORTIONAL = QTextBlockFormat.LineHeightTypes.ProportionalHeight.value


@runtime_checkable
class Selectable(Protocol):
    """An ancestor that knows the order of all texts on screen."""

    def selectable_views(self) -> list[TextView]:
        """From top to bottom."""


class TextView(QWidget):
    """Give it text through `document`, a width through layout_width(); it says its height."""

    link_clicked = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.document = SafeDocument(self)
        self.offset = QPointF(0, 0)
        self.caret_shown = False
        self._cursor: QTextCursor | None = None
        self._needle = ""
        self.setMouseTracking(True)
        self.setFocusPolicy(Qt.FocusPolicy.ClickFocus)
        self.setCursor(Qt.CursorShape.IBeamCursor)
        self.setAccessibleName(self.tr("Text"))

    def layout_width(self, width: int) -> int:
        """Wrap at `width` pixels; returns the height."""
        if self.document.textWidth() != width:
            self.document.setTextWidth(width)
        return int(self.document.size().height() - self._trailing() + 0.999)

    def _trailing(self) -> float:
        """Qt puts the extra of a proportional line height below the text; under the last line it is no distance to anything."""
        block = self.document.lastBlock()
        layout = block.layout()
        if layout.lineCount() == 0 or block.blockFormat().lineHeightType() != _PROPORTIONAL:
            return 0.0
        return layout.lineAt(layout.lineCount() - 1).height() * max(0.0, 1 - 100 / max(100.0, block.blockFormat().lineHeight()))

    def text(self) -> str:
        """What is shown, as plain text."""
        return self.document.toPlainText()

    def text_changed(self) -> None:
        """Call after the document was rebuilt: a selection in the old text is gone."""
        self._cursor = None
        self.setAccessibleDescription(self.document.toPlainText()[:500])
        self.update()

    def set_needle(self, needle: str) -> int:
        """Mark all occurrences of a search text; returns their number."""
        self._needle = needle
        self.update()
        return len(self._matches())

    def clear_selection(self) -> None:
        """Drop the selection."""
        if self._cursor is not None:
            self._cursor = None
            self.update()

    def selected_text(self) -> str:
        """The selected text, "" without one."""
        if self._cursor is None or not self._cursor.hasSelection():
            return ""
        return self._cursor.selectedText().replace("\u2029", "\n").replace("\u2028", "\n")

    def _matches(self) -> list[QTextCursor]:
        found: list[QTextCursor] = []
        if not self._needle:
            return found
        cursor = self.document.find(self._needle, 0)
        while not cursor.isNull() and len(found) < 1000:
            found.append(QTextCursor(cursor))
            cursor = self.document.find(self._needle, cursor)
        return found

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        paint.begin(painter)
        painter.translate(self.offset)
        context = QAbstractTextDocumentLayout.PaintContext()
        context.clip = QRectF(event.rect()).translated(-self.offset)
        context.palette.setColor(QPalette.ColorRole.Text, theme.color("text"))
        selections = []
        for match in self._matches():
            selections.append(self._selection(match, "experts", 0.35))
        if self._cursor is not None and self._cursor.hasSelection():
            selections.append(self._selection(self._cursor, "accent", 0.38))
        context.selections = selections
        self.document.documentLayout().draw(painter, context)
        self._paint_markers(painter)
        if self.caret_shown:
            self._paint_caret(painter)

    def _paint_markers(self, painter: QPainter) -> None:
        """Numbers and bullets of list items, right-aligned before the text of their line."""
        block = self.document.begin()
        while block.isValid():
            marker = block.blockFormat().property(MARKER_PROPERTY)
            if marker and block.layout().lineCount():
                line = block.layout().lineAt(0)
                corner = self.document.documentLayout().blockBoundingRect(block).topLeft()
                x = corner.x() + line.x() - 9
                paint.text(painter, x, corner.y() + line.y() + line.ascent(), str(marker), 14, 400, "text2", "right")
            block = block.next()

    @staticmethod
    def _selection(cursor: QTextCursor, token: str, alpha: float) -> QAbstractTextDocumentLayout.Selection:
        result = QAbstractTextDocumentLayout.Selection()
        result.cursor = cursor
        result.format.setBackground(theme.color(token, alpha))
        return result

    def _paint_caret(self, painter: QPainter) -> None:
        block = self.document.lastBlock()
        layout = block.layout()
        if layout.lineCount() == 0:
            return
        line = layout.lineAt(layout.lineCount() - 1)
        corner = self.document.documentLayout().blockBoundingRect(block).topLeft()
        x = corner.x() + line.cursorToX(block.length() - 1)[0] + 3  # type: ignore[index]
        bottom = corner.y() + line.y() + line.height()
        paint.rounded(painter, QRectF(x, bottom - 17, 3, 17), 1.5, "accent")

    def _position_at(self, point: QPointF) -> int:
        return self.document.documentLayout().hitTest(point - self.offset, Qt.HitTestAccuracy.FuzzyHit)

    def _link_at(self, point: QPointF) -> str:
        return self.document.documentLayout().anchorAt(point - self.offset)

    def _peers(self) -> list[TextView]:
        """All texts a selection may reach over, this one among them."""
        ancestor = self.parentWidget()
        while ancestor is not None:
            if isinstance(ancestor, Selectable):
                return ancestor.selectable_views()
            ancestor = ancestor.parentWidget()
        return [self]

    def _selected_everywhere(self) -> str:
        return "\n\n".join(text for text in (peer.selected_text() for peer in self._peers()) if text)

    def _select_to(self, point: QPoint) -> None:
        """Extend the selection to a point of the screen, over the texts in between."""
        if self._cursor is None:
            return
        peers = self._peers()
        start = peers.index(self) if self in peers else 0
        tops = [peer.mapToGlobal(QPoint(0, 0)).y() for peer in peers]
        target = max((i for i, top in enumerate(tops) if top <= point.y()), default=0)
        for i, peer in enumerate(peers):
            if i == start:
                inside = QPointF(self.mapFromGlobal(point))
                position = (
                    self._position_at(inside)
                    if target == start
                    else (self.document.characterCount() - 1 if target > start else 0)
                )
                self._cursor.setPosition(position, QTextCursor.MoveMode.KeepAnchor)
                self.update()
            elif min(start, target) <= i <= max(start, target):
                peer.select_span(point if i == target else None, from_start=i > start)
            else:
                peer.clear_selection()

    def select_span(self, point: QPoint | None, from_start: bool) -> None:
        """Select from the start (or end) to a point of the screen, or everything without a point."""
        last = self.document.characterCount() - 1
        self._cursor = QTextCursor(self.document)
        self._cursor.setPosition(0 if from_start else last)
        far = last if from_start else 0
        position = far if point is None else self._position_at(QPointF(self.mapFromGlobal(point)))
        self._cursor.setPosition(position, QTextCursor.MoveMode.KeepAnchor)
        self.update()

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if event.button() != Qt.MouseButton.LeftButton:
            return
        position = self._position_at(event.position())
        if event.modifiers() & Qt.KeyboardModifier.ShiftModifier and self._cursor is not None:
            self._cursor.setPosition(position, QTextCursor.MoveMode.KeepAnchor)
        else:
            self._cursor = QTextCursor(self.document)
            self._cursor.setPosition(position)
        for peer in self._peers():
            if peer is not self:
                peer.clear_selection()
        self.update()

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        if event.buttons() & Qt.MouseButton.LeftButton and self._cursor is not None:
            self._select_to(event.globalPosition().toPoint())
            return
        link = self._link_at(event.position())
        self.setCursor(Qt.CursorShape.PointingHandCursor if link else Qt.CursorShape.IBeamCursor)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        link = self._link_at(event.position())
        if event.button() == Qt.MouseButton.LeftButton and link and not self.selected_text():
            self.link_clicked.emit(link)

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        if self._cursor is not None:
            self._cursor.select(QTextCursor.SelectionType.WordUnderCursor)
            self.update()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.matches(QKeySequence.StandardKey.Copy) and self._selected_everywhere():
            QGuiApplication.clipboard().setText(self._selected_everywhere())
        elif event.matches(QKeySequence.StandardKey.SelectAll):
            self._cursor = QTextCursor(self.document)
            self._cursor.select(QTextCursor.SelectionType.Document)
            self.update()
        else:
            event.ignore()

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        selected = self._selected_everywhere()
        copy = menu.addAction(self.tr("Copy"), lambda: QGuiApplication.clipboard().setText(selected or self.text()))
        copy.setEnabled(bool(self.text()))
        link = self._link_at(QPointF(event.pos()))
        if link:
            menu.addAction(self.tr("Copy link"), lambda: QGuiApplication.clipboard().setText(link))
        menu.popup(event.globalPos())

    def focusOutEvent(self, event: QFocusEvent) -> None:
        if event.reason() not in (Qt.FocusReason.PopupFocusReason, Qt.FocusReason.ActiveWindowFocusReason):
            for peer in self._peers():
                peer.clear_selection()
        super().focusOutEvent(event)

    def changeEvent(self, event: QEvent) -> None:
        if event.type() == QEvent.Type.LanguageChange:
            self.setAccessibleName(self.tr("Text"))
        super().changeEvent(event)
