"""Appearance: which theme is shown, by the setting or by the system."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import QObject, QRectF, Qt
from PySide6.QtGui import QIcon, QPainter, QPixmap
from PySide6.QtWidgets import QApplication

from app import theme
from app.settings.store import SettingsStore
from app.widgets import paint

ICON_SIZE = 128


class Appearance(QObject):
    """Applies the theme now and whenever the setting or the system's scheme changes. An unknown scheme is dark."""

    def __init__(self, app: QApplication, settings: SettingsStore) -> None:
        super().__init__(app)
        self._app = app
        self._settings = settings
        settings.listen(self._on_setting)
        app.styleHints().colorSchemeChanged.connect(self._apply)
        self._apply()
        app.setWindowIcon(window_icon())

    def _on_setting(self, key: str, value: Any) -> None:
        if key == "general.theme":
            self._apply()

    def _apply(self) -> None:
        wanted = self.wanted()
        if wanted is not theme.current() or not theme.hub().fonts_loaded:
            theme.apply(self._app, wanted)

    def wanted(self) -> theme.Theme:
        """The theme that the setting asks for."""
        setting = self._settings.values.general.theme
        if setting == "system":
            light = self._app.styleHints().colorScheme() == Qt.ColorScheme.Light
            return theme.LIGHT if light else theme.DARK
        return theme.LIGHT if setting == "light" else theme.DARK


def window_icon() -> QIcon:
    """The brand tile, for the window and the task bar."""
    pixmap = QPixmap(ICON_SIZE, ICON_SIZE)
    pixmap.fill(Qt.GlobalColor.transparent)
    painter = QPainter(pixmap)
    paint.begin(painter)
    paint.tile(painter, QRectF(4, 4, ICON_SIZE - 8, ICON_SIZE - 8), ICON_SIZE / 4, "layers", ICON_SIZE / 2)
    painter.end()
    return QIcon(pixmap)
