"""SidePanel: the short monitor beside the chat: decode speed, cards, nodes, pinned values, context. It rests while hidden."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from PySide6.QtCore import QElapsedTimer, QSize, Qt, Signal
from PySide6.QtGui import QPainter, QPaintEvent, QResizeEvent, QShowEvent
from PySide6.QtWidgets import QFrame, QScrollArea, QVBoxLayout, QWidget

from app import theme
from app.bridge.throttle import Throttle
from app.monitors.history import History
from app.monitors.painters import SegmentBar, Sparkline
from app.monitors.side_figures import Pinned, SideGpu, SideNode
from app.monitors.side_gpu_card import SideGpuCard
from app.monitors.side_node_card import SideNodeCard
from app.monitors.side_pins import SidePins
from app.widgets import paint
from app.widgets.buttons import LinkButton
from app.widgets.format import count_text, rate_text, short_count
from app.widgets.state_dot import STATE_DOTS

WIDTH = 300
_MARGIN = 18
_HISTORY = 60
_PUSH_MS = 950
_DESCRIBE_MS = 5000
_BODY_TOP = 192
_CONTEXT = 66
_FOOT = 46


@dataclass(frozen=True, slots=True)
class SideFigures:
    """One reading, as it is written."""

    gpus: tuple[SideGpu, ...] = ()
    nodes: tuple[SideNode, ...] = ()
    pinned: tuple[Pinned, ...] = ()


class SidePanel(QWidget):
    """Values arrive through set_*; set_state takes the word beside Live and, as an addition, its dot colour.

    shown: it came into sight, and wants figures of now. more_requested: the page with all of them.
    """

    shown = Signal()
    more_requested = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setFixedWidth(WIDTH)
        self.setAccessibleName(self.tr("Live figures"))
        self._state = ""
        self._finding = ("", "text2")
        self._dot = "text3"
        self._rate: float | None = None
        self._is_last = True
        self._used = 0
        self._total = 0
        self._system = 0
        self._decode = History(_HISTORY)
        self._since_push = QElapsedTimer()
        self._since_push.start()
        self._pending: SideFigures | None = None
        self._line = Sparkline(self._decode, "accent", self)
        self._body = QScrollArea(self)
        self._gpus: list[SideGpuCard] = []
        self._nodes: list[SideNodeCard] = []
        self._pins = SidePins()
        self._cards = self._make_body()
        self._context = SegmentBar(self)
        self._more = LinkButton(self.tr("Open monitors"), self, px=12)
        self._more.clicked.connect(self.more_requested)
        self._more.hide()
        self._describe = Throttle(_DESCRIBE_MS, self._refresh_description, self)
        theme.hub().changed.connect(self.update)

    def _make_body(self) -> QVBoxLayout:
        """The column of cards, which scrolls where there are many."""
        content = QWidget()
        column = QVBoxLayout(content)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(10)
        column.addWidget(self._pins)
        column.addStretch(1)
        self._body.setWidget(content)
        content.setAutoFillBackground(False)  # which setWidget turns on
        self._body.setWidgetResizable(True)
        self._body.setFrameShape(QFrame.Shape.NoFrame)
        self._body.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self._body.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self._body.viewport().setAutoFillBackground(False)
        return column

    def set_more_offered(self, offered: bool) -> None:
        """Whether there is a page with all figures."""
        self._more.setVisible(offered)
        self._place()

    def set_decode(self, tok_s: float | None) -> None:
        """The decode speed now, as often as it is known; None when nothing is generated (the last figure stays, marked as such).

        The line takes one value a second.
        """
        if self._is_last != (tok_s is None):
            self._is_last = tok_s is None
            self._describe()
            self.update()
        if tok_s is None:
            return
        if not len(self._decode) or self._since_push.elapsed() >= _PUSH_MS:
            self._decode.push(tok_s)
            self._since_push.restart()
        else:
            self._decode.replace_last(tok_s)
        self._line.refresh()
        if tok_s != self._rate:
            self._rate = tok_s
            self.update()

    def set_decode_history(self, rates: Iterable[float]) -> None:
        """Show these speeds, one a second, the last one as the speed now."""
        self._decode.clear()
        self._is_last = False
        for rate in rates:
            self._decode.push(rate)
            self._rate = rate
        self._line.refresh()
        self.update()

    def set_figures(self, figures: SideFigures) -> None:
        """One reading of the machine; kept for later while the panel is hidden."""
        self._pending = figures
        if self.isVisible():
            self._show_pending()

    def set_finding(self, sentence: str, color_token: str = "text2") -> None:
        """What limits the machine, in a line that is cut where it does not fit; the tooltip has all of it. Empty: nothing."""
        if (sentence, color_token) != self._finding:
            self._finding = sentence, color_token
            self.setToolTip(sentence)
            self.update()

    def set_context(self, used: int, total: int, system: int = 0) -> None:
        """Tokens in the context window; `system` of them are the system prompt."""
        self._used, self._total, self._system = used, total, system
        share = used / total if total else 0.0
        first = system / total if total else 0.0
        segments = [(first, "purple")] if system else []
        self._context.set_segments([*segments, (share - first, "accent")])
        self._describe()
        self.update()

    def set_state(self, text: str, dot_token: str = "") -> None:
        """What the engine does: the kind of an EngineState, or any word with the colour of its dot."""
        words = {"no_model": self.tr("no model"), "reading": self.tr("reading header"), "warming": self.tr("warming up")}
        self._state = words.get(text, text)
        self._dot = dot_token or STATE_DOTS.get(text, "text3")
        self.update()

    def decode_text(self) -> str:
        """The decode speed in words: now, of the last answer, or a dash."""
        if self._rate is None:
            return "—"
        unit = self.tr("tok/s, last") if self._is_last else self.tr("tok/s")
        return f"{rate_text(self._rate)} {unit}"

    def _refresh_description(self) -> None:
        used = self.tr("{used} of {total}").format(used=count_text(self._used), total=count_text(self._total))
        text = self.tr("Decode {rate}, context {used}").format(rate=self.decode_text(), used=used)
        self.setAccessibleDescription(text)

    def _show_pending(self) -> None:
        figures, self._pending = self._pending, None
        if figures is None:
            return
        if (len(figures.gpus), len(figures.nodes)) != (len(self._gpus), len(self._nodes)):
            self._make_cards(len(figures.gpus), len(figures.nodes))
        for gpu_card, gpu in zip(self._gpus, figures.gpus, strict=True):
            gpu_card.set_figures(gpu)
        for node_card, node in zip(self._nodes, figures.nodes, strict=True):
            node_card.set_figures(node)
        self._pins.set_values(figures.pinned)
        self._place()

    def _make_cards(self, n_gpus: int, n_nodes: int) -> None:
        for card in (*self._gpus, *self._nodes):
            self._cards.removeWidget(card)
            card.deleteLater()
        self._gpus = [SideGpuCard() for _ in range(n_gpus)]
        self._nodes = [SideNodeCard() for _ in range(n_nodes)]
        for i, card in enumerate((*self._gpus, *self._nodes)):
            self._cards.insertWidget(i, card)

    def showEvent(self, event: QShowEvent) -> None:
        self._show_pending()
        super().showEvent(event)
        self.shown.emit()

    def sizeHint(self) -> QSize:
        return QSize(WIDTH, 600)

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._place()

    def _place(self) -> None:
        self._line.setGeometry(_MARGIN, 132, WIDTH - 2 * _MARGIN, 44)
        self._body.setGeometry(_MARGIN - 6, _BODY_TOP, WIDTH - 2 * _MARGIN + 12, self._context_top() - 10 - _BODY_TOP)
        self._context.setGeometry(_MARGIN, self._context_top() + 24, WIDTH - 2 * _MARGIN, 7)
        self._more.setGeometry(_MARGIN, self.height() - 34, self._more.sizeHint().width(), 22)
        self.update()

    def _context_top(self) -> int:
        """Behind the cards, and never out of sight."""
        cards = [card.minimumHeight() + 10 for card in (*self._gpus, *self._nodes)]
        pins = self._pins.minimumHeight() + 10 if self._pins.values else 0
        last = self.height() - _CONTEXT - (0 if self._more.isHidden() else _FOOT)
        return max(_BODY_TOP + 10, min(_BODY_TOP + sum(cards) + pins + 10, last))

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.fillRect(self.rect(), theme.color("panel"))
        paint.begin(painter)
        paint.line(painter, 0.5, 0, 0.5, self.height())
        paint.line(painter, 0, 56.5, WIDTH, 56.5)
        right = WIDTH - _MARGIN
        width = paint.text(painter, _MARGIN, 34, self.tr("Live"), 14, 600)
        if self._state:
            paint.dot(painter, _MARGIN + width + 13, 29.5, 3.5, self._dot)
            paint.text(painter, _MARGIN + width + 23, 34, self._state, 12, 400, "text2", max_width=170)
        paint.text(painter, right, 34, self.tr("1 s"), 12, 400, "text3", "right")
        if self._finding[0]:
            paint.text(painter, _MARGIN, 51, self._finding[0], 11, 500, self._finding[1], max_width=WIDTH - 2 * _MARGIN)
        self._paint_decode(painter, right)
        self._paint_context(painter, right)
        if not self._more.isHidden():
            paint.line(painter, 0, self.height() - _FOOT + 0.5, WIDTH, self.height() - _FOOT + 0.5)
            paint.key_hint(painter, right, self.height() - 31, "Ctrl 3", "right")

    def _paint_decode(self, painter: QPainter, right: int) -> None:
        paint.text(painter, _MARGIN, 84, self.tr("Decode"), 12, 500, "text2")
        rate = rate_text(self._rate) if self._rate is not None else "—"
        width = paint.text(painter, _MARGIN, 118, rate, 30, 600, "text3" if self._is_last else "text")
        unit = self.tr("tok/s, last") if self._is_last else self.tr("tok/s")
        if self._rate is None:
            unit = self.tr("no answer yet")
        paint.text(painter, _MARGIN + width + 8, 118, unit, 13, 400, "text3" if self._is_last else "text2")
        if self._decode.peak is not None and self._decode.mean is not None:
            paint.text(painter, right, 102, self.tr("peak {v}").format(v=rate_text(self._decode.peak)), 12, 400, "text3", "right")
            paint.text(painter, right, 118, self.tr("mean {v}").format(v=rate_text(self._decode.mean)), 12, 400, "text3", "right")

    def _paint_context(self, painter: QPainter, right: int) -> None:
        y = self._context_top()
        paint.text(painter, _MARGIN, y + 14, self.tr("Context"), 12, 500, "text2")
        if not self._total:
            paint.text(painter, right, y + 14, self.tr("no model"), 12, 500, "text3", "right")
            return
        label = self.tr("{used} of {total}").format(used=count_text(self._used), total=count_text(self._total))
        paint.text(painter, right, y + 14, label, 12, 500, "text2", "right")
        parts = [self.tr("Chat {n}").format(n=short_count(self._used - self._system))]
        if self._system:
            parts.insert(0, self.tr("System {n}").format(n=short_count(self._system)))
        paint.text(painter, _MARGIN, y + 50, "   ".join(parts), 11, 400, "text3")
