"""WelcomePage: the first screen: what this machine is, and a model to start with. Real facts only."""

from __future__ import annotations

from dataclasses import dataclass

from PySide6.QtCore import QRectF, Qt, Signal
from PySide6.QtGui import QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QScrollArea, QWidget

from app import theme
from app.welcome.model_row import HEIGHT as ROW_HEIGHT
from app.welcome.model_row import ModelRow
from app.welcome.warning_strip import HEIGHT as WARNING_HEIGHT
from app.welcome.warning_strip import WarningStrip
from app.widgets import paint
from app.widgets.buttons import LinkButton
from app.widgets.format import bytes_text
from app.widgets.icon import draw_icon

WIDTH = 760
_CARD_HEIGHT = 112
_TOP = 104


@dataclass(frozen=True, slots=True)
class MachineSummary:
    """What was found on this machine. None or 0 where it is not known (yet)."""

    cpu_name: str = ""
    n_cores: int = 0
    isa: str = ""
    ram_total_bytes: int = 0
    ram_free_bytes: int = 0
    disk_free_bytes: int = 0
    disk_path: str = ""


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """A model that can be started. detail: one line; primary: the one that is offered first."""

    path: str
    name: str
    quant: str
    file_bytes: int
    detail: str
    primary: bool = False


class WelcomePage(QWidget):
    """One click on Start chatting ends it; never more than one page. The cards are skeletons until set_machine()."""

    start_requested = Signal(str)
    open_file_requested = Signal()
    folder_requested = Signal()
    warning_requested = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._content = _Content()
        self._scroll = QScrollArea(self)
        self._scroll.setWidget(self._content)
        self._scroll.setWidgetResizable(True)
        self._scroll.setFrameShape(QScrollArea.Shape.NoFrame)
        self._scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self._scroll.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self._scroll.setAccessibleName(self.tr("Welcome"))
        self._content.open_file.clicked.connect(self.open_file_requested)
        self._content.folder.clicked.connect(self.folder_requested)
        self._content.started.connect(self.start_requested)
        self._content.warning.chosen.connect(self.warning_requested)
        theme.hub().changed.connect(self.update)

    def set_machine(self, machine: MachineSummary) -> None:
        """Fill the cards."""
        self._content.set_machine(machine)

    def set_models(self, models: tuple[ModelChoice, ...]) -> None:
        """Models that can be started, in the order shown."""
        self._content.set_models(models)

    def set_warning(self, text: str, link: str) -> None:
        """The one thing that could be better here, with the words that lead to it; empty for none."""
        self._content.warning.show_warning(text, link)
        self._content.place()

    @property
    def warning(self) -> str:
        """What is said about this machine, empty for nothing."""
        return self._content.warning.text

    def set_folder_offered(self, offered: bool) -> None:
        """Whether a folder of models can be used."""
        self._content.folder.setVisible(offered)
        self._content.place()

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._scroll.setGeometry(self.rect())


