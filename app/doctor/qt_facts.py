"""QtFacts: what only the window's thread can tell about Qt, read once for a run of the checks."""

from __future__ import annotations

import locale
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

import PySide6
from PySide6.QtCore import qVersion
from PySide6.QtGui import QFontDatabase, QGuiApplication

from app.preflight import pyside_folder

OFFSCREEN = ("offscreen", "minimal", "vnc")


@dataclass(frozen=True, slots=True)
class ScreenFact:
    """One screen: pixels, and how many of them make one of the window's."""

    width: int
    height: int
    scale: float


@dataclass(frozen=True, slots=True)
class WaitFact:
    """The longest wait of the window in seconds, of which it computed worked_s itself; stack: what it did, the innermost last."""

    seconds: float = 0.0
    worked_s: float = 0.0
    stack: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class QtFacts:
    """platform: Qt's name of it, such as `wayland`. encoding: of the locale. input_plugins: names of Qt's input methods."""

    platform: str
    qt: str = ""
    pyside: str = ""
    python: tuple[int, int] = (3, 11)
    environ: Mapping[str, str] = field(default_factory=dict)
    families: frozenset[str] = frozenset()
    chinese: tuple[str, ...] = ()
    encoding: str = "utf-8"
    input_plugins: tuple[str, ...] = ()
    screens: tuple[ScreenFact, ...] = ()
    wait: WaitFact = WaitFact()

    @property
    def has_display(self) -> bool:
        """Whether people see the window."""
        return self.platform not in OFFSCREEN


_NAMES = ("QT_IM_MODULE", "QT_IM_MODULES", "XMODIFIERS", "GTK_IM_MODULE", "LC_ALL", "LC_CTYPE", "LANG", "LIBGL_ALWAYS_SOFTWARE")
_SCALES = ("QT_SCALE_FACTOR", "QT_ENABLE_HIGHDPI_SCALING", "QT_AUTO_SCREEN_SCALE_FACTOR", "QT_FONT_DPI")


def read_facts(wait: WaitFact) -> QtFacts:
    """As they are now. On the window's thread; takes milliseconds."""
    system = QFontDatabase.WritingSystem.SimplifiedChinese
    return QtFacts(
        platform=QGuiApplication.platformName(),
        qt=qVersion() or "",
        pyside=PySide6.__version__,
        python=sys.version_info[:2],
        environ={name: os.environ[name] for name in (*_NAMES, *_SCALES) if name in os.environ},
        families=frozenset(QFontDatabase.families()),
        chinese=tuple(QFontDatabase.families(system)),
        encoding=locale.getpreferredencoding(False).lower(),
        input_plugins=_plugins(),
        screens=tuple(_screens()),
        wait=wait,
    )


def _screens() -> list[ScreenFact]:
    found = []
    for screen in QGuiApplication.screens():
        scale, size = screen.devicePixelRatio(), screen.size()
        found.append(ScreenFact(round(size.width() * scale), round(size.height() * scale), scale))
    return found


def _plugins() -> tuple[str, ...]:
    folder = pyside_folder()
    if folder is None:
        return ()
    names = (folder / "Qt" / "plugins" / "platforminputcontexts").glob("lib*plugin.so")
    return tuple(sorted(name.name.removeprefix("lib").split("platforminputcontext")[0] for name in names))
