"""Everything below the placement page over a small model that is only a header, two GPUs and a scripted engine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from pytestqt.qtbot import QtBot

from app.bridge.engine_bridge import EngineBridge
from app.bridge.ui_thread import UiThread
from app.ops.model_ops import ModelOps
from app.ops.placement_desk import PlacementDesk
from app.settings.store import SettingsStore
from app.shots.model_header import LatentShape, write_header
from app.store import placements
from app.store.chat_store import ChatStore
from app.windows.placement_parts import PlacementParts, make_placement
from engine.api.pure import Machine, Placement, UnitId, machine_fingerprint, machine_of
from engine.api.values import ModelInfo
from tests.helpers.fake_engine import FakeEngine, model_info

SHAPE = LatentShape("Small", 6, 1, 512, 4, 512, 1024, 256, 16, 2, 256, 256)
DENSE = LatentShape("Dense", 4, 4, 512, 4, 512, 1024, 256, 16, 2, 256, 256)
MACHINE = {
    "name": "bench",
    "gpus": [{"name": "RTX 4090", "memory_gib": 24}, {"name": "RTX 3090", "memory_gib": 24}],
    "nodes": [{"name": "EPYC", "ram_gib": 64, "cores": 16}],
}


@dataclass
class PlacementBench:
    """notices: what the desk told."""

    qtbot: QtBot
    engine: FakeEngine
    bridge: EngineBridge
    parts: PlacementParts
    store: ChatStore
    path: str
    folder: Path
    notices: list[str]

    @property
    def desk(self) -> PlacementDesk:
        """What is edited."""
        return self.parts.desk

    @property
    def placement(self) -> Placement:
        """As edited."""
        assert self.desk.placement is not None
        return self.desk.placement

    def open(self) -> None:
        """Plans the model."""
        self.desk.open(self.path, self.parts.models.load_options())
        self.qtbot.waitUntil(lambda: self.desk.state in ("ready", "does not fit"), timeout=30_000)
        assert self.desk.outline is not None and self.desk.machine is not None
        self.parts.library.open(self.desk.outline, self.desk.machine, self.desk.options)

    def load(self) -> None:
        """Loads it as it is planned."""
        if self.desk.outline is None:
            self.open()
        self.parts.models.load(self.path)
        self.qtbot.waitUntil(lambda: self.bridge.state.kind in ("ready", "error"), timeout=30_000)
        if self.bridge.state.model is not None:
            self.desk.set_applied(self.bridge.state.model.placement)

    def move_experts(self, *layers: int) -> None:
        """Moves the experts of layers to the second GPU."""
        home = self.desk.devices()[1].device
        assert self.desk.move([UnitId("experts", layer) for layer in layers], home)

    def describe(self, path: str) -> ModelInfo:
        """The model as the engine would load it: as planned."""
        outline = self.desk.outline
        if outline is None or path != self.path:
            return model_info(path)
        return replace(outline.info, n_ctx=self.desk.n_ctx, placement=self.desk.placement)


@contextmanager
def placement_bench(qtbot: QtBot, folder: Path, shape: LatentShape = SHAPE) -> Iterator[PlacementBench]:
    """All of it, closed in the end."""
    path, file = folder / "small.gguf", folder / "machine.json"
    write_header(path, shape)
    file.write_text(json.dumps(MACHINE))
    engine = FakeEngine()
    bridge, ui, worker = EngineBridge(engine), UiThread(), ThreadPoolExecutor(1)
    store = ChatStore(folder / "chats.db")
    models = ModelOps(bridge, SettingsStore(folder / "settings.toml"), ui, worker)

    def here() -> Machine:
        return machine_of(str(file))

    parts = make_placement(store, bridge, models, ui, worker, here)
    key = machine_fingerprint(here())
    models.remembered = lambda path: store.placement(lambda db: placements.used(db, path, key))
    made = PlacementBench(qtbot, engine, bridge, parts, store, str(path), folder, [])
    engine.describe = made.describe
    parts.desk.notice.connect(made.notices.append)
    yield made
    parts.desk.close()
    ui.close()
    bridge.close()
    store.close()
    worker.shutdown()
