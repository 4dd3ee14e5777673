"""LoadRoom: a model that did not fit into a GPU's memory is said on the chat page, with the way to a placement that fits."""

from __future__ import annotations

from typing import Protocol

from PySide6.QtCore import QObject

from app.bridge.engine_bridge import EngineBridge
from app.bridge.engine_state import EngineState
from app.i18n import filled, tr
from app.ops.model_ops import ModelOps
from app.placement.notice_strip import NoticeStrip
from app.windows.placement_door import PlacementDoor


class _Window(Protocol):
    placement: PlacementDoor

    def show_page(self, key: str) -> None: ...


class LoadRoom(QObject):
    """Lives as long as the strip; what it says goes with the next load."""

    def __init__(self, window: _Window, strip: NoticeStrip, models: ModelOps, bridge: EngineBridge) -> None:
        super().__init__(strip)
        self._window, self._strip = window, strip
        self._path = self._sentence = ""
        models.room_wanted.connect(self._on_room_wanted)
        bridge.state_changed.connect(self._on_state)
        strip.first_chosen.connect(self._on_chosen)
        strip.second_chosen.connect(strip.hide)

    def _on_room_wanted(self, path: str, sentence: str) -> None:
        self._path, self._sentence = path, sentence
        text = filled(tr("Models", "The model could not be loaded: %1"), sentence)
        self._strip.show_notice(text, "err", tr("Models", "Make room"), tr("Models", "Close"))

    def _on_state(self, state: EngineState) -> None:
        if state.loading is not None:
            self._strip.hide()

    def _on_chosen(self) -> None:
        """The model is planned as it would be loaded, and the moves that make room are proposed there."""
        self._strip.hide()
        self._window.show_page("placement")
        self._window.placement.plan(self._path)
        self._window.placement.controller().make_room(self._sentence)
