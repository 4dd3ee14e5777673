"""MonitorsHeader: which machine, how far back, how often, standing still, recording. Plain values in, signals out."""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize, Signal
from PySide6.QtGui import QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QHBoxLayout, QWidget

from app import theme
from app.widgets import paint
from app.widgets.buttons import IconButton, PushButton
from app.widgets.chip import Chip
from app.widgets.icon import draw_icon
from app.widgets.segmented import Segmented

HEIGHT = 57
SPANS = (("60", "1 min"), ("300", "5 min"), ("1800", "30 min"), ("all", "All"))
"""Keys of the spans: seconds, or all that is remembered."""
_LEFT = 20
_TIGHT = 560


class MonitorsHeader(QWidget):
    """span_chosen(key of SPANS), period_clicked, pause_clicked, record_clicked."""

    span_chosen = Signal(str)
    period_clicked = Signal()
    pause_clicked = Signal()
    record_clicked = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setFixedHeight(HEIGHT)
        self._machine = ""
        words = {"60": self.tr("1 min"), "300": self.tr("5 min"), "1800": self.tr("30 min"), "all": self.tr("All")}
        self.spans = Segmented([(key, words[key]) for key, _ in SPANS], self.tr("How far back the lines go"))
        self.period = Chip("", height=28, chevron=True)
        self.pause = IconButton("pause", self.tr("Pause"), size=30, icon_size=15)
        self.record = _RecordButton(self.tr("Record"), icon_name="circle-stop", height=30, icon_size=15)
        row = QHBoxLayout(self)
        row.setContentsMargins(_LEFT, 0, 20, 1)
        row.setSpacing(8)
        row.addStretch(1)
        row.addWidget(self.pause)
        row.addWidget(self.spans)
        row.addSpacing(6)
        row.addWidget(self.period)
        row.addSpacing(2)
        row.addWidget(self.record)
        row.setSizeConstraint(QHBoxLayout.SizeConstraint.SetNoConstraint)
        self.spans.chosen.connect(self.span_chosen)
        self.period.clicked.connect(self.period_clicked)
        self.pause.clicked.connect(self.pause_clicked)
        self.record.clicked.connect(self.record_clicked)
        theme.hub().changed.connect(self.update)
        self.set_paused(False)
        self.set_recording("", "")

    def set_machine(self, text: str) -> None:
        """`homelab-01   4 GPUs, 2 × EPYC 7763, 512 GB`."""
        if text != self._machine:
            self._machine = text
            self.setAccessibleName(self.tr("Monitors of {machine}").format(machine=text))
            self.setToolTip(text)
            self.update()

    @property
    def machine(self) -> str:
        """What is shown of the machine."""
        return self._machine

    def set_period(self, seconds: float, note: str = "") -> None:
        """How often is read. note: why it is less often than was asked for, or ""."""
        self.period.set_label(self.tr("Every {n} s").format(n=f"{seconds:g}"), color_token="warn" if note else "text2")
        self.period.setToolTip(note or self.tr("How often the gauges are read"))
        self.period.setAccessibleDescription(note)

    def set_paused(self, on: bool) -> None:
        """Whether what is shown stands still."""
        text = self.tr("Continue") if on else self.tr("Pause")
        self.pause.set_icon("play" if on else "pause", "accent" if on else "text2")
        self.pause.setAccessibleName(text)
        self.pause.setToolTip(f"{text}   {self.tr('Space')}")

    def set_recording(self, path: str, elapsed: str) -> None:
        """path: of the file that is being written, "" for none; elapsed: for how long, `1:24`."""
        text = self.tr("Stop {time}").format(time=elapsed) if path else self.tr("Record")
        self.record.set_content(text, "circle-stop", "", "secondary")
        self.record.set_running(bool(path))
        self.record.setToolTip(
            self.tr("Recording to {path}").format(path=path) if path else self.tr("Write every reading to a CSV file   R")
        )

    def minimumSizeHint(self) -> QSize:
        return QSize(420, HEIGHT)

    def resizeEvent(self, event: QResizeEvent) -> None:
        self.period.setVisible(self.width() >= _TIGHT)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.fillRect(self.rect(), theme.color("bg"))
        paint.begin(painter)
        x = _LEFT + paint.text(painter, _LEFT, 34.5, self.tr("Monitors"), 16, 600)
        x = max(x + 16, _LEFT + 96)
        room = self.pause.x() - 12 - x
        if room > 40:
            paint.text(painter, x, 34.5, self._machine, 12, 400, "text3", max_width=room)
        paint.line(painter, 0, HEIGHT - 0.5, self.width(), HEIGHT - 0.5)


class _RecordButton(PushButton):
    """Its icon is red; while it records the whole button is."""

    _running = False

    def set_running(self, on: bool) -> None:
        """Whether a recording is written."""
        self._running = on
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(round(paint.text_width(self.text(), 12, 600)) + 43, 30)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        paint.begin(painter)
        rect = QRectF(self.rect())
        fill = theme.color("err", 0.14) if self._running else ("overlay" if self.hovered else "raised")
        paint.rounded(painter, rect, 8, fill, "err" if self._running else "line2")
        draw_icon(painter, "circle-stop", 10, 7.5, 15, "err")
        paint.text(painter, 31, 19.5, self.text(), 12, 600, "err" if self._running else "text")
        if self.focus_visible:
            paint.focus_ring(painter, rect, 8)
