"""Gauges: histories, painting with any number of values, resting while hidden."""

from __future__ import annotations

import pytest
from PySide6.QtGui import QImage
from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot

from app.monitors.history import History
from app.monitors.painters import HeatGrid, SegmentBar, Sparkline
from app.monitors.ring_gauge import RingGauge
from app.monitors.side_panel import SidePanel
from app.shots import script

pytestmark = pytest.mark.usefixtures("themed")


def colours(widget: QWidget) -> set[int]:
    image: QImage = widget.grab().toImage()
    return {image.pixel(x, y) for x in range(image.width()) for y in range(image.height())}


def test_history_keeps_the_newest() -> None:
    history = History(3)
    assert (history.peak, history.mean, len(history)) == (None, None, 0)
    for value in (9.0, 1.0, 2.0, 3.0):
        history.push(value)
    assert (tuple(history.values), history.peak, history.mean, history.length) == ((1.0, 2.0, 3.0), 3.0, 2.0, 3)
    history.clear()
    assert len(history) == 0


@pytest.mark.parametrize("values", [[], [1.0], [0.0, 0.0], [5.0] * 60, script.walk(200, 12, 4, 1)])
def test_sparkline_paints_anything(qtbot: QtBot, values: list[float]) -> None:
    history = History(60)
    line = Sparkline(history)
    qtbot.addWidget(line)
    line.resize(264, 44)
    for value in values:
        history.push(value)
    assert len(colours(line)) >= 2


@pytest.mark.parametrize(("n", "columns"), [(0, 1), (1, 1), (2, 2), (8, 8), (12, 6), (32, 16), (128, 16)])
def test_heat_grid_takes_any_number_of_cores(qtbot: QtBot, n: int, columns: int) -> None:
    grid = HeatGrid()
    qtbot.addWidget(grid)
    assert grid.set_loads([i * 100 / max(1, n) for i in range(n)]) == (n != 0)
    assert grid.columns() == columns
    grid.resize(248, grid.wanted_height())
    grid.grab()


def test_bars_and_rings_paint(qtbot: QtBot) -> None:
    bar, ring = SegmentBar(), RingGauge()
    qtbot.addWidget(bar)
    qtbot.addWidget(ring)
    bar.resize(100, 7)
    bar.set_segments([(0.3, "attn"), (0.9, "kv")])
    ring.set_share(1.7)
    assert len(colours(bar)) > 1
    assert len(colours(ring)) > 1


def test_side_panel_shows_what_it_was_told(qtbot: QtBot) -> None:
    panel = SidePanel()
    qtbot.addWidget(panel)
    panel.resize(300, 900)
    panel.show()
    before = colours(panel)
    panel.set_decode_history(script.decode_rates())
    panel.set_figures(script.side_figures())
    panel.set_context(8214, 65536, 1600)
    panel.set_state("generating")
    assert panel._nodes[0].accessibleDescription() == "55 %, RAM 184 / 256 GB, 58 °C"
    assert len(colours(panel)) > len(before)


def test_hidden_panel_waits_for_being_shown(qtbot: QtBot) -> None:
    panel = SidePanel()
    qtbot.addWidget(panel)
    panel.set_figures(script.side_figures())
    assert not panel._nodes
    with qtbot.waitSignal(panel.shown):
        panel.show()
    assert panel._nodes[0].accessibleName() == "EPYC 7543 32-Core"
    assert panel._nodes[0].accessibleDescription().startswith("55 %")


def test_last_decode_figure_stays_when_nothing_is_generated(qtbot: QtBot) -> None:
    panel = SidePanel()
    qtbot.addWidget(panel)
    panel.set_decode(12.0)
    panel.set_decode(None)
    assert panel._rate == 12.0
    assert panel.decode_text() == "12.0 tok/s, last"


def test_speed_is_a_dash_before_the_first_answer_and_plain_while_generating(qtbot: QtBot) -> None:
    panel = SidePanel()
    qtbot.addWidget(panel)
    assert panel.decode_text() == "—"
    panel.set_decode(None)
    assert panel.decode_text() == "—"
    panel.set_decode(12.0)
    assert panel.decode_text() == "12.0 tok/s"
    panel.set_context(100, 8192)
    panel._describe.flush()
    assert "context 100 of 8,192" in panel.accessibleDescription()


def test_line_takes_one_value_a_second(qtbot: QtBot) -> None:
    panel = SidePanel()
    qtbot.addWidget(panel)
    for i in range(30):
        panel.set_decode(10.0 + i)
    assert len(panel._decode) == 1
    assert panel._rate == 39.0
