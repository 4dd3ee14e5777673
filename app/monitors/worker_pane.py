"""WorkerPane: which cores work for the loaded model: the picture, presets, a list to type, and Apply; below it the sweep.

Shows what it is told and tells what the user wants; the window beside it asks the engine.
"""

from __future__ import annotations

from contextlib import suppress

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLineEdit, QScrollArea, QVBoxLayout, QWidget

from app import theme
from app.monitors.tune_pane import TunePane
from app.monitors.worker_grid import WorkerGrid
from app.preferences.form import plain_label, quiet_label
from app.widgets.buttons import PushButton
from app.widgets.inputs import Select
from engine.api.errors import InvalidRequest
from engine.api.events import WorkersPinned
from engine.api.values import HardwareSnapshot, Topology
from engine.api.workers import every_core, every_thread, kept_cpus, planned_cpus, read_threads, threads_text

Preset = tuple[str, tuple[int, ...]]


class WorkerPane(QWidget):
    """apply_requested(list as PinWorkers takes it); tune, stop, best and forget of `tuning`."""

    apply_requested = Signal(str)

    def __init__(self, topology: Topology, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._topology = topology
        self._working: tuple[int, ...] = ()
        self._busy = ""
        self._told: tuple[str, str] | None = None  # stays until the user does something else
        self.grid = WorkerGrid(topology)
        self.presets = Select(self)
        self.presets.setAccessibleName(self.tr("Preset"))
        self._offered = self._presets()
        self.presets.addItem(self.tr("Choose a preset"))
        for name, _cpus in self._offered:
            self.presets.addItem(name)
        self.list = QLineEdit(self)
        self.list.setAccessibleName(self.tr("Processors that work, such as 0-7,16-23"))
        self.list.setPlaceholderText("0-7,16-23")
        self.list.setFixedHeight(34)
        self.apply = PushButton(self.tr("Apply"), "primary", self)
        self.state = plain_label("", 12, 400)
        self.tuning = TunePane(self)
        self._lay_out()
        self._connect()
        self.set_working(())

    # --- what is shown -----------------------------------------------------------------------------------------------

    def set_working(self, cores: tuple[int, ...]) -> None:
        """Who works now, as `WorkerOps.working`; what the user has painted meanwhile is dropped."""
        self._working = cores
        pinned = tuple(cpu for cpu in cores if cpu >= 0)
        self.grid.choose(pinned)
        self.list.setText(threads_text(pinned))
        self.tuning.set_model_loaded(bool(cores))
        self._refresh()

    @property
    def working(self) -> tuple[int, ...]:
        """Who works, as it was told."""
        return self._working

    @property
    def tuning_runs(self) -> bool:
        """Whether a sweep is under way, as it was told."""
        return self._busy == "tune"

    def set_busy(self, what: str) -> None:
        """`pin` or `tune` is under way, "": nothing is."""
        self._busy = what
        self.tuning.set_running(what == "tune")
        self._refresh()

    def show_pinned(self, event: WorkersPinned) -> None:
        """Others work now."""
        placement = event.info.placement
        cores = () if placement is None else placement.workers.cores
        self.set_working(cores)
        told = self.tr("{workers} since then; the change took {ms} ms.").format(
            workers=self._workers(len(cores)), ms=f"{event.pause_s * 1e3:.1f}"
        )
        self._tell(" ".join((told, *(f"{note[0].upper()}{note[1:]}." for note in event.notes))))

    def show_failure(self, sentence: str) -> None:
        """The engine refused; all is as it was."""
        self._tell(f"{sentence[:1].upper()}{sentence[1:]}", "err")

    def set_snapshot(self, snapshot: HardwareSnapshot) -> None:
        """How busy each processor is."""
        found = {cpu: use for core in snapshot.cores for cpu, use in zip(core.cpus, core.use_percent, strict=False)}
        self.grid.set_use(found)

    def propose(self, cpus: str) -> None:
        """Fills in processors that somebody else thinks better; nothing changes until Apply."""
        self.list.setText(cpus)
        self._on_typed(cpus)

    def look_at(self, node: int) -> None:
        """Brings a node into view."""
        self._area.verticalScrollBar().setValue(self.grid.look_at(node))
        self.grid.setFocus(Qt.FocusReason.ShortcutFocusReason)

    # --- building ----------------------------------------------------------------------------------------------------

    def _presets(self) -> list[Preset]:
        machine = self._topology
        found: list[Preset] = [
            (self.tr("Worker plan"), planned_cpus(machine)),
            (self.tr("Every core"), every_core(machine)),
        ]
        if machine.smt:
            found.append((self.tr("Every thread"), every_thread(machine)))
        nodes = machine.usable_nodes
        if len(nodes) > 1:
            found += [(self.tr("Node {n}").format(n=node), every_core(machine, node=node)) for node in nodes]
        if len(machine.l3_groups) > 1:
            groups = [(one, every_core(machine, l3=one.index)) for one in machine.l3_groups]
            found += [(self.tr("L3 group {n}").format(n=one.index), cpus) for one, cpus in groups if cpus]
        return found

    def _lay_out(self) -> None:
        column = QVBoxLayout(self)
        column.setContentsMargins(24, 20, 24, 20)
        column.setSpacing(12)
        words = self.tr("Each filled processor runs one worker. Hold the mouse and draw, or use the arrow keys and Space.")
        if kept_cpus(self._topology):
            words += " " + self.tr("A dot marks cores that the worker plan keeps back for launching GPU work and for the window.")
        column.addWidget(quiet_label(words))
        self._area = QScrollArea(self)
        self._area.setFrameShape(QFrame.Shape.NoFrame)
        self._area.setWidgetResizable(True)
        self._area.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self._area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        holder = QWidget()
        inner = QVBoxLayout(holder)
        inner.setContentsMargins(2, 2, 2, 2)
        inner.addWidget(self.grid)
        inner.addStretch(1)
        self._area.setWidget(holder)
        holder.setAutoFillBackground(False)
        self._area.viewport().setAutoFillBackground(False)
        column.addWidget(self._area, 1)
        row = QHBoxLayout()
        row.setSpacing(10)
        row.addWidget(self.presets)
        row.addWidget(self.list, 1)
        row.addWidget(self.apply)
        column.addLayout(row)
        column.addWidget(self.state)
        column.addWidget(self.tuning)

    def _connect(self) -> None:
        self.grid.painted.connect(self._on_painted)
        self.presets.activated.connect(self._on_preset)
        self.list.textEdited.connect(self._on_typed)
        self.list.returnPressed.connect(self._on_apply)
        self.apply.clicked.connect(self._on_apply)
        theme.hub().changed.connect(self._refresh)

    # --- what the user does ------------------------------------------------------------------------------------------

    def _on_painted(self) -> None:
        self._told = None
        self.list.setText(threads_text(self.grid.chosen))
        self._refresh()

    def _on_preset(self, index: int) -> None:
        if index > 0:
            self.grid.choose(self._offered[index - 1][1])
            self._on_painted()
        self.presets.setCurrentIndex(0)

    def _on_typed(self, _text: str) -> None:
        self._told = None
        with suppress(InvalidRequest):  # which `_refresh` says
            self.grid.choose(read_threads(self.list.text(), self._topology))
        self._refresh()

    def _on_apply(self) -> None:
        if self.apply.isEnabled():
            self.apply_requested.emit(self.list.text().strip())

    def _refresh(self) -> None:
        text, problem = self.list.text().strip(), ""
        try:
            wanted = read_threads(text, self._topology)
        except InvalidRequest as error:
            wanted, problem = (), str(error)
        if not problem and not text:
            problem = self.tr("nobody works; fill at least one processor, or choose the worker plan")
        same = bool(wanted) and wanted == self._working
        self.apply.setEnabled(bool(self._working) and not problem and not same and not self._busy)
        if self._told is not None:
            self._say(*self._told)
        elif problem:
            self._say(f"{problem[0].upper()}{problem[1:]}.", "err")
        elif not self._working:
            self._say(self.tr("No model is loaded: there are no workers to move."))
        elif same:
            self._say(self.tr("{workers}, as it is now.").format(workers=self._workers(len(wanted))))
        else:
            n = len(wanted) or int(text)  # more than can be pinned
            self._say(self.tr("{workers} once applied; answers go on.").format(workers=self._workers(n)))

    def _workers(self, n: int) -> str:
        return self.tr("1 worker") if n == 1 else self.tr("%n workers", "", n)

    def _tell(self, sentence: str, token: str = "text2") -> None:
        self._told = sentence, token
        self._refresh()

    def _say(self, sentence: str, token: str = "text2") -> None:
        self.state.setText(sentence)
        self.state.setStyleSheet(f"color: {theme.color(token).name()}")
