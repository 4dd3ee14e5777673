"""PlacementCompare: which two placements are compared, what is predicted of both, and their measurement in turn."""

from __future__ import annotations

from PySide6.QtCore import QObject, Signal

from app.i18n import filled, tr
from app.ops.placement_library import same_places
from app.ops.placement_measure import Measured
from app.ops.placement_moves import differing
from app.ops.placement_planning import cards_text
from app.ops.two_samples import SIGNIFICANT, Sample
from app.placement.compare_pane import Comparison
from app.placement.figure_table import TableRow
from app.placement.placement_page import PlacementPage
from app.widgets.format import rate_text
from app.windows.placement_figures import comparison_rows
from app.windows.placement_parts import PlacementParts
from engine.api.pure import Placement
from engine.api.values import ModelInfo


class PlacementCompare(QObject):
    """notice(sentence)."""

    notice = Signal(str)

    def __init__(self, parts: PlacementParts, page: PlacementPage, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._parts, self._page, self._desk = parts, page, parts.desk
        self._sides = (0, 0)
        self._shown = False
        self._names: tuple[str, ...] = ()
        self._verdict = ""
        pane, measure = page.compare, parts.measure
        pane.sides_chosen.connect(self._on_sides_chosen)
        pane.measure_requested.connect(self._on_measure_requested)
        pane.cancel_requested.connect(measure.stop)
        pane.take_requested.connect(self._on_take_requested)
        measure.progress.connect(lambda _measured: self.refresh())
        measure.applied.connect(self._on_measure_applied)
        measure.ended.connect(self._on_ended)
        measure.failed.connect(self._on_measure_failed)
        self._desk.predicted.connect(self.refresh)
        self._desk.outline_changed.connect(self._on_outline_changed)
        parts.library.presets_changed.connect(self.refresh)

    def set_shown(self, shown: bool) -> None:
        """Work only while it is seen."""
        self._shown = shown
        self.refresh()

    def choices(self) -> tuple[tuple[str, Placement], ...]:
        """What can be compared: the edited placement, the loaded one, the automatic one, presets."""
        desk, found = self._desk, []
        if desk.placement is None or desk.planner is None:
            return ()
        found.append((tr("Placement", "As edited"), desk.placement))
        if desk.applied is not None:
            found.append((tr("Placement", "As loaded"), desk.applied))
        if self._parts.library.default is not None:
            found.append((tr("Placement", "Automatic"), self._parts.library.default))
        found += [(preset.name, preset.placement) for preset in self._parts.library.presets]
        return tuple(found)

    def refresh(self) -> None:
        """Shows both sides as they are now."""
        if not self._shown and not self._parts.measure.running:
            return
        choices, planner = self.choices(), self._desk.planner
        if planner is None or not choices:
            self._page.compare.show_comparison(Comparison((), -1, -1, reason=tr("Placement", "Choose a model first.")))
            return
        names = tuple(name for name, _ in choices)
        if names != self._names:
            self._names = names
            self._sides = (1 if len(choices) > 1 else 0, 0)
        (a, b) = (choices[self._sides[0]][1], choices[self._sides[1]][1])
        measured = self._parts.measure.measured
        running = self._parts.measure.running
        self._page.compare.show_comparison(
            Comparison(
                names,
                *self._sides,
                rows=comparison_rows(planner.estimate(a), planner.estimate(b)),
                differ=differ_text(a, b),
                measured=measured_rows(measured),
                verdict=self._verdict,
                running=measured.done / measured.total if running and measured.total else None,
                status=self._status(measured) if running else "",
                reason=self._why_not(a, b),
            )
        )

    @staticmethod
    def _status(measured: Measured) -> str:
        return filled(tr("Placement", "Run %1 of %2, in turn, on the same prompt"), measured.done + 1, measured.total)

    def _why_not(self, a: Placement, b: Placement) -> str:
        engine = self._parts.bridge.state
        if engine.model is None or engine.model.path != self._desk.path:
            return tr("Placement", "Load this model to measure.")
        if not self._parts.machine.is_this:
            return tr("Placement", "Another machine cannot be measured from here.")
        if same_places(a, b):
            return tr("Placement", "Both are the same placement; choose another one.")
        if engine.answers and not self._parts.measure.running:
            return tr("Placement", "An answer is being written; wait for it to end.")
        return ""

    def _on_outline_changed(self) -> None:
        self._names, self._verdict = (), ""
        self.refresh()

    def _on_sides_chosen(self, a: int, b: int) -> None:
        if a >= 0 and b >= 0:
            self._sides, self._verdict = (a, b), ""
            self.refresh()

    def _on_take_requested(self, index: int) -> None:
        choices = self.choices()
        if 0 <= index < len(choices):
            name, placement = choices[index]
            self._desk.set_placement(placement, filled(tr("Placement", "Use %1"), name))

    def _on_measure_requested(self, rounds: int) -> None:
        choices, present = self.choices(), self._desk.applied
        if present is None or not choices:
            return
        a, b = choices[self._sides[0]][1], choices[self._sides[1]][1]
        if not self._why_not(a, b):
            self._verdict = ""
            self._parts.measure.start(a, b, present, rounds)

    def _on_measure_applied(self, info: ModelInfo) -> None:
        """The model lies otherwise for the moment; what is loaded counts as before until it is put back."""
        self.refresh()

    def _on_ended(self, measured: Measured) -> None:
        self._verdict = verdict(measured)
        self.refresh()

    def _on_measure_failed(self, sentence: str) -> None:
        self._verdict = sentence
        self.notice.emit(sentence)
        self.refresh()


def differ_text(a: Placement, b: Placement) -> str:
    """`14 cards lie elsewhere in B.`"""
    n = len(differing(a, b))
    if not n:
        return tr("Placement", "Both are the same placement.")
    return filled(tr("Placement", "%1 lie elsewhere in B."), cards_text(n))


def measured_rows(measured: Measured) -> tuple[TableRow, ...]:
    """Mean and scatter of both; empty before a run has ended."""
    rows = []
    for what, label in (("decode", tr("Placement", "Decode, tok/s")), ("prefill", tr("Placement", "Prefill, tok/s"))):
        a, b = measured.samples(what)
        if a.n or b.n:
            share = (b.mean / a.mean - 1) * 100 if a.mean and b.mean else 0.0
            change = "" if not (a.n and b.n) else f"{'+' if share >= 0 else '−'}{abs(share):.1f} %"
            rows.append(TableRow(label, (_with_sigma(a), _with_sigma(b), change), "ok" if share >= 0 else "err"))
    return tuple(rows)


def _with_sigma(one: Sample) -> str:
    if not one.n:
        return "—"
    return rate_text(one.mean) if one.n < 2 else f"{rate_text(one.mean)} ± {_digits(one.sigma, one.mean)}"


def _digits(sigma: float, mean: float) -> str:
    return f"{sigma:.1f}" if mean < 100 else f"{sigma:.0f}"


def verdict(measured: Measured) -> str:
    """What the runs say of decoding, with the probability that it is chance."""
    a, b = measured.samples("decode")
    p = measured.p_value("decode")
    if p is None:
        return tr("Placement", "Too few runs to tell; measure more of each.")
    if p > SIGNIFICANT:
        return filled(tr("Placement", "No significant difference (p = %1)."), f"{p:.2f}")
    share = abs(b.mean / a.mean - 1) * 100 if a.mean else 0.0
    text = tr("Placement", "B decodes %1 faster (p %2).") if b.mean > a.mean else tr("Placement", "B decodes %1 slower (p %2).")
    return filled(text, f"{share:.1f} %", f"= {p:.3f}" if p >= 0.001 else "< 0.001")
