"""`generate --counts` writes how often each expert was passed, `fit --counts` reads it, and says what is wrong with a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.api.pure import read_outline
from engine.cli.counts import read_counts
from engine.cli.main import main
from engine.errors import InvalidRequest
from tests.helpers.golden_models import LLAMAS, golden
from tests.helpers.report_models import report_model

MODEL = str(golden("qwen3moe").path)


@pytest.fixture(autouse=True)
def no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAYERDECK_GPU", "none")


def counted(folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[Path, dict[str, Any], dict[str, Any]]:
    """The file that `generate` wrote, what is in it, and what it printed."""
    path = folder / "counts.json"
    assert main(["generate", MODEL, "--prompt", "hello", "-n", "6", "--temp", "0", "--json", "--counts", str(path)]) == 0
    return path, json.loads(path.read_text()), json.loads(capsys.readouterr().out)


def changed(path: Path, content: Any) -> Path:
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_counts_are_exact(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, written, answer = counted(tmp_path, capsys)
    outline = read_outline(MODEL)
    routed = [fact.unit.layer for fact in outline.units if fact.unit.kind == "experts"]
    assert [int(layer) for layer in written["layers"]] == routed
    # Each token that is computed passes as many experts in each layer; of the last layer those of the prompt do not go on.
    n_computed = answer["n_prompt"] + len(answer["ids"]) - 1
    sums = [sum(row) for row in written["layers"].values()]
    assert sums[0] == n_computed * outline.n_used and written["n_tokens"] == n_computed
    assert all(len(row) == outline.n_experts for row in written["layers"].values())
    assert read_counts(path, outline) == {int(layer): tuple(row) for layer, row in written["layers"].items()}


def test_fit_puts_the_hottest_into_pools(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = report_model("qwen3.5-122b", tmp_path)
    box = tmp_path / "box.json"
    node = {"name": "EPYC 9374F", "ram_gib": 576, "cores": 32, "read_gbps": 460.0}
    box.write_text(json.dumps({"name": "a box", "nodes": [node], "gpus": [{"name": "RTX 5090", "memory_gib": 32}]}))
    rows = {str(layer): [1000 // (1 + (one + layer) % 256) for one in range(256)] for layer in range(48)}
    head = {"name": "", "architecture": "qwen35moe", "n_layers": 48, "n_experts": 256}
    counts = changed(tmp_path / "counts.json", head | {"layers": rows})
    arguments = ["fit", str(model), "--machine", str(box), "-c", "16384", "--json"]
    assert main(arguments) == 0
    without = json.loads(capsys.readouterr().out)
    out = tmp_path / "p.json"
    assert main([*arguments, "--counts", str(counts), "-o", str(out)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["fits"] and found["decode_tok_s"] > 1.2 * without["decode_tok_s"] and not without["pools"]
    assert json.loads(out.read_text())["pools"] == found["pools"]
    for name, pool in found["pools"].items():
        row, hottest = rows[name.removeprefix("experts.")], pool["gpu0"]
        assert sorted((row[one] for one in hottest), reverse=True) == sorted(row, reverse=True)[: len(hottest)]
    assert main([*arguments[:-1], "--counts", str(counts)]) == 0
    assert f"of {len(found['pools'])} layers" in capsys.readouterr().out


def test_a_model_without_experts_has_none_to_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "counts.json"
    model = str(golden(LLAMAS[0]).path)
    assert main(["generate", model, "--prompt", "hello", "-n", "2", "--counts", str(path)]) != 0
    assert "no experts to count" in capsys.readouterr().err and not path.exists()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda one: "{", "is not valid JSON"),
        (lambda one: [1, 2], "no counts of experts"),
        (lambda one: one | {"layers": [[1, 2]]}, "no counts of experts"),
        (lambda one: one | {"architecture": "gpt-oss"}, "counts of gpt-oss"),
        (lambda one: one | {"n_experts": 512}, "512 experts"),
        (lambda one: one | {"n_experts": None}, "None experts"),
        (lambda one: one | {"layers": {"0": [1, 2]}}, "layer 0 is no list of"),
        (lambda one: one | {"layers": {"0": ["x"] * one["n_experts"]}}, "layer 0 is no list of"),
        (lambda one: one | {"layers": {"0": [-1] * one["n_experts"]}}, "layer 0 is no list of"),
        (lambda one: one | {"layers": {"0": [True] * one["n_experts"]}}, "layer 0 is no list of"),
        (lambda one: one | {"layers": {"999": one["layers"]["0"]}}, "layer '999'"),
        (lambda one: one | {"layers": {"²": one["layers"]["0"]}}, "layer '²'"),
    ],
)
def test_files_that_are_wrong_are_told_in_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: Any, sentence: str
) -> None:
    path, written, _ = counted(tmp_path, capsys)
    changed(path, change(written))
    with pytest.raises(InvalidRequest, match=sentence):
        read_counts(path, read_outline(MODEL))
    assert main(["fit", MODEL, "--counts", str(path)]) != 0
    error = capsys.readouterr().err.strip()
    assert sentence in error and "\n" not in error and "Traceback" not in error


def test_counts_of_a_model_of_another_name_are_taken_and_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, written, _ = counted(tmp_path, capsys)
    changed(path, written | {"name": "another tune"})
    assert main(["fit", MODEL, "--counts", str(path)]) == 0
    assert "'another tune'" in capsys.readouterr().err
