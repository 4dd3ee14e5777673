"""InlineMath: replaces the TeX of inline formulas in a text by pictures once the worker has set them."""

from __future__ import annotations

from functools import partial

from PySide6.QtCore import QObject, QUrl, Signal
from PySide6.QtGui import QTextCharFormat, QTextCursor, QTextDocument, QTextImageFormat

from app import theme
from app.chat.blocks.rich_text import MATH_PROPERTY
from app.chat.blocks.text_view import TextView
from app.chat.formula import svg_image, svg_size, tex_to_inline_svg
from app.chat.render_pool import RenderPool

_PX = 16


class InlineMath(QObject):
    """Works on one view, after its block closed. The TeX stays in the character format for copying."""

    changed = Signal()

    def __init__(self, view: TextView, pool: RenderPool) -> None:
        super().__init__(view)
        self._view = view
        self._pool = pool

    def start(self) -> None:
        """Look for formulas in the document and have them set."""
        for tex in sorted({source for source, _start, _end in self._runs()}):
            color = theme.color("text").name()
            self._pool.run(self, partial(tex_to_inline_svg, tex, _PX, color), partial(self._on_set, tex))

    def _runs(self) -> list[tuple[str, int, int]]:
        found: list[tuple[str, int, int]] = []
        block = self._view.document.begin()
        while block.isValid():
            iterator = block.begin()
            while not iterator.atEnd():
                fragment = iterator.fragment()
                source = fragment.charFormat().property(MATH_PROPERTY)
                if source:
                    found.append((str(source), fragment.position(), fragment.position() + fragment.length()))
                iterator += 1
            block = block.next()
        return found

    def _on_set(self, tex: str, result: tuple[bytes, float]) -> None:
        svg, _descent = result
        if not svg:
            return
        document = self._view.document
        url = QUrl("formula:" + str(abs(hash((tex, svg)))))
        document.addResource(QTextDocument.ResourceType.ImageResource.value, url, svg_image(svg, 2.0))
        size = svg_size(svg)
        fmt = QTextImageFormat()
        fmt.setName(url.toString())
        fmt.setWidth(size.width())
        fmt.setHeight(size.height())
        fmt.setVerticalAlignment(QTextCharFormat.VerticalAlignment.AlignMiddle)
        for source, start, end in reversed(self._runs()):
            if source == tex and document.characterAt(start) != "\ufffc":
                cursor = QTextCursor(document)
                cursor.setPosition(start)
                cursor.setPosition(end, QTextCursor.MoveMode.KeepAnchor)
                cursor.insertImage(fmt)
        self._view.update()
        self.changed.emit()
