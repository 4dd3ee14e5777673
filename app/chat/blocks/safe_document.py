"""SafeDocument: the only text document of the transcript. It never opens a file or an address, whatever the text asks for."""

from __future__ import annotations

from PySide6.QtCore import QObject, QUrl
from PySide6.QtGui import QImage, QTextDocument

from app import theme


class SafeDocument(QTextDocument):
    """Resources are what the application added itself; everything else is an empty image.

    Returning None would let Qt open the path itself, and a path can be a pipe that blocks the whole process.
    """

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.setDocumentMargin(0)
        self.setUndoRedoEnabled(False)
        self.setDefaultFont(theme.font(14))
        self.setIndentWidth(24)

    def loadResource(self, kind: int, url: QUrl | str) -> object:
        """An empty image for every request."""
        return QImage()
