"""The theme follows the setting at once, and the system's scheme when asked to."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app import theme
from app.settings.store import SettingsStore
from app.windows.appearance import Appearance


def test_theme_follows_the_setting(qtbot: QtBot, qapp: QApplication, tmp_path: Path) -> None:
    settings = SettingsStore(tmp_path / "settings.toml")
    appearance = Appearance(qapp, settings)
    settings.set("general.theme", "light")
    assert theme.current() is theme.LIGHT
    settings.set("general.theme", "dark")
    assert theme.current() is theme.DARK
    settings.set("general.theme", "system")
    assert appearance.wanted() is theme.current()
    appearance.deleteLater()
