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


def test_each_gauge_has_its_unit_or_its_reason(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sensors"]) == 0
    told = capsys.readouterr().out.splitlines()
    heads = [line for line in told if not line.startswith(" ")]
    assert [head.split(":")[0] for head in heads[:3]] == ["Processor", "Memory", "Disk"]
    for line in (line for line in told if line.startswith("  ")):
        assert line.split()[-1] not in ("n/a", "n/a:"), line  # without a reason
    Cards(tmp_path, build(tmp_path_factory.mktemp("nvml")), monkeypatch).become("gpus 2", "lost 1")
    assert main(["sensors", "--root", str(tmp_path), "--details"]) == 0
    told = capsys.readouterr().out.splitlines()
    cards = [i for i, line in enumerate(told) if line.startswith("Card: ")]
    assert len(cards) == 2 and told[cards[1] + 1].split()[0] == "lost"
    one = "\n".join(told[cards[0] : cards[1]])
    for words in (
        "°C",
        " W of ",
        " MHz of ",
        "GiB",
        "PCIe",
        "held by",
        "memory errors          n/a: this card does not offer it",
    ):
        assert words in one, one


def test_an_amd_card(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = machines.unpack("laptop_6c", tmp_path)
    assert main(["sensors", "--root", str(root), "--json"]) == 0
    amd = next(one for one in json.loads(capsys.readouterr().out)["gpus"] if one["maker"] == "amd")
    assert (amd["state"], amd["busy_percent"]) == ("ok", 7)
    assert amd["memory_total_bytes"] == 536870912 + 8000000000
    assert amd["missing"]["slow_reasons"] == "it is not read of AMD's cards"
    assert not [name for name, reason in amd["missing"].items() if "not been read yet" in reason]


def test_no_folder_is_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sensors", "--root", "/nowhere/at/all"]) == 1
    assert "no folder" in capsys.readouterr().err
