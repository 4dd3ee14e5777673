"""ThinkView: the fold over what a model thought before its answer. Its content is only laid out while it is open."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from PySide6.QtCore import QElapsedTimer, QRectF, QSize, Qt, QTimer
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QWidget

from app.chat.blocks.base import BlockContext, BlockView
from app.chat.blocks.text_view import TextView
from app.chat.markdown import Block
from app.widgets import paint
from app.widgets.format import count_text, seconds_text
from app.widgets.icon import draw_icon
from app.widgets.painted_button import PaintedButton

_HEADER = 28
_INDENT = 16


def thought_of(source: str) -> str:
    """What stands between the tags."""
    text = source.strip().removeprefix("<think>")
    for cut in range(len("</think>"), 1, -1):
        if text.endswith("</think>"[:cut]):
            return text[:-cut].strip()
    return text.strip()


class ThinkView(BlockView):
    """Header `Thinking… 12 s`, then `Thought for 6.2 s`; the token count at its right where it is known."""

    def __init__(
        self, context: BlockContext, make_column: Callable[[BlockContext, QWidget], BlockView], parent: QWidget | None = None
    ) -> None:
        super().__init__(context, parent)
        self._make_column = make_column
        self._column: BlockView | None = None
        self._block = Block("think", "")
        self._header = _FoldHeader(self)
        self._header.toggled.connect(self._on_toggled)
        self._clock = QElapsedTimer()
        self._seconds: float | None = None
        self._tokens: int | None = None
        self._timer = QTimer(self)
        self._timer.setInterval(1000)
        self._timer.timeout.connect(self._refresh)

    def set_block(self, block: Block) -> None:
        """An open block counts seconds; a block that closes while shown keeps them."""
        was_open = self._clock.isValid()
        self._block = block
        if not block.closed and not was_open and self._seconds is None:
            self._clock.start()
            self._timer.start()
        elif block.closed and was_open:
            self._seconds = self._clock.elapsed() / 1000
            self._clock.invalidate()
            self._timer.stop()
        if self._column is not None:
            self._column.set_block(Block("think", thought_of(block.source), "", block.closed))
        self._refresh()

    def set_figures(self, seconds: float | None, tokens: int | None) -> None:
        """What the thinking took, where the caller knows it."""
        self._seconds, self._tokens = seconds, tokens
        self._refresh()

    def fold(self, folded: bool) -> None:
        """Close or open the fold."""
        self._header.setChecked(not folded)

    @property
    def folded(self) -> bool:
        """Whether the content is hidden."""
        return not self._header.isChecked()

    def _refresh(self) -> None:
        if not self._block.closed:
            seconds = self._clock.elapsed() / 1000 if self._clock.isValid() else 0.0
            title = self.tr("Thinking… {time}").format(time=f"{seconds:.0f} s")
        elif self._seconds is not None:
            title = self.tr("Thought for {time}").format(time=seconds_text(self._seconds))
        else:
            title = self.tr("Thought")
        if self._tokens is not None:
            figure = self.tr("{n} tokens").format(n=count_text(self._tokens))
        else:
            figure = self.tr("%n words", "", len(thought_of(self._block.source).split()))
        self._header.set_texts(title, figure)

    def _on_toggled(self, opened: bool) -> None:
        if opened and self._column is None:
            self._column = self._make_column(replace(self.context, color="text2"), self)
            self._column.set_block(Block("think", thought_of(self._block.source), "", self._block.closed))
            self._column.height_changed.connect(self.height_changed)
        if self._column is not None:
            self._column.setVisible(opened)
        self.height_changed.emit()

    def layout_width(self, width: int) -> int:
        """The header, and the content below it while open."""
        self._header.setGeometry(0, 0, self._header.sizeHint().width(), _HEADER)
        if self._column is None or self.folded:
            return _HEADER
        height = self._column.layout_width(width - _INDENT)
        self._column.setGeometry(_INDENT, _HEADER + 12, width - _INDENT, height)
        return _HEADER + 12 + height

    def text_views(self) -> tuple[TextView, ...]:
        """The texts of the opened content."""
        return self._column.text_views() if self._column is not None and not self.folded else ()

    def restyle(self) -> None:
        """Pass it on."""
        if self._column is not None:
            self._column.restyle()
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        if self.height() > _HEADER + 12:
            painter = QPainter(self)
            paint.begin(painter)
            paint.rounded(painter, QRectF(0, _HEADER + 12, 2, self.height() - _HEADER - 12), 1, "line2")


class _FoldHeader(PaintedButton):
    def __init__(self, parent: QWidget) -> None:
        super().__init__("", parent)
        self._figure = ""
        self.setCheckable(True)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)

    def set_texts(self, title: str, figure: str) -> None:
        self._figure = figure
        self.setText(title)
        self.setAccessibleName(f"{title}, {figure}")
        self.resize(self.sizeHint())
        self.update()

    def sizeHint(self) -> QSize:
        width = 47 + paint.text_width(self.text(), 12, 600) + 24 + paint.text_width(self._figure, 12) + 12
        return QSize(max(262, round(width)), _HEADER)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        paint.begin(painter)
        rect = QRectF(self.rect())
        paint.rounded(painter, rect, 8, "overlay" if self.hovered else "raised", "line")
        draw_icon(painter, "chevron-down" if self.isChecked() else "chevron-right", 9, 7, 14, "text3")
        draw_icon(painter, "brain", 26, 7, 14, "purple")
        paint.text(painter, 47, 18.5, self.text(), 12, 600, "text2")
        paint.text(painter, rect.width() - 12, 18.5, self._figure, 12, 400, "text3", "right")
        if self.focus_visible:
            paint.focus_ring(painter, rect, 8)
