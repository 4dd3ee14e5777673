"""EmptyState: what stands in the place of the first message: the model and three examples, or what to do without a model."""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize, Signal
from PySide6.QtGui import QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QWidget

from app import theme
from app.widgets import paint
from app.widgets.buttons import PushButton
from app.widgets.icon import draw_icon
from app.widgets.painted_button import PaintedButton

_CARD_HEIGHT = 94
_WIDTH = 720
LINES = 3


class EmptyState(QWidget):
    """With a model: its name and three prompts that fill the composer. Without one: open a file, or pick a model."""

    example_chosen = Signal(str)
    open_file_requested = Signal()
    model_requested = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._model = ""
        examples = (
            ("message-circle", self.tr("Explain"), self.tr("Explain how a transformer predicts the next word, in simple terms.")),
            ("pencil", self.tr("Write"), self.tr("Write a short, friendly email that moves a meeting to Friday.")),
            ("file-text", self.tr("Code"), self.tr("Write a Python function that finds duplicate files in a folder.")),
        )
        self._cards = [_ExampleCard(icon, title, prompt, self) for icon, title, prompt in examples]
        for card in self._cards:
            card.clicked.connect(lambda _checked=False, card=card: self.example_chosen.emit(card.prompt))
        self._choose = PushButton(self.tr("Choose a model"), "primary", self)
        self._open = PushButton(self.tr("Open a GGUF file…"), parent=self)
        self._choose.clicked.connect(self.model_requested)
        self._open.clicked.connect(self.open_file_requested)
        theme.hub().changed.connect(self.update)
        self.set_model_name("")

    def set_model_name(self, name: str) -> None:
        """An empty name: no model is loaded."""
        self._model = name
        for card in self._cards:
            card.setVisible(bool(name))
        self._choose.setVisible(not name)
        self._open.setVisible(not name)
        self.setAccessibleName(self._title())
        self.update()

    def _title(self) -> str:
        return self._model or self.tr("No model is loaded")

    def _subtitle(self) -> str:
        if self._model:
            return self.tr("Runs on this machine. Nothing you write leaves it.")
        return self.tr("Choose a model, or drop a GGUF file here. You can write already: sending loads the last model.")

    def _top(self) -> int:
        return max(40, round((self.height() - 280) * 0.46))

    def resizeEvent(self, event: QResizeEvent) -> None:
        width = min(_WIDTH, self.width() - 80)
        left = (self.width() - width) // 2
        top = self._top() + 168
        each = (width - 24) // 3
        for i, card in enumerate(self._cards):
            card.setGeometry(left + i * (each + 12), top, each, _CARD_HEIGHT)
        sizes = (self._choose.sizeHint().width() + 16, self._open.sizeHint().width())
        x = (self.width() - sum(sizes) - 10) // 2
        self._choose.setGeometry(x, top, sizes[0], 34)
        self._open.setGeometry(x + sizes[0] + 10, top, sizes[1], 34)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.fillRect(self.rect(), theme.color("bg"))
        paint.begin(painter)
        top, middle = self._top(), self.width() / 2
        paint.tile(painter, QRectF(middle - 28, top, 56, 56), 15, "layers", 28)
        paint.text(painter, middle, top + 98, self._title(), 24, 600, "text", "center", max_width=self.width() - 80)
        paint.text(painter, middle, top + 126, self._subtitle(), 14, 400, "text2", "center", max_width=self.width() - 60)


class _ExampleCard(PaintedButton):
    def __init__(self, icon_name: str, title: str, prompt: str, parent: QWidget) -> None:
        super().__init__(title, parent)
        self.prompt = prompt
        self._icon_name = icon_name
        self.setAccessibleDescription(prompt)

    def sizeHint(self) -> QSize:
        return QSize(230, _CARD_HEIGHT)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        paint.begin(painter)
        rect = QRectF(self.rect())
        paint.rounded(painter, rect, 12, "raised" if self.hovered else "surface", "line2" if self.hovered else "line")
        draw_icon(painter, self._icon_name, 14, 13, 15, "accent")
        paint.text(painter, 37, 25.5, self.text(), 13, 600)
        for i, line in enumerate(_lines(self.prompt, self.width() - 28)):
            paint.text(painter, 14, 46 + 17 * i, line, 12, 400, "text2", max_width=self.width() - 26)
        if self.focus_visible:
            paint.focus_ring(painter, rect, 12)


def _lines(text: str, width: float) -> list[str]:
    """The text broken at spaces into at most LINES lines; the last one takes what is left."""
    lines = [""]
    for word in text.split(" "):
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and len(lines) < LINES and paint.text_width(longer, 12) > width:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines
