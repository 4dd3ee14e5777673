"""CommandPane: the same placement in the words of other tools, what they cannot say, and the way back: paste theirs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QSignalBlocker, Qt, Signal
from PySide6.QtGui import QFont, QGuiApplication, QTextOption
from PySide6.QtWidgets import QHBoxLayout, QPlainTextEdit, QWidget

from app import theme
from app.placement.pane import Pane, Prose, Rule, wide
from app.widgets.buttons import PushButton
from app.widgets.copy_button import CopyButton
from app.widgets.elided_label import ElidedLabel
from app.widgets.inputs import Select

_TEXT_HEIGHT, _PASTE_HEIGHT = 190, 96


@dataclass(frozen=True, slots=True)
class Equivalent:
    """The placement for one tool; notes: what cannot be said there, a sentence each. file_name: of a file with it, empty: of a
    placement."""

    tool: str
    text: str
    notes: tuple[str, ...] = ()
    file_name: str = ""


class CommandPane(Pane):
    """import_requested(text), save_requested, open_requested. What is shown is copied and saved as it stands."""

    import_requested = Signal(str)
    save_requested = Signal()
    open_requested = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setAccessibleName(self.tr("Equivalent command"))
        self._equivalents: tuple[Equivalent, ...] = ()
        self.tools = wide(Select())
        self.tools.setAccessibleName(self.tr("Tool"))
        self.copy = CopyButton(self.tr("Copy"))
        self.text = self._editor(self.tr("Command of the tool"), _TEXT_HEIGHT)
        self.text.setReadOnly(True)
        self._notes_title = ElidedLabel(self.tr("What it cannot express"), 12, 600, "text2")
        self._notes = Prose()
        self.save = PushButton(self.tr("Save as a file…"), height=30)
        self.open = PushButton(self.tr("Open a file…"), height=30)
        self.paste = self._editor(self.tr("Command or rules of another tool"), _PASTE_HEIGHT)
        self.paste.setPlaceholderText(self.tr('-ngl 99 -ot "exps=CPU", KTransformers rules, or a placement as JSON'))
        self.use = PushButton(self.tr("Use it"), "solid", height=30)
        self._said = Prose()
        self._lay_out()
        self._connect()
        self.set_title(self.tr("Equivalent command"), self.tr("This placement for other tools"))
        self.show_equivalents(())

    @staticmethod
    def _editor(name: str, height: int) -> QPlainTextEdit:
        editor = QPlainTextEdit()
        editor.setAccessibleName(name)
        editor.setFont(_font())
        editor.setFixedHeight(height)
        editor.setTabChangesFocus(True)
        editor.setWordWrapMode(QTextOption.WrapMode.WrapAnywhere)
        editor.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAsNeeded)
        return editor

    def _lay_out(self) -> None:
        head = QHBoxLayout()
        head.setSpacing(8)
        head.addWidget(self.tools, 1)
        head.addWidget(self.copy)
        files = QHBoxLayout()
        files.setSpacing(8)
        files.addWidget(self.save)
        files.addWidget(self.open)
        files.addStretch(1)
        use = QHBoxLayout()
        use.addWidget(self.use)
        use.addStretch(1)
        column = self.column
        column.addSpacing(12)
        column.addLayout(head)
        column.addSpacing(8)
        column.addWidget(self.text)
        column.addSpacing(10)
        column.addWidget(self._notes_title)
        column.addSpacing(4)
        column.addWidget(self._notes)
        column.addSpacing(12)
        column.addLayout(files)
        column.addSpacing(14)
        column.addWidget(Rule())
        column.addSpacing(12)
        column.addWidget(ElidedLabel(self.tr("Use another tool's command"), 12, 600, "text2"))
        column.addSpacing(6)
        column.addWidget(self.paste)
        column.addSpacing(8)
        column.addLayout(use)
        column.addSpacing(8)
        column.addWidget(self._said)
        column.addStretch(1)

    def _connect(self) -> None:
        self.tools.currentIndexChanged.connect(self._on_tool_chosen)
        self.copy.clicked.connect(self._on_copy_clicked)
        self.save.clicked.connect(self.save_requested)
        self.open.clicked.connect(self.open_requested)
        self.use.clicked.connect(lambda: self.import_requested.emit(self.paste.toPlainText().strip()))
        self.paste.textChanged.connect(self._on_paste_changed)
        self._on_paste_changed()
        theme.hub().changed.connect(self._restyle)

    def show_equivalents(self, equivalents: Sequence[Equivalent]) -> None:
        """The placement in the words of each tool; the tool that was chosen stays."""
        chosen = self.tools.currentText()
        self._equivalents = tuple(equivalents)
        with QSignalBlocker(self.tools):
            if [self.tools.itemText(i) for i in range(self.tools.count())] != [one.tool for one in equivalents]:
                self.tools.clear()
                self.tools.addItems([one.tool for one in equivalents])
            self.tools.setCurrentIndex(max(0, self.tools.findText(chosen)))
        self._on_tool_chosen()

    def shown(self) -> Equivalent | None:
        """What is shown now."""
        index = self.tools.currentIndex()
        return self._equivalents[index] if 0 <= index < len(self._equivalents) else None

    def say(self, sentences: Sequence[str], tone: str = "text2") -> None:
        """What came of a command that was pasted."""
        self._said.set_text("\n".join(sentences), tone)
        self._said.setVisible(bool(sentences))

    @property
    def said(self) -> str:
        """What came of a command that was pasted."""
        return self._said.text()

    def _on_tool_chosen(self) -> None:
        shown = self.shown()
        text = "" if shown is None else shown.text
        if self.text.toPlainText() != text:
            self.text.setPlainText(text)
        notes = () if shown is None else shown.notes
        self._notes.set_text("\n".join(notes) or self.tr("Nothing is lost."))
        self._notes_title.setVisible(bool(notes))
        self.copy.setEnabled(bool(text))

    def _on_copy_clicked(self) -> None:
        QGuiApplication.clipboard().setText(self.text.toPlainText())
        self.copy.confirm()

    def _on_paste_changed(self) -> None:
        self.use.setEnabled(bool(self.paste.toPlainText().strip()))

    def _restyle(self) -> None:
        for editor in (self.text, self.paste):
            editor.setFont(_font())


def _font() -> QFont:
    """Character by character: a ligature would show `.=` of a pattern as something that cannot be typed."""
    font = theme.font(12, mono=True)
    font.setFeature(QFont.Tag("calt"), 0)
    return font
