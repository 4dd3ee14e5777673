"""ChatHeader: the strip above the transcript: model, what the engine is doing, context, side panel."""

from __future__ import annotations

from PySide6.QtCore import QSize, Signal
from PySide6.QtGui import QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QHBoxLayout, QWidget

from app import theme
from app.bridge.engine_state import EngineState
from app.monitors.ring_gauge import RingGauge
from app.widgets import paint
from app.widgets.buttons import IconButton
from app.widgets.chip import Chip
from app.widgets.format import bytes_text, count_text, rate_text, short_count
from app.widgets.model_pill import ModelPill
from app.widgets.state_dot import STATE_DOTS

HEIGHT = 57
_ROOMY, _TIGHT = 640, 520
_LOADING = ("reading", "loading", "warming")


class ChatHeader(QWidget):
    """Shows plain values. Besides the agreed signals, rename_requested asks to rename the open chat and model_changed
    carries the name that set_model() set; ChatPage wires both."""

    model_clicked = Signal()
    side_panel_toggled = Signal(bool)
    stop_loading_requested = Signal()
    rename_requested = Signal()
    model_changed = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setFixedHeight(HEIGHT)
        self._pill = ModelPill()
        self._state = Chip("", "", height=28, color_token="text", clickable=False)
        self._stop = IconButton("x", self.tr("Stop loading"), size=24, icon_size=14)
        self._context = _ContextLabel()
        self._ring = RingGauge()
        self._rename = IconButton("pencil", self.tr("Rename chat"), size=30)
        self._panel = IconButton("panel-right", self.tr("Side panel"), size=30, icon_size=17)
        self._panel.setToolTip(self.tr("Side panel") + "   Ctrl+Alt+B")
        self._panel.setCheckable(True)
        self._panel.setChecked(True)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(16, 0, 27, 1)
        layout.setSpacing(8)
        layout.addWidget(self._pill)
        layout.addSpacing(2)
        layout.addWidget(self._state)
        layout.addWidget(self._stop)
        layout.addStretch(1)
        layout.addWidget(self._context)
        layout.addWidget(self._ring)
        layout.addSpacing(2)
        layout.addWidget(self._rename)
        layout.addSpacing(-4)
        layout.addWidget(self._panel)
        layout.setSizeConstraint(QHBoxLayout.SizeConstraint.SetNoConstraint)
        self._has_context = False
        self._can_rename = True
        self._connect()
        self.set_engine_state(EngineState())
        self.set_context(0, 0)

    def _connect(self) -> None:
        self._pill.clicked.connect(self.model_clicked)
        self._stop.clicked.connect(self.stop_loading_requested)
        self._rename.clicked.connect(self.rename_requested)
        self._panel.toggled.connect(self.side_panel_toggled)
        theme.hub().changed.connect(self.update)

    def set_engine_state(self, state: EngineState) -> None:
        """Say what the engine does now."""
        self._pill.set_dot(STATE_DOTS[state.kind])
        self._state.set_label(self._state_text(state), dot=STATE_DOTS[state.kind])
        self._state.setToolTip(state.detail)
        self._state.setVisible(state.kind != "no_model")
        self._stop.setVisible(state.kind in _LOADING)
        self.setAccessibleDescription(self._state.text())

    def _state_text(self, state: EngineState) -> str:
        words = {
            "no_model": self.tr("No model"),
            "reading": self.tr("Reading header"),
            "loading": self.tr("Loading"),
            "warming": self.tr("Warming up"),
            "ready": self.tr("Ready"),
            "prefill": self.tr("Prefill"),
            "generating": self.tr("Generating"),
            "stopping": self.tr("Stopping"),
            "error": self.tr("Error"),
        }[state.kind]
        if state.kind == "loading" and state.total:
            share = f"{100 * state.done // state.total} %"
            return self.tr("Loading {share} · {done} of {total}").format(
                share=share, done=bytes_text(state.done), total=bytes_text(state.total)
            )
        if state.kind == "prefill" and state.total:
            return self.tr("Prefill {done} of {total}").format(done=count_text(state.done), total=count_text(state.total))
        if state.kind == "generating" and state.tok_s is not None:
            return self.tr("Generating · {rate} tok/s").format(rate=rate_text(state.tok_s))
        return words

    def set_model(self, name: str, quant: str, file_bytes: int, exact_formats: tuple[str, ...] = ()) -> None:
        """Name the model; an empty name means none. exact_formats: those that run on the exact, slower path."""
        self._pill.set_model(name, quant, file_bytes, exact_formats)
        self.model_changed.emit(name)

    def set_context(self, used: int, total: int) -> None:
        """Tokens in the context window; total 0 hides ring and figures."""
        self._has_context = total > 0
        self._fit()
        self._ring.set_share(used / total if total else 0.0)
        self._context.set_text(f"{short_count(used)} / {short_count(total)}")
        tip = self.tr("{used} of {total} tokens of context used").format(used=count_text(used), total=count_text(total))
        self._ring.setToolTip(tip)
        self._ring.setAccessibleName(tip)

    def set_side_panel_shown(self, shown: bool) -> None:
        """Set the toggle without emitting side_panel_toggled."""
        self._panel.blockSignals(True)
        self._panel.setChecked(shown)
        self._panel.blockSignals(False)
        self._panel.update()

    def set_rename_enabled(self, enabled: bool) -> None:
        """Whether there is a chat to rename."""
        self._can_rename = enabled
        self._fit()

    def _fit(self) -> None:
        """A narrow header drops what is said elsewhere too."""
        self._context.setVisible(self._has_context and self.width() >= _ROOMY)
        self._ring.setVisible(self._has_context and self.width() >= _TIGHT)
        self._rename.setVisible(self._can_rename and self.width() >= _ROOMY)

    def minimumSizeHint(self) -> QSize:
        return QSize(300, HEIGHT)

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._fit()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.fillRect(self.rect(), theme.color("bg"))
        paint.line(painter, 0, HEIGHT - 0.5, self.width(), HEIGHT - 0.5)


class _ContextLabel(QWidget):
    def __init__(self) -> None:
        super().__init__()
        self._text = ""
        theme.hub().changed.connect(self.update)

    def set_text(self, text: str) -> None:
        self._text = text
        self.setFixedSize(round(paint.text_width(text, 12, 500)) + 2, 20)
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        paint.begin(painter)
        paint.text(painter, self.width(), 14.4, self._text, 12, 500, "text2", "right")
