"""Pane: the frame of what the panel at the right shows: a title, a line below it, and a column that scrolls. Rule: a line."""

from __future__ import annotations

from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QFrame, QLabel, QScrollArea, QSizePolicy, QVBoxLayout, QWidget

from app import theme
from app.widgets import paint
from app.widgets.elided_label import ElidedLabel
from app.widgets.inputs import Select

MARGIN = 18


class Pane(QScrollArea):
    """Subclasses fill `column`."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setWidgetResizable(True)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.setStyleSheet("QScrollArea, QScrollArea > QWidget > QWidget#pane { background: transparent; }")
        self._title = ElidedLabel("", 14, 600)
        self._subtitle = ElidedLabel("", 12, 400, "text2")
        content = QWidget()
        content.setObjectName("pane")
        self.column = QVBoxLayout(content)
        self.column.setContentsMargins(MARGIN, 14, MARGIN, 16)
        self.column.setSpacing(0)
        self.column.addWidget(self._title)
        self.column.addWidget(self._subtitle)
        self.setWidget(content)

    def set_title(self, title: str, subtitle: str = "") -> None:
        """The words at the head."""
        self._title.set_text(title)
        self._subtitle.set_text(subtitle)
        self._subtitle.setToolTip(subtitle)
        self._subtitle.setVisible(bool(subtitle))

    @property
    def title(self) -> str:
        """The words at the head."""
        return self._title.text()


class Rule(QWidget):
    """A line across."""

    def __init__(self) -> None:
        super().__init__()
        self.setFixedHeight(1)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        theme.hub().changed.connect(self.update)

    def sizeHint(self) -> QSize:
        return QSize(100, 1)

    def paintEvent(self, event: QPaintEvent) -> None:
        paint.line(QPainter(self), 0, 0.5, self.width(), 0.5)


class Prose(QLabel):
    """Plain text over as many lines as it takes; can be selected."""

    def __init__(self, text: str = "", px: int = 12, color_token: str = "text2", parent: QWidget | None = None) -> None:
        super().__init__(text, parent)
        self._color_token = color_token
        self.setTextFormat(Qt.TextFormat.PlainText)
        self.setWordWrap(True)
        self.setFont(theme.font(px))
        self.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self._recolor()
        theme.hub().changed.connect(self._recolor)

    def set_text(self, text: str, color_token: str | None = None) -> None:
        """Show another text."""
        self.setText(text)
        self.setAccessibleName(text)
        if color_token is not None:
            self._color_token = color_token
            self._recolor()

    def _recolor(self) -> None:
        self.setStyleSheet(f"color: {theme.color(self._color_token).name()};")


def wide(box: Select) -> Select:
    """A choice that takes the width there is."""
    box.setMinimumWidth(60)
    box.setMaximumWidth(16_777_215)
    box.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
    return box
