"""ComparePane: two placements side by side, as they are predicted, and measured in turn on the same prompt."""

from __future__ import annotations

from dataclasses import dataclass

from PySide6.QtCore import QRectF, QSignalBlocker, Signal
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QGridLayout, QHBoxLayout, QWidget

from app import theme
from app.placement.figure_table import FigureTable, TableRow
from app.placement.pane import Pane, Prose, Rule, wide
from app.widgets import paint
from app.widgets.buttons import PushButton
from app.widgets.elided_label import ElidedLabel
from app.widgets.inputs import Select, WholeBox

MOST_ROUNDS = 20


@dataclass(frozen=True, slots=True)
class Comparison:
    """names: what can be compared; a, b: which of them are; rows: figures of both and the difference; differ: in words.

    measured: rows of what was measured; verdict: what follows from it; running: how far measuring has come, None while it rests;
    reason: why it cannot be measured, empty: it can.
    """

    names: tuple[str, ...]
    a: int
    b: int
    rows: tuple[TableRow, ...] = ()
    differ: str = ""
    measured: tuple[TableRow, ...] = ()
    verdict: str = ""
    running: float | None = None
    status: str = ""
    reason: str = ""


class ComparePane(Pane):
    """sides_chosen(number of A, number of B); measure_requested(rounds), cancel_requested; take_requested(number of the side)."""

    sides_chosen = Signal(int, int)
    measure_requested = Signal(int)
    cancel_requested = Signal()
    take_requested = Signal(int)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setAccessibleName(self.tr("Compare"))
        self.a, self.b = wide(Select()), wide(Select())
        self.a.setAccessibleName(self.tr("Placement A"))
        self.b.setAccessibleName(self.tr("Placement B"))
        self._table = FigureTable(self.tr("Predicted"), (84, 84, 66))
        self._differ = Prose()
        self.rounds = WholeBox()
        self.rounds.setRange(2, MOST_ROUNDS)
        self.rounds.setValue(3)
        self.rounds.setFixedWidth(96)
        self.rounds.setAccessibleName(self.tr("Runs of each"))
        self.measure = PushButton(self.tr("Measure both"), "solid", height=32)
        self._bar = _Bar()
        self._status = Prose()
        self._measured = FigureTable(self.tr("Measured"), (104, 104, 66))
        self._verdict = Prose(px=13, color_token="text")
        self.take_a = PushButton(self.tr("Use A"), height=30)
        self.take_b = PushButton(self.tr("Use B"), height=30)
        self._running = False
        self._lay_out()
        self._connect()
        self.set_title(self.tr("Compare"), self.tr("Two placements, predicted and measured"))

    def _lay_out(self) -> None:
        sides = QGridLayout()
        sides.setHorizontalSpacing(10)
        sides.setVerticalSpacing(8)
        for row, (letter, box) in enumerate((("A", self.a), ("B", self.b))):
            label = ElidedLabel(letter, 13, 600, "text2")
            label.setFixedWidth(14)
            sides.addWidget(label, row, 0)
            sides.addWidget(box, row, 1)
        sides.setColumnStretch(1, 1)
        buttons = QHBoxLayout()
        buttons.setSpacing(8)
        runs = ElidedLabel(self.tr("Runs of each"), 12, 500, "text2")
        runs.setFixedWidth(runs.sizeHint().width() + 4)
        buttons.addWidget(runs)
        buttons.addWidget(self.rounds)
        buttons.addStretch(1)
        buttons.addWidget(self.measure)
        takes = QHBoxLayout()
        takes.setSpacing(8)
        takes.addWidget(self.take_a)
        takes.addWidget(self.take_b)
        takes.addStretch(1)
        column = self.column
        column.addSpacing(12)
        column.addLayout(sides)
        column.addSpacing(14)
        column.addWidget(ElidedLabel(self.tr("Predicted"), 12, 600, "text2"))
        column.addSpacing(4)
        column.addWidget(self._table)
        column.addSpacing(8)
        column.addWidget(self._differ)
        column.addSpacing(10)
        column.addLayout(takes)
        column.addSpacing(14)
        column.addWidget(Rule())
        column.addSpacing(12)
        column.addWidget(ElidedLabel(self.tr("Measured"), 12, 600, "text2"))
        column.addSpacing(6)
        column.addLayout(buttons)
        column.addSpacing(8)
        column.addWidget(self._bar)
        column.addWidget(self._status)
        column.addSpacing(6)
        column.addWidget(self._measured)
        column.addSpacing(8)
        column.addWidget(self._verdict)
        column.addStretch(1)

    def _connect(self) -> None:
        for box in (self.a, self.b):
            box.currentIndexChanged.connect(self._on_side_chosen)
        self.measure.clicked.connect(self._on_measure_clicked)
        self.take_a.clicked.connect(lambda: self.take_requested.emit(self.a.currentIndex()))
        self.take_b.clicked.connect(lambda: self.take_requested.emit(self.b.currentIndex()))

    def show_comparison(self, shown: Comparison) -> None:
        """Show other placements or figures."""
        for box, index in ((self.a, shown.a), (self.b, shown.b)):
            with QSignalBlocker(box):
                if [box.itemText(i) for i in range(box.count())] != list(shown.names):
                    box.clear()
                    box.addItems(list(shown.names))
                box.setCurrentIndex(index)
        self._table.set_rows(("A", "B", self.tr("B to A")), shown.rows)
        self._differ.set_text(shown.differ)
        self._running = shown.running is not None
        self.measure.set_content(self.tr("Stop") if self._running else self.tr("Measure both"), "", "", "solid")
        self.measure.setEnabled(self._running or not shown.reason)
        self.rounds.setEnabled(not self._running)
        self._bar.set_share(shown.running)
        self._status.set_text(shown.status or shown.reason)
        self._status.setVisible(bool(shown.status or shown.reason))
        self._measured.set_rows(("A", "B", self.tr("B to A")) if shown.measured else (), shown.measured)
        self._measured.setVisible(bool(shown.measured))
        self._verdict.set_text(shown.verdict)
        self._verdict.setVisible(bool(shown.verdict))

    def _on_side_chosen(self) -> None:
        self.sides_chosen.emit(self.a.currentIndex(), self.b.currentIndex())

    def _on_measure_clicked(self) -> None:
        if self._running:
            self.cancel_requested.emit()
        else:
            self.measure_requested.emit(self.rounds.value())


class _Bar(QWidget):
    """How far measuring has come."""

    def __init__(self) -> None:
        super().__init__()
        self._share = 0.0
        self.setFixedHeight(4)
        theme.hub().changed.connect(self.update)

    def set_share(self, share: float | None) -> None:
        """None hides it."""
        self._share = share or 0.0
        self.setVisible(share is not None)
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        paint.begin(painter)
        paint.bar(painter, QRectF(self.rect()), [(min(1.0, self._share), "accent")])
