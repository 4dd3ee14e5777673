"""CpuCard: the processor in the side panel: name, temperature, one square per core, mean use and RAM."""

from __future__ import annotations

from PySide6.QtCore import QRectF, Signal
from PySide6.QtGui import QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QWidget

from app import theme
from app.monitors.painters import HeatGrid, SegmentBar
from app.widgets import paint
from app.widgets.format import used_of_bytes
from engine.api.values import HardwareSnapshot

_PAD = 14
_WARM_C = 80.0


class CpuCard(QWidget):
    """height_changed when the number of cores became known."""

    height_changed = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._snapshot: HardwareSnapshot | None = None
        self._grid = HeatGrid(self)
        self._bar = SegmentBar(self)
        theme.hub().changed.connect(self.update)

    def set_snapshot(self, snapshot: HardwareSnapshot) -> None:
        """Show one reading."""
        self._snapshot = snapshot
        resized = self._grid.set_loads(snapshot.cpu.use_percent)
        total = max(1, snapshot.ram_total_bytes)
        own = min(snapshot.process_bytes, snapshot.ram_used_bytes)
        self._bar.set_segments(((own / total, "attn"), ((snapshot.ram_used_bytes - own) / total, "buffers")))
        self.setAccessibleName(self.tr("Processor {name}").format(name=snapshot.cpu.name))
        self.setAccessibleDescription(f"{self._use_text()}, RAM {self._ram_text()}")
        if resized:
            self._place()
            self.height_changed.emit()
        self.update()

    def wanted_height(self) -> int:
        """Height with all cores."""
        return 33 + self._grid.wanted_height() + 12 + 7 + 47

    def _use_text(self) -> str:
        if self._snapshot is None or not self._snapshot.cpu.use_percent:
            return "n/a"
        use = self._snapshot.cpu.use_percent
        return f"{sum(use) / len(use):.0f} %"

    def _ram_text(self) -> str:
        if self._snapshot is None:
            return "n/a"
        return used_of_bytes(self._snapshot.ram_used_bytes, self._snapshot.ram_total_bytes)

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._place()

    def _place(self) -> None:
        width = self.width() - 2 * _PAD
        grid = self._grid.wanted_height()
        self._grid.setGeometry(_PAD, 33, width, grid + 1)
        self._bar.setGeometry(_PAD, 33 + grid + 12, width, 7)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        paint.begin(painter)
        paint.rounded(painter, QRectF(self.rect()), 10, "surface", "line")
        right = self.width() - _PAD
        cpu = self._snapshot.cpu if self._snapshot is not None else None
        temperature = cpu.temperature_c if cpu is not None else None
        heat = f"{temperature:.0f} °C" if temperature is not None else ""
        room = right - _PAD - paint.text_width(heat, 12, 600) - 10
        paint.text(painter, _PAD, 22, cpu.name if cpu is not None else self.tr("Processor"), 12, 600, "text", max_width=room)
        paint.text(painter, right, 22, heat, 12, 600, "warn" if temperature and temperature >= _WARM_C else "text", "right")
        y = 33 + self._grid.wanted_height() + 19
        cores = len(cpu.use_percent) if cpu is not None else 0
        paint.text(
            painter,
            _PAD,
            y + 18,
            self.tr("Use, one core") if cores == 1 else self.tr("Use, %n cores", "", cores),
            11,
            500,
            "text3",
        )
        paint.text(painter, right, y + 18, self._use_text(), 11, 500, "text2", "right")
        paint.text(painter, _PAD, y + 36, self.tr("RAM"), 11, 500, "text3")
        paint.text(painter, right, y + 36, self._ram_text(), 11, 500, "text2", "right")
