"""Perplexity is exp of the mean negative log-likelihood, whatever the chunks."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from engine.cli.main import main
from engine.cli.perplexity import negative_log_likelihood
from tests.helpers.golden_models import LLAMAS, golden

TINY = str(golden(LLAMAS[0]).path)


def test_likelihood_of_known_logits() -> None:
    logits = np.log(np.array([[0.5, 0.25, 0.25], [0.1, 0.1, 0.8]], np.float32))
    losses = negative_log_likelihood(logits + np.float32(3), np.array([0, 2]))
    assert losses == pytest.approx([-np.log(0.5), -np.log(0.8)], abs=1e-6)


def test_chunks_do_not_matter(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("The river runs down to the sea, and the sea is never full. " * 4)
    results = []
    for chunk in ("7", "512"):
        assert main(["perplexity", TINY, str(text), "--json", "--f32-activations", "-b", chunk]) == 0
        results.append(json.loads(capsys.readouterr().out))
    assert results[0]["ppl"] == pytest.approx(results[1]["ppl"], rel=1e-5)
    assert results[0]["ppl"] == pytest.approx(np.exp(results[0]["nll"]))
    assert results[0]["n_scored"] == results[0]["n_tokens"] - 1


def test_a_text_beyond_the_context_is_cut_into_windows(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("word " * 200)
    assert main(["perplexity", TINY, str(text), "--json", "-c", "64"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["n_windows"] > 1
    assert "windows are used" in captured.err


def test_a_text_without_words(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("")
    assert main(["perplexity", TINY, str(text)]) == 1
    assert "at least 2" in capsys.readouterr().err
