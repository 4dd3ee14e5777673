"""The window in which people choose the cores that work: the pane, and what it asks of the engine. One at a time."""

from __future__ import annotations

from PySide6.QtCore import QObject, Qt
from PySide6.QtGui import QHideEvent, QPainter, QPaintEvent, QShowEvent
from PySide6.QtWidgets import QDialog, QVBoxLayout, QWidget

from app import theme
from app.bridge.engine_bridge import EngineBridge
from app.i18n import tr
from app.monitors.worker_pane import WorkerPane
from app.ops.monitor_ops import MonitorOps
from app.ops.worker_ops import WorkerOps
from engine.api.events import WorkersTuned

SIZE = (860, 700)
USE_S = 1.0
OWNER = "workers"


class WorkersWindow(QDialog):
    """Not modal: answers and monitors are to be seen beside it."""

    def __init__(self, ops: WorkerOps, monitors: MonitorOps, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle(tr("Workers", "Cores that work"))
        self.resize(*SIZE)
        self._ops, self._monitors = ops, monitors
        self._found = False
        self.pane = WorkerPane(ops.topology, self)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(self.pane)
        self._connect()
        self._on_changed()

    def _connect(self) -> None:
        ops, pane, tuning = self._ops, self.pane, self.pane.tuning
        pane.apply_requested.connect(ops.pin)
        tuning.tune_clicked.connect(self._on_tune_clicked)
        tuning.stop_clicked.connect(ops.stop_tuning)
        tuning.forget_clicked.connect(ops.forget)
        tuning.best_clicked.connect(lambda n: ops.pin(str(n)))
        ops.changed.connect(self._on_changed)
        ops.pinned.connect(pane.show_pinned)
        ops.failed.connect(pane.show_failure)
        ops.progress.connect(tuning.show_progress)
        ops.tuned.connect(self._on_tuned)
        self._monitors.read.connect(pane.set_snapshot)

    def _on_changed(self) -> None:
        ops, tuned_before = self._ops, self.pane.tuning_runs
        if ops.working != self.pane.working:
            self.pane.set_working(ops.working)
        self.pane.set_busy("tune" if ops.tuning else "pin" if ops.pinning else "")
        if tuned_before and not ops.tuning and not self._found:
            self.pane.tuning.show_stopped()

    def begin_tuning(self) -> None:
        """As its button does, unless a sweep is under way."""
        if not self._ops.tuning:
            self._on_tune_clicked()

    def _on_tune_clicked(self) -> None:
        self._found = False
        self._ops.tune()

    def _on_tuned(self, event: WorkersTuned) -> None:
        self._found = True
        self.pane.tuning.show_result(event)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._monitors.set_watching(OWNER, USE_S)

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self._monitors.set_watching(OWNER, 0)

    def paintEvent(self, event: QPaintEvent) -> None:
        QPainter(self).fillRect(self.rect(), theme.color("bg"))


def open_workers(parent: QWidget, ops: WorkerOps, monitors: MonitorOps, node: int | None = None) -> WorkersWindow:
    """Shows the window over `parent`, the one that is open if there is one. node: the one that is brought into view."""
    window = parent.findChild(WorkersWindow)
    if window is None:
        window = WorkersWindow(ops, monitors, parent)
        window.show()
    else:
        window.show()
        window.raise_()
        window.activateWindow()
    if node is not None:
        window.pane.look_at(node)
    return window


class WorkersDoor(QObject):
    """The way to the window from anywhere in the application; what it asks of the engine is made with it."""

    def __init__(self, bridge: EngineBridge, monitors: MonitorOps, parent: QWidget) -> None:
        super().__init__(parent)
        self._parent, self._monitors = parent, monitors
        self.ops = WorkerOps(bridge, lambda: monitors.topology, self)

    def open(self, node: int | None = None) -> WorkersWindow:
        """See `open_workers`."""
        return open_workers(self._parent, self.ops, self._monitors, node)

    def propose(self, cpus: str) -> None:
        """The window with processors filled in, as `PinWorkers` takes them; they work once they are applied there."""
        self.open().pane.propose(cpus)

    def tune(self) -> None:
        """The window, and a sweep over numbers of workers."""
        self.open().begin_tuning()
