"""kill -9 of the whole application while an answer streams: what was shown as saved is there, and the answer can be continued.

Ten kills; a hundred with LAYERDECK_LONG=1.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.main import build
from app.paths import find_paths
from tests.helpers.fake_engine import FakeEngine, Prefill, Tokens
from tests.helpers.kills import check_run, killed_run

N_KILLS = 100 if os.environ.get("LAYERDECK_LONG") else 10


@pytest.mark.slow
def test_the_application_killed_at_random_instants(tmp_path: Path) -> None:
    chance = random.Random(os.getpid())
    ages = []
    n_acknowledged = 0
    for _ in range(N_KILLS):
        lines, killed = killed_run("tests.helpers.app_child", tmp_path, chance.uniform(0.05, 1.5))
        n_acknowledged += sum(line[0] in "UD" for line in lines)
        ages.append(check_run(tmp_path / "data" / "chats.db", lines, killed))
    assert n_acknowledged >= N_KILLS
    # A write that other processes at the disk delay is not the journal's; one in ten may be late.
    assert sum(age > 0.25 for age in ages) <= N_KILLS // 10, sorted(ages)


@pytest.mark.slow
def test_after_a_kill_the_answer_is_shown_and_continued(
    qtbot: QtBot, qapp: QApplication, own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines, _killed = killed_run("tests.helpers.app_child", own_home, 0.4)
    answer_id = int(next(line[1] for line in lines if line[0] == "A"))
    monkeypatch.setattr("app.windows.crash_dialog.CrashReporter.install", lambda self: None)
    running = build(qapp, find_paths(), lambda: FakeEngine(answer=(Prefill(), Tokens(("and on",)))))
    window, store = running.window, running.parts.store
    window.show()
    window.start("/scripted.gguf", load_last=True)
    qtbot.waitUntil(lambda: running.parts.bridge.state.kind == "ready")
    row = store.message(answer_id)
    assert window.controller.chat_id == row.chat_id
    assert row.status == "interrupted"
    assert row.text.startswith("token 1 ")
    window.page.transcript.continue_requested.emit(answer_id)
    qtbot.waitUntil(lambda: store.message(answer_id).status == "done")
    assert store.message(answer_id).text == row.text + "and on"
    running.shut_down()
    window.deleteLater()
