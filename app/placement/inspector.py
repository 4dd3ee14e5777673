"""Inspector: what is selected on the board: its size and speed on each device, where it can go, and which experts are used."""

from __future__ import annotations

from dataclasses import dataclass

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QSizePolicy, QVBoxLayout, QWidget

from app.placement.expert_map import ExpertMap
from app.placement.facts import Fact, FactList
from app.placement.move_buttons import MoveButtons, Target
from app.placement.pane import Pane, Prose, Rule
from app.placement.pool_view import PoolView
from app.widgets.buttons import LinkButton, PushButton
from app.widgets.elided_label import ElidedLabel


@dataclass(frozen=True, slots=True)
class Use:
    """How experts were used. levels: 0..255 row by row; layers: of each row; top: what 255 stands for. sentence: what it means.

    empty: nothing was counted yet.
    """

    title: str
    span: str = ""
    levels: bytes = b""
    n_experts: int = 0
    layers: tuple[int, ...] = ()
    top: str = ""
    sentence: str = ""
    marked: frozenset[int] = frozenset()

    @property
    def empty(self) -> bool:
        """Whether there is nothing to paint."""
        return not self.levels


@dataclass(frozen=True, slots=True)
class Selection:
    """What the inspector shows. targets empty: nothing can be moved; split: the words of the button, empty for none."""

    title: str
    subtitle: str = ""
    facts: tuple[Fact, ...] = ()
    targets: tuple[Target, ...] = ()
    use: Use | None = None
    split: str = ""
    pin: str = ""


class Inspector(Pane):
    """move_requested(number of the device), split_requested, pin_requested, layer_requested(layer), count_requested,
    scope_requested."""

    move_requested = Signal(int)
    split_requested = Signal()
    pin_requested = Signal()
    layer_requested = Signal(int)
    count_requested = Signal()
    scope_requested = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setAccessibleName(self.tr("Selection"))
        self._facts = FactList()
        self._rule = Rule()
        self._move_title = ElidedLabel(self.tr("Move to"), 12, 600, "text2")
        self.moves = MoveButtons()
        self.use = UseView()
        self.split = PushButton("", height=32)
        self.pin = LinkButton("", px=12)
        self.pools = PoolView()
        column: QVBoxLayout = self.column
        column.addSpacing(10)
        column.addWidget(self._facts)
        column.addSpacing(12)
        column.addWidget(self._rule)
        column.addSpacing(10)
        column.addWidget(self._move_title)
        column.addSpacing(4)
        column.addWidget(self.moves)
        column.addSpacing(14)
        column.addWidget(self.use)
        column.addSpacing(10)
        column.addWidget(self.split)
        column.addSpacing(6)
        column.addWidget(self.pin, 0, Qt.AlignmentFlag.AlignLeft)
        column.addWidget(self.pools)
        column.addStretch(1)
        self._connect()
        self.show_selection(Selection(self.tr("Nothing selected")))

    def _connect(self) -> None:
        self.moves.chosen.connect(self.move_requested)
        self.split.clicked.connect(self.split_requested)
        self.pin.clicked.connect(self.pin_requested)
        self.use.map.layer_clicked.connect(self.layer_requested)
        self.use.count.clicked.connect(self.count_requested)
        self.use.scope.clicked.connect(self.scope_requested)

    def show_selection(self, selection: Selection) -> None:
        """Show something else, or the same with new figures."""
        self.set_title(selection.title, selection.subtitle)
        self._facts.set_facts(selection.facts)
        self.moves.set_targets(selection.targets)
        for widget in (self._move_title, self.moves, self._rule):
            widget.setVisible(bool(selection.targets))
        self.use.show_use(selection.use)
        self.split.set_content(selection.split, "", "", "secondary")
        self.split.setVisible(bool(selection.split))
        self.pin.setText(selection.pin)
        self.pin.setAccessibleName(selection.pin)
        self.pin.updateGeometry()
        self.pin.setVisible(bool(selection.pin))

    @property
    def facts(self) -> tuple[Fact, ...]:
        """The lines that are shown."""
        return self._facts.facts


class UseView(QWidget):
    """The map of experts with its title and what it means; where nothing was counted, how to count."""

    def __init__(self) -> None:
        super().__init__()
        self._title = ElidedLabel("", 12, 600, "text2")
        self.span = ElidedLabel("", 11, 400, "text3")
        self.span.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Fixed)
        self.map = ExpertMap()
        self._sentence = Prose()
        self.count = PushButton(self.tr("Count experts"), height=30)
        self.scope = LinkButton(self.tr("Of other answers"), px=12)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(4)
        head = QHBoxLayout()
        head.addWidget(self._title, 1)
        head.addWidget(self.span)
        column.addLayout(head)
        column.addWidget(self.map)
        column.addSpacing(4)
        column.addWidget(self._sentence)
        column.addWidget(self.count)
        column.addWidget(self.scope, 0, Qt.AlignmentFlag.AlignLeft)

    def show_use(self, use: Use | None) -> None:
        """None: there are no experts here."""
        self.setVisible(use is not None)
        if use is None:
            return
        self._title.set_text(use.title)
        self.span.set_text(use.span)
        self.map.setVisible(not use.empty)
        self.count.setVisible(use.empty)
        self._sentence.set_text(use.sentence)
        self._sentence.setVisible(bool(use.sentence))
        if not use.empty:
            self.map.set_levels(use.levels, use.n_experts, use.layers, use.top, use.marked)
