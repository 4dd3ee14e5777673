"""What is said before Qt is imported."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from app.preflight import choose_input_method, missing, prepare, pyside_folder, qt_platform


@pytest.mark.parametrize(
    ("environ", "platform"),
    [
        ({}, "offscreen"),
        ({"DISPLAY": ":0"}, "xcb"),
        ({"DISPLAY": ":0", "WAYLAND_DISPLAY": "wayland-0"}, "wayland"),
        ({"DISPLAY": ":0", "QT_QPA_PLATFORM": "offscreen"}, "offscreen"),
        ({"QT_QPA_PLATFORM": "xcb:extra;wayland"}, "xcb"),
    ],
)
def test_platform_is_the_one_qt_takes(environ: dict[str, str], platform: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.preflight._connects", lambda address: True)
    assert qt_platform(environ) == platform


def test_a_display_where_nobody_answers_is_none(tmp_path: Path) -> None:
    environ = {"WAYLAND_DISPLAY": "wl-x", "XDG_RUNTIME_DIR": str(tmp_path), "DISPLAY": ":7531"}
    assert qt_platform(environ) == "offscreen"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "wl-x"))
        server.listen()
        assert qt_platform(environ) == "wayland"
        assert qt_platform({"WAYLAND_DISPLAY": str(tmp_path / "wl-x")}) == "wayland"
    assert qt_platform(environ) == "offscreen"
    assert qt_platform({"DISPLAY": "elsewhere:10.0"}) == "xcb"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    plugins = tmp_path / "Qt" / "plugins"
    (plugins / "platforms").mkdir(parents=True)
    (plugins / "platforminputcontexts").mkdir()
    for name in ("QtCore", "QtWidgets", "QtGui"):
        (tmp_path / f"{name}.abi3.so").touch()
    (tmp_path / "NotoSansCJK-Regular.ttc").touch()
    for name in ("offscreen", "xcb"):
        (plugins / "platforms" / f"libq{name}.so").touch()
    return tmp_path


def lacking(*names: str, only_in: str = "") -> object:
    def ldd(file: Path) -> str:
        lines = ["\tlibc.so.6 => /lib/libc.so.6 (0x0)", "\tlibQt6Core.so.6 => not found"]
        if only_in in file.name:
            lines += [f"\t{name} => not found" for name in names]
        return "\n".join(lines)

    return ldd


@pytest.mark.parametrize(
    ("library", "package"),
    [
        ("libGL.so.1", "libgl1"),
        ("libEGL.so.1", "libegl1"),
        ("libglib-2.0.so.0", "libglib2.0-0"),
        ("libfontconfig.so.1", "libfontconfig1"),
        ("libdbus-1.so.3", "libdbus-1-3"),
        ("libxkbcommon.so.0", "libxkbcommon0"),
        ("libxcb-cursor.so.0", "libxcb-cursor0"),
    ],
)
def test_the_one_missing_package_is_named(folder: Path, library: str, package: str) -> None:
    found = missing("offscreen", folder, lacking(library), 'VERSION_ID="12"', fonts=[folder])  # type: ignore[arg-type]
    assert found is not None
    assert found.packages == (package,)
    assert found.sentence().endswith(f"sudo apt-get install --no-install-recommends {package}")


def test_newer_systems_have_another_name_for_glib(folder: Path) -> None:
    found = missing("offscreen", folder, lacking("libglib-2.0.so.0"), 'ID=debian\nVERSION_ID="13"\n', [folder])  # type: ignore[arg-type]
    assert found is not None
    assert found.packages == ("libglib2.0-0t64",)


def test_plugins_of_other_platforms_do_not_count(folder: Path) -> None:
    ldd = lacking("libxcb-icccm.so.4", only_in="libqxcb")
    assert missing("offscreen", folder, ldd, fonts=[folder]) is None  # type: ignore[arg-type]
    found = missing("xcb", folder, ldd, "", [folder])  # type: ignore[arg-type]
    assert found is not None
    assert found.packages == ("libxcb-icccm4",)


def test_this_system_can_run_offscreen() -> None:
    environ = {"PATH": "/usr/bin"}
    assert prepare(environ) == ("offscreen", "")
    assert environ["QT_QPA_PLATFORM"] == "offscreen"
    assert pyside_folder() is not None


def test_fcitx_is_answered_as_ibus_and_left_to_wayland(folder: Path) -> None:
    environ = {"QT_IM_MODULE": "fcitx"}
    choose_input_method(environ, "xcb", folder)
    assert environ == {"QT_IM_MODULE": "ibus"}
    environ = {"QT_IM_MODULE": "fcitx5"}
    choose_input_method(environ, "wayland", folder)
    assert environ == {}
    environ = {"QT_IM_MODULE": "fcitx"}
    (folder / "Qt" / "plugins" / "platforminputcontexts" / "libfcitx5platforminputcontextplugin.so").touch()
    choose_input_method(environ, "xcb", folder)
    assert environ == {"QT_IM_MODULE": "fcitx"}
    environ = {"QT_IM_MODULE": "ibus"}
    choose_input_method(environ, "wayland", folder)
    assert environ == {"QT_IM_MODULE": "ibus"}


def test_a_font_for_chinese_is_asked_for(folder: Path, tmp_path: Path) -> None:
    fonts = tmp_path / "fonts"
    (folder / "NotoSansCJK-Regular.ttc").unlink()
    (fonts / "opentype" / "noto").mkdir(parents=True)
    (fonts / "DejaVuSans.ttf").touch()
    found = missing("offscreen", folder, lacking(), "", fonts=[fonts, tmp_path / "none"])  # type: ignore[arg-type]
    assert found is not None
    assert found.packages == ("fonts-noto-cjk",)
    (fonts / "opentype" / "noto" / "NotoSansCJK-Regular.ttc").touch()
    assert missing("offscreen", folder, lacking(), "", fonts=[fonts]) is None  # type: ignore[arg-type]
