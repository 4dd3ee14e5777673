"""PreferencesDoor: opens the settings over the window, one dialog at a time."""

from __future__ import annotations

from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QWidget

import engine
from app.actions.tables import ACTIONS
from app.preferences.dialog import PreferencesDialog
from app.settings.store import SettingsStore


class PreferencesDoor(QObject):
    """The signals of the dialog."""

    failed = Signal(str)
    reload_requested = Signal()
    workers_requested = Signal()

    def __init__(self, settings: SettingsStore, parent: QWidget) -> None:
        super().__init__(parent)
        self._settings, self._parent = settings, parent
        self._dialog: PreferencesDialog | None = None

    def open(self, page: str | None = None) -> None:
        """Shows the settings, and a page of them where one is named."""
        if self._dialog is None:
            self._dialog = dialog = PreferencesDialog(self._settings, ACTIONS, engine.VERSION, self._parent)
            dialog.failed.connect(self.failed)
            dialog.reload_requested.connect(self.reload_requested)
            dialog.workers_requested.connect(self.workers_requested)
            dialog.finished.connect(self._on_finished)
            dialog.open()
        if page is not None:
            self._dialog.show_page(page)

    def close(self) -> None:
        """Closes it, if it is open."""
        if self._dialog is not None:
            self._dialog.close()

    def _on_finished(self) -> None:
        self._dialog = None
