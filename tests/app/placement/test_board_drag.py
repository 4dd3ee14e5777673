"""Drags over the board as Qt sends them to the viewports of its lists: what is shown, what is refused, what a drop does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from PySide6.QtCore import QMimeData, QPoint, QPointF, Qt
from PySide6.QtGui import QDragEnterEvent, QDragMoveEvent, QDropEvent
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app import theme
from app.ops.placement_cards import HotSet
from app.qtmodels.placement_mime import MIME, card_mime
from engine.api.pure import Gpu, Numa, UnitId
from tests.helpers.fake_planner import machine
from tests.helpers.placement_table import LEFT, MOVE, NONE, Table, experts, opened_desk, shown_board

pytestmark = pytest.mark.usefixtures("themed")


@pytest.fixture
def table(qtbot: QtBot) -> Iterator[Table]:
    with opened_desk(qtbot) as desk, shown_board(qtbot, desk) as shown:
        yield shown


def test_a_drop_moves_the_card_and_undo_brings_it_back(table: Table) -> None:
    table.drop(experts(4), Gpu(1))
    assert table.device_of(UnitId("experts", 4)) == Gpu(1)
    assert "Experts, layer 4" in table.titles(Gpu(1))
    assert "Layer 4" not in table.titles(Numa(0))
    assert table.desk.undo()
    assert table.device_of(UnitId("experts", 4)) == Numa(0)
    assert "Layer 4" in table.titles(Numa(0))


def test_holding_cards_over_a_column_shows_what_the_drop_would_give(table: Table) -> None:
    event = table.enter(experts(4), Gpu(1))
    assert event.isAccepted()
    head = table.board.column(Gpu(1)).head.state
    assert head.then is not None
    assert head.now is not None
    assert head.then.used - head.now.used == 6_300_000_000
    texts = [text for text, _, _ in table.board.drag.preview.lines]
    assert texts == ["Decode 11.2 → 11.3 tok/s", "GPU 1: 10.6 → 16.9 of 24 GB"]
    assert table.device_of(UnitId("experts", 4)) == Numa(0)
    then = table.desk.preview(experts(4), Gpu(1))
    assert then is not None
    source = table.board.column(Numa(0)).head.state.then
    assert source == then.of(Numa(0))


def test_leaving_the_column_takes_all_that_back(table: Table) -> None:
    table.enter(experts(4), Gpu(1))
    table.leave(Gpu(1))
    assert table.board.drag.trial is None
    assert table.board.drag.preview.lines == ()
    assert table.board.column(Gpu(1)).head.state.then is None


def test_the_line_shows_where_the_card_will_stand(table: Table) -> None:
    table.drop(experts(60), Gpu(1))
    n_rows = len(table.titles(Gpu(1)))
    table.enter(experts(4), Gpu(1))
    cards = table.list_of(Gpu(1))
    assert cards._insert_at == n_rows - 1
    table.leave(Gpu(1))
    assert cards._insert_at is None
    table.drop(experts(4), Gpu(1))
    assert table.titles(Gpu(1))[-2:] == ["Experts, layer 4", "Experts, layer 60"]


def test_a_refused_drop_gives_its_reason_in_the_head_and_moves_nothing(table: Table) -> None:
    event = table.enter([UnitId("head")], Numa(1))
    assert not event.isAccepted()
    assert table.board.column(Numa(1)).head.state.note == "The output head must be on a GPU; move it to GPU 1 instead."
    assert table.board.drag.preview.lines == ()
    table.let_go(card_mime([UnitId("head")]), Numa(1))
    assert table.device_of(UnitId("head")) == Gpu(0)
    assert table.board.column(Numa(1)).head.state.note == ""


def test_cards_over_their_own_column_are_taken_and_left_as_they_are(table: Table) -> None:
    event = table.enter(experts(4), Numa(0))
    assert event.isAccepted()
    assert table.board.column(Numa(0)).head.state.then is None
    table.drop(experts(4), Numa(0))
    assert table.desk.undo_text == ""


@pytest.mark.parametrize(
    "raw", [b"", b"[", b"[1, 2]", b'{"a": 1}', b'["experts.9999"]', b'["nothing.4"]', b'["experts.4; rm"]', b"[" * 100_000]
)
def test_what_is_not_ours_is_not_taken(table: Table, raw: bytes) -> None:
    data = QMimeData()
    data.setData(MIME, raw)
    assert not table.hold(data, Gpu(1), (100, 200)).isAccepted()
    table.let_go(data, Gpu(1))
    assert table.desk.undo_text == ""


def test_a_file_that_is_dragged_over_the_board_is_not_taken(table: Table) -> None:
    data = QMimeData()
    data.setText("/home/somebody/model.gguf")
    assert not table.hold(data, Gpu(1), (100, 200)).isAccepted()


def test_the_head_of_a_column_takes_cards_too(table: Table) -> None:
    column, data = table.board.column(Gpu(1)), card_mime(experts(4))
    QApplication.sendEvent(column, QDragEnterEvent(QPoint(60, 30), MOVE, data, LEFT, NONE))
    event = QDragMoveEvent(QPoint(60, 30), MOVE, data, LEFT, NONE)
    QApplication.sendEvent(column, event)
    assert event.isAccepted()
    assert column.head.state.then is not None
    QApplication.sendEvent(column, QDropEvent(QPointF(60, 30), MOVE, data, LEFT, NONE))
    assert table.device_of(UnitId("experts", 4)) == Gpu(1)
    assert table.board.drag.trial is None


def test_little_room_is_warned_of_before_the_drop(table: Table) -> None:
    table.desk.move(experts(4), Gpu(1))
    warning = table.board.column(Gpu(1)).warning
    assert warning.isHidden()
    table.enter(experts(5), Gpu(1))
    assert warning.lines == ("790 MB would be free", "96k tokens would not fit")
    assert warning.isVisible()
    table.leave(Gpu(1))
    assert warning.isHidden()


def test_a_column_that_is_too_full_says_by_how_much_and_offers_a_way_out(table: Table, qtbot: QtBot) -> None:
    table.drop(experts(4, 5, 6), Gpu(1))
    head = table.board.column(Gpu(1)).head
    qtbot.waitUntil(lambda: head.state.fix == "Fix: move 1 layer")
    assert "5.5 GB over" in head.accessibleDescription()
    height = head.height()
    qtbot.mouseClick(head._button, Qt.MouseButton.LeftButton)
    assert table.desk.state == "ready"
    assert head.state.fix == ""
    assert head.height() < height


def test_the_drag_takes_all_that_is_selected_in_every_column_but_what_is_pinned(table: Table) -> None:
    table.desk.pin(experts(5), True)
    table.board.select([*experts(4, 5, 40), UnitId("head")])
    drag = table.board.drag.make(table.list_of(Numa(0)))
    assert drag is not None
    assert sorted(map(str, table.list_of(Gpu(1)).column.known(_cards(drag.mimeData())))) == ["experts.4", "experts.40", "head"]
    assert not drag.pixmap().isNull()
    drag.deleteLater()


def _cards(data: QMimeData) -> frozenset[object]:
    from app.qtmodels.placement_mime import cards_in

    return frozenset(cards_in(data))


def test_nothing_to_drag_begins_no_drag(table: Table) -> None:
    assert table.board.drag.make(table.list_of(Numa(0))) is None
    table.desk.pin([UnitId("head")], True)
    table.board.select([UnitId("head")])
    assert table.board.drag.make(table.list_of(Gpu(0))) is None


def test_a_device_that_is_gone_is_greyed_and_takes_nothing(table: Table) -> None:
    table.desk.set_lost(frozenset({Gpu(1)}))
    head = table.board.column(Gpu(1)).head.state
    assert head.row.lost
    assert head.note == "This device is gone. Its cards stay here until you move them."
    assert not table.enter(experts(4), Gpu(1)).isAccepted()
    assert table.board.column(Gpu(1)).head.state.note == "GPU 1 is gone; choose another device."
    table.leave(Gpu(1))
    lost = [card.id for card in table.desk.cards_of(Gpu(1))]
    table.drop(lost, Gpu(0))
    assert table.titles(Gpu(1)) == []


def test_more_devices_than_there_is_room_for_are_scrolled_to(qtbot: QtBot) -> None:
    many = machine(gpus=(("RTX 4090", 24),) * 8, n_nodes=2)
    with opened_desk(qtbot, machine=many) as desk, shown_board(qtbot, desk) as table:
        assert len(table.board.lists()) == 10
        bar = table.board._scroll.horizontalScrollBar()
        assert bar.maximum() > 0
        table.drop(experts(4), Gpu(7))
        assert bar.value() > 0
        assert table.device_of(UnitId("experts", 4)) == Gpu(7)


def test_chosen_experts_are_dragged_as_a_set_of_their_own(table: Table) -> None:
    table.desk.split([4, 5, 6], 64)
    assert table.list_of(Numa(0)).column.rows()[3].size == "1.6 of 6.3 GB"
    assert not table.enter(experts(4, 5, 6), Gpu(1)).isAccepted()
    note = table.board.column(Gpu(1)).head.state.note
    assert note == "Hot experts lie beside their router: that of layer 4 is on GPU 0; drop them there."
    table.leave(Gpu(1))
    table.drop(experts(4, 5, 6), Gpu(0))
    assert "Hot experts 4–6" in table.titles(Gpu(0))
    assert "Layer 4" in table.titles(Numa(0))
    table.board.set_grouped(False)
    assert "Hottest 64 of 256, layer 4" in table.titles(Gpu(0))
    table.drop([HotSet(4, Gpu(0))], Numa(0))
    assert "Hottest 64 of 256, layer 4" not in table.titles(Gpu(0))
    assert "Hottest 64 of 256, layer 5" in table.titles(Gpu(0))


def test_cards_look_the_same_whether_they_are_painted_anew_or_known(table: Table) -> None:
    table.desk.set_heat({layer: [(7 * i + layer) % 50 for i in range(256)] for layer in range(3, 61)})
    first = table.list_of(Numa(0)).grab().toImage()
    assert table.list_of(Numa(0)).grab().toImage() == first
    theme.hub().changed.emit()
    assert table.list_of(Numa(0)).grab().toImage() == first
    table.board.select(experts(5))
    assert table.list_of(Numa(0)).grab().toImage() != first


def test_cards_of_experts_grow_when_their_use_becomes_known(table: Table, qtbot: QtBot) -> None:
    cards = table.list_of(Numa(0))
    index = cards.column.index(table.row_of(Numa(0), "Layer 4"))
    before = cards.visualRect(index).height()
    table.desk.set_heat({layer: [1] * 256 for layer in range(3, 61)})
    qtbot.waitUntil(lambda: cards.visualRect(index).height() == before + 8)
    assert cards.visualRect(index.siblingAtRow(index.row() + 1)).top() == cards.visualRect(index).bottom() + 1


CTRL = Qt.KeyboardModifier.ControlModifier


def held_with_ctrl(table: Table, cards: list[UnitId], device: Gpu | Numa) -> QDragMoveEvent:
    table.enter(cards, device)
    data = card_mime(cards)
    event = QDragMoveEvent(QPoint(100, 200), MOVE, data, LEFT, CTRL)
    QApplication.sendEvent(table.list_of(device).viewport(), event)
    return event


def dropped_with_ctrl(table: Table, cards: list[UnitId], device: Gpu | Numa) -> None:
    held_with_ctrl(table, cards, device)
    data = card_mime(cards)
    event = QDropEvent(QPointF(100, 200), MOVE, data, LEFT, CTRL)
    QApplication.sendEvent(table.list_of(device).viewport(), event)


def test_a_drop_with_ctrl_on_a_node_splits_over_all_nodes(table: Table) -> None:
    cards = experts(4, 5)
    event = held_with_ctrl(table, cards, Numa(1))
    trial = table.board.drag.trial
    assert event.isAccepted() and trial is not None and trial.split and trial.then is not None
    assert table.board.drag.preview.lines
    dropped_with_ctrl(table, cards, Numa(1))
    placement = table.desk.placement
    assert placement is not None and all(placement.nodes_of(unit) == (0, 1) for unit in cards)
    assert table.desk.undo_text == "Split 2 cards over NUMA 0 + 1"
    assert table.desk.undo()
    assert table.desk.placement is not None and not table.desk.placement.spreads


def test_ctrl_on_a_gpu_moves_as_ever_and_what_cannot_be_split_says_why(table: Table) -> None:
    dropped_with_ctrl(table, experts(4), Gpu(1))
    assert table.device_of(UnitId("experts", 4)) == Gpu(1)
    event = held_with_ctrl(table, [UnitId("head")], Numa(0))
    assert not event.isAccepted()
    assert "must be on a GPU" in table.board.column(Numa(0)).head.state.note
