"""FindingActions: what the buttons of findings do in the window: a placement to look at, or the control that changes what the
finding is about, filled in. Nothing is applied here but where the button says so."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject

from app.bridge.op import Op
from app.i18n import filled, tr
from app.ops.place_again import PlaceAgain
from app.windows.main_window import MainWindow
from app.windows.parts import Parts
from engine.api.commands import PinWorkers

if TYPE_CHECKING:
    from app.ops.diagnosis_ops import Preview
    from engine.advice.diagnosis.finding import Finding

PLACEMENT, DOCTOR = "placement", "doctor"
_GPU = re.compile(r"gpu(\d{1,4})")


class FindingActions(QObject):
    """Lives as long as the window."""

    def __init__(self, window: MainWindow, parts: Parts, parent: QObject) -> None:
        super().__init__(parent)
        self._window, self._parts = window, parts
        self.place_again = PlaceAgain(parts.bridge, self)
        self.place_again.notice.connect(window.show_notice)

    def show(self, preview: Preview) -> None:
        """A placement in the editor, as a step that undo takes back, and what it would bring or cost."""
        self._window.show_page(PLACEMENT)
        controller = self._window.placement.controller()
        controller.menus.choose_machine("")
        if controller.desk.path != preview.path or controller.desk.n_ctx != preview.info.n_ctx:
            controller.open(preview.path, preview.info.n_ctx)
        gone = _GPU.fullmatch(preview.lost)
        if gone is not None:
            controller.mark_lost(int(gone[1]))
        controller.preview.show(preview.path, preview.placement, preview.text)
        self._window.show_notice(filled(tr("Window", "%1 Look at it, then apply it, or undo it with Ctrl+Z."), preview.sentence))

    def follow(self, finding: Finding) -> None:
        """What needs no placement to be shown."""
        action, window = finding.action, self._window
        match action.does:
            case "doctor" if DOCTOR in window.doors:
                window.show_page(DOCTOR)
                window.doctor.controller().look_again(action.target)
            case "context":
                self._plan_context(action.n_ctx)
            case "pin":
                window.workers.propose(action.cpus)
            case "repin":
                command = PinWorkers(self._parts.bridge.new_id(), action.cpus)
                Op(self._parts.bridge, command).failure(lambda event: window.show_notice(event.message)).run()
            case "tune":
                window.workers.tune()
            case "place again":
                self.place_again.run()
            case "load again":
                window.actions_.action("reload_model").trigger()
            case "model":
                window.actions_.action("pick_model").trigger()

    def _plan_context(self, n_ctx: int) -> None:
        model = self._parts.bridge.state.model
        self._window.show_page(PLACEMENT)
        controller = self._window.placement.controller()
        controller.menus.choose_machine("")
        if model is not None and controller.desk.path != model.path:
            controller.open(model.path)
        controller.context.propose(n_ctx)
        controller.show_pane("context")
