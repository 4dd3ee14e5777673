"""PreferencesDialog: a page for each section of the schema, the shortcuts, and About. Changes apply at once."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtGui import QAction, QKeySequence, QPainter, QPaintEvent, QShortcut
from PySide6.QtWidgets import (
    QDialog,
    QFrame,
    QHBoxLayout,
    QLineEdit,
    QListWidget,
    QListWidgetItem,
    QScrollArea,
    QStackedWidget,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from app import theme
from app.actions.registry import ActionRow
from app.i18n import tr
from app.preferences.form import SectionForm, plain_label
from app.preferences.pages import about_page, shortcuts_page
from app.settings.schema import Settings, note_of, option_keys, section_title
from app.settings.store import SettingsStore
from app.widgets import paint
from app.widgets.buttons import PushButton
from app.widgets.icon import draw_icon, icon

SHORTCUTS = "shortcuts"
ABOUT = "about"
SIDE = 216
COLUMN = 640
ICONS = {
    "general": "settings",
    "chat": "message-square",
    "sampling": "gauge",
    "engine": "cpu",
    SHORTCUTS: "zap",
    ABOUT: "layers",
}
"""Icons of the sections; one that is not named here has none."""


class PreferencesDialog(QDialog):
    """failed(sentence): a change that could not be saved. reload_requested: the loaded model is to take the new settings.
    workers_requested: the cores that work are to be chosen."""

    failed = Signal(str)
    reload_requested = Signal()
    workers_requested = Signal()

    def __init__(
        self, settings: SettingsStore, actions: Sequence[ActionRow], version: str, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle(tr("Settings", "Settings"))
        self.resize(900, 640)
        self._settings = settings
        self._keys: list[str] = []
        self._filter = QLineEdit(self)
        self._filter.setPlaceholderText(tr("Settings", "Find a setting"))
        self._filter.setAccessibleName(tr("Settings", "Find a setting"))
        self._filter.setClearButtonEnabled(True)
        self._filter.setFixedHeight(34)
        self._glass: QAction = self._filter.addAction(icon("search", "text3"), QLineEdit.ActionPosition.LeadingPosition)
        for button in self._filter.findChildren(QToolButton):
            button.setAccessibleName(tr("Settings", "Find a setting"))
        self._pages = QListWidget(self)
        self._pages.setFrameShape(QFrame.Shape.NoFrame)
        self._pages.setObjectName("sections")
        self._pages.setIconSize(QSize(16, 16))
        self._pages.setAccessibleName(tr("Settings", "Sections"))
        self._pages.setFont(theme.font(13, 500))
        self._stack = QStackedWidget(self)
        self._reload = _ReloadBar(self)
        self._reload.hide()
        for section in Settings.model_fields:
            keys = tuple(key for key in option_keys(hidden=False) if key.startswith(f"{section}."))
            below = self._workers_row() if section == "engine" else None
            self._add(section, tr("Settings", section_title(section)), self._form(keys), below)
        self._add(SHORTCUTS, tr("Settings", "Shortcuts"), shortcuts_page(actions))
        self._add(ABOUT, tr("Settings", "About"), about_page(version))
        self._lay_out()
        self._connect()
        self._show_icons()
        self._pages.setCurrentRow(0)

    def show_page(self, key: str) -> None:
        """Shows the page of a section, or SHORTCUTS, or ABOUT."""
        self._filter.clear()
        self._pages.setCurrentRow(self._keys.index(key))

    def current_page(self) -> str:
        """The key of the page that is shown."""
        return self._keys[self._pages.currentRow()]

    def _form(self, keys: tuple[str, ...]) -> SectionForm:
        form = SectionForm(keys, self._settings, self)
        form.failed.connect(self.failed)
        form.reload_needed.connect(self._reload.show)
        return form

    def _workers_row(self) -> QWidget:
        """The way to the cores that work, which are changed without loading anything again."""
        row = QWidget()
        row.setMaximumWidth(COLUMN)
        layout = QHBoxLayout(row)
        layout.setContentsMargins(0, 0, 0, 0)
        text = tr("Settings", "Which cores work can be drawn, tried and changed while the model answers.")
        layout.addWidget(plain_label(text, 13, 400), 1)
        button = PushButton(tr("Settings", "Choose the cores"), "secondary", row, icon_name="cpu")
        button.clicked.connect(self.workers_requested)
        layout.addWidget(button)
        return row

    def _add(self, key: str, title: str, content: QWidget, below: QWidget | None = None) -> None:
        area = QScrollArea(self)
        area.setFrameShape(QFrame.Shape.NoFrame)
        area.setWidgetResizable(True)
        area.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        holder = QWidget()
        layout = QVBoxLayout(holder)
        layout.setContentsMargins(28, 26, 28, 28)
        layout.setSpacing(16)
        layout.addWidget(plain_label(title, 20, 600))
        content.setMaximumWidth(COLUMN)
        layout.addWidget(content)
        if below is not None:
            layout.addWidget(below)
        layout.addStretch(1)
        area.setWidget(holder)
        # setWidget makes it opaque; the dialog's own surface is to be seen.
        holder.setAutoFillBackground(False)
        area.viewport().setAutoFillBackground(False)
        self._keys.append(key)
        self._pages.addItem(QListWidgetItem(title))
        self._stack.addWidget(area)

    def _lay_out(self) -> None:
        left = QVBoxLayout()
        left.setContentsMargins(14, 16, 14, 14)
        left.setSpacing(12)
        left.addWidget(self._filter)
        left.addWidget(self._pages, 1)
        side = QWidget(self)
        side.setFixedWidth(SIDE)
        side.setLayout(left)
        right = QVBoxLayout()
        right.setSpacing(0)
        right.addWidget(self._stack, 1)
        right.addWidget(self._reload)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addWidget(side)
        layout.addLayout(right, 1)

    def _show_icons(self) -> None:
        """Icons are tinted when they are made: again after each change of the theme."""
        self._glass.setIcon(icon("search", "text3"))
        for row, key in enumerate(self._keys):
            if key in ICONS:
                self._pages.item(row).setIcon(icon(ICONS[key], "text2"))

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.fillRect(self.rect(), theme.color("bg"))
        painter.fillRect(0, 0, SIDE, self.height(), theme.color("panel"))
        paint.line(painter, SIDE - 0.5, 0, SIDE - 0.5, self.height())

    def _connect(self) -> None:
        self._pages.currentRowChanged.connect(self._stack.setCurrentIndex)
        self._filter.textChanged.connect(self._on_filter_changed)
        self._reload.button.clicked.connect(self._on_reload_clicked)
        theme.hub().changed.connect(self._show_icons)
        QShortcut(QKeySequence.StandardKey.Find, self, self._filter.setFocus)

    def _on_filter_changed(self, text: str) -> None:
        """Leaves the sections that hold a setting with this text, and shows the first of them."""
        word = text.strip().lower()
        first: int | None = None
        for row, key in enumerate(self._keys):
            found = not word or word in self._pages.item(row).text().lower() or any(word in words for words in _words(key))
            self._pages.item(row).setHidden(not found)
            first = row if found and first is None else first
        if first is not None and self._pages.item(self._pages.currentRow()).isHidden():
            self._pages.setCurrentRow(first)

    def _on_reload_clicked(self) -> None:
        self._reload.hide()
        self.reload_requested.emit()


class _ReloadBar(QWidget):
    """Says that a change waits for the model to be loaded again, with the button that does it."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.button = PushButton(tr("Settings", "Load the model again"), "primary", self, height=32)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(56, 12, 28, 12)
        layout.addWidget(plain_label(tr("Settings", "This holds once the model is loaded again."), 13, 400), 1)
        layout.addWidget(self.button)
        theme.hub().changed.connect(self.update)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        paint.begin(painter)
        painter.fillRect(self.rect(), theme.color("panel"))
        paint.line(painter, 0, 0.5, self.width(), 0.5)
        draw_icon(painter, "refresh-cw", 28, self.height() / 2 - 8, 16, "warn")


def _words(section: str) -> list[str]:
    notes = [note_of(key) for key in option_keys(hidden=False) if key.startswith(f"{section}.")]
    return [f"{tr('Settings', note.label)} {tr('Settings', note.help) if note.help else ''}".lower() for note in notes]
