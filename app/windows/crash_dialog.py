"""Unhandled exceptions: logged, shown once in a dialog with the details to copy; the application goes on."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable
from types import TracebackType

from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QDialog, QDialogButtonBox, QLabel, QPlainTextEdit, QVBoxLayout, QWidget

from app import theme
from app.bridge.ui_thread import UiThread
from app.errors import UserFacingError
from app.i18n import tr
from app.log import RING, logger

log = logger("ui")


class CrashDialog(QDialog):
    """Says what happened in a sentence; the details hold the traceback and the tail of the log, never text of chats."""

    def __init__(self, details: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle(tr("Crash", "Something went wrong"))
        self.resize(720, 460)
        text = tr(
            "Crash", "Layerdeck met an error of its own. Your chats are saved; you can go on, and restart if something hangs."
        )
        sentence = QLabel(text, self)
        sentence.setWordWrap(True)
        self.details = QPlainTextEdit(details, self)
        self.details.setReadOnly(True)
        self.details.setFont(theme.font(12, mono=True))
        self.details.setAccessibleName(tr("Crash", "Details"))
        buttons = QDialogButtonBox(self)
        copy = buttons.addButton(tr("Crash", "Copy details"), QDialogButtonBox.ButtonRole.ActionRole)
        close = buttons.addButton(QDialogButtonBox.StandardButton.Close)
        copy.clicked.connect(self._on_copy_clicked)
        close.clicked.connect(self.close)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(20, 20, 20, 16)
        layout.setSpacing(12)
        layout.addWidget(sentence)
        layout.addWidget(self.details, 1)
        layout.addWidget(buttons)

    def _on_copy_clicked(self) -> None:
        QGuiApplication.clipboard().setText(self.details.toPlainText())


class CrashReporter:
    """Takes the hooks for unhandled exceptions of all threads; one dialog at a time."""

    def __init__(self, ui: UiThread) -> None:
        self._ui = ui
        self._open: CrashDialog | None = None
        self._parent: QWidget | None = None
        self._notice: Callable[[str], None] | None = None

    def install(self) -> None:
        """From now on nothing unhandled is only printed."""
        sys.excepthook = self._on_exception
        threading.excepthook = lambda args: self.report(args.exc_value, getattr(args.thread, "name", ""))

    def set_window(self, window: QWidget, notice: Callable[[str], None]) -> None:
        """The window over which dialogs open, and where known errors are told in a sentence."""
        self._parent = window
        self._notice = notice

    def report(self, error: BaseException | None, where: str = "") -> None:
        """Logs the error and shows it. Safe from any thread."""
        if error is None:
            return
        if isinstance(error, UserFacingError) and self._notice is not None:
            notice, sentence = self._notice, str(error)
            log.info("%s", sentence)
            self._ui.call(lambda: notice(sentence))
            return
        text = "".join(traceback.format_exception(error))
        log.error("unhandled%s: %s", f" in {where}" if where else "", text)
        self._ui.call(lambda: self._show(text))

    def _on_exception(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if issubclass(kind, KeyboardInterrupt):
            sys.__excepthook__(kind, error, trace)
            return
        self.report(error)

    def _show(self, text: str) -> None:
        if self._open is not None:
            self._open.details.appendPlainText("\n" + text)
            return
        self._open = CrashDialog(f"{text}\n{RING.text()}", self._parent)
        self._open.finished.connect(self._on_finished)
        self._open.open()

    def _on_finished(self) -> None:
        self._open = None
