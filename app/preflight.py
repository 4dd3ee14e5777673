"""Checks before Qt is imported: which platform it will take, whether this system has the libraries for it, the input method.

Without them Qt ends the process with an abort, not with an exception. Standard library only; PySide6 is found but not imported.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path

PACKAGES = {
    "libGL.so.1": "libgl1",
    "libGLX.so.0": "libgl1",
    "libGLdispatch.so.0": "libgl1",
    "libOpenGL.so.0": "libgl1",
    "libEGL.so.1": "libegl1",
    "libglib-2.0.so.0": "libglib2.0-0",
    "libgthread-2.0.so.0": "libglib2.0-0",
    "libfontconfig.so.1": "libfontconfig1",
    "libfreetype.so.6": "libfreetype6",
    "libdbus-1.so.3": "libdbus-1-3",
    "libxkbcommon.so.0": "libxkbcommon0",
    "libxkbcommon-x11.so.0": "libxkbcommon-x11-0",
    "libX11.so.6": "libx11-6",
    "libX11-xcb.so.1": "libx11-xcb1",
    "libbrotlidec.so.1": "libbrotli1",
    "libbrotlicommon.so.1": "libbrotli1",
    "libxcb.so.1": "libxcb1",
    "libxcb-cursor.so.0": "libxcb-cursor0",
    "libxcb-glx.so.0": "libxcb-glx0",
    "libxcb-icccm.so.4": "libxcb-icccm4",
    "libxcb-image.so.0": "libxcb-image0",
    "libxcb-keysyms.so.1": "libxcb-keysyms1",
    "libxcb-randr.so.0": "libxcb-randr0",
    "libxcb-render.so.0": "libxcb-render0",
    "libxcb-render-util.so.0": "libxcb-render-util0",
    "libxcb-shape.so.0": "libxcb-shape0",
    "libxcb-shm.so.0": "libxcb-shm0",
    "libxcb-sync.so.1": "libxcb-sync1",
    "libxcb-util.so.1": "libxcb-util1",
    "libxcb-xfixes.so.0": "libxcb-xfixes0",
    "libxcb-xkb.so.1": "libxcb-xkb1",
    "libwayland-client.so.0": "libwayland-client0",
    "libwayland-cursor.so.0": "libwayland-cursor0",
    "libwayland-egl.so.1": "libwayland-egl1",
}
"""Shared library -> Debian package that has it."""
RENAMED = {"libglib2.0-0": "libglib2.0-0t64"}
"""Names from Debian 13 and Ubuntu 24.04 on."""
FONT_PACKAGE = "fonts-noto-cjk"
_FONT_FOLDERS = ("/usr/share/fonts", "/usr/local/share/fonts", "~/.fonts", "~/.local/share/fonts")
_CJK_FONT = re.compile(
    r"cjk|source-?han|wqy|wenquan|droidsansfallback|unifont|uming|ukai|sarasa|simsun|simhei|msyh|pingfang|noto(sans|serif)(sc|tc|hk|jp|kr)",
    re.IGNORECASE,
)
_MODULES = ("QtCore", "QtGui", "QtWidgets", "QtNetwork", "QtSvg")

Ldd = Callable[[Path], str]


@dataclass(frozen=True, slots=True)
class Missing:
    """What the platform lacks: the packages, or the shared library itself when no package is known for it."""

    platform: str
    packages: tuple[str, ...]

    def sentence(self) -> str:
        """What is missing and the line that installs it."""
        return (
            f"layerdeck: the window (Qt, platform {self.platform}) needs system packages that are missing: "
            f"{', '.join(self.packages)}. "
            f"Install them with: sudo apt-get install --no-install-recommends {' '.join(self.packages)}"
        )


def qt_platform(environ: Mapping[str, str]) -> str:
    """The platform that Qt will take. `offscreen` when there is no display."""
    asked = environ.get("QT_QPA_PLATFORM", "").split(";")[0].split(":")[0]
    if asked:
        return asked
    if environ.get("WAYLAND_DISPLAY") and wayland_answers(environ):
        return "wayland"
    return "xcb" if environ.get("DISPLAY") and x11_answers(environ["DISPLAY"]) else "offscreen"


def wayland_answers(environ: Mapping[str, str]) -> bool:
    """Whether a compositor listens at WAYLAND_DISPLAY. Qt aborts the process when none does, e.g. after `sudo` or over ssh."""
    return _connects(str(Path(environ.get("XDG_RUNTIME_DIR", "")) / environ["WAYLAND_DISPLAY"]))


def x11_answers(display: str) -> bool:
    """Whether an X server listens at a display of this machine; one of another machine is taken to. Qt aborts when none does."""
    local = re.fullmatch(r":(\d+)(?:\.\d+)?", display)
    if local is None:
        return True
    path = f"/tmp/.X11-unix/X{local.group(1)}"
    return _connects(path) or _connects("\0" + path)


def _connects(address: str) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(address)
        except OSError:
            return False
    return True


def pyside_folder() -> Path | None:
    """Where PySide6 lies; None when it is not installed."""
    spec = importlib.util.find_spec("PySide6")
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations)))


def _ldd(file: Path) -> str:
    return subprocess.run(["ldd", str(file)], capture_output=True, text=True, check=False).stdout


def missing(
    platform: str, folder: Path, ldd: Ldd = _ldd, os_release: str | None = None, fonts: Iterable[str | Path] | None = None
) -> Missing | None:
    """What the libraries of Qt's modules and of the plugin of `platform` lack on this system; None when nothing."""
    files = [folder / f"{name}.abi3.so" for name in _MODULES]
    files.append(folder / "Qt" / "plugins" / "platforms" / f"libq{platform}.so")
    lacking: set[str] = set()
    for file in files:
        if file.exists():
            lacking.update(re.findall(r"^\s*(\S+) => not found", ldd(file), re.MULTILINE))
    lacking = {name for name in lacking if not name.startswith(("libQt6", "libpyside6", "libshiboken6"))}
    packages = {PACKAGES.get(name, name) for name in lacking}
    if re.search(r'^VERSION_ID="?(1[3-9]|2[4-9])', _os_release() if os_release is None else os_release, re.MULTILINE):
        packages = {RENAMED.get(name, name) for name in packages}
    if not has_cjk_font(_FONT_FOLDERS if fonts is None else fonts):
        packages.add(FONT_PACKAGE)
    return Missing(platform, tuple(sorted(packages))) if packages else None


