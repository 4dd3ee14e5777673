"""The dialogs of the system that ask for a model file or a folder of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFileDialog, QWidget

from app.i18n import tr


def ask_for_model(parent: QWidget, last: str, chosen: Callable[[str], object]) -> None:
    """Opens beside the last model; chosen(path) if one was picked."""
    folder = str(Path(last).parent if last else Path.home())
    dialog = QFileDialog(parent, tr("Window", "Open a model"), folder, tr("Window", "Models (*.gguf);;All files (*)"))
    dialog.setFileMode(QFileDialog.FileMode.ExistingFile)
    _ask(dialog, chosen)


def ask_for_folder(parent: QWidget, chosen: Callable[[str], object]) -> None:
    """chosen(path) if a folder was picked."""
    dialog = QFileDialog(parent, tr("Window", "Choose a folder with models"), str(Path.home()))
    dialog.setFileMode(QFileDialog.FileMode.Directory)
    dialog.setOption(QFileDialog.Option.ShowDirsOnly, True)
    _ask(dialog, chosen)


def _ask(dialog: QFileDialog, chosen: Callable[[str], object]) -> None:
    dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    dialog.fileSelected.connect(chosen)
    dialog.open()
