"""The inspector and its parts: facts, buttons to move, the map of experts."""

from __future__ import annotations

import time

import numpy as np
import pytest
from PySide6.QtCore import QPoint, Qt
from pytestqt.qtbot import QtBot

from app.placement.expert_map import ExpertMap, columns_of, ramp
from app.placement.facts import Fact
from app.placement.inspector import Inspector, Selection, Use
from app.placement.move_buttons import MoveButtons, Target

pytestmark = pytest.mark.usefixtures("themed")


def test_move_buttons_have_number_keys_and_say_why_they_refuse(qtbot: QtBot) -> None:
    buttons = MoveButtons()
    qtbot.addWidget(buttons)
    buttons.resize(236, 80)
    buttons.set_targets((Target("GPU 0", here=True), Target("GPU 1"), Target("NUMA 0", "The output head must be on a GPU.")))
    buttons.show()
    here, there, refused = buttons._buttons
    assert not here.isEnabled() and there.isEnabled() and not refused.isEnabled()
    assert refused.toolTip() == "The output head must be on a GPU."
    assert there.accessibleName() == "Move to GPU 1"
    with qtbot.waitSignal(buttons.chosen) as told:
        qtbot.mouseClick(there, Qt.MouseButton.LeftButton)
    assert told.args == [1]
    buttons.set_targets((Target("GPU 0"),))
    assert [one.isVisible() for one in buttons._buttons] == [True, False, False]


def test_inspector_shows_only_what_a_selection_has(qtbot: QtBot) -> None:
    inspector = Inspector()
    qtbot.addWidget(inspector)
    inspector.resize(272, 700)
    inspector.show()
    facts = (Fact("Size", "4.8 GB"), Fact("On GPU 1", "0.29 ms"))
    inspector.show_selection(Selection("Output head", "", facts, (Target("GPU 0"),), pin="Pin"))
    assert inspector.title == "Output head"
    assert inspector.facts == facts
    assert inspector.use.isHidden() and inspector.split.isHidden() and not inspector.pin.isHidden()
    use = Use(
        "Expert use, layer 4", "8,192 tokens", bytes(range(256)), 256, (4,), "2.4 %", "Hottest 64 of 256 serve 61 % of reads"
    )
    inspector.show_selection(Selection("3 cards selected", "Experts", facts, (), use, split="Split by expert use…"))
    assert inspector.moves.isHidden() and not inspector.split.isHidden()
    assert not inspector.use.map.isHidden() and inspector.use.count.isHidden()


def test_where_nothing_was_counted_the_inspector_offers_to_count(qtbot: QtBot) -> None:
    inspector = Inspector()
    qtbot.addWidget(inspector)
    inspector.show()
    inspector.show_selection(Selection("x", use=Use("Expert use, all layers", sentence="Nothing counted yet.")))
    assert inspector.use.map.isHidden()
    with qtbot.waitSignal(inspector.count_requested):
        inspector.use.count.click()


@pytest.mark.parametrize(("n", "columns"), [(256, 16), (128, 16), (64, 8), (16, 4), (8, 4), (1, 1)])
def test_grids_come_out_about_square(n: int, columns: int) -> None:
    assert columns_of(n) == columns


def test_the_map_of_a_layer_paints_the_colour_of_each_level(qtbot: QtBot) -> None:
    shown = ExpertMap()
    qtbot.addWidget(shown)
    shown.set_levels(bytes([0, 255, *([128] * 14)]), 16, (4,), "2.4 %")
    shown.resize(200, shown.sizeHint().height())
    image = shown.grab().toImage()
    across, down = (200 + 1.75) / 4, shown._map_height() / 4
    for i, level in ((0, 0), (1, 255), (5, 128)):
        x, y = (i % 4 + 0.5) * across, (i // 4 + 0.5) * down
        assert image.pixel(QPoint(int(x), int(y))) == ramp()[level]
    assert shown.accessibleName() == "Use of 16 experts of layer 4"


def test_the_map_of_all_layers_has_a_row_for_each_and_a_click_names_its_layer(qtbot: QtBot) -> None:
    shown = ExpertMap()
    qtbot.addWidget(shown)
    levels = np.zeros((10, 128), np.uint8)
    levels[7] = 255
    shown.set_levels(levels.tobytes(), 128, tuple(range(3, 13)), "5 %")
    shown.resize(256, shown.sizeHint().height())
    shown.show()
    row = shown._map_height() / 10
    image = shown.grab().toImage()
    assert image.pixel(QPoint(100, int(7.5 * row))) == ramp()[255]
    assert image.pixel(QPoint(100, int(6.5 * row))) == ramp()[0]
    with qtbot.waitSignal(shown.layer_clicked) as told:
        qtbot.mouseClick(shown, Qt.MouseButton.LeftButton, pos=QPoint(100, int(7.5 * row)))
    assert told.args == [10]


def test_ten_maps_of_94_by_128_a_second_take_a_tenth_of_a_core(qtbot: QtBot) -> None:
    """By processor time, painting included."""
    shown = ExpertMap()
    qtbot.addWidget(shown)
    shown.resize(236, 320)
    shown.show()
    frames = np.random.default_rng(1).integers(0, 256, (12, 94, 128), np.uint8)
    shown.set_levels(frames[0].tobytes(), 128, tuple(range(94)), "5 %")
    shown.grab()
    start = time.thread_time()
    for frame in frames[1:11]:
        shown.set_levels(frame.tobytes(), 128, tuple(range(94)), "5 %")
        shown.grab()
    assert (time.thread_time() - start) / 10 < 0.010
