"""DoctorFigures: the figures that may answer a question about a symptom, kept from events that pass anyway."""

from __future__ import annotations

from PySide6.QtCore import QObject

from app.bridge.engine_bridge import EngineBridge
from app.bridge.op import Op
from app.ops.doctor_context import Known
from engine.api.commands import AskHoldings
from engine.api.events import Counters, Event, Finished, Holdings, ModelReady, ModelUnloaded, PlacementApplied, Sensors
from engine.api.values import HardwareSnapshot, ModelInfo


class DoctorFigures(QObject):
    """`figures()` has the keys of `engine.advice.symptoms`; what is not known is not there."""

    def __init__(self, bridge: EngineBridge, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._bridge = bridge
        self._known: dict[str, float] = {}
        self._held: Holdings | None = None
        self._cards: dict[str, str] = {}
        self._snapshot: HardwareSnapshot | None = None
        bridge.happened.connect(self._on_event)

    @property
    def known(self) -> Known:
        """What the checks may use, as it is now."""
        gpus = () if self._snapshot is None else self._snapshot.gpus
        by_number = {f"gpu{n}": gpu.key for n, gpu in enumerate(gpus)}  # until the engine has told the keys itself
        return Known(self._snapshot, self._held, self._cards or by_number)

    def figures(self) -> dict[str, float]:
        """As they are now."""
        model = self._bridge.state.model
        return self._known | ({} if model is None else _placed(model))

    def _on_event(self, event: Event) -> None:
        match event:
            case PlacementApplied():
                self._ask_held()
            case ModelReady() | ModelUnloaded():
                self._held, self._cards = None, {}
                if isinstance(event, ModelReady):
                    self._ask_held()
                for key in ("prompt_tokens", "answers", "context_percent", "growth_mb_h"):
                    self._known.pop(key, None)
            case Finished(usage=usage) if usage.n_generated:
                self._known["prompt_tokens"] = float(usage.n_prompt - usage.n_reused)
                self._known["answers"] = self._known.get("answers", 0.0) + 1
                model = self._bridge.state.model
                if model is not None and model.n_ctx:
                    self._known["context_percent"] = min(100.0, 100.0 * (usage.n_prompt + usage.n_generated) / model.n_ctx)
            case Counters(sample=sample):
                self._cards |= {one.device: one.card for one in sample.devices if one.card}
            case Holdings(trends=trends):
                self._held = event
                growing = [one.slope_bytes_s for one in trends if one.sentence]
                self._known["growth_mb_h"] = max(0.0, sum(growing)) * 3600 / 1e6
            case Sensors(snapshot=snapshot):
                self._snapshot = snapshot
                self._known["n_gpus"] = float(len(snapshot.gpus))

    def _ask_held(self) -> None:
        """Where pages lie is asked as soon as they lie there: the checks do not wait for an answer."""
        Op(self._bridge, AskHoldings(self._bridge.new_id())).failure(lambda _event: None).run()


def _placed(model: ModelInfo) -> dict[str, float]:
    total = sum(share.nbytes for share in model.devices)
    on_gpus = sum(share.nbytes for share in model.devices if share.device.startswith("gpu"))
    return {"gpu_percent": 100.0 * on_gpus / total} if total else {}
