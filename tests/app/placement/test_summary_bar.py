"""The summary: what it says to assistive technology, and what it leaves out where it is narrow."""

from __future__ import annotations

import pytest
from pytestqt.qtbot import QtBot

from app.placement.summary_bar import Figure, SummaryBar

pytestmark = pytest.mark.usefixtures("themed")
FIGURES = (
    Figure("Decode, estimated", "12.9", "tok/s", delta="+0.8", note="at most 18.4"),
    Figure("Prefill, estimated", "218", "tok/s"),
    Figure("Load time", "96", "s"),
    Figure("Limited by", "NUMA 1", "memory read"),
    Figure("Tightest device", "GPU 1", "1.3 GB free"),
)


def test_every_figure_is_readable_without_eyes(qtbot: QtBot) -> None:
    bar = SummaryBar()
    qtbot.addWidget(bar)
    bar.set_figures(FIGURES)
    assert "Decode, estimated: 12.9 tok/s +0.8" in bar.accessibleDescription()
    assert "Tightest device: GPU 1 1.3 GB free" in bar.accessibleDescription()
    assert "Decode, estimated: at most 18.4" in bar.toolTip()


def test_a_narrow_bar_keeps_the_first_figures_and_the_last(qtbot: QtBot) -> None:
    bar = SummaryBar()
    qtbot.addWidget(bar)
    bar.set_figures(FIGURES)
    bar.resize(1000, 64)
    assert bar._shown() == FIGURES
    bar.resize(400, 64)
    assert [one.label for one in bar._shown()] == ["Decode, estimated", "Prefill, estimated", "Tightest device"]


def test_what_does_not_fit_and_what_is_being_found_look_otherwise(qtbot: QtBot) -> None:
    bar = SummaryBar()
    qtbot.addWidget(bar)
    bar.resize(900, 64)
    pictures = []
    for dim, alarmed in ((False, False), (True, False), (False, True)):
        bar.set_figures(FIGURES, dim=dim, alarmed=alarmed)
        pictures.append(bar.grab().toImage())
    assert pictures[0] != pictures[1] != pictures[2] != pictures[0]
