"""PlacementStage: the placement page over a model of which only the header exists, on a machine that a file describes, beside an
engine that says what the picture needs.
"""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from PySide6.QtCore import QEventLoop, QTimer

from app.bridge.engine_bridge import EngineBridge
from app.bridge.ui_thread import UiThread
from app.ops.model_ops import ModelOps
from app.settings.store import SettingsStore
from app.shots.model_header import LatentShape, write_header
from app.shots.scripted_client import ScriptedClient
from app.store.chat_store import ChatStore
from app.windows.placement_controller import PlacementController
from app.windows.placement_parts import PlacementParts, make_placement
from engine.api.commands import AskHoldings, Command, WatchExperts
from engine.api.events import Event, Finished, Holdings, ModelReady
from engine.api.pure import Gpu, Placement, Prediction, machine_of
from engine.api.values import HoldingInfo, HoldingTrend, ModelInfo, RequestId

MACHINE = {
    "name": "EPYC workstation",
    "gpus": [{"name": "RTX 4090", "memory_gib": 24, "count": 2}, {"name": "RTX 3090", "memory_gib": 24}],
    "nodes": [{"name": "EPYC 9354", "ram_gib": 512, "cores": 32, "read_gbps": 410}],
}
N_CTX = 32_768
_WAIT_S = 60.0
_OWNERS = ("weights", "derived", "kv", "kept_windows", "state", "workspace")


class PlacementStage:
    """Made for one picture; `close` ends its threads."""

    def __init__(self, shape: LatentShape | None = None) -> None:
        self._folder = tempfile.TemporaryDirectory()
        folder = Path(self._folder.name)
        self.path = str(folder / "deepseek-v3.1.Q4_K_M.gguf")
        write_header(Path(self.path), shape or LatentShape())
        file = folder / "machine.json"
        file.write_text(json.dumps(MACHINE))
        self._machine = machine_of(str(file))
        self.client = ScriptedClient(self._answered)
        self._ui, self._pool = UiThread(), ThreadPoolExecutor(1)
        self._store = ChatStore(folder / "chats.db")
        self._settings = SettingsStore(folder / "settings.toml")
        self.bridge = EngineBridge(self.client)
        models = ModelOps(self.bridge, self._settings, self._ui, self._pool)
        self.parts: PlacementParts = make_placement(self._store, self.bridge, models, self._ui, self._pool, lambda: self._machine)
        self._settings.set("engine.context", N_CTX)
        self.controller = PlacementController(self.parts)
        self.page = self.controller.page
        self.desk = self.parts.desk
        self.controller.states.rates.decline()  # as on a machine that was measured

    def open(self) -> Placement:
        """Plans the model; returns what loading it gives."""
        self.controller.open(self.path)
        self.settle(lambda: self.desk.state in ("ready", "does not fit", "failed"))
        assert self.desk.placement is not None
        return self.desk.placement

    def load(self) -> Placement:
        """The model is loaded as planned by `open`."""
        placement = self.open()
        self.client.tell(ModelReady(RequestId("load"), self.info(placement)))
        self.settle(lambda: self.bridge.state.model is not None)
        self.desk.set_applied(placement)
        return placement

    def info(self, placement: Placement) -> ModelInfo:
        """The loaded model as the engine would describe it."""
        outline = self.desk.outline
        assert outline is not None
        return replace(outline.info, n_ctx=self.desk.n_ctx, placement=placement, prefill_chunk=512)

    def count_experts(self) -> None:
        """Counts of 8,192 tokens: a few experts of each layer are asked far more often than the rest."""
        outline = self.desk.outline
        assert outline is not None
        chance = random.Random(21)
        layers = [fact.unit.layer for fact in outline.units if fact.unit.kind == "experts"]
        counts = {}
        for layer in layers:
            shares = [chance.expovariate(1.0) for _ in range(outline.n_experts)]
            scale = 8192 * outline.n_used / sum(shares)
            counts[layer] = [round(share * scale) for share in shares]
        self.controller.inspector.set_counts(8192, counts)

    def settle(self, done: Callable[[], bool]) -> None:
        """Lets events run until something holds."""
        loop, timer = QEventLoop(), QTimer()
        timer.setInterval(10)
        timer.timeout.connect(lambda: loop.quit() if done() else None)
        QTimer.singleShot(round(_WAIT_S * 1000), loop.quit)
        timer.start()
        if not done():
            loop.exec()
        timer.stop()

    def close(self) -> None:
        """Ends what runs beside the window."""
        self.desk.close()
        self._ui.close()
        self.bridge.close()
        self._store.close()
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._folder.cleanup()

    def _answered(self, command: Command) -> tuple[Event, ...]:
        if not isinstance(command, AskHoldings):
            return (Finished(command.request_id, "done"),) if isinstance(command, WatchExperts) else ()
        prediction = self.desk.prediction_applied
        held = () if prediction is None else holdings(prediction)
        trends = (HoldingTrend("gpu0", 0, 0.0, 720.0),)
        return (Holdings(command.request_id, held, trends, 0.004), Finished(command.request_id, "done"))


def holdings(prediction: Prediction) -> tuple[HoldingInfo, ...]:
    """What was predicted, a little off as it comes out."""
    found = []
    for one in prediction.devices:
        name = f"gpu{one.device.index}" if isinstance(one.device, Gpu) else f"numa{one.device.node}"
        for owner in _OWNERS:
            nbytes = getattr(one.owners, owner)
            if nbytes:
                off = 1.007 if owner == "workspace" else 1.0
                found.append(
                    HoldingInfo(name, owner.replace("_", " "), round(nbytes * off), mapped=owner == "weights" and name[0] == "n")
                )
    return tuple(found)
