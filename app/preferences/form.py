"""Editors of options, made from the schema: one kind of editor for each type of value."""

from __future__ import annotations

from typing import Any, Literal, get_args, get_origin

from annotated_types import Ge, Le
from pydantic import ValidationError
from PySide6.QtCore import QObject, QSignalBlocker, Qt, QTimer, Signal
from PySide6.QtGui import QPalette
from PySide6.QtWidgets import (
    QCheckBox,
    QComboBox,
    QDoubleSpinBox,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QPlainTextEdit,
    QSpinBox,
    QVBoxLayout,
    QWidget,
)

from app import theme
from app.errors import SettingsError
from app.i18n import tr
from app.settings.schema import note_of, section_type
from app.settings.store import SettingsStore
from app.widgets.inputs import Card, RealBox, Select, Switch, WholeBox

MAX_INT = 2**31 - 1
TYPING_MS = 400
ROW_PADDING = (18, 13, 18, 13)


class OptionEditor(QObject):
    """The editor of one option. changed(value) follows the user, not `show_value`."""

    changed = Signal(object)

    def __init__(self, key: str, parent: QWidget) -> None:
        super().__init__(parent)
        self.key = key
        self.note = note_of(key)
        section, name = key.split(".", 1)
        field = section_type(section).model_fields[name]
        self._values: tuple[Any, ...] = get_args(field.annotation) if get_origin(field.annotation) is Literal else ()
        self._bounds = _bounds(field.metadata)
        self.widget = self._make(field.annotation, parent)
        self.widget.setAccessibleName(tr("Settings", self.note.label))
        self.widget.setToolTip(tr("Settings", self.note.help) if self.note.help else "")

    def show_value(self, value: Any) -> None:
        """Shows a value without telling it."""
        with QSignalBlocker(self.widget):
            match self.widget:
                case QComboBox():
                    self.widget.setCurrentIndex(self._values.index(value))
                case QCheckBox():
                    self.widget.setChecked(value)
                case QSpinBox() | QDoubleSpinBox():
                    self.widget.setValue(value)
                case QPlainTextEdit():
                    if self.widget.toPlainText() != value:
                        self.widget.setPlainText(value)
                case QLineEdit():
                    if self.widget.text() != value:
                        self.widget.setText(value)

    def _make(self, kind: Any, parent: QWidget) -> QWidget:
        if self._values:
            return self._make_choice(parent)
        if kind is bool:
            box = Switch(parent)
            box.toggled.connect(lambda on: self.changed.emit(on))
            return box
        if kind is int or kind is float:
            return self._make_number(kind, parent)
        return self._make_text(parent)

    def _make_choice(self, parent: QWidget) -> QWidget:
        combo = Select(parent)
        for label in self.note.choices:
            combo.addItem(tr("Settings", label))
        combo.currentIndexChanged.connect(lambda index: self.changed.emit(self._values[index]))
        return combo

    def _make_number(self, kind: Any, parent: QWidget) -> QWidget:
        low, high = self._bounds
        if kind is int:
            whole = WholeBox(parent)
            whole.setRange(int(low), int(min(high, MAX_INT)))
            whole.setSingleStep(int(self.note.step))
            whole.valueChanged.connect(lambda value: self.changed.emit(value))
            return whole
        spin = RealBox(parent)
        spin.setRange(low, high)
        spin.setSingleStep(self.note.step)
        spin.valueChanged.connect(lambda value: self.changed.emit(round(value, 4)))
        return spin

    def _make_text(self, parent: QWidget) -> QWidget:
        typing = QTimer(self)
        typing.setSingleShot(True)
        typing.setInterval(TYPING_MS)
        if self.note.multiline:
            area = QPlainTextEdit(parent)
            area.setTabChangesFocus(True)
            area.setFixedHeight(110)
            area.textChanged.connect(typing.start)
            typing.timeout.connect(lambda: self.changed.emit(area.toPlainText()))
            return area
        line = QLineEdit(parent)
        line.textEdited.connect(lambda _text: typing.start())
        typing.timeout.connect(lambda: self.changed.emit(line.text()))
        return line


def _bounds(metadata: list[Any]) -> tuple[float, float]:
    low: float = -MAX_INT
    high: float = MAX_INT
    for item in metadata:
        if isinstance(item, Ge):
            low = float(item.ge)  # type: ignore[arg-type]
        elif isinstance(item, Le):
            high = float(item.le)  # type: ignore[arg-type]
    return low, high


class SectionForm(Card):
    """The editors of some options, a row each. failed(sentence) when a change could not be saved."""

    failed = Signal(str)
    reload_needed = Signal()

    def __init__(self, keys: tuple[str, ...], settings: SettingsStore, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._settings = settings
        self.editors: dict[str, OptionEditor] = {}
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        for key in keys:
            editor = OptionEditor(key, self)
            editor.show_value(settings.values.get(key))
            editor.changed.connect(lambda value, key=key: self._on_changed(key, value))
            self.editors[key] = editor
            self.rows.append(_Row(editor, self))
            column.addWidget(self.rows[-1])

    def _on_changed(self, key: str, value: Any) -> None:
        try:
            self._settings.set(key, value)
        except SettingsError as error:
            self.failed.emit(str(error))
        except ValidationError as error:  # of a text that is typed: what was there before stays
            why = error.errors()[0]["msg"].removeprefix("Value error, ")
            self.failed.emit(f"{why[:1].upper()}{why[1:]}.")
            return
        if note_of(key).reload:
            self.reload_needed.emit()


class _Row(QWidget):
    """Label and help on the left, the editor on the right; an editor of text stands below them."""

    def __init__(self, editor: OptionEditor, parent: QWidget) -> None:
        super().__init__(parent)
        is_text = isinstance(editor.widget, QPlainTextEdit | QLineEdit)
        layout: QHBoxLayout | QVBoxLayout = QVBoxLayout(self) if is_text else QHBoxLayout(self)
        layout.setContentsMargins(*ROW_PADDING)
        layout.setSpacing(10 if is_text else 24)
        words = QVBoxLayout()
        words.setSpacing(3)
        label = plain_label(tr("Settings", editor.note.label), 13, 500)
        label.setBuddy(editor.widget)
        words.addWidget(label)
        if editor.note.help:
            words.addWidget(quiet_label(tr("Settings", editor.note.help)))
        layout.addLayout(words, 1)
        layout.addWidget(editor.widget, 0, Qt.AlignmentFlag(0) if is_text else Qt.AlignmentFlag.AlignVCenter)


def plain_label(text: str, px: int, weight: int) -> QLabel:
    """Plain text that wraps."""
    label = QLabel(text)
    label.setTextFormat(Qt.TextFormat.PlainText)
    label.setWordWrap(True)
    label.setFont(theme.font(px, weight))
    return label


def quiet_label(text: str) -> QLabel:
    """Plain text in the tertiary colour."""
    label = plain_label(text, 12, 400)
    label.setForegroundRole(QPalette.ColorRole.PlaceholderText)
    return label