class _Content(QWidget):
    started = Signal(str)

    def __init__(self) -> None:
        super().__init__()
        self._machine: MachineSummary | None = None
        self._rows: list[ModelRow] = []
        self.open_file = LinkButton(self.tr("Open a GGUF file…"), self)
        self.folder = LinkButton(self.tr("Use a folder from LM Studio, Jan or Ollama…"), self)
        self.folder.hide()
        self.warning = WarningStrip(self)

    def set_machine(self, machine: MachineSummary) -> None:
        self._machine = machine
        self.setAccessibleDescription(". ".join(", ".join(texts) for _icon, _dot, *texts in self._cards()))
        self.update()

    def set_models(self, models: tuple[ModelChoice, ...]) -> None:
        for row in self._rows:
            row.hide()
            row.deleteLater()
        self._rows = []
        for model in models:
            row = ModelRow(model.name, model.quant, model.file_bytes, model.detail, model.primary, self)
            row.started.connect(lambda path=model.path: self.started.emit(path))
            row.show()
            self._rows.append(row)
        self.place()

    def _left(self) -> int:
        return (self.width() - min(WIDTH, self.width() - 48)) // 2

    def _rows_top(self) -> int:
        return _TOP + 164 + _CARD_HEIGHT + 60 + (0 if self.warning.isHidden() else WARNING_HEIGHT)

    def place(self) -> None:
        left = self._left()
        width = self.width() - 2 * left
        self.warning.setGeometry(left, _TOP + 164 + _CARD_HEIGHT + 14, width, WARNING_HEIGHT)
        y = self._rows_top()
        for row in self._rows:
            row.setGeometry(left, y, width, ROW_HEIGHT)
            y += ROW_HEIGHT + 10
        y += 8
        links = [link for link in (self.open_file, self.folder) if not link.isHidden()]
        total = sum(link.sizeHint().width() for link in links) + 24 * (len(links) - 1)
        x = (self.width() - total) // 2
        for link in links:
            link.setGeometry(x, y, link.sizeHint().width(), 24)
            x += link.width() + 24
        self.setMinimumHeight(y + 24 + 40)
        self.update()

    def resizeEvent(self, event: QResizeEvent) -> None:
        self.place()

    def _cards(self) -> list[tuple[str, str, str, str, str]]:
        """(icon, dot colour, title, two lines) of the four cards."""
        machine = self._machine or MachineSummary()
        cores = self.tr("one core") if machine.n_cores == 1 else self.tr("%n cores", "", machine.n_cores)
        return [
            ("microchip", "text3", self.tr("No GPU used yet"), self.tr("CPU only, fine for"), self.tr("the included model")),
            ("cpu", "ok", machine.cpu_name or self.tr("Processor"), cores, machine.isa),
            (
                "memory-stick",
                "ok",
                self.tr("{size} RAM").format(size=bytes_text(machine.ram_total_bytes)),
                self.tr("{size} free").format(size=bytes_text(machine.ram_free_bytes)),
                "",
            ),
            ("hard-drive", "ok", self.tr("{size} free").format(size=bytes_text(machine.disk_free_bytes)), machine.disk_path, ""),
        ]

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.fillRect(self.rect(), theme.color("bg"))
        paint.begin(painter)
        left, middle = self._left(), self.width() / 2
        width = self.width() - 2 * left
        paint.tile(painter, QRectF(middle - 28, _TOP, 56, 56), 15, "layers", 28)
        paint.text(painter, middle, _TOP + 100, self.tr("This machine is ready"), 26, 600, "text", "center")
        subtitle = self.tr("A small model is included, so you can chat now. Larger models come next.")
        paint.text(painter, middle, _TOP + 128, subtitle, 14, 400, "text2", "center", max_width=self.width() - 40)
        each = (width - 36) / 4
        for i, card in enumerate(self._cards()):
            self._paint_card(painter, QRectF(left + i * (each + 12), _TOP + 164, each, _CARD_HEIGHT), *card)
        y = self._rows_top() - 16
        paint.text(painter, left, y, self.tr("Start with a model"), 14, 600)

    def _paint_card(self, painter: QPainter, rect: QRectF, icon: str, dot: str, title: str, first: str, second: str) -> None:
        paint.rounded(painter, rect, 12, "surface", "line")
        x, y = rect.x() + 16, rect.y()
        draw_icon(painter, icon, x, y + 16, 18, "text2")
        if self._machine is None:
            for i, share in enumerate((0.6, 0.8, 0.5)):
                paint.rounded(painter, QRectF(x, y + 52 + i * 18, (rect.width() - 32) * share, 9), 4, "overlay")
            return
        paint.dot(painter, rect.right() - 18, y + 24, 4, dot)
        paint.text(painter, x, y + 62, title, 14, 600, max_width=rect.width() - 32)
        paint.text(painter, x, y + 81, first, 12, 400, "text3", max_width=rect.width() - 32)
        paint.text(painter, x, y + 99, second, 12, 400, "text3", max_width=rect.width() - 32)