def has_cjk_font(folders: Iterable[str | Path]) -> bool:
    """Whether a font with Chinese, Japanese and Korean is installed; without one their text is a row of boxes."""
    for folder in folders:
        for _, _, names in os.walk(Path(folder).expanduser()):
            if any(_CJK_FONT.search(name) for name in names):
                return True
    return False


def _os_release() -> str:
    try:
        return Path("/etc/os-release").read_text(encoding="utf-8")
    except OSError:
        return ""


def choose_input_method(environ: MutableMapping[str, str], platform: str, folder: Path) -> None:
    """Makes fcitx work. The wheel has no fcitx plugin: on Wayland the compositor's text input serves, elsewhere fcitx5 answers
    as ibus."""
    asked = environ.get("QT_IM_MODULE", "")
    if not asked.startswith("fcitx"):
        return
    plugins = folder / "Qt" / "plugins" / "platforminputcontexts"
    if any(plugins.glob("*fcitx*")):
        return
    if platform.startswith("wayland"):
        del environ["QT_IM_MODULE"]
    else:
        environ["QT_IM_MODULE"] = "ibus"


def prepare(environ: MutableMapping[str, str] | None = None) -> tuple[str, str]:
    """Makes the environment ready for Qt. Returns (platform, sentence); the sentence is empty when the window can open."""
    env = os.environ if environ is None else environ
    folder = pyside_folder()
    if folder is None:
        return "", "layerdeck: PySide6 is not installed in this environment; run `make run`, which installs it."
    platform = qt_platform(env)
    if shutil.which("ldd") is not None:
        lacking = missing(platform, folder)
        if lacking is not None:
            return platform, lacking.sentence()
    choose_input_method(env, platform, folder)
    if platform == "offscreen" or env.get("WAYLAND_DISPLAY"):
        # Said outright: Qt would try the Wayland display even where nobody answers.
        env["QT_QPA_PLATFORM"] = env.get("QT_QPA_PLATFORM") or platform
    return platform, ""
