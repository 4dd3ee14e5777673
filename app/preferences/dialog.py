"""PreferencesDialog: a page for each section of the schema, the shortcuts, and About. Changes apply at once."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QKeySequence, QShortcut
from PySide6.QtWidgets import (
    QDialog,
    QFrame,
    QGridLayout,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QListWidget,
    QPushButton,
    QScrollArea,
    QStackedWidget,
    QVBoxLayout,
    QWidget,
)

from app import theme
from app.actions.registry import ActionRow, shortcut_text
from app.i18n import filled, tr
from app.preferences.form import SectionForm
from app.settings.schema import Settings, note_of, option_keys, section_title
from app.settings.store import SettingsStore

SHORTCUTS = "shortcuts"
ABOUT = "about"


class PreferencesDialog(QDialog):
    """failed(sentence): a change that could not be saved. reload_requested: the loaded model is to take the new settings."""

    failed = Signal(str)
    reload_requested = Signal()

    def __init__(
        self, settings: SettingsStore, actions: Sequence[ActionRow], version: str, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle(tr("Settings", "Settings"))
        self.resize(820, 600)
        self._settings = settings
        self._keys: list[str] = []
        self._filter = QLineEdit(self)
        self._filter.setPlaceholderText(tr("Settings", "Find a setting"))
        self._filter.setAccessibleName(tr("Settings", "Find a setting"))
        self._filter.setClearButtonEnabled(True)
        self._pages = QListWidget(self)
        self._pages.setFrameShape(QFrame.Shape.NoFrame)
        self._pages.setFixedWidth(180)
        self._pages.setAccessibleName(tr("Settings", "Sections"))
        self._stack = QStackedWidget(self)
        self._reload = _ReloadBar(self)
        self._reload.hide()
        for section in Settings.model_fields:
            keys = tuple(key for key in option_keys(hidden=False) if key.startswith(f"{section}."))
            self._add(section, tr("Settings", section_title(section)), self._form(keys))
        self._add(SHORTCUTS, tr("Settings", "Shortcuts"), _shortcuts(actions))
        self._add(ABOUT, tr("Settings", "About"), _about(version))
        self._lay_out()
        self._connect()
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

    def _add(self, key: str, title: str, content: QWidget) -> None:
        area = QScrollArea(self)
        area.setFrameShape(QFrame.Shape.NoFrame)
        area.setWidgetResizable(True)
        holder = QWidget()
        layout = QVBoxLayout(holder)
        layout.setContentsMargins(8, 4, 20, 20)
        layout.setSpacing(16)
        heading = QLabel(title, holder)
        heading.setFont(theme.font(18, 600))
        layout.addWidget(heading)
        layout.addWidget(content)
        layout.addStretch(1)
        area.setWidget(holder)
        self._keys.append(key)
        self._pages.addItem(title)
        self._stack.addWidget(area)

    def _lay_out(self) -> None:
        left = QVBoxLayout()
        left.setSpacing(10)
        left.addWidget(self._filter)
        left.addWidget(self._pages, 1)
        right = QVBoxLayout()
        right.addWidget(self._stack, 1)
        right.addWidget(self._reload)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(18, 18, 18, 18)
        layout.setSpacing(20)
        layout.addLayout(left)
        layout.addLayout(right, 1)

    def _connect(self) -> None:
        self._pages.currentRowChanged.connect(self._stack.setCurrentIndex)
        self._filter.textChanged.connect(self._on_filter_changed)
        self._reload.button.clicked.connect(self._on_reload_clicked)
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
    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.button = QPushButton(tr("Settings", "Load the model again"), self)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(8, 6, 0, 0)
        layout.addWidget(QLabel(tr("Settings", "This holds once the model is loaded again."), self), 1)
        layout.addWidget(self.button)


def _words(section: str) -> list[str]:
    notes = [note_of(key) for key in option_keys(hidden=False) if key.startswith(f"{section}.")]
    return [f"{tr('Settings', note.label)} {tr('Settings', note.help) if note.help else ''}".lower() for note in notes]


def _shortcuts(actions: Sequence[ActionRow]) -> QWidget:
    page = QWidget()
    grid = QGridLayout(page)
    grid.setContentsMargins(0, 0, 0, 0)
    grid.setVerticalSpacing(8)
    grid.setColumnStretch(0, 1)
    group = ""
    for row in (row for row in actions if row.shortcut):
        at = grid.rowCount()
        if row.group != group:
            group = row.group
            heading = QLabel(tr("Actions", group), page)
            heading.setFont(theme.font(12, 600))
            grid.addWidget(heading, at, 0, 1, 2)
            at += 1
        grid.addWidget(QLabel(tr("Actions", row.text), page), at, 0)
        keys = QLabel(shortcut_text(row), page)
        keys.setFont(theme.font(12, mono=True))
        grid.addWidget(keys, at, 1)
    return page


def _about(version: str) -> QWidget:
    text = filled(
        tr(
            "Settings",
            "Layerdeck %1\n\nRuns language models on this machine. Nothing you write leaves it: there is no telemetry, and no "
            "connection is made unless you open a link.\n\nApache License 2.0. With Qt and PySide6 (LGPL 3.0), Inter and "
            "JetBrains Mono (OFL), Lucide icons (ISC), SmolLM2 (Apache 2.0).",
        ),
        version,
    )
    label = QLabel(text)
    label.setWordWrap(True)
    label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
    return label
