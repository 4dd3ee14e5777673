"""CheckList: all checks in their groups, in a column that scrolls. Results come one by one; a row that was there stays."""

from __future__ import annotations

from collections.abc import Collection

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFrame, QScrollArea, QVBoxLayout, QWidget

from app.doctor.check_row import CheckRow
from app.doctor.group_card import GroupCard
from app.doctor.rows import STATUSES, CheckView, Status

_RIGHT = 16
"""From a card to the edge of the list; the bar lies in it."""


class CheckList(QScrollArea):
    """begin(), then add() for each result, then end()."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setWidgetResizable(True)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.setAccessibleName(self.tr("Checks"))
        self.setStyleSheet("QScrollArea, QScrollArea > QWidget > QWidget#checks { background: transparent; }")
        self._groups: dict[str, GroupCard] = {}
        self._rows: dict[tuple[str, int], CheckRow] = {}
        self._seen: list[tuple[str, int]] = []
        self._statuses: frozenset[Status] = frozenset(STATUSES)
        content = QWidget()
        content.setObjectName("checks")
        self._column = QVBoxLayout(content)
        self._column.setContentsMargins(0, 0, _RIGHT, 16)
        self._column.setSpacing(16)
        self._column.addStretch(1)
        self.setWidget(content)
        self.verticalScrollBar().rangeChanged.connect(self._on_range)

    def _on_range(self, _least: int, most: int) -> None:
        """Cards end at the same place with and without the bar beside them."""
        bar = self.verticalScrollBar().sizeHint().width() if most > 0 else 0
        self._column.setContentsMargins(0, 0, max(0, _RIGHT - bar), 16)

    def begin(self) -> None:
        """Another run: what is shown is of the one before until its result comes again."""
        self._seen = []
        for row in self._rows.values():
            row.set_stale(True)

    def add(self, view: CheckView) -> None:
        """A result. A check may have several, which are told apart by their order."""
        key = (view.id, sum(1 for id, _n in self._seen if id == view.id))
        self._seen.append(key)
        row = self._rows.get(key)
        if row is None:
            row = self._rows[key] = CheckRow(view)
            row.stepped.connect(lambda step, row=row: self._step(row, step))
            self._group(view.group).add_row(row)
        else:
            row.show_view(view)
        row.setVisible(view.status in self._statuses)
        group = self._group(view.group)
        group.setVisible(any(not one.isHidden() for one in group.rows))

    def end(self, kept: Collection[str] = ()) -> None:
        """The run is over: rows that did not come again go, but for those of the checks in kept."""
        seen = {id for id, _n in self._seen}
        for key in [key for key in self._rows if key not in self._seen]:
            if key[0] in kept and key[0] not in seen:
                self._rows[key].set_stale(False)
                continue
            row = self._rows.pop(key)
            for group in self._groups.values():
                if row in group.rows:
                    group.drop_row(row)
        self._refilter()

    def show_only(self, statuses: Collection[Status]) -> None:
        """Rows of these states."""
        self._statuses = frozenset(statuses)
        self._refilter()

    def _refilter(self) -> None:
        for group in self._groups.values():
            group.show_only(self._statuses)

    @property
    def views(self) -> tuple[CheckView, ...]:
        """All rows as they are known, group by group, whether shown or not."""
        return tuple(row.view for group in self._groups.values() for row in group.rows)

    @property
    def shown(self) -> tuple[CheckRow, ...]:
        """The rows that can be seen, from top to bottom."""
        return tuple(row for group in self._groups.values() for row in group.rows if not row.isHidden())

    def reveal(self, id: str) -> bool:
        """Opens the row of a check, the worst of several, brings it into sight, gives it the keyboard. False: there is none."""
        rows = [row for (one, _n), row in self._rows.items() if one == id]
        if not rows:
            return False
        row = min(rows, key=lambda one: STATUSES.index(one.view.status))
        row.show()
        self._group(row.view.group).show()
        row.set_open(True)
        content = self.widget()
        if content is not None and (layout := content.layout()) is not None:
            layout.activate()
        self.ensureWidgetVisible(row, 0, 60)
        row.head.setFocus(Qt.FocusReason.ShortcutFocusReason)
        return True

    def _group(self, title: str) -> GroupCard:
        group = self._groups.get(title)
        if group is None:
            group = self._groups[title] = GroupCard(title)
            self._column.insertWidget(len(self._groups) - 1, group)
        return group

    def _step(self, row: CheckRow, step: int) -> None:
        rows = self.shown
        at = rows.index(row) + step
        if 0 <= at < len(rows):
            rows[at].head.setFocus(Qt.FocusReason.TabFocusReason)
            self.ensureWidgetVisible(rows[at].head, 0, 20)
