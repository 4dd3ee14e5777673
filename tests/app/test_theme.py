"""Tokens: readable contrasts, one style sheet, fonts and icons that exist and are used."""

from __future__ import annotations

import re
from dataclasses import fields
from importlib.resources import files
from pathlib import Path

import pytest
from PySide6.QtGui import QColor, QFontInfo, QFontMetricsF
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app import theme
from app.widgets.icon import icon, pixmap

pytestmark = pytest.mark.usefixtures("themed")
APP = Path(theme.__file__).parent


def luminance(value: str) -> float:
    def linear(c: float) -> float:
        return c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4

    colour = QColor(value)
    return 0.2126 * linear(colour.redF()) + 0.7152 * linear(colour.greenF()) + 0.0722 * linear(colour.blueF())


def contrast(a: str, b: str) -> float:
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("look", [theme.DARK, theme.LIGHT], ids=["dark", "light"])
def test_text_is_readable(look: theme.Theme) -> None:
    for ground in (look.bg, look.panel, look.surface, look.raised):
        assert contrast(look.text, ground) >= 12
        assert contrast(look.text2, ground) >= 6
        assert contrast(look.text3, ground) >= 4.2
    for token in (look.accent, look.ok, look.warn, look.err):
        assert contrast(token, look.bg) >= 4.5
    assert contrast(look.on_accent, look.accent) >= 4.5
    for token in (look.syn_keyword, look.syn_string, look.syn_function, look.syn_number, look.syn_comment):
        assert contrast(token, look.code_bg) >= 4.5


def test_every_colour_is_one() -> None:
    for look in (theme.DARK, theme.LIGHT):
        for field in fields(look):
            value = getattr(look, field.name)
            for entry in value if isinstance(value, tuple) else (value,):
                if field.name not in ("name", "is_dark"):
                    assert re.fullmatch(r"#[0-9A-F]{6}", entry), field.name


def test_apply_tells_listeners(qapp: QApplication, qtbot: QtBot) -> None:
    with qtbot.waitSignal(theme.hub().changed):
        theme.apply(qapp, theme.LIGHT)
    assert theme.current() is theme.LIGHT
    assert qapp.palette().window().color() == QColor(theme.LIGHT.bg)


def test_our_fonts_are_used_with_their_weights() -> None:
    assert QFontInfo(theme.font(14)).family() == "Inter"
    assert QFontInfo(theme.font(13, mono=True)).family() == "JetBrains Mono"
    widths = [QFontMetricsF(theme.font(14, weight)).horizontalAdvance("every token") for weight in (400, 500, 600, 700)]
    assert widths == sorted(set(widths))


def test_digits_are_tabular() -> None:
    metrics = QFontMetricsF(theme.font(13))
    assert metrics.horizontalAdvance("111") == metrics.horizontalAdvance("888")


def test_icons_are_tinted_and_cached() -> None:
    image = pixmap("plus", "#FF0000", 16, 2.0).toImage()
    colours = {image.pixelColor(x, y).name() for x in range(32) for y in range(32) if image.pixelColor(x, y).alpha() > 200}
    assert colours == {"#ff0000"}
    assert not icon("search").isNull()


def test_icons_on_disk_are_those_the_source_names() -> None:
    source = "\n".join(path.read_text(encoding="utf-8") for path in APP.rglob("*.py"))
    on_disk = {
        entry.name.removesuffix(".svg") for entry in files("resources").joinpath("icons").iterdir() if entry.name.endswith(".svg")
    }
    unused = {name for name in on_disk if f'"{name}"' not in source}
    assert unused == set()
    named = set(re.findall(r'(?:draw_icon\(painter|icon_name=|IconButton\(|pixmap\(|icon\()[, ]*"([a-z0-9-]+)"', source))
    assert named <= on_disk


def test_fonts_and_icons_carry_their_licences() -> None:
    names = {entry.name for entry in files("resources").joinpath("licenses").iterdir()}
    assert {"Inter-OFL.txt", "JetBrainsMono-OFL.txt", "Lucide-ISC.txt"} <= names
