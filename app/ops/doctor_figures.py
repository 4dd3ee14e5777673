"""DoctorFigures: the figures that may answer a question about a symptom, kept from events that pass anyway."""

from __future__ import annotations

from PySide6.QtCore import QObject

from app.bridge.engine_bridge import EngineBridge
from engine.api.events import Event, Finished, Holdings, ModelReady, ModelUnloaded, Sensors
from engine.api.values import HardwareSnapshot, ModelInfo


class DoctorFigures(QObject):
    """`figures()` has the keys of `engine.advice.symptoms`; what is not known is not there."""

    def __init__(self, bridge: EngineBridge, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._bridge = bridge
        self._known: dict[str, float] = {}
        self._snapshot: HardwareSnapshot | None = None
        bridge.happened.connect(self._on_event)

    @property
    def snapshot(self) -> HardwareSnapshot | None:
        """The newest reading of the sensors; None while nobody asked for one."""
        return self._snapshot

    def figures(self) -> dict[str, float]:
        """As they are now."""
        model = self._bridge.state.model
        return self._known | ({} if model is None else _placed(model))

    def _on_event(self, event: Event) -> None:
        match event:
            case ModelReady() | ModelUnloaded():
                for key in ("prompt_tokens", "answers", "context_percent", "growth_mb_h"):
                    self._known.pop(key, None)
            case Finished(usage=usage) if usage.n_generated:
                self._known["prompt_tokens"] = float(usage.n_prompt - usage.n_reused)
                self._known["answers"] = self._known.get("answers", 0.0) + 1
                model = self._bridge.state.model
                if model is not None and model.n_ctx:
                    self._known["context_percent"] = min(100.0, 100.0 * (usage.n_prompt + usage.n_generated) / model.n_ctx)
            case Holdings(trends=trends):
                growing = [one.slope_bytes_s for one in trends if one.sentence]
                self._known["growth_mb_h"] = max(0.0, sum(growing)) * 3600 / 1e6
            case Sensors(snapshot=snapshot):
                self._snapshot = snapshot
                self._known["n_gpus"] = float(len(snapshot.gpus))


def _placed(model: ModelInfo) -> dict[str, float]:
    total = sum(share.nbytes for share in model.devices)
    on_gpus = sum(share.nbytes for share in model.devices if share.device.startswith("gpu"))
    return {"gpu_percent": 100.0 * on_gpus / total} if total else {}
