"""SidePanelController: joins the panel beside the chat to what the monitors know. It rests while the panel is hidden."""

from __future__ import annotations

from PySide6.QtCore import QObject

from app.monitors.side_figures import pinned_values, side_gpus, side_nodes
from app.monitors.side_panel import SideFigures
from app.windows.main_window import MainWindow
from app.windows.parts import Parts

PAGE = "monitors"


class SidePanelController(QObject):
    """Lives as long as the window. The panel shows what is now, also while the Monitors page stands still."""

    def __init__(self, window: MainWindow, parts: Parts) -> None:
        super().__init__(window)
        self._window, self._parts = window, parts
        self._panel = window.page.side_panel
        self._panel.set_more_offered(PAGE in window.doors)
        self._panel.more_requested.connect(self._open_page)
        self._panel.shown.connect(self.refresh)
        parts.monitors.read.connect(self.refresh)
        parts.monitors.replay_changed.connect(self._on_replay)
        parts.settings.listen(self._on_setting)

    def refresh(self) -> None:
        """Shows what is known now."""
        monitors = self._parts.monitors
        if not self._panel.isVisible() or monitors.now.snapshot is None:
            return
        now = monitors.now
        topology = monitors.topology if now.snapshot is not None and len(now.snapshot.nodes) > 1 else None
        pinned = pinned_values(now, self._parts.settings.values.monitors.pinned)
        model = self._parts.bridge.state.model
        self._panel.set_figures(SideFigures(side_gpus(now, model), side_nodes(now, topology), pinned))

    def _on_setting(self, key: str, value: object) -> None:
        if key == "monitors.pinned":
            self.refresh()

    def _on_replay(self) -> None:
        if self._parts.monitors.replayed is not None:
            self._open_page()

    def _open_page(self) -> None:
        if PAGE in self._window.doors:
            self._window.show_page(PAGE)
