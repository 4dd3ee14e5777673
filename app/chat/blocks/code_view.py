"""CodeView: a framed code block with its language, a Copy button, colours, and its own sideways scrolling."""

from __future__ import annotations

from PySide6.QtCore import QPointF, QRectF, Qt, QTimer
from PySide6.QtGui import (
    QGuiApplication,
    QPainter,
    QPaintEvent,
    QTextBlockFormat,
    QTextCharFormat,
    QTextCursor,
    QTextLayout,
    QTextOption,
    QWheelEvent,
)
from PySide6.QtWidgets import QScrollBar, QWidget

from app import theme
from app.chat.blocks.base import BlockContext, BlockView
from app.chat.blocks.text_view import TextView
from app.chat.highlight import MAX_CHARS, Run, highlight
from app.chat.markdown import Block
from app.chat.plain import break_long_lines, clean, mark_bidi
from app.widgets import paint
from app.widgets.copy_button import CopyButton

HEADER = 33
_PAD_X = 16
_PAD_TOP = 5
_PAD_FOOT = 18
LINE = 24
_COLOR_MS = 250
_OPEN_LIMIT = 8 * 1024
_SLICE = 400


def code_of(source: str) -> str:
    """The lines between the fences."""
    lines = source.strip("\n").split("\n")
    first = lines[0].strip()
    marker = first[: len(first) - len(first.lstrip(first[:1]))] if first[:1] in ("`", "~") else ""
    if len(marker) < 3:
        return source.rstrip("\n")
    body = lines[1:]
    if body and body[-1].strip() and not body[-1].strip().strip(marker[0]) and len(body[-1].strip()) >= len(marker):
        body = body[:-1]
    return "\n".join(body)


