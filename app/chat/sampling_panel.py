"""SamplingPanel: a popup over the composer with presets and the numbers of SamplingParams.

set_params(), params(), open_at(global point of its lower left corner); params_changed carries the new SamplingParams.
preset_label() names what is set, for the composer's chip.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from PySide6.QtCore import QPoint, QRectF, Qt, Signal
from PySide6.QtGui import QGuiApplication, QPainter, QPaintEvent
from PySide6.QtWidgets import QHBoxLayout, QLineEdit, QVBoxLayout, QWidget

from app import theme
from app.chat.sampling_row import RowSpec, SamplingRow
from app.widgets import paint
from app.widgets.buttons import LinkButton
from app.widgets.chip import Chip
from app.widgets.elided_label import ElidedLabel
from engine.api.values import SamplingParams

WIDTH = 400
PRESETS: tuple[tuple[str, SamplingParams], ...] = (
    ("Exact", SamplingParams(temperature=0.0, top_k=1, top_p=1.0, min_p=0.0)),
    ("Precise", SamplingParams(temperature=0.4, top_p=0.9)),
    ("Balanced", SamplingParams()),
    ("Creative", SamplingParams(temperature=1.0, top_k=0, top_p=1.0, min_p=0.08)),
)
_PRESET_FIELDS = ("temperature", "top_k", "top_p", "min_p")


def preset_name(params: SamplingParams) -> str:
    """The preset whose main numbers these are, "" for none. Temperature 0 is exact whatever else is set."""
    if params.temperature == 0:
        return PRESETS[0][0]
    for name, preset in PRESETS:
        if all(getattr(params, field) == getattr(preset, field) for field in _PRESET_FIELDS):
            return name
    return ""


def preset_label(params: SamplingParams) -> str:
    """`Balanced · 0.7`, or `Custom · 0.65`."""
    return f"{preset_name(params) or 'Custom'} · {params.temperature:g}"


class SamplingPanel(QWidget):
    """A popup: a click outside closes it. Changes apply at once."""

    params_changed = Signal(object)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent, Qt.WindowType.Popup | Qt.WindowType.FramelessWindowHint)
        self.setAttribute(Qt.WidgetAttribute.WA_TranslucentBackground)
        self.setFixedWidth(WIDTH)
        self.setAccessibleName(self.tr("Sampling"))
        self._params = SamplingParams()
        self._chips = {name: Chip(name, "", height=26) for name, _preset in PRESETS}
        self._rows = [SamplingRow(spec) for spec in self._specs()]
        self._seed = QLineEdit()
        self._seed.setPlaceholderText(self.tr("random"))
        self._seed.setFixedSize(128, 28)
        self._seed.setAccessibleName(self.tr("Seed"))
        self._stop = QLineEdit()
        self._stop.setPlaceholderText(self.tr("none, separate by commas"))
        self._stop.setFixedHeight(28)
        self._stop.setAccessibleName(self.tr("Stop texts"))
        self._reset = LinkButton(self.tr("Reset"), px=12)
        self._lay_out()
        self._connect()
        self._show_params()

    def _specs(self) -> tuple[RowSpec, ...]:
        return (
            RowSpec("temperature", self.tr("Temperature"), self.tr("0 always takes the likeliest token"), 0, 2, 0.05, 2),
            RowSpec("top_k", self.tr("Top k"), self.tr("Keep the k likeliest tokens; 0 is off"), 0, 200, 1, 0),
            RowSpec("top_p", self.tr("Top p"), self.tr("Keep tokens until their probability sums to p; 1 is off"), 0, 1, 0.01, 2),
            RowSpec("min_p", self.tr("Min p"), self.tr("Drop tokens below p times the likeliest; 0 is off"), 0, 0.5, 0.01, 2),
            RowSpec("repetition_penalty", self.tr("Repetition penalty"), self.tr("1 is off"), 0.8, 1.5, 0.01, 2),
            RowSpec("presence_penalty", self.tr("Presence penalty"), self.tr("0 is off"), -2, 2, 0.05, 2),
            RowSpec("frequency_penalty", self.tr("Frequency penalty"), self.tr("0 is off"), -2, 2, 0.05, 2),
            RowSpec("penalty_window", self.tr("Penalty window"), self.tr("Tokens looked back"), -1, 1024, 1, 0, self.tr("all")),
            RowSpec("max_tokens", self.tr("Longest answer"), self.tr("In tokens"), -1, 4096, 1, 0, self.tr("no limit")),
        )

    def _lay_out(self) -> None:
        column = QVBoxLayout(self)
        column.setContentsMargins(18, 16, 18, 18)
        column.setSpacing(8)
        head = QHBoxLayout()
        head.addWidget(ElidedLabel(self.tr("Sampling for this chat"), 13, 600))
        head.addWidget(self._reset)
        column.addLayout(head)
        presets = QHBoxLayout()
        presets.setSpacing(8)
        for chip in self._chips.values():
            presets.addWidget(chip)
        presets.addStretch(1)
        column.addLayout(presets)
        column.addSpacing(4)
        for row in self._rows:
            column.addWidget(row)
        for label, box in ((self.tr("Seed"), self._seed), (self.tr("Stop texts"), self._stop)):
            line = QHBoxLayout()
            line.setSpacing(12)
            name = ElidedLabel(label, 12, 500, "text2")
            name.setFixedWidth(126)
            line.addWidget(name)
            line.addWidget(box)
            if box is self._seed:
                line.addStretch(1)
            column.addLayout(line)

    def _connect(self) -> None:
        for (_name, preset), chip in zip(PRESETS, self._chips.values(), strict=True):
            chip.clicked.connect(lambda _checked=False, preset=preset: self._take_preset(preset))
        for row in self._rows:
            row.value_changed.connect(self._on_row_value_changed)
        self._seed.editingFinished.connect(self._on_row_value_changed)
        self._stop.editingFinished.connect(self._on_row_value_changed)
        self._reset.clicked.connect(lambda: self._take(SamplingParams()))
        theme.hub().changed.connect(self.update)

    def set_params(self, params: SamplingParams) -> None:
        """Show values; emits nothing."""
        self._params = params
        self._show_params()

    def params(self) -> SamplingParams:
        """The values as they are set."""
        return self._params

    def open_at(self, corner: QPoint) -> None:
        """Open with the lower left corner at a point of the screen, moved so that it fits."""
        self.adjustSize()
        screen = QGuiApplication.screenAt(corner) or QGuiApplication.primaryScreen()
        area = screen.availableGeometry()
        x = min(max(area.left() + 8, corner.x()), area.right() - self.width() - 8)
        y = max(area.top() + 8, corner.y() - self.height())
        self.move(x, y)
        self.show()
        self._rows[0].setFocus(Qt.FocusReason.PopupFocusReason)

    def _take_preset(self, preset: SamplingParams) -> None:
        self._take(replace(self._params, **{field: getattr(preset, field) for field in _PRESET_FIELDS}))

    def _take(self, params: SamplingParams) -> None:
        self._params = params
        self._show_params()
        self.params_changed.emit(params)

    def _on_row_value_changed(self) -> None:
        values: dict[str, Any] = {
            row.spec.field: round(row.value()) if row.spec.digits == 0 else round(row.value(), 4) for row in self._rows
        }
        seed = self._seed.text().strip()
        stop = tuple(part.strip() for part in self._stop.text().split(",") if part.strip())
        params = replace(self._params, **values, seed=int(seed) if seed.isdigit() else None, stop=stop)
        if params != self._params:
            self._take(params)

    def _show_params(self) -> None:
        for row in self._rows:
            row.set_value(float(getattr(self._params, row.spec.field)))
        self._seed.setText("" if self._params.seed is None else str(self._params.seed))
        self._stop.setText(", ".join(self._params.stop))
        chosen = preset_name(self._params)
        for name, chip in self._chips.items():
            chip.set_active(name == chosen)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        paint.begin(painter)
        paint.rounded(painter, QRectF(self.rect()), 12, "surface", "line2")
