"""DeviceListModel: the devices of the placement desk with what lies on each: for lists and buttons such as "Move to"."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from PySide6.QtCore import QAbstractListModel, QModelIndex, QObject, QPersistentModelIndex, Qt

from app.ops.placement_desk import PlacementDesk
from app.ops.placement_planning import DeviceRow
from app.widgets.format import used_of_bytes
from engine.api.pure import Device, DevicePrediction

Index = QModelIndex | QPersistentModelIndex
_NOWHERE = QModelIndex()


class DeviceRole(IntEnum):
    """DEVICE: where; ROW: its DeviceRow; PREDICTION: its DevicePrediction or None; KEY: 1 to 9, 0 for those without a key."""

    DEVICE = Qt.ItemDataRole.UserRole + 1
    ROW = Qt.ItemDataRole.UserRole + 2
    PREDICTION = Qt.ItemDataRole.UserRole + 3
    KEY = Qt.ItemDataRole.UserRole + 4


class DeviceListModel(QAbstractListModel):
    """Rows in the order of the columns."""

    def __init__(self, desk: PlacementDesk, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._desk = desk
        self._rows: tuple[DeviceRow, ...] = ()
        self._predictions: dict[Device, DevicePrediction] = {}
        desk.outline_changed.connect(self._on_changed)
        desk.changed.connect(self._on_changed)
        desk.predicted.connect(self._on_predicted)
        self._on_changed()

    def rowCount(self, parent: Index = _NOWHERE) -> int:
        return 0 if parent.isValid() else len(self._rows)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if not index.isValid() or index.row() >= len(self._rows):
            return None
        row = self._rows[index.row()]
        there = self._predictions.get(row.device)
        match role:
            case Qt.ItemDataRole.DisplayRole:
                return row.name
            case Qt.ItemDataRole.AccessibleTextRole:
                return f"{row.name}, {row.hardware}" + (f", {used_of_bytes(there.used, there.capacity)}" if there else "")
            case DeviceRole.DEVICE:
                return row.device
            case DeviceRole.ROW:
                return row
            case DeviceRole.PREDICTION:
                return there
            case DeviceRole.KEY:
                return index.row() + 1 if index.row() < 9 else 0
            case _:
                return None

    def _on_changed(self, _devices: object = None) -> None:
        rows = self._desk.devices()
        if [row.device for row in rows] != [row.device for row in self._rows]:
            self.beginResetModel()
            self._rows = rows
            self.endResetModel()
        elif rows != self._rows:
            self._rows = rows
            self.dataChanged.emit(self.index(0), self.index(len(rows) - 1))
        self._on_predicted()

    def _on_predicted(self) -> None:
        prediction = self._desk.prediction
        fresh = {} if prediction is None else {one.device: one for one in prediction.devices}
        changed = [i for i, row in enumerate(self._rows) if fresh.get(row.device) != self._predictions.get(row.device)]
        self._predictions = fresh
        for i in changed:
            self.dataChanged.emit(self.index(i), self.index(i))
