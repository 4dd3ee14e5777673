"""GroupCard: the checks of one group in a frame, below the group's name."""

from __future__ import annotations

from collections.abc import Collection

from PySide6.QtWidgets import QVBoxLayout, QWidget

from app.doctor.check_row import CheckRow
from app.doctor.rows import Status
from app.widgets.elided_label import ElidedLabel
from app.widgets.inputs import Card


class GroupCard(QWidget):
    """Gone while no row of it is shown."""

    def __init__(self, title: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.title = title
        self._card = Card()
        self._rows = QVBoxLayout(self._card)
        self._rows.setContentsMargins(0, 1, 0, 1)
        self._rows.setSpacing(1)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(8)
        column.addWidget(ElidedLabel(title, 13, 600))
        column.addWidget(self._card)
        self.setAccessibleName(title)

    @property
    def rows(self) -> tuple[CheckRow, ...]:
        """From top to bottom."""
        return tuple(row for row in self._card.rows if isinstance(row, CheckRow))

    def add_row(self, row: CheckRow) -> None:
        """At the foot."""
        self._card.rows.append(row)
        self._rows.addWidget(row)

    def drop_row(self, row: CheckRow) -> None:
        """Takes a row away for good."""
        self._card.rows.remove(row)
        self._rows.removeWidget(row)
        row.hide()
        row.deleteLater()

    def show_only(self, statuses: Collection[Status]) -> None:
        """Rows of these states; lines between them follow."""
        for row in self.rows:
            row.setVisible(row.view.status in statuses)
        self.setVisible(any(not row.isHidden() for row in self.rows))
        self._card.update()
