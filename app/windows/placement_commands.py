"""PlacementCommands: the edited placement in the words of other tools as it changes, and theirs taken over."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from PySide6.QtCore import QObject, QTimer, Signal

from app.i18n import filled, tr
from app.placement.command_pane import Equivalent
from app.placement.placement_page import PlacementPage
from app.widgets.format import count_text
from app.windows.placement_figures import sentence_case
from app.windows.placement_parts import PlacementParts
from engine.api.errors import EngineError
from engine.api.interchange import Settings
from engine.api.pure import equivalent_commands

SETTLE_MS = 120
"""After a change; writing rules for a large model takes a few milliseconds, which a drag shall not pay."""


FILES = {
    "llama.cpp": "{model}.llama.sh",
    "ik": "{model}.ik.sh",
    "ktransformers": "{model}.yaml",
    "sglang": "{model}.kt.sh",
    "config": "config.json",
    "script": "run-{model}.sh",
}
"""What a file with the words of each tool is called."""


class PlacementCommands(QObject):
    """notice(sentence)."""

    notice = Signal(str)

    def __init__(self, parts: PlacementParts, page: PlacementPage, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._parts, self._page, self._desk = parts, page, parts.desk
        self._shown = False
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(SETTLE_MS)
        self._timer.timeout.connect(self.refresh)
        self._desk.predicted.connect(self._on_predicted)
        page.command.import_requested.connect(self.take)

    def set_shown(self, shown: bool) -> None:
        """Work only while it is seen."""
        self._shown = shown
        if shown:
            self._page.command.say(())
            self.refresh()

    def refresh(self) -> None:
        """Writes the placement for every tool."""
        placement, outline = self._desk.placement, self._desk.outline
        if not self._shown or placement is None or outline is None:
            return
        options = replace(self._desk.options, n_ctx=self._desk.n_ctx)
        stem = Path(outline.info.path).stem
        found = [
            Equivalent(one.label, one.text, one.notes, FILES[one.tool].format(model=stem))
            for one in equivalent_commands(placement, outline, options)
        ]
        found.append(Equivalent(tr("Placement", "Layerdeck file"), self._parts.library.text_of(placement)))
        self._page.command.show_equivalents(found)

    def take(self, text: str) -> None:
        """Edits what another tool's command means here."""
        if self._desk.outline is None:
            return
        if self._desk.state == "applying":
            self._page.command.say([tr("Placement", "The placement is being applied; wait for it to finish.")], "err")
            return
        try:
            found = self._parts.library.read(text)
        except EngineError as error:
            self._page.command.say([sentence_case(str(error))], "err")
            return
        self._desk.set_placement(found.placement, tr("Placement", "Use a pasted command"))
        sentences = [tr("Placement", "It is on the board; undo takes it back."), *map(sentence_case, found.notes)]
        n_ctx = found.settings.n_ctx
        if n_ctx and n_ctx != self._desk.n_ctx:
            text = tr("Placement", "It also asks for a context of %1 tokens; choose it under Plan the context.")
            sentences.append(filled(text, count_text(n_ctx)))
        self._page.command.say([*sentences, *not_taken(found.settings)], "text2")

    def _on_predicted(self) -> None:
        if self._shown:
            self._timer.start()


def not_taken(said: Settings) -> list[str]:
    """What a command says of loading that is no part of a placement, beside the context, a sentence each."""
    found = []
    own = replace(said, n_ctx=None, k_type=None, v_type=None, overrides=()).words()
    if own:
        text = tr("Placement", "It also says %1, which is no part of a placement; set it in the engine's settings.")
        found.append(filled(text, " ".join(own)))
    if said.overrides:
        keys = ", ".join(f"{key} = {value}" for key, value in said.overrides)
        text = tr("Placement", "It uses %1 in place of what the file says; that can be done from the command line alone.")
        found.append(filled(text, keys))
    return found
