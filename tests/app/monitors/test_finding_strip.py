"""The strip says what it is given, explains on demand, and hands on what is clicked."""

from __future__ import annotations

from dataclasses import replace

from pytestqt.qtbot import QtBot

from app.monitors.finding_strip import FindingStrip
from engine.advice.diagnosis.finding import Action, Finding, Gain
from tests.helpers.windows import placement

BANDWIDTH = Finding(
    "R-CPU-BW",
    "capacity",
    "CPU experts are limited by RAM speed.",
    "97 % of a token's time",
    Action("relieve", "Move layers to a GPU", "numa0"),
)
HEAT = Finding("R-THERM-G", "external", "GPU 0 slows itself because of heat.", "in 90 % of the readings", about="gpu0")
GAIN = Gain(18.0, 0.0, placement(), "Move 6 more layers' experts to GPU 1 (5.1 GB free)", 6, None, 5_000_000_000)


def test_it_is_hidden_while_there_is_nothing_to_say(qtbot: QtBot) -> None:
    strip = FindingStrip()
    qtbot.addWidget(strip)
    strip.show_findings(())
    assert strip.isHidden()
    strip.show_findings((), "Balanced: CPU 97 %.")
    assert strip.sentences == ("Balanced: CPU 97 %.",)
    strip.show_findings((HEAT,), "Balanced: CPU 97 %.")
    assert strip.sentences == (HEAT.sentence,)
    strip.show_findings(())
    assert strip.isHidden()


def test_gain_and_scores_are_told(qtbot: QtBot) -> None:
    strip = FindingStrip()
    qtbot.addWidget(strip)
    strip.show_findings((HEAT, replace(BANDWIDTH, gain=GAIN)), "", "The last prediction was off by 4 %.")
    assert strip.sentences[1].endswith("Move 6 more layers' experts to GPU 1 (5.1 GB free): about +18 %.")
    row = strip.row(1)
    assert not row.is_explained
    with qtbot.waitSignal(strip.resized):
        row.why.click()
    assert row.is_explained
    assert row.reason == "97 % of a token's time. The last prediction was off by 4 %."
    assert strip.row(0).reason == "In 90 % of the readings."
    assert strip.row(0).button.isHidden()
    # The same finding with other numbers stays explained, another one does not.
    strip.show_findings((HEAT, replace(BANDWIDTH, why="95 %")))
    assert row.is_explained
    strip.show_findings((BANDWIDTH, HEAT))
    assert not strip.row(1).is_explained


def test_clicks_carry_their_finding(qtbot: QtBot) -> None:
    strip = FindingStrip()
    qtbot.addWidget(strip)
    strip.show_findings((BANDWIDTH,))
    with qtbot.waitSignal(strip.acted) as acted:
        strip.row(0).button.click()
    with qtbot.waitSignal(strip.dismissed) as dismissed:
        strip.row(0).close_button.click()
    assert acted.args == [BANDWIDTH] == dismissed.args
