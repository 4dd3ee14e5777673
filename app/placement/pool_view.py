"""PoolView: what copies of hot experts on GPUs are worth: which reads they took, whether they follow the text, the proof."""

from __future__ import annotations

from dataclasses import dataclass

from PySide6.QtCore import QSignalBlocker, Signal
from PySide6.QtWidgets import QVBoxLayout, QWidget

from app.placement.pane import Prose, Rule, wide
from app.widgets.buttons import PushButton
from app.widgets.elided_label import ElidedLabel
from app.widgets.inputs import Select

MODES = ("promote", "keep", "off")


@dataclass(frozen=True, slots=True)
class PoolState:
    """sentence: what they did; mode: one of MODES; result: what a comparison gave or how far it is; comparing: it goes on."""

    sentence: str
    mode: str
    result: str = ""
    comparing: bool = False


class PoolView(QWidget):
    """mode_chosen(one of MODES), compare_requested(). Hidden until it is told of pools."""

    mode_chosen = Signal(str)
    compare_requested = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.modes = wide(Select())
        self.modes.setAccessibleName(self.tr("What hot experts on GPUs do"))
        self.modes.addItems([self.tr("Follow the text"), self.tr("Stay as they are"), self.tr("Stand aside")])
        self._sentence = Prose()
        self._result = Prose(color_token="text")
        self.compare = PushButton(self.tr("Compare with and without"), height=32)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 12, 0, 0)
        column.setSpacing(6)
        column.addWidget(Rule())
        column.addSpacing(6)
        column.addWidget(ElidedLabel(self.tr("Hot experts on GPUs"), 12, 600, "text2"))
        column.addWidget(self._sentence)
        column.addWidget(self.modes)
        column.addWidget(self.compare)
        column.addWidget(self._result)
        self.modes.activated.connect(lambda index: self.mode_chosen.emit(MODES[index]))
        self.compare.clicked.connect(self.compare_requested)
        self.hide()

    def show_state(self, state: PoolState | None) -> None:
        """None: the model has no pools."""
        self.setVisible(state is not None)
        if state is None:
            return
        self._sentence.set_text(state.sentence)
        with QSignalBlocker(self.modes):
            self.modes.setCurrentIndex(MODES.index(state.mode))
        self.compare.setEnabled(not state.comparing and state.mode != "off")
        self._result.set_text(state.result)
        self._result.setVisible(bool(state.result))

    @property
    def text(self) -> str:
        """What it says."""
        return f"{self._sentence.text()}\n{self._result.text()}".strip()
