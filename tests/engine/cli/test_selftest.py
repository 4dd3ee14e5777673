"""The selftest names a kernel for each format and instruction set, and fails when one computes wrong."""

from __future__ import annotations

import json

import pytest

from engine.cli import selftest
from engine.cli.main import main
from engine.quants.formats import FORMATS
from kernels_pyx.cpu_features import available_isas


def test_all_is_well(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["selftest", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["ok"] and result["failed"] == []
    assert {(one["format"], one["isa"]) for one in result["kernels"]} == {(f.name, i) for f in FORMATS for i in available_isas()}
    assert all(one["few"] and one["many"] for one in result["kernels"])
    assert result["pool"]["ok"]


def test_a_wrong_kernel_is_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    right = selftest.product

    def wrong(*args: object, **kwargs: object) -> selftest.F32:
        return right(*args, **kwargs) * 1.5  # type: ignore[arg-type]

    monkeypatch.setattr(selftest, "product", wrong)
    assert main(["selftest", "--json"]) == 1
    result = json.loads(capsys.readouterr().out)
    assert not result["ok"] and "Q4_1 scalar" in result["failed"]
