"""PlacementMenus: the menus of the header: presets with save, delete, import and export, and the machine that is planned for."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from PySide6.QtCore import QObject, QPoint, Signal
from PySide6.QtWidgets import QFileDialog, QInputDialog, QMenu, QWidget

from app.i18n import filled, tr
from app.ops.placement_library import same_places
from app.placement.placement_page import PlacementPage
from app.windows.placement_parts import PlacementParts
from engine.api.errors import EngineError
from engine.api.pure import Placement, machine_of


class PlacementMenus(QObject):
    """notice(sentence); reopen_requested() when another machine was chosen."""

    notice = Signal(str)
    reopen_requested = Signal()

    def __init__(self, parts: PlacementParts, page: PlacementPage, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._parts, self._page, self._desk = parts, page, parts.desk
        self._chosen = ""
        page.header.preset_clicked.connect(lambda: self._popup(self.preset_menu(), page.header.preset))
        page.header.machine_clicked.connect(lambda: self._popup(self.machine_menu(), page.header.machine))
        page.command.save_requested.connect(self.save_shown)
        page.command.open_requested.connect(self.import_file)
        parts.library.presets_changed.connect(self.show)
        parts.library.failed.connect(self.notice)
        parts.desk.outline_changed.connect(self._on_outline_changed)

    def show(self) -> None:
        """Names what is edited and what it is planned for."""
        header, placement = self._page.header, self._desk.placement
        if placement is None:
            header.set_preset("")
            header.set_machine("")
            return
        header.set_preset(self._label(placement))
        choice = self._parts.machine
        header.set_machine(tr("Placement", "This machine") if choice.is_this else choice.name)

    def _label(self, placement: Placement) -> str:
        name = self._parts.library.name_of(placement)
        if name:
            self._chosen = name
            return name
        if self._is_default(placement):
            return self.automatic
        if not self._desk.pending:
            known = self._parts.library.default is not None or self._desk.applied is None
            return tr("Placement", "Own placement") if known else tr("Placement", "Loaded")
        return filled(tr("Placement", "%1, edited"), self._chosen or self._base_name())

    def _is_default(self, placement: Placement) -> bool:
        default = self._parts.library.default
        return default is not None and same_places(placement, default)

    def _base_name(self) -> str:
        """What the edits began with."""
        applied = self._desk.applied
        if applied is None or self._is_default(applied):
            return self.automatic
        return self._parts.library.name_of(applied) or tr("Placement", "Loaded")

    @property
    def automatic(self) -> str:
        """What loading without a placement gives."""
        return tr("Placement", "Automatic")

    def _on_outline_changed(self) -> None:
        self._chosen = ""

    def _popup(self, menu: QMenu, button: QWidget) -> None:
        menu.aboutToHide.connect(menu.deleteLater)
        menu.popup(button.mapToGlobal(QPoint(0, button.height() + 4)))

    # --- presets -----------------------------------------------------------------------------------------------------

    def preset_menu(self) -> QMenu:
        """Every preset, and what can be done with them."""
        menu = QMenu(self._page)
        placement = self._desk.placement
        default = self._parts.library.default
        if default is not None:
            self._add(menu, self.automatic, default, placement)
        for preset in self._parts.library.presets:
            self._add(menu, preset.name, preset.placement, placement)
        menu.addSeparator()
        menu.addAction(tr("Placement", "Save as a preset…"), self.ask_name)
        if self._parts.library.presets:
            remove = menu.addMenu(tr("Placement", "Delete a preset"))
            for preset in self._parts.library.presets:
                remove.addAction(preset.name, partial(self._parts.library.delete, preset.name))
        menu.addSeparator()
        menu.addAction(tr("Placement", "Export as a file…"), self.export_file)
        menu.addAction(tr("Placement", "Open a placement file…"), self.import_file)
        return menu

    def _add(self, menu: QMenu, name: str, placement: Placement, present: Placement | None) -> None:
        action = menu.addAction(name, lambda: self.use(name, placement))
        action.setCheckable(True)
        action.setChecked(present is not None and same_places(placement, present))

    def use(self, name: str, placement: Placement) -> None:
        """Edits a preset from now on."""
        self._chosen = "" if name == self.automatic else name
        self._desk.set_placement(placement, filled(tr("Placement", "Use %1"), name))

    def ask_name(self) -> None:
        """Asks for a name and saves what is edited under it."""
        dialog = QInputDialog(self._page)
        dialog.setWindowTitle(tr("Placement", "Save as a preset"))
        dialog.setLabelText(tr("Placement", "Name"))
        dialog.setTextValue(self._chosen or tr("Placement", "Balanced"))
        dialog.textValueSelected.connect(self.save)
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()

    def save(self, name: str) -> None:
        """Keeps what is edited under a name."""
        placement = self._desk.placement
        if name.strip() and placement is not None:
            self._chosen = name.strip()
            self._parts.library.save(self._chosen, placement)
            self.notice.emit(filled(tr("Placement", "Saved as %1 for this model on this machine."), self._chosen))

    # --- files -------------------------------------------------------------------------------------------------------

    def export_file(self) -> None:
        """Asks where the placement shall be written."""
        outline = self._desk.outline
        if outline is not None:
            name = f"{Path(outline.info.path).stem}.placement.json"
            self._file_dialog(tr("Placement", "Export the placement"), self.write_file, save_as=name)

    def save_shown(self) -> None:
        """Asks where the words of the tool that is shown shall be written."""
        shown = self._page.command.shown()
        if shown is None or not shown.file_name:
            self.export_file()
        else:
            title = tr("Placement", "Save as a file")
            self._file_dialog(title, lambda path: self._write(path, shown.text), save_as=shown.file_name)

    def import_file(self) -> None:
        """Asks for a file with a placement, or with another tool's flags."""
        if self._desk.outline is not None:
            self._file_dialog(tr("Placement", "Open a placement"), self.read_file)

    def write_file(self, path: str) -> None:
        """Writes the placement."""
        placement = self._desk.placement
        if placement is not None:
            self._write(path, self._parts.library.text_of(placement))

    def _write(self, path: str, text: str) -> None:
        try:
            Path(path).write_text(text, encoding="utf-8")
            if text.startswith("#!"):
                Path(path).chmod(Path(path).stat().st_mode | 0o111)
        except OSError as error:
            self.notice.emit(filled(tr("Placement", "%1 cannot be written (%2); choose another folder."), path, error.strerror))
        else:
            self.notice.emit(filled(tr("Placement", "Saved as %1."), path))

    def read_file(self, path: str) -> None:
        """Edits the placement of a file."""
        try:
            found = self._parts.library.read(path)
        except EngineError as error:
            self.notice.emit(str(error))
            return
        self._desk.set_placement(found.placement, filled(tr("Placement", "Open %1"), Path(path).name))
        if found.notes:
            self.notice.emit(" ".join(found.notes))

    def _file_dialog(self, title: str, then: object, save_as: str = "") -> None:
        dialog = QFileDialog(
            self._page, title, str(Path.home()), tr("Placement", "Placements (*.json *.txt *.sh *.yaml);;All files (*)")
        )
        if save_as:
            dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
            dialog.selectFile(save_as)
        else:
            dialog.setFileMode(QFileDialog.FileMode.ExistingFile)
        dialog.fileSelected.connect(then)
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()

    # --- machine -----------------------------------------------------------------------------------------------------

    def machine_menu(self) -> QMenu:
        """This machine, or the one of a file."""
        menu = QMenu(self._page)
        choice = self._parts.machine
        here = menu.addAction(tr("Placement", "This machine"), lambda: self.choose_machine(""))
        here.setCheckable(True)
        here.setChecked(choice.is_this)
        if not choice.is_this:
            other = menu.addAction(choice.name)
            other.setCheckable(True)
            other.setChecked(True)
        menu.addSeparator()
        menu.addAction(tr("Placement", "Open a machine file…"), self.ask_machine)
        return menu

    def ask_machine(self) -> None:
        """Asks for the file of a machine."""
        title, kinds = tr("Placement", "Open a machine file"), tr("Placement", "Machines (*.json);;All files (*)")
        dialog = QFileDialog(self._page, title, str(Path.home()), kinds)
        dialog.setFileMode(QFileDialog.FileMode.ExistingFile)
        dialog.fileSelected.connect(self.choose_machine)
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()

    def choose_machine(self, path: str) -> None:
        """Plans for the machine of a file from now on, "" for this one. A file that describes none changes nothing."""
        if path:
            try:
                machine_of(path)
            except EngineError as error:
                self.notice.emit(str(error))
                return
        if path != self._parts.machine.path:
            self._parts.machine.path = path
            self.reopen_requested.emit()
