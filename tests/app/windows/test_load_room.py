"""A load that fails for a GPU's memory stays on the chat page with the way out, until something else is loaded."""

from __future__ import annotations

import pytest
from PySide6.QtWidgets import QApplication

from tests.app.windows.conftest import Stage
from tests.helpers.fake_engine import Fail, Load

pytestmark = pytest.mark.usefixtures("themed")
FULL = "the weights of layers 20 to 29 needs 9,000,000 bytes on GPU 0 (RTX 4090), and 2,000,000 are free; move 2 layers"


def test_it_is_said_with_a_button_that_leads_to_the_placement(stage: Stage) -> None:
    stage.engine.load = (Load(), Fail("OutOfDeviceMemory", FULL))
    stage.load("/big.gguf")
    strip = stage.window.page.trouble
    QApplication.processEvents()
    assert strip.isVisible()
    assert strip.text == f"The model could not be loaded: {FULL}"
    planned: list[str] = []
    room: list[str] = []
    controller = stage.window.placement.controller()
    controller.open = planned.append  # type: ignore[assignment,method-assign]
    controller.make_room = room.append  # type: ignore[assignment,method-assign]
    strip.first.click()
    assert planned == ["/big.gguf"] and room == [FULL]
    assert stage.window._rail._items["placement"].isChecked()
    assert strip.text == ""


def test_it_goes_with_the_next_load(stage: Stage) -> None:
    stage.engine.load = (Load(), Fail("OutOfDeviceMemory", FULL))
    stage.load("/big.gguf")
    assert stage.window.page.trouble.text
    stage.engine.load = (Load(),)
    stage.load("/small.gguf")
    assert not stage.window.page.trouble.text


def test_other_failures_are_no_matter_of_room(stage: Stage) -> None:
    stage.engine.load = (Fail("GgufError", "damaged"),)
    stage.load("/bad.gguf")
    assert not stage.window.page.trouble.text
