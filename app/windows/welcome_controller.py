"""WelcomeController: what the page of the first run shows: this machine, and the models that can be started."""

from __future__ import annotations

from PySide6.QtCore import QObject, Signal

from app.i18n import tr
from app.ops.model_files import ModelFile
from app.ops.model_ops import ModelOps
from app.ops.monitor_ops import MonitorOps
from app.paths import Paths, included_model
from app.welcome.welcome_page import MachineSummary, ModelChoice, WelcomePage
from engine.api.machine import instruction_set
from engine.api.values import HardwareSnapshot

MAX_MODELS = 4


class WelcomeController(QObject):
    """Signal started(path)."""

    started = Signal(str)

    def __init__(
        self, page: WelcomePage, models: ModelOps, monitors: MonitorOps, paths: Paths, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._page = page
        self._models = models
        self._paths = paths
        page.set_folder_offered(True)
        page.start_requested.connect(self.started)
        models.models_changed.connect(self.refresh)
        monitors.read.connect(self._on_snapshot)

    def refresh(self) -> None:
        """Shows the models known now, the included one first."""
        included = str(included_model() or "")
        files = sorted(self._models.models(), key=lambda model: model.path != included)
        self._page.set_models(tuple(_choice(model, included, i == 0) for i, model in enumerate(files[:MAX_MODELS])))

    def _on_snapshot(self, snapshot: HardwareSnapshot) -> None:
        self._page.set_machine(
            MachineSummary(
                cpu_name=snapshot.cpu.name,
                n_cores=len(snapshot.cpu.use_percent),
                isa=instruction_set(),
                ram_total_bytes=snapshot.ram_total_bytes,
                ram_free_bytes=max(0, snapshot.ram_total_bytes - snapshot.ram_used_bytes),
                disk_free_bytes=snapshot.disk_free_bytes or 0,
                disk_path=str(self._paths.data),
            )
        )


def _choice(model: ModelFile, included: str, primary: bool) -> ModelChoice:
    detail = tr("Welcome", "Included. Checks that everything works.") if model.path == included else model.path
    return ModelChoice(model.path, model.name, model.quant, model.bytes, detail, primary)
