"""The header says what the engine does, in figures that are really known."""

from __future__ import annotations

import pytest
from pytestqt.qtbot import QtBot

from app.bridge.engine_state import EngineState
from app.chat.header import ChatHeader

pytestmark = pytest.mark.usefixtures("themed")


@pytest.mark.parametrize(
    ("state", "text"),
    [
        (EngineState("reading"), "Reading header"),
        (EngineState("loading", 18_200_000_000, 44_000_000_000), "Loading 41 % · 18 GB of 44 GB"),
        (EngineState("loading"), "Loading"),
        (EngineState("warming"), "Warming up"),
        (EngineState("ready"), "Ready"),
        (EngineState("prefill", 1024, 2114), "Prefill 1,024 of 2,114"),
        (EngineState("generating", tok_s=12.12), "Generating · 12.1 tok/s"),
        (EngineState("generating"), "Generating"),
        (EngineState("stopping"), "Stopping"),
        (EngineState("error", detail="broken"), "Error"),
    ],
)
def test_state_chip(qtbot: QtBot, state: EngineState, text: str) -> None:
    header = ChatHeader()
    qtbot.addWidget(header)
    header.set_engine_state(state)
    assert header._state.text() == text
    assert header._stop.isHidden() == (state.kind not in ("reading", "loading", "warming"))
    assert header._state.toolTip() == state.detail


def test_no_model_hides_state_and_context(qtbot: QtBot) -> None:
    header = ChatHeader()
    qtbot.addWidget(header)
    assert header._state.isHidden()
    assert header._ring.isHidden()
    assert header._pill.accessibleName() == "Choose a model"


def test_formats_on_the_exact_path_have_a_badge(qtbot: QtBot) -> None:
    header = ChatHeader()
    qtbot.addWidget(header)
    pill = header._pill
    pill.resize(330, 34)
    header.set_model("Tiny", "IQ2_XXS", 1_000_000)
    plain = pill.grab().toImage()
    assert "slower" not in pill.toolTip() and pill.accessibleDescription() == ""
    header.set_model("Tiny", "IQ2_XXS", 1_000_000, ("IQ2_XXS", "IQ3_S"))
    assert pill.toolTip().endswith("IQ2_XXS, IQ3_S: exact, several times slower")
    assert pill.accessibleDescription() == "IQ2_XXS, IQ3_S: exact, several times slower"
    assert pill.grab().toImage() != plain
    header.set_model("Tiny", "IQ2_XXS", 1_000_000)
    assert pill.grab().toImage() == plain


def test_context_reads_as_people_write_it(qtbot: QtBot) -> None:
    header = ChatHeader()
    qtbot.addWidget(header)
    header.set_context(8214, 65536)
    assert header._context._text == "8.2k / 64k"


def test_buttons_ask(qtbot: QtBot) -> None:
    header = ChatHeader()
    qtbot.addWidget(header)
    header.set_engine_state(EngineState("loading"))
    with qtbot.waitSignals([header.model_clicked, header.stop_loading_requested]):
        header._pill.click()
        header._stop.click()
    with qtbot.waitSignal(header.side_panel_toggled) as blocker:
        header._panel.click()
    assert blocker.args == [False]
    with qtbot.assertNotEmitted(header.side_panel_toggled):
        header.set_side_panel_shown(True)
