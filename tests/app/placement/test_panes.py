"""The panes at the right: context, comparison, check, equivalent command; the bar of pending changes and the strip."""

from __future__ import annotations

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from pytestqt.qtbot import QtBot

from app.placement.check_pane import Check, CheckPane, Finding
from app.placement.command_pane import CommandPane, Equivalent
from app.placement.compare_pane import ComparePane, Comparison
from app.placement.context_pane import ContextPane, ContextView, context_sizes
from app.placement.figure_table import TableRow
from app.placement.notice_strip import NoticeStrip
from app.placement.pending_bar import PendingBar
from app.placement.state_card import StateCard

pytestmark = pytest.mark.usefixtures("themed")


def test_sizes_of_contexts_end_at_the_model_and_hold_the_present_one() -> None:
    assert context_sizes(8192, 4096) == (2048, 4096, 8192)
    sizes = context_sizes(163_840, 5000)
    assert sizes[0] == 2048 and sizes[-1] == 163_840 and 5000 in sizes
    assert {16_384, 24_576, 32_768, 49_152, 65_536, 98_304, 131_072} <= set(sizes)
    assert sorted(set(sizes)) == list(sizes)


def test_the_slider_of_contexts_tells_tokens_and_what_they_cost_is_shown(qtbot: QtBot) -> None:
    pane = ContextPane()
    qtbot.addWidget(pane)
    pane.show()
    view = ContextView((2048, 8192, 32_768), 8192, 8192, "It fits.", offered="")
    pane.show_view(view)
    assert pane.take.isHidden()
    with qtbot.waitSignal(pane.chosen) as told:
        pane.slider.setValue(2)
    assert told.args == [32_768]
    costs = ContextView(
        (2048, 8192, 32_768), 32_768, 8192, "32k needs 2.1 GB more: these 3 layers leave GPU 1.", offered="Plan with 32k"
    )
    pane.show_view(costs)
    with qtbot.waitSignal(pane.take_requested):
        qtbot.mouseClick(pane.take, Qt.MouseButton.LeftButton)
    pane.show_view(ContextView((2048, 8192, 32_768), 32_768, 8192, "It cannot be had.", fits=False, offered="Plan with 32k"))
    assert not pane.take.isEnabled()


def test_comparison_starts_stops_and_takes_a_side(qtbot: QtBot) -> None:
    pane = ComparePane()
    qtbot.addWidget(pane)
    pane.show()
    rows = (TableRow("Decode, tok/s", ("9.2", "9.4", "+2.2 %"), "ok"),)
    pane.show_comparison(Comparison(("As edited", "As loaded"), 1, 0, rows))
    assert (pane.a.currentText(), pane.b.currentText()) == ("As loaded", "As edited")
    pane.rounds.setValue(5)
    with qtbot.waitSignal(pane.measure_requested) as told:
        pane.measure.click()
    assert told.args == [5]
    pane.show_comparison(Comparison(("As edited", "As loaded"), 1, 0, rows, running=0.4, status="Run 5 of 10"))
    with qtbot.waitSignal(pane.cancel_requested):
        pane.measure.click()
    with qtbot.waitSignal(pane.sides_chosen) as told:
        pane.a.setCurrentIndex(0)
    assert told.args == [0, 0]
    with qtbot.waitSignal(pane.take_requested) as told:
        pane.take_b.click()
    assert told.args == [0]
    pane.show_comparison(Comparison(("As edited", "As loaded"), 1, 0, rows, reason="Load this model to measure."))
    assert not pane.measure.isEnabled()


def test_check_lists_findings_and_bytes(qtbot: QtBot) -> None:
    pane = CheckPane()
    qtbot.addWidget(pane)
    pane.show()
    assert pane.again.isHidden()
    rows = (TableRow("GPU 0", ("10 GB", "10 GB", "0 %"), is_head=True), TableRow("Weights", ("9 GB", "9 GB", "0 %")))
    pane.show_check(Check("Looked at 14:02", rows, (Finding("err", "wrong"), Finding("ok", "right"))))
    assert pane.findings == ("wrong", "right")
    with qtbot.waitSignal(pane.again_requested):
        pane.again.click()
    pane.show_check(Check("Looked at 14:03", rows, (Finding("ok", "right"),)))
    assert pane.findings == ("right",)


def test_commands_of_tools_are_copied_and_those_of_others_are_taken(qtbot: QtBot) -> None:
    pane = CommandPane()
    qtbot.addWidget(pane)
    pane.show()
    assert not pane.copy.isEnabled() and not pane.use.isEnabled()
    found = (Equivalent("llama.cpp", "llama-server -ngl 99", ("it cannot say this",)), Equivalent("Layerdeck", "{}"))
    pane.show_equivalents(found)
    pane.copy.click()
    assert QGuiApplication.clipboard().text() == "llama-server -ngl 99"
    pane.tools.setCurrentIndex(1)
    assert pane.shown() == found[1]
    pane.show_equivalents((found[0], Equivalent("Layerdeck", '{"a": 1}')))
    assert pane.text.toPlainText() == '{"a": 1}'
    pane.paste.setPlainText("  -ngl 0 ")
    with qtbot.waitSignal(pane.import_requested) as told:
        pane.use.click()
    assert told.args == ["-ngl 0"]


def test_the_pending_bar_has_one_link_for_what_can_be_done(qtbot: QtBot) -> None:
    bar = PendingBar()
    qtbot.addWidget(bar)
    bar.resize(272, 68)
    bar.show()
    bar.set_pending("3 changes not applied", "Running model is unchanged")
    with qtbot.waitSignal(bar.discard_requested):
        bar.link.click()
    bar.set_applying("Applying…", "Moving weights · 5.0 GB of 13 GB", 0.4)
    with qtbot.waitSignal(bar.cancel_requested):
        bar.link.click()
    bar.set_idle("Loaded as shown")
    assert bar.link.isHidden()
    assert bar.accessibleName() == "Loaded as shown"


def test_strip_and_card_hide_what_they_do_not_offer(qtbot: QtBot) -> None:
    strip, card = NoticeStrip(), StateCard()
    qtbot.addWidget(strip)
    qtbot.addWidget(card)
    assert strip.text == ""
    strip.show_notice("It does not fit.", "err", "Move 2 layers to NUMA 0")
    assert strip.text == "It does not fit."
    assert strip.second.isHidden() and not strip.first.isHidden()
    card.resize(800, 600)
    card.show_state("gauge", "Reading the header…", "Sizes and speeds of every layer, before anything is loaded.")
    assert card.button.isHidden()
    card.show_state("circle-alert", "It cannot be planned", "word " * 60, "Choose another model")
    card.show()
    label = card._text
    assert label.height() >= label.heightForWidth(label.width())
