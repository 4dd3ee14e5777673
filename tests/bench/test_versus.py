"""The comparison with other engines: turns, ratios against the better one, and peers that fail."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from engine.cli import bench
from tests.bench import versus
from tests.bench.versus import US, Asked, Run, rows, turns
from tests.helpers.golden_models import LLAMAS, golden

TINY = golden(LLAMAS[0]).path
PEER = """
import json, sys
model, threads, depth, factor = sys.argv[1:]
print("some noise")
print(json.dumps({"pp16": 100.0 * float(factor), "tg_all": [10.0, 20.0, 60.0], "version": "1.2 " + threads}))
"""


@pytest.fixture
def peer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The command of an engine with invented rates, up to its last argument."""
    monkeypatch.setattr(bench, "READ_PROBE_BYTES", 1 << 20)
    script = tmp_path / "a peer.py"
    script.write_text(PEER)
    return f"{shlex.quote(sys.executable)} {shlex.quote(str(script))} {{model}} {{threads}} {{depth}}"


def compare(tmp_path: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    out = tmp_path / "out.json"
    code = versus.main([str(TINY), "-p", "16", "-n", "4", "--out", str(out), *arguments])
    return code, json.loads(out.read_text())


def test_us_and_two_peers(peer: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, result = compare(tmp_path, "--peer", f"slow={peer} 1", "--peer", f"fast={peer} 3", "-r", "2", "-t", "1")
    assert code == 0
    assert [run["name"] for run in result["runs"]] == [US, "slow", "fast"] * 2
    assert all(run["read_gbps"] > 0 and run["seconds"] > 0 for run in result["runs"])
    found = {(row["test"], row["name"]): row for row in result["rows"]}
    assert found["pp16", "slow"]["ratio"] == pytest.approx(1 / 3)
    assert found["pp16", US]["ratio"] == pytest.approx(found["pp16", US]["tok_s"] / 300)
    assert found["tg4", "fast"]["tok_s"] == 20 and found["tg4", "fast"]["n_samples"] == 6
    assert found["tg4", US]["gbps"] > 0 and found["tg4", US]["slowest_token"] >= 1 and found["tg4", US]["isa"]
    # The same model needs the same bytes and operations, whoever computes it.
    per_token = found["tg4", US]["gbps"] / found["tg4", US]["tok_s"]
    assert found["tg4", "slow"]["gbps"] / found["tg4", "slow"]["tok_s"] == pytest.approx(per_token)
    assert result["versions"]["slow"] == "1.2 1" and result["machine"]["cpu"] and result["commands"]["fast"].endswith(" 3")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:4] == ["test", "depth", "engine", "tok/s"] and len(lines) == 7


def test_a_peer_that_fails_is_named_and_left_out(peer: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = f"{shlex.quote(sys.executable)} -c 'import sys; sys.exit(\"no such model\")'"
    mute = f"{shlex.quote(sys.executable)} -c 'print(3)'"
    code, result = compare(tmp_path, "--peer", f"broken={broken}", "--peer", f"mute={mute}", "-r", "2", "-t", "1")
    assert code == 1
    assert [run["name"] for run in result["runs"]] == [US, "broken", "mute", US]
    assert [run["error"] for run in result["runs"]] == ["", "no such model", "its last line is no JSON object", ""]
    assert {row["name"] for row in result["rows"]} == {US} and result["rows"][0]["ratio"] is None
    assert "broken at 0: failed: no such model" in capsys.readouterr().err


def test_engines_alternate_within_depth_and_state() -> None:
    order = list(turns(("a", "b"), (0, 9), burn=True))
    assert order[:4] == [Asked("a", 0, False), Asked("b", 0, False), Asked("a", 0, True), Asked("b", 0, True)]
    assert [asked.depth for asked in order] == [0] * 4 + [9] * 4


def test_a_burnt_core_is_compared_with_burnt_cores() -> None:
    def run(name: str, burn: bool, rate: float, limit: float) -> Run:
        return Run(name, 0, burn, 0, limit, 1.0, {"tg64": [rate]}, {"tg64": (1e9, 2e9)} if name == US else {})

    found = rows([run(US, False, 30, 60), run("x", False, 20, 60), run(US, True, 24, 40), run("x", True, 6, 40)], 55)
    assert [(row.name, row.burn, row.ratio) for row in found] == [
        (US, False, 1.5),
        ("x", False, 1.0),
        (US, True, 4.0),
        ("x", True, 1.0),
    ]
    assert [row.contended for row in found] == [False, False, True, True]
    assert (found[0].gbps, found[0].of_limit, found[0].gops) == (30, 0.5, 60)


@pytest.mark.parametrize("text", ["name", "=command", "name=", f"{US}=x"])
def test_a_peer_without_name_or_command_is_a_usage_error(text: str) -> None:
    with pytest.raises(SystemExit):
        versus.main([str(TINY), "--peer", text])
