"""PlacementUse: whose counts of experts the placement page shows: of the loaded model as they grow, or kept with answers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from PySide6.QtCore import QObject, QPoint, Signal
from PySide6.QtWidgets import QMenu

from app.errors import StoreError
from app.i18n import filled, tr
from app.ops.expert_history import Counted
from app.placement.placement_page import PlacementPage
from app.widgets.format import count_text
from app.windows.placement_inspector import PlacementInspector
from app.windows.placement_parts import PlacementParts


class PlacementUse(QObject):
    """Live counts are shown where there are some and nothing else was chosen. notice(sentence)."""

    notice = Signal(str)

    def __init__(
        self, parts: PlacementParts, inspector: PlacementInspector, page: PlacementPage, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._parts, self._inspector, self._page = parts, inspector, page
        parts.desk.outline_changed.connect(self._on_outline_changed)
        page.inspector.scope_requested.connect(self._on_scope_requested)

    def _on_outline_changed(self) -> None:
        """Another model: what was kept of it, until it is loaded and counts."""
        if self._parts.desk.outline is not None and self._parts.desk.path and not self._inspector.n_counted:
            self._kept(self._parts.history.of_model, tr("Placement", "saved answers"), quiet=True)

    def _kept(self, found: Callable[[str], Counted | None], what: str, *, quiet: bool = False) -> None:
        try:
            counted = found(self._parts.desk.path)
        except StoreError as error:
            self.notice.emit(str(error))
            return
        if counted is not None:
            span = filled(tr("Placement", "%1 tokens, %2"), count_text(counted.n_tokens), what)
            self._inspector.show_kept(counted.n_tokens, counted.counts, span, stays=not quiet)
        elif not quiet:
            self.notice.emit(tr("Placement", "No experts of this model were counted there."))

    def menu(self) -> QMenu:
        """Whose counts can be shown."""
        menu = QMenu(self._page)
        menu.aboutToHide.connect(menu.deleteLater)
        history, path = self._parts.history, self._parts.desk.path
        menu.addAction(tr("Placement", "Since the model was loaded"), self._inspector.show_live)
        newest, saved = tr("Placement", "newest answer"), tr("Placement", "saved answers")
        menu.addAction(tr("Placement", "Newest answer"), partial(self._kept, history.of_newest, newest))
        menu.addAction(tr("Placement", "All saved answers"), partial(self._kept, history.of_model, saved))
        try:
            chats = history.chats(path)
        except StoreError as error:
            self.notice.emit(str(error))
            chats = ()
        if chats:
            menu.addSeparator()
        for chat in chats:
            title = chat.title or tr("Placement", "Untitled chat")
            action = menu.addAction(title.replace("&", "&&"))
            action.triggered.connect(partial(self._show_chat, chat.id, title))
        return menu

    def _show_chat(self, chat_id: int, title: str, _on: bool = False) -> None:
        self._kept(lambda path: self._parts.history.of_chat(path, chat_id), title)

    def _on_scope_requested(self) -> None:
        button = self._page.inspector.use.scope
        self.menu().popup(button.mapToGlobal(QPoint(0, button.height() + 4)))
