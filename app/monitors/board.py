"""MonitorsBoard: all cards of the dashboard, placed by `board_layout`. Those of devices come and go with them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Literal

from PySide6.QtCore import QRectF, Signal
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QWidget

from app import theme
from app.monitors.board_layout import Box, Places, place
from app.monitors.gauge_card import GaugeCard
from app.monitors.gpu_card import GpuCard, GpuFigures
from app.monitors.node_card import NodeCard, NodeFigures
from app.monitors.tile import Tile, TileFigures
from app.monitors.trace_card import TraceCard, TraceFigures, ms_text
from app.widgets import paint

TileName = Literal["decode", "prefill", "first_token", "vram", "ram", "power"]
TILES: tuple[tuple[TileName, str], ...] = (
    ("decode", "accent"),
    ("prefill", "ffn"),
    ("first_token", "cyan"),
    ("vram", "attn"),
    ("ram", "experts"),
    ("power", "purple"),
)
"""The tiles and the colours of their lines."""
_LEGEND_AT = 60


class MonitorsBoard(QWidget):
    """pin_requested(key of a gauge); workers_requested(node): its cores; resized(height): so high it must be."""

    pin_requested = Signal(str)
    workers_requested = Signal(int)
    resized = Signal(int)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.tiles: dict[TileName, Tile] = {name: Tile(token, self) for name, token in TILES}
        self.gpus: list[GpuCard] = []
        self.nodes: list[NodeCard] = []
        self.trace = TraceCard(self)
        self._gpu_note = ""
        self._node_note = ""
        self._seen = 0
        self._pinned: frozenset[str] = frozenset()
        self._places: Places | None = None
        for card in (*self.tiles.values(), self.trace):
            card.pin_requested.connect(self.pin_requested)
        theme.hub().changed.connect(self.update)

    def cards(self) -> Iterator[GaugeCard]:
        """All of them, as they are read."""
        yield from self.tiles.values()
        yield from self.gpus
        yield from self.nodes
        yield self.trace

    def set_tiles(self, figures: dict[TileName, TileFigures]) -> None:
        """The figures of the whole machine."""
        for name, tile in self.tiles.items():
            tile.set_figures(figures[name])

    def set_gpus(self, figures: Sequence[GpuFigures], note: str = "") -> None:
        """One card each. note: why there are none."""
        if note != self._gpu_note or (len(figures) != len(self.gpus)):
            self._gpu_note = note
            self._set_number(self.gpus, len(figures), GpuCard)
        for card, one in zip(self.gpus, figures, strict=True):
            card.set_figures(one)

    def set_nodes(self, figures: Sequence[NodeFigures], note: str = "") -> None:
        """One card each. note: beside the title."""
        if note != self._node_note:
            self._node_note = note
            self.update()
        if len(figures) != len(self.nodes):
            self._set_number(self.nodes, len(figures), NodeCard)
        reshaped = [card.set_figures(one) for card, one in zip(self.nodes, figures, strict=True)]
        if any(reshaped):
            self.arrange()

    def set_trace(self, figures: TraceFigures) -> None:
        """Where one token's time goes."""
        before = (self.trace.figures.total_ms, self.trace.figures.note)
        if self.trace.set_figures(figures):
            self.arrange()
        if before != (figures.total_ms, figures.note) and self._places is not None:
            self.update(_rect(self._places.trace_title).toRect())

    def set_pinned(self, keys: frozenset[str]) -> None:
        """Which gauges stand in the side panel of the chat."""
        self._pinned = keys
        for card in self.cards():
            card.set_pinned(keys)

    def set_seen_height(self, height: int) -> None:
        """How much of it can be seen at once: what is lower is stretched to it."""
        if height != self._seen:
            self._seen = height
            self.arrange()

    def _set_number(self, cards: list[GpuCard] | list[NodeCard], n: int, kind: type[GpuCard] | type[NodeCard]) -> None:
        while len(cards) > n:
            gone = cards.pop()
            gone.hide()
            gone.deleteLater()
        while len(cards) < n:
            card = kind(self)
            card.pin_requested.connect(self.pin_requested)
            if isinstance(card, NodeCard):
                card.workers_requested.connect(self.workers_requested)
            card.set_pinned(self._pinned)
            cards.append(card)  # type: ignore[arg-type]
            card.show()
        self.arrange()
        self._order()

    def _order(self) -> None:
        """Tab goes through the cards as they are read."""
        cards = list(self.cards())
        for first, second in pairwise(cards):
            QWidget.setTabOrder(first, second)

    def resizeEvent(self, event: object) -> None:
        self.arrange()

    def arrange(self) -> None:
        """Puts everything in its place."""
        places = place(
            self.width(),
            self._seen,
            len(self.tiles),
            len(self.gpus),
            len(self.nodes),
            lambda width: max((card.height_for(width) for card in self.nodes), default=0),
            self.trace.height_for(),
        )
        self._places = places
        for widgets, boxes in (
            (list(self.tiles.values()), places.tiles),
            (self.gpus, places.gpus),
            (self.nodes, places.nodes),
            ([self.trace], (places.trace,)),
        ):
            for widget, box in zip(widgets, boxes, strict=True):
                widget.setGeometry(box.x, box.y, box.width, box.height)
        self.resized.emit(places.height)
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        places = self._places
        if places is None:
            return
        painter = QPainter(self)
        paint.begin(painter)
        self._paint_gpu_title(painter, places)
        box = places.node_title
        x = box.x + paint.text(painter, box.x, box.y + 24, self.tr("CPU and memory nodes"), 13, 600)
        paint.text(painter, x + 8, box.y + 24, self._node_note, 11, 400, "text3", max_width=max(8.0, box.x + box.width - x - 8))
        box, figures = places.trace_title, self.trace.figures
        right = float(box.x + box.width)
        if figures.total_ms is not None:
            total = self.tr("{n} ms").format(n=ms_text(figures.total_ms))
            right -= paint.text(painter, right, box.y + 24, total, 13, 600, "text", "right") + 10
        x = box.x + paint.text(
            painter, box.x, box.y + 24, self.tr("Where one token's time goes"), 13, 600, max_width=right - box.x
        )
        if figures.total_ms is not None and figures.note:
            paint.text(painter, x + 8, box.y + 24, figures.note, 11, 400, "text3", max_width=max(8.0, right - x - 8))

    def _paint_gpu_title(self, painter: QPainter, places: Places) -> None:
        box = places.gpu_title
        paint.text(painter, box.x, box.y + 24, self.tr("GPUs"), 13, 600)
        if places.gpu_note is not None:
            note = places.gpu_note
            paint.text(painter, note.x, note.y + 16, self._gpu_note, 12, 400, "text2", max_width=note.width)
            return
        x = float(box.x + _LEGEND_AT)
        for name, token in (
            (self.tr("Attention"), "attn"),
            (self.tr("FFN"), "ffn"),
            (self.tr("Experts"), "experts"),
            (self.tr("KV"), "kv"),
            (self.tr("Buffers"), "buffers"),
            (self.tr("Other programs"), "text3"),
        ):
            width = paint.text_width(name, 11)
            if x + 14 + width > box.x + box.width:
                break
            paint.rounded(painter, QRectF(x, box.y + 15, 9, 9), 3, token)
            x += 30 + paint.text(painter, x + 14, box.y + 24, name, 11, 400, "text3")


def _rect(box: Box) -> QRectF:
    return QRectF(box.x, box.y, box.width, box.height)
