"""MainWindow: the rail, the pages, and the actions. What it shows comes from the controllers; it keeps its own geometry."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from PySide6.QtCore import QEvent, QSettings, Qt, QTimer
from PySide6.QtGui import QCloseEvent, QHideEvent, QResizeEvent, QShowEvent
from PySide6.QtWidgets import QHBoxLayout, QMainWindow, QStackedWidget, QWidget

from app.actions.registry import ActionRegistry, Condition
from app.actions.tables import ACTIONS
from app.bridge.engine_state import EngineState
from app.chat.chat_page import ChatPage
from app.errors import SettingsError, StoreError
from app.i18n import tr
from app.ops.chat_ops import Undo
from app.preferences.dialog import SHORTCUTS
from app.welcome.welcome_page import WelcomePage
from app.widgets.buttons import PushButton
from app.widgets.rail import Rail
from app.widgets.toast import Toast
from app.windows import rail_pages
from app.windows.chat_controller import ChatController
from app.windows.doctor_door import DoctorDoor
from app.windows.doctor_links import DoctorLinks
from app.windows.file_dialogs import ask_for_folder, ask_for_model
from app.windows.load_room import LoadRoom
from app.windows.model_picker import open_model_picker
from app.windows.monitors_door import MonitorsDoor
from app.windows.page_door import PageDoor
from app.windows.palette import open_palette
from app.windows.pane_steps import step_pane
from app.windows.parts import Parts
from app.windows.placement_door import PlacementDoor
from app.windows.preferences_door import PreferencesDoor
from app.windows.stall_watch import StallWatch
from app.windows.welcome_controller import WelcomeController
from app.windows.workers_window import WorkersDoor

SIZE = (1280, 800)
MINIMUM = (700, 480)
SENSORS_S = 1.0
"""Readings this often cost an idle application half a hundredth of a core."""


class MainWindow(QMainWindow):
    """`on_close` is called when the user wants to leave; the window closes once `allow_close` was called."""

    def __init__(self, parts: Parts, on_close: Callable[[], None]) -> None:
        super().__init__()
        self._parts = parts
        self._on_close = on_close
        self._may_close = False
        self._engine_kind = parts.bridge.state.kind
        self._state_file = QSettings(str(parts.paths.state / "window.ini"), QSettings.Format.IniFormat)
        self.setWindowTitle("Layerdeck")
        self.setMinimumSize(*MINIMUM)
        self._rail = Rail(self)
        rail_pages.fill(self._rail)
        self._rail.set_current("chat")
        self.page = ChatPage(self)
        self.welcome = WelcomePage(self)
        self._stack = QStackedWidget(self)
        self._stack.addWidget(self.page)
        self._stack.addWidget(self.welcome)
        self.placement = PlacementDoor(parts, self)
        self.doctor = DoctorDoor(parts, self)
        self.monitors = MonitorsDoor(parts, self)
        self.doors: dict[str, PageDoor[Any]] = {"placement": self.placement, "monitors": self.monitors}
        self.doors["doctor"] = self.doctor
        self._toast = Toast(self._stack)
        self.controller = ChatController(self.page, parts.store, parts.chats, parts.models, parts.bridge, parts.settings, self)
        self._welcome = WelcomeController(self.welcome, parts.models, parts.monitors, parts.paths, self)
        self._stalls = StallWatch(parts.bridge, self)
        self.preferences = PreferencesDoor(parts.settings, self)
        self.workers = WorkersDoor(parts.bridge, parts.monitors, self)
        self.actions_ = ActionRegistry(self, ACTIONS, self._handlers())
        self._lay_out()
        self._connect()
        DoctorLinks(self, self._rail)
        LoadRoom(self, self.page.trouble, parts.models, parts.bridge)
        self._apply_view_settings()
        self._refresh_actions()
        self._restore_state()
        for sentence in (*parts.settings.notices, parts.store.notice):
            if sentence:
                QTimer.singleShot(0, self, lambda text=sentence: self.show_notice(text))

    def _lay_out(self) -> None:
        holder = QWidget(self)
        layout = QHBoxLayout(holder)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addWidget(self._rail)
        layout.addWidget(self._stack, 1)
        self.setCentralWidget(holder)

    def _connect(self) -> None:
        parts, page = self._parts, self.page
        self._rail.page_requested.connect(self._on_page_requested)
        page.header.model_clicked.connect(self._pick_model)
        page.header.side_panel_toggled.connect(lambda on: self._set_setting("chat.side_panel", on))
        page.file_dropped.connect(self.load)
        self.controller.undoable.connect(self._on_undoable)
        self.controller.shown_changed.connect(self._refresh_actions)
        self._welcome.started.connect(self.load)
        self.placement.pick_requested.connect(self._pick_model)
        for asks in (self.placement, self.monitors):
            asks.workers_requested.connect(self.workers.open)
        self.preferences.failed.connect(self.show_notice)
        self.preferences.reload_requested.connect(parts.models.reload)
        self.preferences.workers_requested.connect(self.workers.open)
        for door in self.doors.values():
            door.notice.connect(self.show_notice)
            door.shown_changed.connect(self._refresh_actions)
            door.made.connect(self._stack.addWidget)
        self.controller.errors.room_wanted.connect(self._on_room_wanted)
        self.welcome.open_file_requested.connect(self._open_model_file)
        self.welcome.folder_requested.connect(self._add_model_folder)
        ops = parts.models.failed, parts.models.notice, parts.monitors.notice
        for told in (self.controller.notice, self._stalls.stalled, *ops):
            told.connect(self.show_notice)
        parts.bridge.state_changed.connect(self._on_engine_changed)
        parts.settings.listen(self._on_setting)

    def _handlers(self) -> dict[str, Callable[[], object]]:
        models, controller, page = self._parts.models, self.controller, self.page
        return {
            "open_model_file": self._open_model_file,
            "add_model_folder": self._add_model_folder,
            "settings": self.preferences.open,
            "quit": self._on_close,
            "new_chat": self._new_chat,
            "stop": controller.stop,
            "regenerate": controller.regenerate_last,
            "copy_answer": controller.copy_last,
            "fold_thinking": page.transcript.toggle_think,
            "rename_chat": page.list.rename_current,
            "delete_chat": controller.delete_shown,
            "find": page.open_find,
            "sampling": controller.options.open_sampling,
            "system_prompt": controller.options.open_system_prompt,
            "pick_model": self._pick_model,
            "reload_model": models.reload,
            "unload_model": models.unload,
            "workers": self.workers.open,
            "palette": self._open_palette,
            "chat_page": self.show_chat,
            **{f"{key}_page": partial(self.show_page, key) for key in self.doors},
            **{name: run for door in self.doors.values() for name, run in door.handlers().items()},
            "search_chats": self._search_chats,
            "toggle_list": lambda: self._toggle("chat.show_list"),
            "toggle_side_panel": lambda: self._toggle("chat.side_panel"),
            "next_pane": lambda: self._step_pane(1),
            "previous_pane": lambda: self._step_pane(-1),
            "shortcuts": partial(self.preferences.open, SHORTCUTS),
        }

    # --- start and end -----------------------------------------------------------------------------------------------

    def start(self, model: str | None, *, load_last: bool) -> None:
        """What happens once the window is up: the given model, else the last one, else the welcome page."""
        self._parts.models.scan_folders()
        self.doctor.start()
        unfinished = self._parts.store.unfinished_chat()
        if unfinished is not None:
            self.controller.open_chat(unfinished)
        settings = self._parts.settings.values
        if model is not None:
            self.load(str(Path(model).absolute()))
        elif not settings.engine.last_model:
            self.show_welcome()
        elif not load_last:
            self.show_notice(tr("Window", "Layerdeck crashed several times, so no model was loaded. Choose one with Ctrl+L."))
        elif settings.general.start_with_last_model:
            self._parts.models.load_default()
        if self._stack.currentWidget() is self.page:
            self.page.composer.focus()

    def come_to_front(self, model: str) -> None:
        """Another start asked for this window, maybe with a model."""
        self.setWindowState(self.windowState() & ~Qt.WindowState.WindowMinimized)
        self.show()
        self.raise_()
        self.activateWindow()
        if model:
            self.load(model)

    def allow_close(self) -> None:
        """From now on closing closes."""
        self._may_close = True

    def save_state(self) -> None:
        """Keeps size and place for the next start."""
        self._state_file.setValue("geometry", self.saveGeometry())
        self._state_file.sync()

    def _restore_state(self) -> None:
        self.resize(*SIZE)
        geometry = self._state_file.value("geometry")
        if geometry is not None:
            self.restoreGeometry(geometry)

    def closeEvent(self, event: QCloseEvent) -> None:
        if self._may_close:
            event.accept()
            return
        event.ignore()
        self._on_close()

    # --- pages -------------------------------------------------------------------------------------------------------

    def show_chat(self) -> None:
        """The chat page."""
        self._show(self.page, "chat")
        self.page.composer.focus()

    def show_page(self, key: str) -> None:
        """A page behind a door."""
        self._show(self.doors[key].controller().view, key)
        self.doors[key].focus()

    def _show(self, page: QWidget, key: str) -> None:
        self._stack.setCurrentWidget(page)
        self._rail.set_current(key)
        for on in (True, False):  # who looks next comes before who looks no more: sensors that rest take a second to start
            for door in [one for one in self.doors.values() if one.is_page(page) is on]:
                door.shown(on)
            self._watch_sensors()
        self._refresh_actions()

    def show_welcome(self) -> None:
        """The page of the first run."""
        self._welcome.refresh()
        self._stack.setCurrentWidget(self.welcome)
        for door in self.doors.values():
            door.shown(False)
        start = self.welcome.findChild(PushButton)
        if start is not None:
            start.setFocus(Qt.FocusReason.OtherFocusReason)
        self._watch_sensors()

    def load(self, path: str) -> None:
        """Loads a model and shows the chat page."""
        self.show_chat()
        self._parts.models.load(path)

    def show_notice(self, sentence: str) -> None:
        """A sentence at the foot of the window for a few seconds."""
        self._toast_in_view().show_message(sentence)

    def _toast_in_view(self) -> Toast:
        """On the chat page it stays clear of the composer."""
        door = self._door()
        if door is not None:
            return door.toast
        return self.page.toast if self._stack.currentWidget() is self.page else self._toast

    def show_store_trouble(self, error: StoreError | None) -> None:
        """The chats could not be written just now, or can be again."""
        self.show_notice(tr("Window", "The chats are saved again.") if error is None else str(error))

    def _on_page_requested(self, key: str) -> None:
        if key == "settings":
            self.preferences.open()
        elif key in self.doors:
            self.show_page(key)
        elif self._stack.currentWidget() is not self.welcome:
            self.show_chat()

    def _new_chat(self) -> None:
        self.show_chat()
        self.controller.new_chat()

    def _search_chats(self) -> None:
        self._set_setting("chat.show_list", True)
        self.show_chat()
        self.page.list.focus_search()

    def _step_pane(self, step: int) -> None:
        page = self.page
        step_pane((page.list, page.transcript, page.composer, page.side_panel), self.focusWidget(), step)

    # --- dialogs -----------------------------------------------------------------------------------------------------

    def _open_palette(self) -> None:
        open_palette(self, self.actions_.offered(), self._parts.store.chats(), self._open_chat)

    def _open_chat(self, chat_id: int) -> None:
        self.show_chat()
        self.controller.open_chat(chat_id)

    def _pick_model(self) -> None:
        model = self._parts.bridge.state.model
        open_model_picker(
            self,
            self._parts.models.models(),
            model.path if model is not None else "",
            self._take_model(),
            lambda action_id: self.actions_.action(action_id).trigger(),
        )

    def _open_model_file(self) -> None:
        ask_for_model(self, self._parts.settings.values.engine.last_model, self._take_model())

    def _take_model(self) -> Callable[[str], None]:
        """What a chosen model is for: the placement page plans it, all others load it."""
        return self.placement.plan if self._door() is self.placement else self.load

    def _add_model_folder(self) -> None:
        ask_for_folder(self, self._parts.models.add_folder)

    def show_settings(self, page: str | None = None) -> None:
        """The settings, at a page of theirs."""
        self.preferences.open(page)

    # --- settings, sensors, actions ----------------------------------------------------------------------------------

    def _toggle(self, key: str) -> None:
        self._set_setting(key, not self._parts.settings.values.get(key))

    def _set_setting(self, key: str, value: bool) -> None:
        try:
            self._parts.settings.set(key, value)
        except SettingsError as error:
            self.show_notice(str(error))

    def _on_setting(self, key: str, value: object) -> None:
        if key.startswith("chat."):
            self._apply_view_settings()
        if key.startswith(("chat.", "sampling.")):
            self.controller.refresh_options()

    def _apply_view_settings(self) -> None:
        chat = self._parts.settings.values.chat
        self.page.composer.set_send_with_ctrl(chat.send_key == "ctrl_enter")
        self.page.set_list_shown(chat.show_list)
        self.page.set_side_panel_wanted(chat.side_panel)
        self._watch_sensors()

    def _watch_sensors(self) -> None:
        """Readings only while somebody can see them."""
        seen = self.isVisible() and (self.page.side_panel.isVisible() or self.welcome.isVisible())
        self._parts.monitors.set_watching("window", SENSORS_S if seen and not self.isMinimized() else 0.0)

    def _on_engine_changed(self, state: EngineState) -> None:
        if state.kind != self._engine_kind:
            self._engine_kind = state.kind
            self._refresh_actions()

    def _refresh_actions(self) -> None:
        state = self._parts.bridge.state
        holding: set[Condition] = set()
        if self.controller.chat_id is not None:
            holding |= {"chat_open", "answer_shown"}
        if self.controller.is_busy() or state.loading is not None:
            holding.add("can_stop")
        if state.model is not None:
            holding.add("model_loaded")
        door = self._door()
        if door is not None:
            holding |= door.conditions()
        self.actions_.set_conditions(frozenset(holding))

    def _on_room_wanted(self, sentence: str) -> None:
        self.show_page("placement")
        self.placement.controller().make_room(sentence)

    def _door(self) -> PageDoor[Any] | None:
        page = self._stack.currentWidget()
        return next((door for door in self.doors.values() if door.is_page(page)), None)

    def _on_undoable(self, undo: Undo) -> None:
        self._toast_in_view().show_message(undo.text, tr("Window", "Undo"), undo.run)

    # --- events ------------------------------------------------------------------------------------------------------

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.doctor.window_seen(True)
        self._watch_sensors()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self.doctor.window_seen(False)
        self._watch_sensors()

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() == QEvent.Type.WindowStateChange:
            self._watch_sensors()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._watch_sensors()
