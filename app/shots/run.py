"""`layerdeck shots DIR`: every screen in both themes as PNG, offscreen, at device pixel ratio 2."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from PySide6.QtCore import QEventLoop, QTimer
from PySide6.QtGui import QColor, QImage
from PySide6.QtWidgets import QApplication, QWidget

from app import theme
from app.shots.book import SCREENS
from app.shots.screens import Frame

RATIO = 2
_SETTLE_S = 10.0


def run(directory: Path, names: Iterable[str] = ()) -> tuple[Path, ...]:
    """Write the pictures of the named screens (all by default); returns their paths. Makes a QApplication if there is none."""
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    running = QApplication.instance()
    app = running if isinstance(running, QApplication) else QApplication(["layerdeck"])
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    for look in (theme.DARK, theme.LIGHT):
        theme.apply(app, look)
        for name in names or SCREENS:
            path = directory / f"{name}_{look.name}.png"
            picture(SCREENS[name]).save(str(path))
            written.append(path)
    return tuple(written)


def picture(make: Callable[[], QWidget]) -> QImage:
    """One screen, after its layout and its worker came to rest."""
    widget = make()
    widget.show()
    _settle(widget)
    image = QImage(widget.size() * RATIO, QImage.Format.Format_RGB32)
    image.setDevicePixelRatio(RATIO)
    image.fill(QColor(theme.current().bg))
    widget.render(image)
    if isinstance(widget, Frame):
        widget.shut_down()
    widget.hide()
    widget.deleteLater()
    return image


def _settle(widget: QWidget) -> None:
    """Let events run until nothing is pending for two rounds."""
    deadline = time.monotonic() + _SETTLE_S
    quiet = 0
    while quiet < 3 and time.monotonic() < deadline:
        loop = QEventLoop()
        QTimer.singleShot(20, loop.quit)
        loop.exec()
        quiet = 0 if isinstance(widget, Frame) and widget.pending() else quiet + 1
