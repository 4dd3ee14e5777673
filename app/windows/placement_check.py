"""PlacementCheck: asks the engine what the loaded model holds, and shows it against what was predicted."""

from __future__ import annotations

import time

from PySide6.QtCore import QObject, Signal

from app.bridge.op import Op
from app.i18n import filled, tr
from app.ops.placement_planning import device_name
from app.ops.placement_truth import OwnerBytes, against, sentences
from app.placement.check_pane import Check, Finding
from app.placement.figure_table import TableRow
from app.placement.placement_page import PlacementPage
from app.widgets.format import bytes_text
from app.windows.placement_figures import day_text
from app.windows.placement_parts import PlacementParts
from engine.api.commands import AskHoldings
from engine.api.events import Holdings
from engine.api.pure import Device
from engine.api.values import ModelInfo

TOLERANCE, TOLERANCE_BYTES = 0.02, 150 << 20
"""A device may be off by the larger of both before that is worth a colour."""


class PlacementCheck(QObject):
    """notice(sentence)."""

    notice = Signal(str)

    def __init__(self, parts: PlacementParts, page: PlacementPage, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._parts, self._page, self._desk = parts, page, parts.desk
        self._shown = False
        self._holdings: Holdings | None = None
        self._looked_s = 0.0
        page.check.again_requested.connect(self.look)
        parts.apply.done.connect(lambda _applied: self.look())
        parts.models.ready.connect(self._on_model_ready)
        self._desk.outline_changed.connect(self._forget)

    def set_shown(self, shown: bool) -> None:
        """Looks whenever it comes into sight."""
        self._shown = shown
        if shown:
            self.look()

    def look(self) -> None:
        """Asks once more."""
        model = self._model()
        if not self._shown:
            return
        if model is None:
            self._page.check.show_check(Check(tr("Placement", "This model is not loaded")))
            return
        bridge = self._parts.bridge
        op = Op(bridge, AskHoldings(bridge.new_id())).on(Holdings, self._on_holdings)
        op.failure(lambda event: self.notice.emit(event.message)).run()

    def _model(self) -> ModelInfo | None:
        model = self._parts.bridge.state.model
        return model if model is not None and model.path == self._desk.path and self._parts.machine.is_this else None

    def _on_model_ready(self, _info: ModelInfo) -> None:
        self._forget()
        self.look()

    def _forget(self) -> None:
        self._holdings = None
        self.refresh()

    def _on_holdings(self, event: Holdings) -> None:
        self._holdings, self._looked_s = event, time.time()
        self.refresh()

    def refresh(self) -> None:
        """Shows what is known."""
        model, found = self._model(), self._holdings
        prediction = self._desk.prediction_applied
        if model is None or found is None or prediction is None:
            self._page.check.show_check(Check(tr("Placement", "This model is not loaded")))
            return
        asked = self._parts.apply.asked or self._desk.applied
        findings = sentences(asked, model.placement, model.fallbacks, found.trends, found.off_node_share)
        rows = table(against(prediction, found.holdings))
        subtitle = filled(tr("Placement", "Looked at %1"), day_text(self._looked_s, self._looked_s))
        self._page.check.show_check(Check(subtitle, rows, tuple(Finding(*one) for one in findings)))


def table(found: tuple[OwnerBytes, ...]) -> tuple[TableRow, ...]:
    """Devices with their owners below them."""
    rows: list[TableRow] = []
    devices: list[Device] = list(dict.fromkeys(one.device for one in found))
    for device in devices:
        mine = [one for one in found if one.device == device]
        counted = [one for one in mine if one.real is not None]
        planned, real = sum(one.predicted for one in counted), sum(one.real or 0 for one in counted)
        tone = "err" if abs(real - planned) > max(TOLERANCE * planned, TOLERANCE_BYTES) else "ok"
        rows.append(
            TableRow(device_name(device), (bytes_text(planned), bytes_text(real), _off(planned, real)), tone, is_head=True)
        )
        rows += [_owner_row(one) for one in mine]
    return tuple(rows)


def _owner_row(one: OwnerBytes) -> TableRow:
    name = {
        "weights": tr("Placement", "Weights"),
        "derived": tr("Placement", "Made at load"),
        "kv": tr("Placement", "KV cache"),
        "kept_windows": tr("Placement", "Kept windows"),
        "state": tr("Placement", "State"),
        "workspace": tr("Placement", "Working memory"),
        "other": tr("Placement", "Driver and workers"),
    }.get(one.owner, one.owner)
    if one.mapped:
        name = filled(tr("Placement", "%1, mapped"), name)
    if one.real is None:
        return TableRow(name, (bytes_text(one.predicted), "—", ""), "text3")
    return TableRow(name, (bytes_text(one.predicted), bytes_text(one.real), _off(one.predicted, one.real)), "text2")


def _off(planned: int, real: int) -> str:
    if not planned:
        return "" if not real else tr("Placement", "new")
    share = (real / planned - 1) * 100
    return "0 %" if abs(share) < 0.05 else f"{'+' if share > 0 else '−'}{abs(share):.1f} %"
