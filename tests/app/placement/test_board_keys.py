"""The board from the keyboard alone, its selection, and its rubber band."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot

from app.actions.board_help import BOARD_KEYS
from app.placement import board_keys
from engine.api.pure import Gpu, Numa, UnitId
from tests.helpers.fake_planner import machine
from tests.helpers.placement_table import LEFT, NONE, Table, experts, opened_desk, shown_board

pytestmark = pytest.mark.usefixtures("themed")
CTRL, SHIFT = Qt.KeyboardModifier.ControlModifier, Qt.KeyboardModifier.ShiftModifier


@pytest.fixture
def table(qtbot: QtBot) -> Iterator[Table]:
    with opened_desk(qtbot) as desk, shown_board(qtbot, desk) as shown:
        yield shown


def focus(table: Table, device: Gpu | Numa, title: str) -> None:
    """Puts the keyboard on a card."""
    cards = table.list_of(device)
    cards.setFocus()
    cards.setCurrentIndex(cards.column.index(table.row_of(device, title)))


def test_numbers_move_what_is_selected(table: Table) -> None:
    focus(table, Numa(0), "Layer 4")
    table.key(Qt.Key.Key_2)
    assert table.device_of(UnitId("experts", 4)) == Gpu(1)
    assert [card.id for card in table.board.selected_cards()] == experts(4)
    table.key(Qt.Key.Key_3)
    assert table.device_of(UnitId("experts", 4)) == Numa(0)
    table.key(Qt.Key.Key_9)
    assert table.device_of(UnitId("experts", 4)) == Numa(0)


def test_what_has_the_keyboard_moves_where_nothing_is_selected(table: Table) -> None:
    focus(table, Numa(0), "Layer 5")
    table.key(Qt.Key.Key_Escape)
    assert table.board.selected_cards() == ()
    table.key(Qt.Key.Key_1)
    assert table.device_of(UnitId("experts", 5)) == Gpu(0)


def test_shift_and_arrows_select_several(table: Table) -> None:
    focus(table, Numa(0), "Layer 4")
    table.key(Qt.Key.Key_Down, SHIFT)
    table.key(Qt.Key.Key_Down, SHIFT)
    assert [card.id for card in table.board.selected_cards()] == experts(4, 5, 6)
    table.key(Qt.Key.Key_2)
    assert [table.device_of(unit) for unit in experts(4, 5, 6)] == [Gpu(1)] * 3


def test_undo_and_redo(table: Table) -> None:
    focus(table, Numa(0), "Layer 4")
    table.key(Qt.Key.Key_2)
    table.key(Qt.Key.Key_Z, CTRL)
    assert table.device_of(UnitId("experts", 4)) == Numa(0)
    table.key(Qt.Key.Key_Z, CTRL | SHIFT)
    assert table.device_of(UnitId("experts", 4)) == Gpu(1)


def test_e_opens_and_closes_the_group_of_a_card(table: Table) -> None:
    focus(table, Gpu(0), "Attention 0–30")
    before = len(table.titles(Gpu(0)))
    table.key(Qt.Key.Key_E)
    assert len(table.titles(Gpu(0))) == before + 31
    table.key(Qt.Key.Key_Down)
    table.key(Qt.Key.Key_E)
    assert len(table.titles(Gpu(0))) == before
    assert table.list_of(Gpu(0)).currentIndex().row() == 0
    table.key(Qt.Key.Key_Return)
    assert len(table.titles(Gpu(0))) == before + 31


def test_g_shows_every_card_on_its_own_and_back(table: Table, qtbot: QtBot) -> None:
    focus(table, Gpu(0), "Attention 0–30")
    with qtbot.waitSignal(table.board.grouped_changed) as told:
        table.key(Qt.Key.Key_G)
    assert told.args == [False]
    assert "Attention, layer 0" in table.titles(Gpu(0))
    table.key(Qt.Key.Key_G)
    assert table.titles(Gpu(0))[0] == "Attention 0–30"


def test_p_pins_and_unpins(table: Table) -> None:
    focus(table, Numa(0), "Layer 4")
    table.key(Qt.Key.Key_P)
    assert table.desk.pins == set(experts(4))
    table.key(Qt.Key.Key_2)
    assert table.device_of(UnitId("experts", 4)) == Numa(0)
    assert table.notices == ["What is pinned does not move; press P to unpin it."]
    table.key(Qt.Key.Key_P)
    assert table.desk.pins == set()


def test_control_a_selects_the_group_and_then_the_column(table: Table) -> None:
    focus(table, Numa(0), "Layer 4")
    table.key(Qt.Key.Key_A, CTRL)
    assert {card.family for card in table.board.selected_cards()} == {"experts"}
    assert len(table.board.selected_cards()) == len(table.list_of(Numa(0)).column.rows()) - 2
    table.key(Qt.Key.Key_A, CTRL)
    assert {card.family for card in table.board.selected_cards()} == {"experts", "embed"}


def test_a_fits(table: Table, qtbot: QtBot) -> None:
    focus(table, Numa(0), "Layer 4")
    table.key(Qt.Key.Key_A)
    qtbot.waitUntil(lambda: table.desk.undo_text == "Auto-fit")


def test_slash_and_control_enter_ask_the_page(table: Table, qtbot: QtBot) -> None:
    focus(table, Numa(0), "Layer 4")
    with qtbot.waitSignal(table.board.filter_requested):
        table.key(Qt.Key.Key_Slash)
    with qtbot.waitSignal(table.board.apply_requested):
        table.key(Qt.Key.Key_Return, CTRL)


def test_arrows_go_from_column_to_column(table: Table) -> None:
    focus(table, Gpu(0), "Attention 0–30")
    for device in (Gpu(1), Numa(0), Numa(1)):
        table.key(Qt.Key.Key_Right)
        assert table.list_of(device).hasFocus()
        assert table.list_of(device).currentIndex().row() == 0
    table.key(Qt.Key.Key_Right)
    assert table.list_of(Numa(1)).hasFocus()
    table.key(Qt.Key.Key_Left)
    assert table.list_of(Numa(0)).hasFocus()


def test_tab_reaches_every_column(table: Table) -> None:
    table.list_of(Gpu(0)).setFocus()
    for device in (Gpu(1), Numa(0), Numa(1)):
        table.key(Qt.Key.Key_Tab)
        if not table.list_of(device).hasFocus():  # the button of the cores in the head of a node
            assert isinstance(device, Numa)
            table.key(Qt.Key.Key_Tab)
        assert table.list_of(device).hasFocus()


def test_a_filter_leaves_what_it_is_about(table: Table) -> None:
    table.board.set_filter("exp 10-12")
    assert table.titles(Numa(0)) == ["Experts 10–12", "Layer 10", "Layer 11", "Layer 12"]
    assert table.titles(Gpu(0)) == []
    table.board.set_filter("", frozenset({"kv"}))
    assert table.titles(Gpu(0)) == ["KV 0–30"]
    table.board.set_filter("")
    assert table.titles(Gpu(0))[0] == "Attention 0–30"


def click(table: Table, device: Gpu | Numa, title: str, modifiers: Qt.KeyboardModifier = NONE) -> None:
    QTest.mouseClick(table.list_of(device).viewport(), LEFT, modifiers, table.spot(device, title))


def test_clicks_select_one_with_control_several_over_columns(table: Table) -> None:
    click(table, Numa(0), "Layer 4")
    click(table, Numa(0), "Layer 6", CTRL)
    click(table, Numa(1), "Layer 33", CTRL)
    assert [card.id for card in table.board.selected_cards()] == experts(4, 6, 33)
    click(table, Numa(1), "Layer 35", SHIFT)
    assert [card.id for card in table.board.selected_cards()] == experts(4, 6, 33, 34, 35)
    click(table, Gpu(0), "Output head")
    assert [card.id for card in table.board.selected_cards()] == [UnitId("head")]


def test_the_selection_stays_with_cards_that_move(table: Table) -> None:
    click(table, Numa(0), "Layer 4")
    click(table, Numa(0), "Layer 6", CTRL)
    table.board.move_selected(Gpu(1))
    assert [card.id for card in table.board.selected_cards()] == experts(4, 6)
    table.desk.undo()
    assert [card.id for card in table.board.selected_cards()] == experts(4, 6)


def test_the_chevron_opens_and_selects_nothing(table: Table) -> None:
    cards = table.list_of(Gpu(0))
    index = cards.column.index(0)
    row = cards.row_at(index)
    assert row is not None
    box = cards.box_of(index, row)
    QTest.mouseClick(cards.viewport(), LEFT, NONE, QPoint(box.left() + 16, box.center().y()))
    assert "Layer 0" in table.titles(Gpu(0))
    assert table.board.selected_cards() == ()
    QTest.mouseDClick(cards.viewport(), LEFT, NONE, table.spot(Gpu(0), "Attention 0–30"))
    assert "Layer 0" not in table.titles(Gpu(0))


def test_a_rubber_band_from_the_edge_selects_what_it_touches(table: Table) -> None:
    cards = table.list_of(Numa(0))
    viewport = cards.viewport()
    top, bottom = table.spot(Numa(0), "Layer 4").y(), table.spot(Numa(0), "Layer 7").y()
    QTest.mousePress(viewport, LEFT, NONE, QPoint(3, top))
    for step in range(1, 6):
        QTest.mouseMove(viewport, QPoint(3 + step * 20, top + (bottom - top) * step // 5))
    QTest.mouseRelease(viewport, LEFT, NONE, QPoint(103, bottom))
    assert [card.id for card in table.board.selected_cards()] == experts(4, 5, 6, 7)


def test_a_rubber_band_from_the_free_space_below(table: Table) -> None:
    viewport = table.list_of(Gpu(1)).viewport()
    bottom = table.spot(Gpu(1), "Router 31–60").y()
    QTest.mousePress(viewport, LEFT, NONE, QPoint(120, viewport.height() - 10))
    for y in (400, 300, bottom):
        QTest.mouseMove(viewport, QPoint(60, y))
    QTest.mouseRelease(viewport, LEFT, NONE, QPoint(60, bottom))
    assert {card.family for card in table.board.selected_cards()} == {"router", "shared"}


def test_nothing_is_taken_while_no_model_is_open(table: Table) -> None:
    table.desk.close()
    assert table.board.lists() == ()
    table.key(Qt.Key.Key_2, on=table.board)
    assert table.notices == []


def test_a_column_that_gets_the_keyboard_has_a_card_to_act_on(table: Table) -> None:
    table.list_of(Gpu(0)).setFocus(Qt.FocusReason.TabFocusReason)
    assert table.list_of(Gpu(0)).currentIndex().row() == 0
    assert table.board.selected_cards() == ()


def test_n_splits_over_the_nodes_and_brings_together_again(table: Table) -> None:
    focus(table, Numa(0), "Layer 4")
    table.key(Qt.Key.Key_N)
    placement = table.desk.placement
    assert placement is not None and placement.nodes_of(UnitId("experts", 4)) == (0, 1)
    card = table.desk.card(UnitId("experts", 4))
    assert card is not None and card.nodes == (0, 1)
    row = next(row for row in table.list_of(Numa(0)).column.rows() if row.ids == {UnitId("experts", 4)})
    assert "NUMA 0 + 1" in f"{row.title} {row.detail}" and "split over NUMA 0 + 1" in row.spoken("NUMA 0")
    assert table.desk.undo_text == "Split 1 card over NUMA 0 + 1" and table.desk.pending == 1
    table.key(Qt.Key.Key_N)
    assert table.desk.placement is not None and table.desk.placement.nodes_of(UnitId("experts", 4)) == (0,)
    assert table.desk.undo_text == "Bring 1 card to one node" and table.desk.pending == 0
    assert table.desk.undo() and table.desk.undo()
    assert table.desk.placement is not None and not table.desk.placement.spreads
    card = table.desk.card(UnitId("experts", 4))
    assert card is not None and not card.nodes


def test_cards_with_a_strip_say_it_beside_their_title(table: Table) -> None:
    table.desk.set_heat({4: [1] * 256})
    table.board.select(experts(4))
    assert table.board.split_selected()
    assert any(title.endswith("· N0+1") for title in table.titles(Numa(0)))


def test_what_cannot_be_split_says_why_and_what_helps(table: Table) -> None:
    focus(table, Numa(0), "Layer 4")
    table.key(Qt.Key.Key_P)
    table.key(Qt.Key.Key_N)
    assert table.notices == ["What is pinned does not move; press P to unpin it."]
    assert table.desk.placement is not None and not table.desk.placement.spreads
    table.board.select([UnitId("head")])
    table.board.split_selected()
    assert table.notices[1:] == ["The output head must be on a GPU; move it to GPU 1 instead."]


def test_one_node_is_nothing_to_split_over(qtbot: QtBot) -> None:
    with opened_desk(qtbot, machine=machine(n_nodes=1)) as desk, shown_board(qtbot, desk) as table:
        table.board.select(experts(4))
        assert not table.board.split_selected()
        assert len(table.notices) == 1 and "one memory node" in table.notices[0] and "another device" in table.notices[0]


def test_the_page_of_shortcuts_lists_the_letters_of_the_board() -> None:
    listed = {keys for keys, _ in BOARD_KEYS}
    letters = {chr(key) for held, key in board_keys._KEYS if held == NONE and 65 <= int(key) <= 90}
    assert letters <= listed and "N" in letters
