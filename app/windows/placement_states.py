"""PlacementStates: what the placement page says about where things stand: the card in place of the board, the strip above it, the
bar of pending changes, and how applying goes on.
"""

from __future__ import annotations

from PySide6.QtCore import QObject, Signal

from app.i18n import filled, tr
from app.ops.placement_apply import Applied, Applying
from app.placement.placement_page import PlacementPage
from app.widgets.format import bytes_text, seconds_text
from app.windows.placement_figures import over_sentence, sentence_case
from app.windows.placement_parts import PlacementParts
from app.windows.placement_rates import PlacementRates


class PlacementStates(QObject):
    """notice(sentence); apply_requested: after a question was answered; machine_requested: this machine again; changed: something
    else is to be shown."""

    notice = Signal(str)
    apply_requested = Signal()
    machine_requested = Signal()
    changed = Signal()

    def __init__(self, parts: PlacementParts, page: PlacementPage, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._parts, self._page, self.desk = parts, page, parts.desk
        self._question = False
        self._agreed = False
        self.rates = PlacementRates(parts, self)
        self.rates.changed.connect(self._show_strip)
        self.rates.notice.connect(self.notice)
        page.strip.first_chosen.connect(self._on_strip_first)
        page.strip.second_chosen.connect(self._on_strip_second)
        parts.apply.progressed.connect(self._on_progressed)
        parts.apply.done.connect(self._on_applied)
        parts.apply.failed.connect(lambda _sentence: self.changed.emit())

    def show(self) -> None:
        """All of it."""
        self._show_card()
        self._show_strip()
        self._show_pending()

    def ask(self) -> None:
        """Loading would end an answer: asks whether to."""
        self._question = True
        self._show_strip()

    def answered(self) -> bool:
        """Whether the question was answered with yes; the next time it is asked again."""
        agreed, self._agreed = self._agreed, False
        return agreed

    def _is_loaded(self) -> bool:
        model = self._parts.bridge.state.model
        return model is not None and model.path == self.desk.path

    def why_not(self) -> str:
        """Why nothing can be applied, "" where it can."""
        if not self._parts.machine.is_this:
            return tr("Placement", "This is planned for another machine; choose This machine to load it here.")
        if self.desk.state == "does not fit":
            return tr("Placement", "It does not fit; see above.")
        return ""

    def _show_card(self) -> None:
        card, desk = self._page.state, self.desk
        if desk.state == "failed" and desk.outline is None:
            title = tr("Placement", "This model cannot be planned")
            card.show_state("circle-alert", title, sentence_case(desk.failure), tr("Placement", "Choose another model"))
        elif desk.state == "estimating":
            title = tr("Placement", "Reading the header…")
            card.show_state("gauge", title, tr("Placement", "Sizes and speeds of every layer, before anything is loaded."))
        else:
            title = tr("Placement", "See where every layer lies")
            text = tr("Placement", "Choose a model: its layers become cards on your devices, with what each move will cost.")
            card.show_state("layout-grid", title, text, tr("Placement", "Choose a model"))

    def _show_strip(self) -> None:
        strip, desk = self._page.strip, self.desk
        fix = "" if desk.proposal is None else desk.proposal.text
        lost = [row for row in desk.devices() if row.lost and desk.cards_of(row.device)]
        if self._parts.apply.failure and not self._parts.apply.running:
            again = tr("Placement", "Load again with it") if self._parts.apply.can_move() else ""
            strip.show_notice(sentence_case(self._parts.apply.failure), "err", again, tr("Placement", "Dismiss"))
        elif self._question:
            name = self._parts.bridge.state.model.name if self._parts.bridge.state.model is not None else ""
            text = filled(tr("Placement", "%1 is answering. Loading ends that answer; its text is kept."), name)
            strip.show_notice(text, "warn", tr("Placement", "Load now"), tr("Placement", "Not now"))
        elif lost:
            names = ", ".join(row.name for row in lost)
            text = filled(tr("Placement", "%1 is gone. Move its cards to another device to apply."), names)
            strip.show_notice(text, "warn", fix, tr("Placement", "Auto-fit"))
        elif desk.state == "does not fit" and desk.prediction is not None:
            strip.show_notice(over_sentence(desk.prediction), "err", fix, tr("Placement", "Auto-fit"))
        elif not self._parts.machine.is_this and desk.outline is not None:
            text = filled(tr("Placement", "Planned for %1. It can be exported, not loaded here."), self._parts.machine.name)
            strip.show_notice(text, "accent", tr("Placement", "This machine"))
        elif (offer := self.rates.offer()) is not None:
            strip.show_notice(offer.text, "accent", offer.first, offer.second)
        else:
            strip.hide()

    def _on_strip_first(self) -> None:
        if self._parts.apply.failure:
            self._parts.apply.failure = ""
            self._parts.apply.apply(reload=True)
        elif self._question:
            self._question, self._agreed = False, True
            self.apply_requested.emit()
        elif self._is_at_odds():
            self.desk.fix()
        elif self._parts.machine.is_this:
            self.rates.take()
        else:
            self.machine_requested.emit()
        self.changed.emit()

    def _on_strip_second(self) -> None:
        if self._parts.apply.failure or self._question:
            self._parts.apply.failure, self._question = "", False
        elif self._is_at_odds():
            self.desk.auto_fit()
        else:
            self.rates.decline()
        self.changed.emit()

    def _is_at_odds(self) -> bool:
        """Whether the strip is about a placement that cannot be."""
        lost = any(row.lost and self.desk.cards_of(row.device) for row in self.desk.devices())
        return lost or self.desk.state == "does not fit"

    def _show_pending(self) -> None:
        bar, desk = self._page.pending, self.desk
        if self._parts.apply.running:
            return
        if self._parts.apply.failure:
            bar.set_failed(tr("Placement", "Not applied"), tr("Placement", "The model is as it was"))
        elif desk.pending:
            text = tr("Placement", "1 change not applied") if desk.pending == 1 else ""
            bar.set_pending(text or tr("Placement", "%n changes not applied", desk.pending), self._pending_detail())
        elif desk.applied is not None:
            bar.set_idle(tr("Placement", "Loaded as shown"))
        elif desk.outline is not None:
            bar.set_idle(tr("Placement", "Not loaded"), tr("Placement", "Planned from the header alone"))

    def _pending_detail(self) -> str:
        if not self._is_loaded():
            return tr("Placement", "This model is not loaded")
        if self._parts.bridge.state.answers and self._parts.apply.can_move():
            return tr("Placement", "Applies between two tokens")
        return tr("Placement", "Running model is unchanged")

    # --- applying ----------------------------------------------------------------------------------------------------

    def _on_progressed(self, progress: Applying) -> None:
        words = {
            "room": tr("Placement", "Making room"),
            "weights": tr("Placement", "Moving weights"),
            "warmup": tr("Placement", "Making steps ready"),
            "switch": tr("Placement", "Switching between two tokens"),
            "load": tr("Placement", "Loading"),
        }
        detail = words.get(progress.phase, progress.phase)
        if progress.total_bytes:
            amounts = filled(tr("Placement", "%1 of %2"), bytes_text(progress.done_bytes), bytes_text(progress.total_bytes))
            detail = f"{detail} · {amounts}"
        self._page.pending.set_applying(tr("Placement", "Applying…"), detail, progress.share)

    def _on_applied(self, applied: Applied) -> None:
        if applied.reloaded:
            self.notice.emit(tr("Placement", "Loaded as placed."))
        elif applied.moved_bytes:
            text = tr("Placement", "Moved %1; answers stood still for %2.")
            pause = f"{applied.pause_s * 1000:.0f} ms" if applied.pause_s < 1 else seconds_text(applied.pause_s)
            self.notice.emit(filled(text, bytes_text(applied.moved_bytes), pause))
        self.changed.emit()
