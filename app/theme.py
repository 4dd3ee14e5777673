"""Colours, fonts and the style sheet: one table of tokens per theme, and the hub that tells widgets when it changes.

Every painted widget reads `current()` at paint time; nothing else in the application names a colour or a font.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib.resources import files
from string import Template

from PySide6.QtCore import QObject, Signal
from PySide6.QtGui import QColor, QFont, QFontDatabase, QPalette
from PySide6.QtWidgets import QApplication

__all__ = ["DARK", "LIGHT", "Theme", "ThemeHub", "apply", "color", "current", "font", "hub", "load_fonts", "mixed"]


@dataclass(frozen=True, slots=True)
class Theme:
    """Hex colours by meaning. `heat`: the ramp of the core grid from idle to busy."""

    name: str
    is_dark: bool
    bg: str
    panel: str
    surface: str
    raised: str
    overlay: str
    line: str
    line2: str
    text: str
    text2: str
    text3: str
    accent: str
    accent_dim: str
    accent_text: str
    on_accent: str
    ok: str
    warn: str
    err: str
    attn: str
    ffn: str
    experts: str
    kv: str
    buffers: str
    cyan: str
    purple: str
    code_bg: str
    code_text: str
    syn_keyword: str
    syn_string: str
    syn_function: str
    syn_number: str
    syn_comment: str
    heat: tuple[str, str, str, str, str]


DARK = Theme(
    name="dark",
    is_dark=True,
    bg="#0D0E11",
    panel="#111317",
    surface="#15171C",
    raised="#1B1E24",
    overlay="#23272F",
    line="#24282F",
    line2="#323843",
    text="#ECEEF2",
    text2="#A3AAB7",
    text3="#7A8290",
    accent="#7C87FF",
    accent_dim="#2A2E58",
    accent_text="#C9CEFF",
    on_accent="#0B0C10",
    ok="#3DD68C",
    warn="#F5B13D",
    err="#FF6B70",
    attn="#7C87FF",
    ffn="#3DD68C",
    experts="#F5B13D",
    kv="#4CC9F0",
    buffers="#8B7BB8",
    cyan="#4CC9F0",
    purple="#C58CFF",
    code_bg="#101216",
    code_text="#C9CEFF",
    syn_keyword="#C58CFF",
    syn_string="#8CE0B0",
    syn_function="#8FB6FF",
    syn_number="#F5B13D",
    syn_comment="#7A8290",
    heat=("#1C1F29", "#2D3470", "#5660D8", "#8C95FF", "#D5D9FF"),
)

LIGHT = Theme(
    name="light",
    is_dark=False,
    bg="#FFFFFF",
    panel="#F7F8FA",
    surface="#FFFFFF",
    raised="#F4F5F8",
    overlay="#E8EAF0",
    line="#E3E6EC",
    line2="#D3D8E1",
    text="#14171F",
    text2="#4A5261",
    text3="#687080",
    accent="#4F56D9",
    accent_dim="#E6E8FF",
    accent_text="#3A41B8",
    on_accent="#FFFFFF",
    ok="#12805C",
    warn="#9A6200",
    err="#C62F37",
    attn="#6C75F0",
    ffn="#22B573",
    experts="#E79A17",
    kv="#1FA8D6",
    buffers="#8B7BB8",
    cyan="#1893BF",
    purple="#8B46D6",
    code_bg="#F7F8FA",
    code_text="#3A41B8",
    syn_keyword="#8B2FC9",
    syn_string="#12805C",
    syn_function="#2456C9",
    syn_number="#9A6200",
    syn_comment="#687080",
    heat=("#EEF0F6", "#C9CDFB", "#8F97F5", "#5A62E0", "#2E348F"),
)

_UI_FAMILIES = ["Inter", "Noto Sans CJK SC", "Noto Sans", "DejaVu Sans"]
_MONO_FAMILIES = ["JetBrains Mono", "Noto Sans Mono CJK SC", "DejaVu Sans Mono"]
_HEAT_STOPS = (0.0, 0.3, 0.6, 0.85, 1.0)


class ThemeHub(QObject):
    """Emits `changed` after another theme was applied; painted widgets repaint, cached documents rebuild their formats."""

    changed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.theme = DARK
        self.fonts_loaded = False


@lru_cache(maxsize=1)
def hub() -> ThemeHub:
    """The one hub of this process."""
    return ThemeHub()


def current() -> Theme:
    """The theme that is shown now."""
    return hub().theme


def color(token: str, alpha: float | None = None) -> QColor:
    """The colour of a token of the current theme, or of a literal `#RRGGBB`; alpha 0..1."""
    value = QColor(token if token.startswith("#") else getattr(current(), token))
    if alpha is not None:
        value.setAlphaF(alpha)
    return value


def heat_color(value: float) -> QColor:
    """The colour of a load of 0..1 on the heat ramp."""
    value = min(1.0, max(0.0, value))
    ramp = current().heat
    for i in range(4):
        low, high = _HEAT_STOPS[i], _HEAT_STOPS[i + 1]
        if value <= high:
            return _mix(QColor(ramp[i]), QColor(ramp[i + 1]), (value - low) / (high - low))
    return QColor(ramp[4])


def _mix(a: QColor, b: QColor, share: float) -> QColor:
    return QColor(
        int(a.red() + (b.red() - a.red()) * share),
        int(a.green() + (b.green() - a.green()) * share),
        int(a.blue() + (b.blue() - a.blue()) * share),
    )


def mixed(low: str, high: str, share: float) -> QColor:
    """A colour between those of two tokens of the current theme."""
    return _mix(color(low), color(high), share)


def font(px: float, weight: int = 400, mono: bool = False) -> QFont:
    """The interface font (Inter) or the code font (JetBrains Mono) at a pixel size; digits are tabular."""
    return QFont(_font(int(px), weight, mono))


@lru_cache(maxsize=64)
def _font(px: int, weight: int, mono: bool) -> QFont:
    result = QFont()
    result.setFamilies(_MONO_FAMILIES if mono else _UI_FAMILIES)
    result.setPixelSize(px)
    result.setWeight(QFont.Weight(weight))
    result.setHintingPreference(QFont.HintingPreference.PreferNoHinting)
    if not mono:
        result.setFeature(QFont.Tag("tnum"), 1)
    return result


def load_fonts() -> None:
    """Register the fonts in resources/fonts once per process."""
    if hub().fonts_loaded:
        return
    hub().fonts_loaded = True
    for entry in sorted(files("resources").joinpath("fonts").iterdir(), key=lambda item: item.name):
        if entry.name.endswith((".otf", ".ttf")):
            QFontDatabase.addApplicationFontFromData(entry.read_bytes())


def apply(app: QApplication, theme: Theme) -> None:
    """Make `theme` the current one: style, palette, style sheet, fonts; then every listener of `hub().changed` repaints."""
    load_fonts()
    hub().theme = theme
    app.setStyle("Fusion")
    app.setFont(font(13))
    app.setPalette(_palette(theme))
    app.setStyleSheet(_style_sheet(theme))
    hub().changed.emit()


def _style_sheet(theme: Theme) -> str:
    source = files("resources").joinpath("qss", "base.qss").read_text(encoding="utf-8")
    return Template(source).substitute({key: value for key, value in asdict(theme).items() if isinstance(value, str)})


def _palette(theme: Theme) -> QPalette:
    roles = QPalette.ColorRole
    palette = QPalette()
    table = {
        roles.Window: theme.bg,
        roles.Base: theme.surface,
        roles.AlternateBase: theme.raised,
        roles.ToolTipBase: theme.overlay,
        roles.Button: theme.raised,
        roles.WindowText: theme.text,
        roles.Text: theme.text,
        roles.ButtonText: theme.text,
        roles.ToolTipText: theme.text,
        roles.BrightText: theme.err,
        roles.PlaceholderText: theme.text3,
        roles.Highlight: theme.accent,
        roles.HighlightedText: theme.on_accent,
        roles.Link: theme.accent,
        roles.LinkVisited: theme.accent,
        roles.Accent: theme.accent,
        roles.Light: theme.line2,
        roles.Midlight: theme.line2,
        roles.Mid: theme.line,
        roles.Dark: theme.line,
        roles.Shadow: theme.bg,
    }
    for role, value in table.items():
        palette.setColor(role, QColor(value))
    for role in (roles.WindowText, roles.Text, roles.ButtonText):
        palette.setColor(QPalette.ColorGroup.Disabled, role, QColor(theme.text3))
    return palette
