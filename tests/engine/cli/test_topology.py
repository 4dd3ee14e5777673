"""The machine on the command line, and lists of processors as an option."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from engine.cli.main import main
from engine.cli.options import threads
from tests.helpers import machines


def test_this_machine_as_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topology", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["usable_cores"] == len(found["cores"]) or found["allowed_cpus"] != found["cpus"]
    assert 1 <= found["worker_plan"]["n_workers"] <= len(os.sched_getaffinity(0))
    assert found["facts"]["name"]


def test_another_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = machines.unpack("threadripper_4ccd", tmp_path)
    assert main(["topology", "--root", str(root), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["worker_plan"]["workers"] == "0-16,18-22"
    assert [gpu["link_width"] for gpu in found["gpus"]] == [16, 4]
    assert main(["topology", "--root", str(root), "-t", "0-2,9"]) == 0
    text = capsys.readouterr().out
    assert "24 cores" in text
    assert "4 workers on 0-2,9" in text


@pytest.mark.parametrize("words", [["-t", "30-31"], ["-t", "x"], ["-t", "-5"], ["--root", "/nowhere/at/all"]])
def test_what_cannot_be_is_a_sentence(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = machines.unpack("threadripper_4ccd", tmp_path)
    assert main(["topology", "--root", str(root), *words]) in (1, 2)
    assert len(capsys.readouterr().err.strip().splitlines()) >= 1


def test_threads_are_a_number_or_a_list() -> None:
    assert threads("4") == (4, ())
    assert threads("0-1") == (2, (0, 1))
    assert threads("0-7,16-23") == (16, (*range(8), *range(16, 24)))


@pytest.mark.parametrize("text", ["-1", "0-", "1,x", "a", "9-3", "0-3,3", "1,2,1"])
def test_threads_that_are_neither_are_refused(text: str) -> None:
    from argparse import ArgumentTypeError

    with pytest.raises(ArgumentTypeError):
        threads(text)
