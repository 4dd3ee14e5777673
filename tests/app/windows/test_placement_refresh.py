"""What a drop costs the page: everything is shown once, when all of it is known."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from tests.helpers.placement_bench import placement_bench
from tests.helpers.placement_shown import Page

pytestmark = pytest.mark.usefixtures("themed")


@pytest.fixture
def shown(qtbot: QtBot, tmp_path: Path) -> Iterator[Page]:
    with placement_bench(qtbot, tmp_path) as bench:
        yield Page(bench)


def test_a_drop_shows_the_whole_page_once(shown: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    shown.load()
    times: list[int] = []
    usual = shown.controller.states.show
    monkeypatch.setattr(shown.controller.states, "show", lambda: (times.append(1), usual()))
    shown.move(3)
    assert len(times) == 1
    assert shown.page.header.apply.isEnabled() and shown.page.header.undo.isEnabled()
