"""One reading on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.cli.main import main
from tests.helpers import machines
from tests.helpers.nvml import Cards, build


def test_this_machine_as_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sensors", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["cpu"]["use_percent"]
    assert found["ram_total_bytes"] > 0
    assert found["memory"]["available_bytes"] > 0
    assert found["memory"]["process_minor_faults_per_s"] is not None
    assert all(reason for reason in found["cpu"]["missing"].values())


def test_cards_and_their_reasons(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cards = Cards(tmp_path, build(tmp_path_factory.mktemp("nvml")), monkeypatch)
    cards.become("gpus 3", "lost 2")
    assert main(["sensors", "--root", str(tmp_path), "--details", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["state"] for one in found["gpus"]] == ["ok", "ok", "lost"]
    assert found["gpus"][0]["processes"][0]["memory_bytes"] == 4000 << 20
    assert found["gpus"][0]["missing"]["ecc_errors"] == "this card does not offer it"
    cards.become("init 18")
    assert main(["sensors", "--root", str(tmp_path)]) == 0
    assert "restart the computer" in capsys.readouterr().out


def test_an_amd_card(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = machines.unpack("laptop_6c", tmp_path)
    assert main(["sensors", "--root", str(root), "--json"]) == 0
    amd = next(one for one in json.loads(capsys.readouterr().out)["gpus"] if one["maker"] == "amd")
    assert (amd["state"], amd["busy_percent"]) == ("ok", 7)
    assert amd["memory_total_bytes"] == 536870912 + 8000000000


def test_no_folder_is_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sensors", "--root", "/nowhere/at/all"]) == 1
    assert "no folder" in capsys.readouterr().err
