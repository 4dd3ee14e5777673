"""When `make test` installs PyTorch."""

from __future__ import annotations

import importlib.util
import json
import subprocess
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

SCRIPT = Path(__file__).resolve().parent.parent / "packaging" / "torch_build.py"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("torch_build", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.chdir(SCRIPT.parent.parent)
    return module


def report(version: str | None) -> str:
    """What a dry run of pip prints; None: nothing to install."""
    return json.dumps({"install": [] if version is None else [{"metadata": {"version": version}}]})


@pytest.mark.parametrize(
    ("gpu", "printed", "code"),
    [
        (False, report("2.13.0"), 1),
        (False, report("2.13.0+cpu"), 0),
        (False, report(None), 0),
        (False, "no network", 1),
        (True, report("2.13.0"), 0),
    ],
)
def test_a_gpu_or_a_build_for_the_cpu_alone(
    gpu: bool, printed: str, code: int, script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []

    def run(command: list[str], **options: object) -> SimpleNamespace:
        asked.append(command)
        return SimpleNamespace(stdout=printed)

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(script, "has_gpu", lambda: gpu)
    assert script.main() == code
    assert gpu or asked[0][-1].startswith("torch==")
