"""PlacementParts: the operations below the placement page, handed to its controllers as one value."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from app.bridge.engine_bridge import EngineBridge
from app.bridge.ui_thread import UiThread
from app.ops.calibrate_ops import CalibrateOps
from app.ops.expert_history import ExpertHistory
from app.ops.model_ops import ModelOps
from app.ops.placement_apply import PlacementApply
from app.ops.placement_desk import PlacementDesk
from app.ops.placement_library import PlacementLibrary
from app.ops.placement_lost import LostDevices
from app.ops.placement_machine import MachineChoice
from app.ops.placement_measure import PlacementMeasure
from app.store.chat_store import ChatStore
from engine.api.pure import Machine, this_machine


@dataclass(frozen=True, slots=True)
class PlacementParts:
    """Made by the composition root."""

    desk: PlacementDesk
    machine: MachineChoice
    library: PlacementLibrary
    apply: PlacementApply
    measure: PlacementMeasure
    bridge: EngineBridge
    models: ModelOps
    ui: UiThread
    worker: ThreadPoolExecutor
    history: ExpertHistory
    lost: LostDevices
    calibrate: CalibrateOps


def make_placement(
    store: ChatStore,
    bridge: EngineBridge,
    models: ModelOps,
    ui: UiThread,
    worker: ThreadPoolExecutor,
    here: Callable[[], Machine] = this_machine,
    *,
    calibrate: CalibrateOps | None = None,
) -> PlacementParts:
    """All of it. here: finds this machine; calibrate: measures it, for all pages; None: one for this page."""
    machine = MachineChoice(here)
    desk = PlacementDesk(ui, worker, machine=machine)
    lost = LostDevices(desk, bridge, machine)
    library = PlacementLibrary(store, ui, worker)
    apply = PlacementApply(desk, bridge, models, library)
    history, measured = ExpertHistory(store), calibrate or CalibrateOps(bridge, ui, parent=desk)
    return PlacementParts(
        desk, machine, library, apply, PlacementMeasure(bridge), bridge, models, ui, worker, history, lost, measured
    )
