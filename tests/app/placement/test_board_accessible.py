"""The board as assistive technology reads it: every card, every column, and where the keyboard is."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest
from PySide6.QtCore import QCoreApplication, QEvent
from PySide6.QtGui import QAccessible, QAccessibleInterface
from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot

from engine.api.pure import Gpu, Numa, UnitId
from tests.helpers.placement_table import Table, opened_desk, shown_board

pytestmark = pytest.mark.usefixtures("themed")


@pytest.fixture
def table(qtbot: QtBot) -> Iterator[Table]:
    with opened_desk(qtbot) as desk, shown_board(qtbot, desk) as shown:
        yield shown


def items(table: Table, device: Gpu | Numa) -> list[str]:
    """What the children of a list are called in the accessibility tree."""
    interface: QAccessibleInterface = QAccessible.queryAccessibleInterface(table.list_of(device))
    assert interface.role() == QAccessible.Role.List
    children = [interface.child(i) for i in range(interface.childCount())]
    return [child.text(QAccessible.Text.Name) for child in children if child.role() == QAccessible.Role.ListItem]


def test_every_card_is_read_with_its_layer_kind_size_and_device(table: Table) -> None:
    table.board.set_grouped(False)
    for row in table.desk.devices():
        spoken = items(table, row.device)
        assert len(spoken) == len(table.desk.cards_of(row.device))
        assert all(f", on {row.name}" in text for text in spoken)
    assert "Layer 4, experts, 6.3 gigabytes, on NUMA 0" in items(table, Numa(0))
    assert "Output head, 800 megabytes, on GPU 0" in items(table, Gpu(0))
    assert "Layer 0, KV, 74 megabytes, on GPU 0" in items(table, Gpu(0))


def test_groups_say_what_they_hold_and_whether_they_are_open(table: Table) -> None:
    assert "Attention, layers 0 to 30, 31 cards, 4.8 gigabytes, on GPU 0, closed" in items(table, Gpu(0))
    assert any(text.startswith("Experts, layers 3 to 30") and text.endswith("open") for text in items(table, Numa(0)))


def test_pins_and_changes_are_read_too(table: Table) -> None:
    table.desk.pin([UnitId("head")], True)
    assert "Output head, 800 megabytes, on GPU 0, pinned" in items(table, Gpu(0))
    assert table.desk.placement is not None
    table.desk.set_applied(table.desk.placement)
    table.desk.move([UnitId("experts", 4)], Gpu(1))
    assert "Layer 4, experts, 6.3 gigabytes, on GPU 1, not applied yet" in items(table, Gpu(1))


def test_columns_have_names_and_figures(table: Table) -> None:
    column = table.board.column(Gpu(1))
    assert column.cards.accessibleName() == "GPU 1, RTX 3090"
    assert column.head.accessibleName() == "GPU 1, RTX 3090"
    assert column.head.accessibleDescription() == "10.6 / 24 GB, 5.8 ms"


def test_another_model_leaves_no_widgets_behind(table: Table, qtbot: QtBot) -> None:
    before = len(table.board.findChildren(QWidget))
    alive = weakref.ref(table.list_of(Gpu(0)).itemDelegate())
    for _ in range(3):
        table.desk.close()
        table.desk.open("/models/deepseek.gguf")
        qtbot.waitUntil(lambda: table.desk.state == "ready")
    QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    gc.collect()
    assert len(table.board.findChildren(QWidget)) == before
    assert alive() is None
