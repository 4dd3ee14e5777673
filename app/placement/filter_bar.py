"""FilterBar: which kinds of cards the board shows, whether they are grouped, which layers, and how many there are."""

from __future__ import annotations

from dataclasses import dataclass

from PySide6.QtCore import QEvent, QObject, QSize, Qt, Signal
from PySide6.QtGui import QKeyEvent, QResizeEvent
from PySide6.QtWidgets import QHBoxLayout, QLineEdit, QSizePolicy, QWidget

from app.widgets.chip import Chip
from app.widgets.elided_label import ElidedLabel

KINDS = ("attention", "ffn", "experts", "kv")
_DOTS = {"attention": "attn", "ffn": "ffn", "experts": "experts", "kv": "kv"}
_ROOMY, _TIGHT = 660, 500


@dataclass(frozen=True, slots=True)
class Filter:
    """What is asked for: kinds of cards; text: layers and words, such as `exp 10-20`; whether neighbours stand as one card."""

    kinds: frozenset[str] = frozenset(KINDS)
    text: str = ""
    grouped: bool = True


class FilterBar(QWidget):
    """changed(Filter) follows the user. The field opens with `/` or its chip and takes `exp 10-20`."""

    changed = Signal(object)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._n_layers = 0
        self._has_experts = True
        self._filter = Filter()
        self.setFixedHeight(26)
        self._show = ElidedLabel(self.tr("Show"), 12, 500, "text3")
        self._show.setFixedWidth(34)
        self.kinds: dict[str, Chip] = {}
        for kind, text in zip(
            KINDS, (self.tr("Attention"), self.tr("FFN"), self.tr("Experts"), self.tr("KV cache")), strict=True
        ):
            chip = Chip(text, color_token="text")
            chip.set_label(text, dot=_DOTS[kind])
            chip.setCheckable(True)
            chip.setChecked(True)
            self.kinds[kind] = chip
        self.group = Chip(self.tr("Group by range"))
        self.group.setCheckable(True)
        self.group.setChecked(True)
        self.group.set_active(True)
        self.group.setToolTip(self.tr("Show layers that lie side by side as one card") + "   G")
        self.layers = Chip(self.tr("All layers"), "funnel")
        self.layers.setToolTip(self.tr("Layers or words, such as exp 10-20") + "   /")
        self.field = QLineEdit()
        self.field.setPlaceholderText(self.tr("exp 10-20"))
        self.field.setAccessibleName(self.tr("Filter cards by layers and words"))
        self.field.setFixedSize(132, 26)
        self.field.hide()
        self.count = ElidedLabel("", 12, 400, "text3")
        self.count.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Fixed)
        self._lay_out()
        self._connect()

    def _lay_out(self) -> None:
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 2, 0)
        row.setSpacing(8)
        row.addWidget(self._show)
        for chip in self.kinds.values():
            row.addWidget(chip)
        row.addSpacing(10)
        row.addWidget(self.group)
        row.addWidget(self.layers)
        row.addWidget(self.field)
        row.addStretch(1)
        row.addWidget(self.count)
        row.setSizeConstraint(QHBoxLayout.SizeConstraint.SetNoConstraint)

    def _connect(self) -> None:
        for chip in self.kinds.values():
            chip.toggled.connect(self._on_kind_toggled)
        self.group.toggled.connect(self._on_group_toggled)
        self.layers.clicked.connect(self.open_field)
        self.field.textChanged.connect(lambda _text: self._tell())
        self.field.installEventFilter(self)

    @property
    def filter(self) -> Filter:
        """What is asked for."""
        return self._filter

    def set_model(self, n_layers: int, *, has_experts: bool) -> None:
        """Which layers there are; a dense model has no filter for experts."""
        self._n_layers, self._has_experts = n_layers, has_experts
        self.kinds["experts"].setVisible(has_experts)
        self._show_layers()

    def set_count(self, text: str) -> None:
        """`242 cards, 4 devices`."""
        self.count.set_text(text)

    def toggle_group(self) -> None:
        """As the chip."""
        self.group.click()

    def set_grouped(self, grouped: bool) -> None:
        """As somebody else chose."""
        self.group.setChecked(grouped)

    def open_field(self) -> None:
        """Write a filter."""
        self.layers.hide()
        self.field.show()
        self.field.setFocus(Qt.FocusReason.ShortcutFocusReason)
        self.field.selectAll()

    def _on_kind_toggled(self) -> None:
        for chip in self.kinds.values():
            chip.set_dimmed(not chip.isChecked())
        self._tell()

    def _on_group_toggled(self, on: bool) -> None:
        self.group.set_active(on)
        self._tell()

    def _tell(self) -> None:
        kinds = frozenset(kind for kind, chip in self.kinds.items() if chip.isChecked())
        fresh = Filter(kinds, self.field.text().strip(), self.group.isChecked())
        self._show_layers()
        if fresh != self._filter:
            self._filter = fresh
            self.changed.emit(fresh)

    def _show_layers(self) -> None:
        text = self.field.text().strip()
        whole = self.tr("Layers {a}–{b}").format(a=0, b=self._n_layers - 1) if self._n_layers > 1 else self.tr("All layers")
        self.layers.set_label(text or whole)
        self.layers.setAccessibleName(self.tr("Filter: {text}").format(text=text or whole))
        self.layers.set_active(bool(text))

    def _close_field(self) -> None:
        self.field.hide()
        self.layers.show()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if watched is self.field and event.type() == QEvent.Type.FocusOut:
            self._close_field()
        elif watched is self.field and isinstance(event, QKeyEvent) and event.type() == QEvent.Type.KeyPress:
            if event.key() == Qt.Key.Key_Escape:
                self.field.clear()
            if event.key() in (Qt.Key.Key_Escape, Qt.Key.Key_Return, Qt.Key.Key_Enter):
                self._close_field()
                self.layers.setFocus(Qt.FocusReason.OtherFocusReason)
                return True
        return super().eventFilter(watched, event)

    def resizeEvent(self, event: QResizeEvent) -> None:
        self.count.setVisible(self.width() >= _ROOMY)
        self._show.setVisible(self.width() >= _ROOMY)
        for chip in (self.group, self.layers):  # their keys, G and /, stay
            chip.setVisible(self.width() >= _TIGHT and not (chip is self.layers and self.field.isVisible()))

    def minimumSizeHint(self) -> QSize:
        return QSize(360, 26)
