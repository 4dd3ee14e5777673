"""The bench gives one row a test and depth, with figures that follow from each other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.api.pure import load_rates, save_rates, this_machine
from engine.cli import bench
from engine.cli.main import main
from engine.estimate.rates import assumed
from engine.runtime.loader import LoadedModel
from tests.helpers.gguf_builder import tiny_llama
from tests.helpers.golden_models import LLAMAS, golden
from tests.helpers.requantise import requantised

TINY = str(golden(LLAMAS[0]).path)


def test_rows(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "READ_PROBE_BYTES", 1 << 20)
    assert main(["bench", TINY, "-p", "16", "-n", "4", "-d", "0,40", "-t", "2", "-r", "2", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert [(row["test"], row["depth"]) for row in result["rows"]] == [("pp16", 0), ("pp16", 40), ("tg4", 0), ("tg4", 40)]
    for row in result["rows"]:
        assert len(row["samples_tok_s"]) == 2 and min(row["samples_tok_s"]) > 0
        assert row["threads"] == 2 and row["read_limit_gbps"] > 0 and row["gops"] >= 0
        assert row["slowest_token"] is None or min(row["slowest_token"]) >= 1
        assert (row["gbps"] is None) == (row["slowest_token"] is None) == row["test"].startswith("pp")
    assert sum(result["ops"].values()) > 0
    assert result["machine"]["cpu"] and result["versions"]["layerdeck"]


def test_formats_on_the_exact_path_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "READ_PROBE_BYTES", 1 << 20)
    plain = tmp_path / "plain.gguf"
    plain.write_bytes(tiny_llama(n_embd=256, n_ff=256))
    path = requantised(plain, tmp_path / "slow.gguf", {"ffn": "TQ2_0"})
    for model, names in ((str(path), ["TQ2_0"]), (TINY, [])):
        assert main(["bench", model, "-p", "8", "-n", "0", "-r", "1", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["exact_formats"] == names
        assert main(["bench", model, "-p", "8", "-n", "0", "-r", "1"]) == 0
        assert ("TQ2_0: exact, several times slower" in capsys.readouterr().out) == bool(names)


def test_text_for_people(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "READ_PROBE_BYTES", 1 << 20)
    assert main(["bench", TINY, "-p", "8", "-n", "0", "-r", "1"]) == 0
    assert "pp8 at     0" in capsys.readouterr().out


def test_weights_have_settled_before_anything_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "READ_PROBE_BYTES", 1 << 20)
    left, timed = [3], []
    seconds = bench.seconds

    def settle(_model: LoadedModel) -> None:
        left[0] -= 1

    def timing(*arguments: Any) -> list[float]:
        timed.append(left[0])
        return seconds(*arguments)

    monkeypatch.setattr(LoadedModel, "settling", property(lambda _model: left[0] > 0))
    monkeypatch.setattr(LoadedModel, "settle", settle)
    monkeypatch.setattr(bench, "seconds", timing)
    assert main(["bench", TINY, "-p", "0", "-n", "1", "-r", "2"]) == 0
    assert timed == [0, 0]


@pytest.mark.parametrize("arguments", [["-p", "x"], ["-d", "-1"]])
def test_bad_numbers_are_a_usage_error(arguments: list[str]) -> None:
    assert main(["bench", TINY, *arguments]) == 2


def test_beyond_the_context(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", TINY, "-d", "9000"]) == 1
    assert "context holds 4096" in capsys.readouterr().err


def test_a_bench_teaches_what_was_measured_of_this_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "READ_PROBE_BYTES", 1 << 20)
    monkeypatch.setenv("LAYERDECK_HOME", str(tmp_path))
    monkeypatch.setenv("LAYERDECK_GPU", "none")
    argv = ["bench", TINY, "-p", "16", "-n", "4", "-t", "1", "-b", "16", "-r", "1", "--json"]
    assert main(argv) == 0 and not list(tmp_path.rglob("*.json"))  # nothing was measured: there is nothing to correct
    machine = this_machine()
    save_rates(assumed(machine), machine)
    assert main(argv) == 0
    capsys.readouterr()
    taught = load_rates(machine)
    assert taught is not None and taught.nodes == assumed(machine).nodes
    assert taught.corrections.decode_cpu != 1.0 and taught.corrections.prefill_cpu != 1.0
    assert (taught.corrections.decode_gpu, taught.corrections.prefill_gpu) == (1.0, 1.0)
