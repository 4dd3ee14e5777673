"""The first screen: one click starts."""

from __future__ import annotations

import pytest
from pytestqt.qtbot import QtBot

from app.welcome.welcome_page import MachineSummary, ModelChoice, WelcomePage

pytestmark = pytest.mark.usefixtures("themed")


def test_start_carries_the_path(qtbot: QtBot) -> None:
    page = WelcomePage()
    qtbot.addWidget(page)
    page.resize(1000, 800)
    page.show()
    models = (
        ModelChoice("/a.gguf", "A", "Q4_1", 98_000_000, "Included.", True),
        ModelChoice("/b.gguf", "B", "Q8_0", 0, "On disk."),
    )
    page.set_models(models)
    with qtbot.waitSignal(page.start_requested) as blocker:
        page._content._rows[1]._button.click()
    assert blocker.args == ["/b.gguf"]
    page.set_models(models[:1])
    assert len(page._content._rows) == 1


def test_cards_say_what_was_found(qtbot: QtBot) -> None:
    page = WelcomePage()
    qtbot.addWidget(page)
    page.set_machine(MachineSummary("EPYC", 32, "AVX2", 256_000_000_000, 212_000_000_000, 1_400_000_000_000, "/models"))
    said = page._content.accessibleDescription()
    assert "EPYC, 32 cores, AVX2" in said
    assert "256 GB RAM, 212 GB free" in said
    assert "1.4 TB free, /models" in said
    assert "No GPU used yet, CPU only, fine for, the included model" in said


def test_links(qtbot: QtBot) -> None:
    page = WelcomePage()
    qtbot.addWidget(page)
    page.set_folder_offered(True)
    with qtbot.waitSignals([page.open_file_requested, page.folder_requested]):
        page._content.open_file.click()
        page._content.folder.click()


def test_skeleton_before_the_machine_is_known(qtbot: QtBot) -> None:
    page = WelcomePage()
    qtbot.addWidget(page)
    page.resize(900, 700)
    assert not page.grab().isNull()
