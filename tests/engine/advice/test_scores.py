"""Predictions are held against what came of them, also in the next run."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.advice.scores import KEPT, Scores


def test_scores_are_kept_and_told(tmp_path: Path) -> None:
    scores = Scores(tmp_path / "deep")
    assert scores.sentence() == ""
    assert scores.quantile(0.5) is None
    first = scores.add(20.0, 10.0, 12.0)
    assert first.real == pytest.approx(20.0)
    assert first.off == pytest.approx(0.0, abs=1e-9)
    assert scores.sentence() == "The last prediction was off by 0 %."
    scores.add(20.0, 10.0, 10.8)
    again = Scores(tmp_path / "deep")
    assert [one.real for one in again.all] == pytest.approx([20.0, 8.0])
    assert again.quantile(0.5) == pytest.approx(0.0, abs=1e-9)
    assert again.quantile(0.9) == pytest.approx(10.0)
    assert again.sentence() == "The last 2 predictions were off by 5 % (median); 9 of 10 of all 2 by at most 10 %."


def test_only_so_many_are_kept(tmp_path: Path) -> None:
    scores = Scores(tmp_path)
    for i in range(KEPT + 20):
        scores.add(float(i), 10.0, 11.0)
    assert len(Scores(tmp_path).all) == KEPT
    assert Scores(tmp_path).all[0].predicted == 20.0


@pytest.mark.parametrize("text", ["", "{", "[]", '{"scores": 3}', '{"scores": [{"predicted": "x", "real": 1}]}', "\xff" * 9])
def test_a_damaged_file_is_as_good_as_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "predictions.json").write_text(text, encoding="latin-1")
    scores = Scores(tmp_path)
    assert scores.all == ()
    scores.add(5.0, 10.0, 10.5)
    assert len(Scores(tmp_path).all) == 1


def test_a_folder_that_cannot_be_written_is_not_missed(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    scores = Scores(tmp_path / "file")
    assert scores.add(5.0, 10.0, 10.5).off == pytest.approx(0.0, abs=1e-9)
