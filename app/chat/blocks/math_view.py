"""MathView: a display formula, centred; its TeX as code until it is set, or if it cannot be."""

from __future__ import annotations

from PySide6.QtCore import QByteArray, QRectF, QSizeF
from PySide6.QtGui import QContextMenuEvent, QGuiApplication, QPainter, QPaintEvent
from PySide6.QtSvg import QSvgRenderer
from PySide6.QtWidgets import QMenu, QWidget

from app import theme
from app.chat.blocks.base import BlockContext, BlockView
from app.chat.blocks.rich_text import TextStyle, fill_plain
from app.chat.blocks.text_view import TextView
from app.chat.formula import strip_tex, tex_to_svg
from app.chat.markdown import Block
from app.chat.plain import mark_bidi

_PX = 18
_PAD = 6


class MathView(BlockView):
    """Only closed blocks are set; the result is cached by source and colour."""

    def __init__(self, context: BlockContext, parent: QWidget | None = None) -> None:
        super().__init__(context, parent)
        self.view = TextView(self)
        self._tex = ""
        self._source = ""
        self._renderer: QSvgRenderer | None = None
        self._size = QSizeF()

    def set_block(self, block: Block) -> None:
        """Show the source, and have it set once the block is closed."""
        self._source = block.source
        self._tex = strip_tex(block.source)
        self.setAccessibleName(self._tex)
        if self._renderer is None:
            fill_plain(self.view.document, mark_bidi(block.source.strip()), TextStyle(px=13, color="code_text"))
            self.view.text_changed()
        if block.closed:
            self._start()

    def _start(self) -> None:
        tex, color = self._tex, theme.color("text").name()
        self.context.pool.run(self, lambda: tex_to_svg(tex, _PX, color), lambda svg: self._on_set(tex, svg))

    def _on_set(self, tex: str, svg: bytes) -> None:
        if tex != self._tex or not svg:
            return
        renderer = QSvgRenderer(QByteArray(svg), self)
        if not renderer.isValid():
            return
        self._renderer = renderer
        self._size = QSizeF(renderer.viewBoxF().size())
        self.view.hide()
        self.height_changed.emit()
        self.update()

    def layout_width(self, width: int) -> int:
        """Formulas wider than the column are scaled down."""
        if self._renderer is None:
            height = self.view.layout_width(width)
            self.view.setGeometry(0, 0, width, height)
            return height
        return round(self._size.height() * self._scale(width)) + 2 * _PAD

    def _scale(self, width: int) -> float:
        return min(1.0, width / max(1.0, self._size.width()))

    def text_views(self) -> tuple[TextView, ...]:
        """The source while it is shown."""
        return () if self._renderer is not None else (self.view,)

    def restyle(self) -> None:
        """Set it again in the new colour."""
        self._start()

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        menu = QMenu(self)
        menu.addAction(self.tr("Copy TeX"), lambda: QGuiApplication.clipboard().setText(self._source.strip()))
        menu.popup(event.globalPos())

    def paintEvent(self, event: QPaintEvent) -> None:
        if self._renderer is None:
            return
        scale = self._scale(self.width())
        size = self._size * scale
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        self._renderer.render(painter, QRectF((self.width() - size.width()) / 2, _PAD, size.width(), size.height()))
