"""`--override`: every command that reads a model takes it, says what contradicts the file, and computes with it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.api.commands import LoadModel
from engine.api.events import Failed, ModelReady
from engine.api.values import LoadOptions
from engine.cli.main import main
from tests.helpers.gguf_builder import tiny_llama
from tests.helpers.recorder import Recorder, new_id


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "m.gguf"
    path.write_bytes(tiny_llama())
    return str(path)


BASE = ("--override", "rope_freq_base=500000")
SAID = "the override of llama.rope.freq_base (500,000) contradicts the file (10,000)"


@pytest.mark.parametrize(
    "command",
    [
        ("inspect",),
        ("tokenize", "--text", "hello"),
        ("generate", "--prompt", "hello", "-n", "2"),
        ("generate", "--prompt", "hello", "-n", "2", "--engine", "reference"),
    ],
    ids=" ".join,
)
def test_commands_tell_of_contradictions_once(model: str, command: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command[0], model, *command[1:], *BASE]) == 0
    assert capsys.readouterr().err.lower().count(SAID) == 1


def test_logits_are_those_of_the_changed_model(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "ids.json").write_text(json.dumps(list(range(40))))
    files = []
    for name, extra in (("plain", ()), ("same", ("--override", "rope_freq_base=10000")), ("other", BASE)):
        files.append(tmp_path / f"{name}.npy")
        assert main(["logits", model, "--ids-file", str(tmp_path / "ids.json"), "--out", str(files[-1]), *extra]) == 0
    plain, same, other = (path.read_bytes() for path in files)
    assert plain == same != other


def test_refused_overrides_end_the_command(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", model, "--override", "nonsense.key=1"]) == 1
    assert "nonsense.key is no key of this file" in capsys.readouterr().err
    assert main(["inspect", model, "--override", "nonsense"]) == 2
    assert "write KEY=VALUE" in capsys.readouterr().err


def test_loading_warns_of_contradictions_and_refuses_nonsense(model: str) -> None:
    with Recorder() as recorder:
        info = recorder.load(Path(model), LoadOptions(overrides=(("rope_freq_base", 500000),)))
        assert info.warnings[0].startswith(SAID.capitalize()[:20])
        end = recorder.run(LoadModel(new_id(), model, LoadOptions(overrides=(("nonsense.key", 1),))))
        assert isinstance(end, Failed) and end.kind == "InvalidRequest"
        assert not [e for e in recorder.of(end.request_id) if isinstance(e, ModelReady)]
