"""ContextPane: how long the context shall be, what that costs, and what has to leave which device for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QSignalBlocker, Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QSlider, QWidget

from app.placement.facts import Fact, FactList
from app.placement.pane import Pane, Prose, Rule
from app.widgets.buttons import PushButton
from app.widgets.elided_label import ElidedLabel
from app.widgets.format import count_text


@dataclass(frozen=True, slots=True)
class ContextView:
    """sizes: what the slider offers, in tokens; n_ctx: one of them; present: as it is loaded or planned now.

    sentence: what n_ctx costs; moves: what leaves which device, a sentence each; offered: the words of the button, or empty.
    """

    sizes: tuple[int, ...]
    n_ctx: int
    present: int
    sentence: str = ""
    moves: tuple[str, ...] = ()
    facts: tuple[Fact, ...] = ()
    fits: bool = True
    offered: str = ""


def context_sizes(most: int, present: int) -> tuple[int, ...]:
    """Sizes worth offering up to the model's own, with the present one among them: 2k, 4k, 8k, 16k, 24k, 32k, 48k, 64k, ..."""
    sizes = {present, most}
    step = 2048
    while step <= most:
        sizes.update(size for size in (step, step * 3 // 2 if step >= 16384 else step) if size <= most)
        step *= 2
    return tuple(sorted(size for size in sizes if size > 0))


class ContextPane(Pane):
    """chosen(tokens) follows the slider; take_requested: use that context with the placement that makes room for it."""

    chosen = Signal(int)
    take_requested = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setAccessibleName(self.tr("Context"))
        self._sizes: tuple[int, ...] = ()
        self.slider = QSlider(Qt.Orientation.Horizontal)
        self.slider.setAccessibleName(self.tr("Length of the context"))
        self.slider.setPageStep(1)
        self._low = ElidedLabel("", 11, 400, "text3")
        self._high = ElidedLabel("", 11, 400, "text3")
        self._tokens = ElidedLabel("", 19, 600)
        self._facts = FactList()
        self._sentence = Prose(px=13, color_token="text")
        self._moves = Prose()
        self.take = PushButton("", "solid", height=32)
        ends = QHBoxLayout()
        ends.addWidget(self._low)
        ends.addStretch(1)
        ends.addWidget(self._high)
        column = self.column
        column.addSpacing(14)
        column.addWidget(self._tokens)
        column.addSpacing(4)
        column.addWidget(self.slider)
        column.addLayout(ends)
        column.addSpacing(12)
        column.addWidget(Rule())
        column.addSpacing(12)
        column.addWidget(self._sentence)
        column.addSpacing(8)
        column.addWidget(self._facts)
        column.addSpacing(6)
        column.addWidget(self._moves)
        column.addSpacing(14)
        column.addWidget(self.take)
        column.addStretch(1)
        self.slider.valueChanged.connect(self._on_slider_moved)
        self.take.clicked.connect(self.take_requested)
        self.set_title(self.tr("Context"), self.tr("How much of a chat the model sees"))

    def show_view(self, view: ContextView) -> None:
        """Show other figures; the slider stays where the user holds it."""
        with QSignalBlocker(self.slider):
            if view.sizes != self._sizes:
                self._sizes = view.sizes
                self.slider.setRange(0, max(0, len(view.sizes) - 1))
                self._low.set_text(count_text(view.sizes[0]) if view.sizes else "")
                self._high.set_text(count_text(view.sizes[-1]) if view.sizes else "")
                for label in (self._low, self._high):
                    label.setMinimumWidth(label.sizeHint().width())
            if view.n_ctx in view.sizes:
                self.slider.setValue(view.sizes.index(view.n_ctx))
        self._tokens.set_text(self.tr("{n} tokens").format(n=count_text(view.n_ctx)))
        self._sentence.set_text(view.sentence, "text" if view.fits else "err")
        self._facts.set_facts(view.facts)
        self._moves.set_text(_lines(view.moves))
        self._moves.setVisible(bool(view.moves))
        self.take.set_content(view.offered, "", "", "solid")
        self.take.setVisible(bool(view.offered))
        self.take.setEnabled(view.fits)

    def _on_slider_moved(self, index: int) -> None:
        if 0 <= index < len(self._sizes):
            self._tokens.set_text(self.tr("{n} tokens").format(n=count_text(self._sizes[index])))
            self.chosen.emit(self._sizes[index])


def _lines(sentences: Sequence[str]) -> str:
    return "\n".join(sentences)
