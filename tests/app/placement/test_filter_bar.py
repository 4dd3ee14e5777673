"""The filters: kinds, grouping, the field, and what a dense model does not have."""

from __future__ import annotations

import pytest
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from app.placement.filter_bar import KINDS, Filter, FilterBar

pytestmark = pytest.mark.usefixtures("themed")


@pytest.fixture
def bar(qtbot: QtBot) -> FilterBar:
    made = FilterBar()
    qtbot.addWidget(made)
    made.resize(1000, 26)
    made.set_model(61, has_experts=True)
    made.show()
    return made


def test_chips_switch_kinds_off_and_on(qtbot: QtBot, bar: FilterBar) -> None:
    with qtbot.waitSignal(bar.changed) as told:
        bar.kinds["experts"].click()
    assert told.args == [Filter(frozenset(KINDS) - {"experts"})]
    with qtbot.waitSignal(bar.changed) as told:
        bar.kinds["experts"].click()
    assert told.args == [Filter()]


def test_the_field_filters_while_it_is_written_and_escape_empties_it(qtbot: QtBot, bar: FilterBar) -> None:
    told: list[Filter] = []
    bar.changed.connect(told.append)
    assert bar.layers.text() == "Layers 0–60"
    bar.open_field()
    qtbot.keyClicks(bar.field, "exp 10-20")
    assert told[-1] == Filter(text="exp 10-20")
    qtbot.keyClick(bar.field, Qt.Key.Key_Return)
    assert bar.field.isHidden()
    assert bar.layers.text() == "exp 10-20"
    bar.open_field()
    qtbot.keyClick(bar.field, Qt.Key.Key_Escape)
    assert told[-1] == Filter()
    assert bar.layers.text() == "Layers 0–60"


def test_grouping_follows_the_chip_and_the_board(qtbot: QtBot, bar: FilterBar) -> None:
    with qtbot.waitSignal(bar.changed) as told:
        bar.toggle_group()
    assert told.args == [Filter(grouped=False)]
    bar.set_grouped(True)
    assert bar.filter == Filter()


def test_a_dense_model_has_no_filter_for_experts(bar: FilterBar) -> None:
    bar.set_model(30, has_experts=False)
    assert bar.kinds["experts"].isHidden()
    assert not bar.kinds["attention"].isHidden()
