"""SamplingRow: one number of the sampling form: label, slider over the usual range, box over the whole range."""

from __future__ import annotations

from dataclasses import dataclass

from PySide6.QtCore import QLocale, Qt, Signal
from PySide6.QtWidgets import QDoubleSpinBox, QHBoxLayout, QSlider, QWidget

from app.widgets.elided_label import ElidedLabel
from engine.api.values import RANGES


@dataclass(frozen=True, slots=True)
class RowSpec:
    """A field of SamplingParams. low..high: what the slider covers; step: of both; digits: of the box.

    special: shown in place of the smallest value.
    """

    field: str
    label: str
    hint: str
    low: float
    high: float
    step: float
    digits: int
    special: str = ""


class SamplingRow(QWidget):
    """Emits value_changed for changes by the user only."""

    value_changed = Signal()

    def __init__(self, spec: RowSpec, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.spec = spec
        self._slider = QSlider(Qt.Orientation.Horizontal)
        self._slider.setRange(0, round((spec.high - spec.low) / spec.step))
        self._slider.setAccessibleName(spec.label)
        self._box = QDoubleSpinBox()
        self._box.setDecimals(spec.digits)
        self._box.setRange(*RANGES[spec.field])
        self._box.setSpecialValueText(spec.special)
        self._box.setSingleStep(spec.step)
        self._box.setLocale(QLocale.c())
        self._box.setAlignment(Qt.AlignmentFlag.AlignRight)
        self._box.setFixedSize(76, 28)
        self._box.setAccessibleName(spec.label)
        label = ElidedLabel(spec.label, 12, 500, "text2")
        label.setFixedWidth(126)
        self.setToolTip(spec.hint)
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(12)
        row.addWidget(label)
        row.addWidget(self._slider, 1)
        row.addWidget(self._box)
        self._slider.valueChanged.connect(self._on_slider_value_changed)
        self._box.valueChanged.connect(self._on_box_value_changed)

    def value(self) -> float:
        """The number in the box."""
        return self._box.value()

    def set_value(self, value: float) -> None:
        """Show a number; emits nothing."""
        for widget in (self._slider, self._box):
            widget.blockSignals(True)
        self._box.setValue(value)
        self._slider.setValue(self._to_slider(value))
        for widget in (self._slider, self._box):
            widget.blockSignals(False)

    def _to_slider(self, value: float) -> int:
        return round((min(self.spec.high, max(self.spec.low, value)) - self.spec.low) / self.spec.step)

    def _on_slider_value_changed(self, position: int) -> None:
        self.set_value(self.spec.low + position * self.spec.step)
        self.value_changed.emit()

    def _on_box_value_changed(self, value: float) -> None:
        self.set_value(value)
        self.value_changed.emit()
