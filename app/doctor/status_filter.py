"""StatusFilter: which states are shown, a chip each with its count. What does not apply is left out until it is asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from PySide6.QtCore import QSize, Signal
from PySide6.QtWidgets import QHBoxLayout, QWidget

from app.doctor.rows import STATUSES, TONES, CheckView, Status
from app.widgets.chip import Chip
from app.widgets.elided_label import ElidedLabel


class StatusFilter(QWidget):
    """changed(frozenset of states) follows the user."""

    changed = Signal(object)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setFixedHeight(26)
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(8)
        label = ElidedLabel(self.tr("Show"), 12, 500, "text3")
        label.setFixedWidth(34)
        row.addWidget(label)
        self.chips: dict[Status, Chip] = {}
        for status in STATUSES:
            chip = Chip("", color_token="text")
            chip.setCheckable(True)
            chip.setChecked(status != "n/a")
            chip.set_dimmed(status == "n/a")
            chip.toggled.connect(self._on_toggled)
            self.chips[status] = chip
            row.addWidget(chip)
        row.addStretch(1)
        row.setSizeConstraint(QHBoxLayout.SizeConstraint.SetNoConstraint)
        self.count(())

    @property
    def statuses(self) -> frozenset[Status]:
        """What is asked for."""
        return frozenset(status for status, chip in self.chips.items() if chip.isChecked())

    def count(self, views: Iterable[CheckView]) -> None:
        """How many there are of each."""
        counts = Counter(view.status for view in views)
        names = {
            "fail": self.tr("Problems"),
            "warn": self.tr("Warnings"),
            "unknown": self.tr("Not known"),
            "pass": self.tr("Fine"),
            "n/a": self.tr("Does not apply"),
        }
        for status, chip in self.chips.items():
            chip.set_label(f"{names[status]} {counts[status]}", dot=TONES[status])

    def minimumSizeHint(self) -> QSize:
        return QSize(360, 26)

    def _on_toggled(self) -> None:
        for chip in self.chips.values():
            chip.set_dimmed(not chip.isChecked())
        self.changed.emit(self.statuses)
