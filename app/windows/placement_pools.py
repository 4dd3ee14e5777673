"""PlacementPools: what the engine tells of pools of hot experts, their switch, and the comparison of answers with and without."""

from __future__ import annotations

from PySide6.QtCore import QObject, Signal

from app.bridge.op import Op
from app.i18n import filled, tr
from app.placement.placement_page import PlacementPage
from app.placement.pool_view import PoolState
from app.widgets.format import count_text
from app.windows.placement_figures import sentence_case, whole_rate
from app.windows.placement_parts import PlacementParts
from engine.api.commands import ComparePools, UsePools
from engine.api.events import Event, ModelReady, ModelUnloaded, PoolsCompared, PoolStats

N_SIGMA = 2.0
"""A gain smaller than twice its standard error is no gain."""


class PlacementPools(QObject):
    """notice(sentence)."""

    notice = Signal(str)

    def __init__(self, parts: PlacementParts, page: PlacementPage, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._parts, self._view = parts, page.inspector.pools
        self._stats: PoolStats | None = None
        self._result = ""
        self._comparing = False
        parts.bridge.happened.connect(self._on_event)
        parts.desk.outline_changed.connect(self.refresh)
        self._view.mode_chosen.connect(self._on_mode_chosen)
        self._view.compare_requested.connect(self._on_compare_requested)

    def _on_event(self, event: Event) -> None:
        match event:
            case PoolStats():
                if self._comparing and not event.comparing:
                    self._result = ""  # given up: another mode was chosen, or the placement has changed
                self._stats, self._comparing = event, event.comparing
            case PoolsCompared():
                self._comparing, self._result = False, compared_text(event)
            case ModelUnloaded() | ModelReady():
                self._stats, self._comparing, self._result = None, False, ""
            case _:
                return
        self.refresh()

    def refresh(self) -> None:
        """Shows what is known, nothing where the model has no pools or another one is planned."""
        stats, model = self._stats, self._parts.bridge.state.model
        if stats is None or not stats.layers or model is None or model.path != self._parts.desk.path:
            self._view.show_state(None)
            return
        self._view.show_state(PoolState(stats_text(stats), stats.mode, self._result, self._comparing))

    def _on_mode_chosen(self, mode: str) -> None:
        bridge = self._parts.bridge
        command = UsePools(bridge.new_id(), mode)  # type: ignore[arg-type]
        Op(bridge, command).failure(lambda event: self.notice.emit(sentence_case(event.message))).run()

    def _on_compare_requested(self) -> None:
        bridge, stats = self._parts.bridge, self._stats
        if stats is None or stats.mode == "off":
            return

        def failed(message: str) -> None:
            self._comparing = False
            self.notice.emit(sentence_case(message))
            self.refresh()

        self._comparing = True
        self._result = tr("Placement", "Compares as answers go on: chat, and it will say.")
        Op(bridge, ComparePools(bridge.new_id(), stats.mode)).failure(lambda event: failed(event.message)).run()
        self.refresh()


def stats_text(stats: PoolStats) -> str:
    """What pools took of the reads of their layers, and whether they still follow the text."""
    n_slots = sum(len(one.experts) for one in stats.layers)
    held = filled(tr("Placement", "%1 copies in %2 layers"), count_text(n_slots), len(stats.layers))
    rate = stats.hit_rate
    if rate is None:
        return filled(tr("Placement", "%1, nothing decoded yet."), held)
    text = filled(
        tr("Placement", "%1 served %2 of reads, %3 came and went."), held, f"{100 * rate:.0f} %", count_text(stats.promotions)
    )
    if stats.switched_off:
        return (
            f"{text} {sentence_case(stats.why)}" if stats.why else f"{text} {tr('Placement', 'Following ended: it did not pay.')}"
        )
    return text


def compared_text(found: PoolsCompared) -> str:
    """`Follow the text: 12.9 against 12.1 tok/s, +6.6 % ± 1.2 %.`"""
    rates = filled(tr("Placement", "%1 against %2 tok/s"), whole_rate(found.with_tok_s), whole_rate(found.without_tok_s))
    if abs(found.gain) < N_SIGMA * found.sigma:
        return filled(tr("Placement", "%1: no significant difference."), rates)
    sign = "+" if found.gain > 0 else "−"
    return f"{rates}, {sign}{abs(100 * found.gain):.1f} % ± {100 * found.sigma:.1f} %."
