"""The composition root: paths, log, settings, store, engine, bridge, window; then the loop until the window has closed.

The only file of the application that starts the engine.
"""

from __future__ import annotations

import asyncio
import faulthandler
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from PySide6.QtCore import QTimer
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QApplication, QMessageBox

from app import event_loop, log
from app.bridge.engine_bridge import EngineBridge
from app.bridge.garbage import Garbage
from app.bridge.ui_thread import UiThread
from app.crash_guard import CrashGuard
from app.errors import StoreError, UserFacingError
from app.i18n import tr
from app.instance import Instance
from app.ops.backup_ops import BackupOps
from app.ops.calibrate_ops import CalibrateOps
from app.ops.chat_ops import ChatOps
from app.ops.model_ops import ModelOps
from app.ops.monitor_ops import MonitorOps
from app.ops.placement_memory import remembered_placement
from app.ops.telemetry_ops import TelemetryOps
from app.paths import Paths, find_paths
from app.settings.store import SettingsStore
from app.store.chat_store import ChatStore
from app.windows.appearance import Appearance
from app.windows.crash_dialog import CrashReporter
from app.windows.findings_controller import FindingsController
from app.windows.main_window import MainWindow
from app.windows.parts import Parts
from app.windows.side_panel_controller import SidePanelController
from engine.api.client import EngineClient
from engine.service.engine import Engine

APP_NAME = "Layerdeck"
DESKTOP_NAME = "layerdeck"


@dataclass(slots=True)
class Running:
    """Everything that lives as long as the application."""

    parts: Parts
    window: MainWindow
    worker: ThreadPoolExecutor
    closing: asyncio.Event
    backups: BackupOps
    telemetry: TelemetryOps

    def shut_down(self) -> None:
        """Notes unfinished answers, stops the engine, writes what is pending. Takes milliseconds."""
        self.window.save_state()
        self.window.page.shut_down()
        self.window.doctor.close()
        self.backups.stop()
        self.parts.chats.close()
        self.telemetry.close()
        self.parts.monitors.close()
        self.parts.ui.close()
        self.parts.bridge.close()
        self.parts.store.close()
        self.worker.shutdown(wait=True, cancel_futures=True)
        self.window.allow_close()
        self.window.close()


def make_application() -> QApplication:
    """The QApplication, with the fonts and the look; made once."""
    QApplication.setApplicationName(APP_NAME)
    QApplication.setApplicationDisplayName(APP_NAME)
    QGuiApplication.setDesktopFileName(DESKTOP_NAME)
    app = QApplication(sys.argv[:1])
    app.setQuitOnLastWindowClosed(False)
    return app


def build(app: QApplication, paths: Paths, client: Callable[[], EngineClient] = Engine) -> Running:
    """The application, ready to be shown. Raises StoreError when the chats cannot be used."""
    settings = SettingsStore(paths.settings_file)
    appearance = Appearance(app, settings)
    ui = UiThread()
    reporter = CrashReporter(ui)
    reporter.install()
    holder: list[MainWindow] = []

    def show_trouble(error: StoreError | None) -> None:
        for window in holder:
            window.show_store_trouble(error)

    def on_trouble(error: StoreError | None) -> None:
        ui.call(lambda: show_trouble(error))

    store = ChatStore(paths.database, on_trouble)
    bridge = EngineBridge(client())
    worker = ThreadPoolExecutor(2, thread_name_prefix="worker")
    models = ModelOps(bridge, settings, ui, worker)
    models.remembered = lambda path: remembered_placement(store, path) if settings.values.engine.remember_placement else ""
    chats = ChatOps(store, bridge, settings, ui)
    monitors = MonitorOps(bridge, settings, ui, paths.recordings, kept=store.telemetry)
    parts = Parts(
        paths=paths,
        settings=settings,
        store=store,
        bridge=bridge,
        ui=ui,
        chats=chats,
        models=models,
        monitors=monitors,
        appearance=appearance,
        worker=worker,
        calibrate=CalibrateOps(bridge, ui),
    )
    closing = asyncio.Event()
    window = MainWindow(parts, closing.set)
    holder.append(window)
    reporter.set_window(window, window.show_notice)
    SidePanelController(window, parts)
    FindingsController(window, parts)
    window.page.transcript.telemetry_requested.connect(monitors.replay)
    telemetry = TelemetryOps(chats, monitors, store, bridge)
    return Running(parts, window, worker, closing, BackupOps(paths.database, worker, window), telemetry)


def run(model: str | None, prompt: str, *, offscreen: bool) -> int:
    """The window until it is closed, or one question and its answer when there is no display. The exit status."""
    faulthandler.enable()
    paths = find_paths()
    try:
        paths.ensure()
    except OSError as error:
        return _refuse(f"{error.filename} cannot be made ({error.strerror}); set LAYERDECK_HOME to a folder that can be written.")
    log.set_up(paths.log_file)
    app = make_application()
    instance = Instance(paths.lock_file)
    if not instance.acquire():
        return _second(instance, model, offscreen=offscreen)
    guard = CrashGuard(paths.state / "starts")
    try:
        return event_loop.run(app, _life(app, paths, instance, model, prompt, offscreen=offscreen, safe_mode=guard.safe_mode))
    except UserFacingError as error:
        if not offscreen:
            _show_refusal(app, str(error))
        return _refuse(str(error))
    finally:
        guard.ended()
        instance.release()


async def _life(
    app: QApplication, paths: Paths, instance: Instance, model: str | None, prompt: str, *, offscreen: bool, safe_mode: bool
) -> int:
    running = build(app, paths)
    window = running.window
    garbage = Garbage(window)
    try:
        if offscreen:
            from app.offscreen import ask_once

            return await ask_once(running.parts, window, model, prompt)
        instance.raised.connect(window.come_to_front)
        window.show()
        # After the first frame: the engine's imports must not delay the window.
        QTimer.singleShot(0, lambda: window.start(model, load_last=not safe_mode))
        await running.closing.wait()
        return 0
    finally:
        running.shut_down()
        garbage.close()


def _second(instance: Instance, model: str | None, *, offscreen: bool) -> int:
    if offscreen:
        return _refuse("Layerdeck is running already with this home; quit it, or set LAYERDECK_HOME to another folder.")
    if instance.raise_first(str(Path(model).absolute()) if model else ""):
        sys.stderr.write("layerdeck: it is running already; its window was brought to the front\n")
        return 0
    return _refuse("Layerdeck is running already but does not answer; end that process, then start again.")


def _refuse(sentence: str) -> int:
    sys.stderr.write(f"layerdeck: {sentence}\n")
    return 1


def _show_refusal(app: QApplication, sentence: str) -> None:
    box = QMessageBox(QMessageBox.Icon.Warning, APP_NAME, sentence, QMessageBox.StandardButton.Close)
    box.setInformativeText(tr("Start", "Layerdeck cannot start until this is solved."))
    box.finished.connect(app.quit)
    box.show()
    app.exec()