class CodeView(BlockView):
    """While the block is open its text only grows, so new text is appended; colours follow every 250 ms and when it closes."""

    def __init__(self, context: BlockContext, parent: QWidget | None = None) -> None:
        super().__init__(context, parent)
        self.view = TextView(self)
        self._raw = ""
        self._code = ""
        self._shown = ""
        self._language = ""
        self._closed = False
        self._height = 0
        self._content_width = 0
        self._copy = CopyButton(self.tr("Copy"), self)
        self._copy.clicked.connect(self._on_copy_clicked)
        self._scroll = QScrollBar(Qt.Orientation.Horizontal, self)
        self._scroll.valueChanged.connect(self._on_scroll_value_changed)
        self._scroll.hide()
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(_COLOR_MS)
        self._timer.timeout.connect(self._start_coloring)
        self._colored = ""
        self._runs: tuple[Run, ...] = ()
        self._next_run = 0
        self._slices = QTimer(self)
        self._slices.setSingleShot(True)
        self._slices.setInterval(0)
        self._slices.timeout.connect(self._color_slice)
        option = QTextOption()
        option.setWrapMode(QTextOption.WrapMode.NoWrap)
        option.setTabStopDistance(4 * paint.text_width(" ", 13, mono=True))
        self.view.document.setDefaultTextOption(option)
        self.view.document.setDefaultFont(theme.font(13, mono=True))

    def set_block(self, block: Block) -> None:
        """Show the code of the block."""
        self._language = block.info
        self.set_code(code_of(block.source), block.closed)

    def set_code(self, code: str, closed: bool) -> None:
        """Show code; text that only grew is appended."""
        self._raw = code
        shown = break_long_lines(mark_bidi(clean(code.replace("\r\n", "\n"))))
        if shown != self._shown:
            self._append(shown)
        if closed and not self._closed:
            self._closed = True
            self._start_coloring()
        elif not closed and len(shown) < _OPEN_LIMIT and not self._timer.isActive():
            self._timer.start()
        self.update()

    def _append(self, shown: str) -> None:
        document = self.view.document
        cursor = QTextCursor(document)
        cursor.beginEditBlock()
        if shown.startswith(self._shown) and self._shown:
            cursor.movePosition(QTextCursor.MoveOperation.End)
            cursor.insertText(shown[len(self._shown) :])
        else:
            cursor.select(QTextCursor.SelectionType.Document)
            fmt = QTextBlockFormat()
            fmt.setLineHeight(LINE, QTextBlockFormat.LineHeightTypes.FixedHeight.value)
            cursor.removeSelectedText()
            cursor.setBlockFormat(fmt)
            cursor.insertText(shown, self._base())
        cursor.endEditBlock()
        self._shown = shown
        self.view.update()

    def _base(self) -> QTextCharFormat:
        fmt = QTextCharFormat()
        fmt.setFont(theme.font(13, mono=True))
        fmt.setForeground(theme.color("text"))
        return fmt

    def _start_coloring(self) -> None:
        code, language = self._shown, self._language
        if code and language and len(code) <= MAX_CHARS:
            self.context.pool.run(self, lambda: highlight(code, language), lambda runs: self._on_highlighted(code, runs))

    def _on_highlighted(self, code: str, runs: tuple[Run, ...]) -> None:
        """Colours that fit what is shown by now; applied in slices, so that long code does not hold up the window."""
        if self._shown.startswith(code):
            self._colored = code
            self._runs = runs
            self._next_run = 0
            self._slices.start()

    def _color_slice(self) -> None:
        if not self._shown.startswith(self._colored):
            return
        document = self.view.document
        by_line: dict[int, list[QTextLayout.FormatRange]] = {}
        first = self._next_run
        while self._next_run < len(self._runs):
            run = self._runs[self._next_run]
            # A line takes all its formats at once, so a slice ends between lines.
            if self._next_run - first >= _SLICE and document.findBlock(run[0]).blockNumber() not in by_line:
                break
            self._spread(by_line, *run)
            self._next_run += 1
        for number, formats in by_line.items():
            document.findBlockByNumber(number).layout().setFormats(formats)
        if by_line:
            start = document.findBlockByNumber(min(by_line)).position()
            last = document.findBlockByNumber(max(by_line))
            document.markContentsDirty(start, last.position() + last.length() - start)
        self.view.update()
        if self._next_run < len(self._runs):
            self._slices.start()

    def _spread(self, by_line: dict[int, list[QTextLayout.FormatRange]], start: int, length: int, token: str) -> None:
        """One run as format ranges, one per line it touches."""
        fmt = QTextCharFormat()
        fmt.setForeground(theme.color(token))
        document = self.view.document
        end = start + length
        while start < end:
            block = document.findBlock(start)
            if not block.isValid():
                return
            stop = min(end, block.position() + block.length())
            part = QTextLayout.FormatRange()
            part.start = start - block.position()
            part.length = stop - start
            part.format = fmt
            by_line.setdefault(block.blockNumber(), []).append(part)
            start = stop

    def layout_width(self, width: int) -> int:
        """Code does not wrap: only a very long line adds the room of a scroll bar."""
        lines = self.view.document.blockCount()
        self._content_width = int(self.view.document.idealWidth()) + 2
        inner = width - 2 * _PAD_X
        text_height = lines * LINE
        overflow = self._content_width > inner
        self.view.setGeometry(_PAD_X, HEADER + _PAD_TOP, inner, text_height)
        if overflow:
            self._scroll.setRange(0, self._content_width - inner)
            self._scroll.setPageStep(inner)
            self._scroll.setSingleStep(40)
            self._scroll.setGeometry(_PAD_X - 4, HEADER + _PAD_TOP + text_height + 3, inner + 8, 10)
        self._scroll.setVisible(overflow)
        self._copy.move(width - self._copy.width() - 8, 3)
        return HEADER + _PAD_TOP + text_height + _PAD_FOOT

    def text_views(self) -> tuple[TextView, ...]:
        """The code."""
        return (self.view,)

    def restyle(self) -> None:
        """Write the text again in the new colours."""
        shown, self._shown = self._shown, ""
        self._append(shown)
        self._start_coloring()
        self.update()

    def wheelEvent(self, event: QWheelEvent) -> None:
        delta = event.angleDelta()
        sideways = delta.x() or (delta.y() if event.modifiers() & Qt.KeyboardModifier.ShiftModifier else 0)
        if self._scroll.isVisible() and sideways and abs(sideways) >= abs(delta.y() if delta.x() else 0):
            self._scroll.setValue(self._scroll.value() - sideways // 2)
            event.accept()
        else:
            event.ignore()

    def _on_scroll_value_changed(self, value: int) -> None:
        self.view.offset = QPointF(-value, 0)
        self.view.update()

    def _on_copy_clicked(self) -> None:
        QGuiApplication.clipboard().setText(self._raw)
        self._copy.confirm()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        paint.begin(painter)
        rect = QRectF(self.rect())
        paint.rounded(painter, rect, 10, "code_bg", "line")
        paint.line(painter, 1, HEADER - 0.5, rect.width() - 1, HEADER - 0.5)
        name = mark_bidi(clean(self._language)) or self.tr("text")
        paint.text(painter, 14, 21, name, 11, 500, "text3", mono=True, max_width=rect.width() - 120)
