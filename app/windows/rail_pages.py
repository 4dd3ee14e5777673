"""What stands in the rail, in the order of the pages."""

from __future__ import annotations

from app.i18n import tr
from app.widgets.rail import Rail


def fill(rail: Rail) -> None:
    """Adds every page with its keys; Settings stand at the foot."""
    rail.add_page("chat", tr("Window", "Chat"), "message-square", "Ctrl+1")
    rail.add_page("placement", tr("Window", "Placement"), "layout-grid", "Ctrl+2")
    rail.add_page("monitors", tr("Window", "Monitors"), "activity", "Ctrl+3")
    rail.add_page("doctor", tr("Window", "Doctor"), "stethoscope", "Ctrl+5")
    rail.add_page("settings", tr("Window", "Settings"), "settings", "Ctrl+,")
