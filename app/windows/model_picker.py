"""The model picker (Ctrl+L): the models of this machine, and the way to others."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from PySide6.QtCore import QLocale
from PySide6.QtWidgets import QWidget

from app.i18n import tr
from app.ops.model_files import ModelFile
from app.windows.picker import Entry, Picker, matching

OPEN_FILE = "open_model_file"
ADD_FOLDER = "add_model_folder"


def bytes_text(n_bytes: int) -> str:
    """A size in units of 1000, as the rest of the window shows it."""
    formatted = QLocale().formattedDataSize(n_bytes, 1, QLocale.DataSizeFormat.DataSizeSIFormat)
    return formatted.replace("kB", "KB")


def model_entries(query: str, models: Sequence[ModelFile], loaded: str) -> tuple[Entry, ...]:
    """Models, then the two ways to others. key: (`load`, path) or the id of an action."""
    rows = [
        Entry(
            ("load", model.path),
            model.name,
            " · ".join(part for part in (model.quant, bytes_text(model.bytes)) if part),
            "check" if model.path == loaded else "layers",
        )
        for model in models
    ]
    others = [
        Entry(OPEN_FILE, tr("Actions", "Open a GGUF file…"), icon="file-plus", keys="Ctrl+O"),
        Entry(ADD_FOLDER, tr("Actions", "Use a folder with models…"), icon="folder-open"),
    ]
    return matching(query, rows) + matching(query, others)


def open_model_picker(
    window: QWidget,
    models: Sequence[ModelFile],
    loaded: str,
    load: Callable[[str], None],
    other: Callable[[str], None],
) -> Picker:
    """Opens the picker over the window: `load(path)` for a model, `other(action id)` for the rest."""

    def chosen(key: tuple[str, str] | str) -> None:
        if isinstance(key, tuple):
            load(key[1])
        else:
            other(key)

    picker = Picker(
        window,
        tr("Models", "Choose a model"),
        tr("Models", "Type a part of the name"),
        lambda query: model_entries(query, models, loaded),
    )
    picker.chosen.connect(chosen)
    picker.open_over(window)
    return picker
