"""PlacementHeader: which model is placed, from which preset, steps back and forth, the panes, Auto-fit and Apply.

Plain values in, signals out; the controller knows what they mean.
"""

from __future__ import annotations

from typing import Literal

from PySide6.QtCore import QSize, Signal
from PySide6.QtGui import QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QHBoxLayout, QWidget

from app import theme
from app.widgets import paint
from app.widgets.buttons import IconButton, PushButton
from app.widgets.chip import Chip
from app.widgets.model_pill import ModelPill

HEIGHT = 57
_ROOMY, _WIDE, _TIGHT = 1240, 1020, 800
Pane = Literal["selection", "context", "compare", "check", "command"]
"""What the panel at the right shows."""


class PlacementHeader(QWidget):
    """Signals: model_clicked, preset_clicked, machine_clicked, undo_requested, redo_requested, fit_requested, apply_requested;
    pane_requested(Pane), `selection` when the pane that is shown was asked for again."""

    model_clicked = Signal()
    preset_clicked = Signal()
    machine_clicked = Signal()
    undo_requested = Signal()
    redo_requested = Signal()
    fit_requested = Signal()
    apply_requested = Signal()
    pane_requested = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setFixedHeight(HEIGHT)
        self.pill = ModelPill()
        self.preset = Chip("", height=28, chevron=True)
        self.machine = Chip("", "server", height=28, chevron=True)
        self.undo = IconButton("undo-2", self.tr("Undo"), size=30, icon_size=17)
        self.redo = IconButton("redo-2", self.tr("Redo"), size=30, icon_size=17)
        self.fit = PushButton(self.tr("Auto-fit"), icon_name="wand-sparkles", keys="A", icon_size=15)
        self.apply = PushButton(self.tr("Apply"), "primary", keys="Ctrl ↵", width=None)
        self.panes: dict[str, IconButton] = {
            "context": IconButton("ruler", self.tr("Plan the context"), size=30),
            "compare": IconButton("columns-2", self.tr("Compare two placements"), size=30),
            "check": IconButton("shield-check", self.tr("Check what was loaded"), size=30),
            "command": IconButton("square-terminal", self.tr("Equivalent command"), size=30),
        }
        self._apply_text = self.tr("Apply")
        self._has_model = False
        self._lay_out()
        self._connect()
        self.set_history("", "")
        self.set_apply(self.tr("Apply"), enabled=False)

    def _lay_out(self) -> None:
        layout = QHBoxLayout(self)
        layout.setContentsMargins(16, 0, 16, 1)
        layout.setSpacing(8)
        layout.addWidget(self.pill)
        layout.addSpacing(6)
        layout.addWidget(self.preset)
        layout.addWidget(self.machine)
        layout.addSpacing(10)
        layout.addWidget(self.undo)
        layout.addSpacing(-4)
        layout.addWidget(self.redo)
        layout.addStretch(1)
        for button in self.panes.values():
            button.setCheckable(True)
            layout.addWidget(button)
            layout.addSpacing(-4)
        layout.addSpacing(12)
        layout.addWidget(self.fit)
        layout.addSpacing(4)
        layout.addWidget(self.apply)
        layout.setSizeConstraint(QHBoxLayout.SizeConstraint.SetNoConstraint)

    def _connect(self) -> None:
        self.pill.clicked.connect(self.model_clicked)
        self.preset.clicked.connect(self.preset_clicked)
        self.machine.clicked.connect(self.machine_clicked)
        self.undo.clicked.connect(self.undo_requested)
        self.redo.clicked.connect(self.redo_requested)
        self.fit.clicked.connect(self.fit_requested)
        self.apply.clicked.connect(self.apply_requested)
        for name, button in self.panes.items():
            button.clicked.connect(lambda on, pane=name: self.pane_requested.emit(pane if on else "selection"))
        theme.hub().changed.connect(self.update)

    def set_model(self, name: str, quant: str, file_bytes: int, dot: str) -> None:
        """Name the model; an empty name means none, which has no panes. dot: the colour of what the engine does with it."""
        self._has_model = bool(name)
        self.pill.set_model(name, quant, file_bytes)
        self.pill.set_dot(dot)
        self._fit()

    def set_preset(self, text: str) -> None:
        """`Balanced, edited`; an empty text hides the menu."""
        self.preset.set_label(text)
        self.preset.setAccessibleName(self.tr("Preset: {name}").format(name=text))
        self.preset.setToolTip(self.tr("Presets of this model on this machine"))
        self._fit()

    def set_machine(self, text: str) -> None:
        """What the model is placed on: this machine, or the one of a file."""
        self.machine.set_label(text)
        self.machine.setAccessibleName(self.tr("Machine: {name}").format(name=text))
        self.machine.setToolTip(self.tr("Plan for this machine or for one that a file describes"))
        self._fit()

    def set_history(self, undo: str, redo: str) -> None:
        """What the two steps would do; empty: there is none."""
        for button, word, text, keys in (
            (self.undo, self.tr("Undo"), undo, "Ctrl+Z"),
            (self.redo, self.tr("Redo"), redo, "Ctrl+Shift+Z"),
        ):
            button.setEnabled(bool(text))
            name = f"{word}: {text}" if text else word
            button.setAccessibleName(name)
            button.setToolTip(f"{name}   {keys}")

    def set_fit_enabled(self, enabled: bool) -> None:
        """Whether there is a model to look for a placement of."""
        self.fit.setEnabled(enabled)

    def set_apply(self, text: str, *, enabled: bool, reason: str = "") -> None:
        """The words of the button, and why it cannot be pressed."""
        self._apply_text = text
        self._fit()
        self.apply.setEnabled(enabled)
        self.apply.setToolTip(reason)
        self.apply.setAccessibleDescription(reason)

    def set_pane(self, pane: str) -> None:
        """Mark the pane that is shown."""
        for name, button in self.panes.items():
            button.setChecked(name == pane)
            button.set_icon(button.icon_name, "accent" if name == pane else "text2")

    def _fit(self) -> None:
        """A narrow header drops what the palette offers too."""
        width = self.width()
        self.apply.set_content(self._apply_text, "", "Ctrl ↵" if width >= _TIGHT else "", "primary")
        self.preset.setVisible(bool(self.preset.text()) and width >= _TIGHT)
        self.machine.setVisible(bool(self.machine.text()) and width >= _ROOMY)
        for button in self.panes.values():
            button.setVisible(width >= _WIDE and self._has_model)

    def minimumSizeHint(self) -> QSize:
        return QSize(420, HEIGHT)

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._fit()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.fillRect(self.rect(), theme.color("bg"))
        paint.line(painter, 0, HEIGHT - 0.5, self.width(), HEIGHT - 0.5)
