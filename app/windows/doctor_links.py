"""DoctorLinks: what the doctor says elsewhere in the window, and where its actions lead: pages, panes, settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from PySide6.QtCore import QObject

from app.actions.registry import ActionRegistry
from app.doctor.symptom_views import LinkView
from app.welcome.welcome_page import WelcomePage
from app.widgets.rail import Rail
from app.windows.doctor_door import DoctorDoor

ACTIONS: Mapping[str, tuple[str, ...]] = {
    "placement": ("placement_page",),
    "context": ("placement_page", "plan_context"),
    "calibrate": ("placement_page",),
    "monitors": ("monitors_page",),
    "reload": ("reload_model",),
    "unload": ("unload_model",),
    "sampling": ("chat_page", "sampling"),
}
"""Kind of a link -> the actions of the window that it stands for, one after the other. Those that do not exist are left out."""
ENGINE_SETTINGS = "engine"


class _Window(Protocol):
    actions_: ActionRegistry
    doctor: DoctorDoor
    welcome: WelcomePage

    def show_page(self, key: str) -> None: ...

    def show_settings(self, page: str | None = None) -> None: ...


class DoctorLinks(QObject):
    """Lives as long as the rail."""

    def __init__(self, window: _Window, rail: Rail) -> None:
        super().__init__(rail)
        self._window = window
        self._warned = ""
        door = window.doctor
        door.dot_changed.connect(lambda token: rail.set_dot("doctor", token))
        door.warning_changed.connect(self._on_warning)
        door.link_wanted.connect(self.follow)
        window.welcome.warning_requested.connect(self._on_warning_requested)

    def follow(self, link: LinkView) -> None:
        """Does what a link says."""
        if link.kind == "settings":
            self._window.show_settings(ENGINE_SETTINGS)
        for action_id in ACTIONS.get(link.kind, ()):
            if self._window.actions_.has(action_id):
                self._window.actions_.action(action_id).trigger()

    def _on_warning(self, sentence: str, check: str, link: str) -> None:
        self._warned = check
        self._window.welcome.set_warning(sentence, link)

    def _on_warning_requested(self) -> None:
        self._window.show_page("doctor")
        self._window.doctor.controller().reveal(self._warned)
