"""The item models of the board: correct as models, rows that stay where they are, drops that go to the desk."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from PySide6.QtCore import QMimeData, QModelIndex, Qt
from pytestqt.modeltest import ModelTester
from pytestqt.qtbot import QtBot

from app.ops.placement_cards import HotSet
from app.ops.placement_desk import PlacementDesk
from app.qtmodels.placement_columns import CardRole, PlacementColumn, PlacementColumns
from app.qtmodels.placement_filter import parse_filter
from app.qtmodels.placement_mime import MIME, card_mime, cards_in
from engine.api.pure import Device, Gpu, Numa, UnitId
from tests.helpers.placement_table import MOVE, experts, opened_desk


@pytest.fixture
def desk(qtbot: QtBot) -> Iterator[PlacementDesk]:
    with opened_desk(qtbot) as opened:
        yield opened


@pytest.fixture
def columns(desk: PlacementDesk) -> PlacementColumns:
    return PlacementColumns(desk, desk)


def column(columns: PlacementColumns, device: Device) -> PlacementColumn:
    found = columns.column(device)
    assert found is not None
    return found


def test_the_models_are_correct_whatever_is_moved(
    desk: PlacementDesk, columns: PlacementColumns, qtmodeltester: ModelTester
) -> None:
    for one in columns.columns():
        qtmodeltester.check(one)
    devices, cards, rng = [row.device for row in desk.devices()], [card.id for card in desk.cards()], random.Random(5)
    for i in range(40):
        desk.move(rng.sample(cards, rng.choice((1, 2, 30))), rng.choice(devices))
        if i % 7 == 0:
            columns.set_grouped(rng.random() < 0.7)
        if i % 11 == 0:
            columns.set_expanded(rng.sample(cards, 60), rng.random() < 0.5)
        if i % 13 == 0:
            desk.undo()
        for one in columns.columns():
            assert sum(len(row.cards) for row in one.rows() if not (row.is_group and row.expanded)) == len(
                desk.cards_of(one.device)
            )


def test_rows_that_stay_are_not_touched(desk: PlacementDesk, columns: PlacementColumns, qtbot: QtBot) -> None:
    nodes = column(columns, Numa(0))
    before = {row.title: row for row in nodes.rows()}
    with qtbot.waitSignals([nodes.rowsRemoved, nodes.rows_changed]):
        desk.move(experts(10), Gpu(1))
    after = {row.title: row for row in nodes.rows()}
    assert "Layer 10" not in after
    assert after["Layer 11"] is before["Layer 11"]
    assert column(columns, Numa(1)).rows()[3].title == "Layer 33"


def test_a_filter_and_its_end(columns: PlacementColumns, qtbot: QtBot) -> None:
    with qtbot.waitSignal(columns.layout_changed):
        columns.set_filter(parse_filter("exp 5"))
    assert [row.title for row in column(columns, Numa(0)).rows()] == ["Experts, layer 5"]
    columns.set_filter(parse_filter(""))
    assert len(column(columns, Numa(0)).rows()) > 20


def test_data_says_what_delegates_and_readers_need(columns: PlacementColumns) -> None:
    nodes = column(columns, Numa(0))
    index = nodes.index(2)
    assert index.data() == "Layer 3"
    assert index.data(Qt.ItemDataRole.AccessibleTextRole) == "Layer 3, experts, 6.3 gigabytes, on NUMA 0"
    assert index.data(CardRole.CARDS) == frozenset(experts(3))
    assert index.data(CardRole.ROW).inside
    assert index.data(Qt.ItemDataRole.DecorationRole) is None
    assert nodes.data(QModelIndex()) is None


def test_pinned_cards_cannot_be_dragged(desk: PlacementDesk, columns: PlacementColumns) -> None:
    nodes = column(columns, Numa(0))
    desk.pin(experts(3), True)
    flags = {row.title: nodes.flags(nodes.index(i)) for i, row in enumerate(nodes.rows())}
    assert not flags["Layer 3"] & Qt.ItemFlag.ItemIsDragEnabled
    assert flags["Layer 4"] & Qt.ItemFlag.ItemIsDragEnabled
    assert nodes.flags(QModelIndex()) == Qt.ItemFlag.ItemIsDropEnabled


def test_what_a_group_gives_to_a_drag_is_all_of_it(columns: PlacementColumns) -> None:
    gpu = column(columns, Gpu(0))
    assert gpu.rows()[0].title == "Attention 0–30"
    assert len(cards_in(gpu.mimeData([gpu.index(0)]))) == 31
    assert gpu.mimeTypes() == [MIME]


def test_a_drop_is_a_step_of_the_desk_and_the_view_removes_nothing(desk: PlacementDesk, columns: PlacementColumns) -> None:
    gpu, data = column(columns, Gpu(1)), card_mime(experts(4, 5))
    assert gpu.canDropMimeData(data, MOVE, -1, -1, QModelIndex())
    assert gpu.dropMimeData(data, MOVE, -1, -1, QModelIndex()) is False
    assert desk.undo_text == "Move 2 cards to GPU 1"
    head = card_mime([UnitId("head")])
    assert not column(columns, Numa(0)).canDropMimeData(head, MOVE, -1, -1, QModelIndex())


def test_names_of_cards_survive_the_clipboard_of_a_drag() -> None:
    cards = frozenset({UnitId("head"), UnitId("experts", 4), UnitId("kv", 12), HotSet(4, Gpu(1))})
    assert cards_in(card_mime(cards)) == cards
    assert cards_in(QMimeData()) == frozenset()
