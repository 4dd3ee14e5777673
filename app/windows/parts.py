"""Parts: what stands below the window, handed to it as one value."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from app.bridge.engine_bridge import EngineBridge
from app.bridge.ui_thread import UiThread
from app.ops.calibrate_ops import CalibrateOps
from app.ops.chat_ops import ChatOps
from app.ops.model_ops import ModelOps
from app.ops.monitor_ops import MonitorOps
from app.paths import Paths
from app.settings.store import SettingsStore
from app.store.chat_store import ChatStore
from app.windows.appearance import Appearance


@dataclass(frozen=True, slots=True)
class Parts:
    """Made by the composition root, closed by it."""

    paths: Paths
    settings: SettingsStore
    store: ChatStore
    bridge: EngineBridge
    ui: UiThread
    chats: ChatOps
    models: ModelOps
    monitors: MonitorOps
    appearance: Appearance
    worker: ThreadPoolExecutor
    calibrate: CalibrateOps
