"""ModelOps: loading and unloading models, and which model was used last."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from PySide6.QtCore import QObject, Signal

from app.bridge.engine_bridge import EngineBridge
from app.bridge.op import Op
from app.bridge.ui_thread import UiThread
from app.errors import SettingsError, UserFacingError
from app.i18n import filled, tr
from app.ops.model_files import ModelFile, find_in_folder, first_file, known_models
from app.paths import included_model
from app.settings.store import SettingsStore
from engine.api.commands import LoadModel, UnloadModel
from engine.api.events import Event, Failed, ModelReady, Notice
from engine.api.values import LoadOptions, ModelInfo
from engine.api.workers import parse_threads

MAX_RECENT = 12
OUT_OF_DEVICE_MEMORY = "OutOfDeviceMemory"
"""Class of the engine's error: a GPU ran full."""


class ModelOps(QObject):
    """Signals: ready(ModelInfo); failed(sentence); models_changed() when more models are known; notice(sentence);
    room_wanted(path, sentence): a GPU has too little memory for a model that was to be loaded."""

    ready = Signal(object)
    failed = Signal(str)
    models_changed = Signal()
    notice = Signal(str)
    room_wanted = Signal(str, str)

    def __init__(
        self,
        bridge: EngineBridge,
        settings: SettingsStore,
        ui: UiThread,
        worker: ThreadPoolExecutor,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._bridge = bridge
        self._settings = settings
        self._ui = ui
        self._worker = worker
        self._in_folders: tuple[ModelFile, ...] = ()
        self._loading = ""
        self.remembered: Callable[[str], str] = lambda path: ""
        bridge.happened.connect(self._on_event)

    def load(self, path: str, n_ctx: int | None = None, placement: str = "") -> None:
        """Loads a model in place of the present one; a load under way is cancelled first. n_ctx: in place of the setting.

        placement: as in LoadOptions; empty: the one that the file was loaded with last, see `remembered`.

        path: a file, any shard of a split model, or a folder of one model; what is remembered is the first shard.
        """
        self.cancel_loading()
        path = str(first_file(Path(path)))
        remembered = "" if placement else self.remembered(path)
        options = replace(self.load_options(), placement=placement or remembered)
        if n_ctx is not None:
            options = replace(options, n_ctx=n_ctx)
        self._load(path, options, remembered=bool(remembered))

    def _load(self, path: str, options: LoadOptions, *, remembered: bool) -> None:
        self._loading = path

        def failed(event: Failed) -> None:
            if not remembered or event.kind != "PlacementError":
                self._on_failed(event, path)
                return
            # Made for a GPU that is gone, or for the file before it was replaced: the model matters more.
            self.notice.emit(filled(tr("Models", "Loaded without the placement from before: %1"), event.message))
            self._load(path, replace(options, placement=""), remembered=False)

        op = Op(self._bridge, LoadModel(self._bridge.new_id(), path, options))
        op.on(ModelReady, lambda event: self._on_ready(event.info)).failure(failed).run()

    @property
    def loading_path(self) -> str:
        """The model that is being loaded, "" for none."""
        return self._loading if self._bridge.state.loading is not None else ""

    def load_options(self) -> LoadOptions:
        """How the settings want models loaded."""
        engine = self._settings.values.engine
        n_threads, cores = parse_threads(engine.threads)
        return LoadOptions(
            n_threads=n_threads,
            cores=cores,
            n_ctx=engine.context,
            prefill_chunk=engine.prefill_chunk,
            grow_chunk=engine.prefill_chunk == LoadOptions().prefill_chunk,
            k_type=engine.k_type,
            v_type=engine.v_type,
        )

    def load_default(self) -> bool:
        """Loads the model used last, else the included one. False when there is none."""
        path = self.default_path()
        if path is not None:
            self.load(path)
        return path is not None

    def default_path(self) -> str | None:
        """The model used last if it is still there, else the included one."""
        last = self._settings.values.engine.last_model
        if last and Path(last).is_file():
            return last
        included = included_model()
        return None if included is None else str(included)

    def cancel_loading(self) -> None:
        """Stops the load under way, if there is one."""
        loading = self._bridge.state.loading
        if loading is not None:
            self._bridge.cancel(loading)

    def reload(self) -> None:
        """Loads the present model again, with the present settings."""
        model = self._bridge.state.model
        if model is not None:
            self.load(model.path)

    def unload(self) -> None:
        """Frees the model."""
        Op(self._bridge, UnloadModel(self._bridge.new_id())).failure(lambda event: self.failed.emit(event.message)).run()

    def models(self) -> tuple[ModelFile, ...]:
        """The models that can be chosen: recent ones, the included one, those in the folders that were scanned."""
        included = included_model()
        paths = [*self._settings.values.engine.recent_models, *([str(included)] if included else [])]
        return known_models([*paths, *(model.path for model in self._in_folders)])

    def scan_folders(self) -> None:
        """Looks for models in the folders of the settings, in the background."""
        folders = self._settings.values.engine.model_folders
        if not folders:
            return

        def scan() -> tuple[ModelFile, ...]:
            return tuple(model for folder in folders for model in find_in_folder(Path(folder)))

        self._ui.deliver(self._worker.submit(scan), self._on_scanned, self._on_trouble)

    def add_folder(self, folder: str) -> None:
        """Remembers a folder with models and looks through it."""
        folders = self._settings.values.engine.model_folders
        if folder not in folders:
            self._save("engine.model_folders", (*folders, folder))
        self.scan_folders()

    def _on_scanned(self, found: tuple[ModelFile, ...]) -> None:
        self._in_folders = found
        self.models_changed.emit()
        if not found:
            self.notice.emit(tr("Models", "No GGUF files were found in your model folders."))

    def _on_trouble(self, error: UserFacingError) -> None:
        self.notice.emit(str(error))

    def _on_event(self, event: Event) -> None:
        if isinstance(event, Notice):
            self.notice.emit(event.message)

    def _on_ready(self, info: ModelInfo) -> None:
        recent = (info.path, *(path for path in self._settings.values.engine.recent_models if path != info.path))
        self._save("engine.last_model", info.path)
        self._save("engine.recent_models", recent[:MAX_RECENT])
        self.ready.emit(info)
        self.models_changed.emit()
        # What there is to say about the included model is no news to anybody.
        for warning in () if info.path == str(included_model()) else info.warnings:
            self.notice.emit(warning)

    def _on_failed(self, event: Failed, path: str) -> None:
        if event.kind == "Cancelled":
            self.notice.emit(tr("Models", "Loading was stopped."))
        elif event.kind == OUT_OF_DEVICE_MEMORY:
            self.room_wanted.emit(path, event.message)
        else:
            self.failed.emit(filled(tr("Models", "The model could not be loaded: %1"), event.message))

    def _save(self, key: str, value: object) -> None:
        try:
            self._settings.set(key, value)
        except SettingsError as error:
            self.notice.emit(str(error))
