"""`layerdeck tune`: the table, the JSON, what later commands make of it, and how it is forgotten."""

from __future__ import annotations

import json

import pytest

from engine.cli.main import main
from engine.service import tuning
from tests.helpers.golden_models import golden


@pytest.fixture(autouse=True)
def few_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "thread_counts", lambda machine: (1, 2))
    monkeypatch.setattr(tuning, "PIECE_S", 0.02)


def test_what_was_found_is_used_and_shown_until_it_is_forgotten(capsys: pytest.CaptureFixture[str]) -> None:
    path = str(golden("qwen3moe").path)
    assert main(["tune", path, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["threads"] for one in found["decode"]] == [1, 2] and all(one["tok_s"] > 0 for one in found["prefill"])
    assert found["kept"] and found["threads"] in (1, 2) and 0 < found["seconds"] < 60

    assert main(["inspect", path]) == 0
    words = "1 thread" if found["threads"] == 1 else f"{found['threads']} threads"
    assert f"tuned here        {words}, " in capsys.readouterr().out
    assert main(["inspect", path, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tuned"]["n_threads"] == found["threads"]
    assert main(["bench", path, "-p", "4", "-n", "2", "-r", "1", "--json"]) == 0
    told = capsys.readouterr()
    assert json.loads(told.out)["rows"][0]["threads"] == found["threads"] and f"Works with {words}" in told.err

    assert main(["tune", path, "--forget"]) == 0
    assert "the machine decides again" in capsys.readouterr().out
    assert main(["inspect", path, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tuned"] is None


def test_people_get_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", str(golden("qwen3moe").path)]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert [row.split()[:3] for row in rows[:2]] == [["decode", "1", "threads"], ["decode", "2", "threads"]]
    assert all("tok/s" in row for row in rows[:-1]) and sum("<- used" in row for row in rows) == 2
    assert rows[-1].startswith("tried in ") and rows[-1].endswith("kept for the next load")
