"""`generate`, `logits` and `chat` as scripts use them: one JSON object, exit codes, one line for each error."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.cli.main import main
from tests.helpers.gguf_builder import tiny_llama
from tests.helpers.golden_models import LLAMAS, golden

TINY = str(golden(LLAMAS[0]).path)
EXACT = ["--f32-activations", "-t", "2"]


def ids_file(folder: Path, prompt: str) -> str:
    path = folder / f"{prompt}.json"
    path.write_text(json.dumps(golden(LLAMAS[0]).ids(prompt)))
    return str(path)


def run_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main([*arguments, "--json"]) == 0
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


@pytest.mark.parametrize("engine", [EXACT, ["--engine", "reference"]], ids=["compiled", "reference"])
def test_logits_file(capsys: pytest.CaptureFixture[str], tmp_path: Path, engine: list[str]) -> None:
    out = tmp_path / "x.npy"
    result = run_json(capsys, "logits", TINY, "--ids-file", ids_file(tmp_path, "medium"), "--out", str(out), "-b", "25", *engine)
    logits = np.load(out)
    assert logits.dtype == np.float32 and logits.shape == (60, 512)
    assert (result["n_tokens"], result["n_vocab"]) == (60, 512)
    assert np.abs(logits - golden(LLAMAS[0]).logits("medium")).max() < 2e-3


@pytest.mark.parametrize("engine", [EXACT, ["--engine", "reference"]], ids=["compiled", "reference"])
def test_greedy_ids(capsys: pytest.CaptureFixture[str], tmp_path: Path, engine: list[str]) -> None:
    arguments = ["--ids-file", ids_file(tmp_path, "short"), "-n", "32", "--temp", "0", "--ignore-eog"]
    result = run_json(capsys, "generate", TINY, *arguments, *engine)
    assert result["ids"] == golden(LLAMAS[0]).greedy("short")
    assert (result["finish"], result["n_prompt"]) == ("length", 11)
    assert result["ttft_s"] > 0 and result["prefill_tok_s"] > 0 and result["decode_tok_s"] > 0


def test_the_stream_is_the_text(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["generate", TINY, "--prompt", "hello", "-n", "12", "--temp", "0"]
    text = run_json(capsys, *arguments)["text"]
    assert main(arguments) == 0
    assert capsys.readouterr().out == text + "\n"


def test_a_seed_repeats_an_answer(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["generate", TINY, "--prompt", "hello", "-n", "12", "--temp", "1.5", "--seed", "5"]
    assert run_json(capsys, *arguments)["ids"] == run_json(capsys, *arguments)["ids"]


def test_messages(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "messages.json"
    path.write_text(json.dumps([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]))
    assert run_json(capsys, "generate", TINY, "--messages", str(path), "-n", "4")["n_prompt"] > 10


def test_a_thought_that_the_template_opens_is_shown_as_one(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    opens = "{% for m in messages %}{{ m.content }}{% endfor %}{% if thinking is undefined or thinking %}<think>\n{% endif %}"
    (tmp_path / "thinks.gguf").write_bytes(tiny_llama(template=opens))
    (tmp_path / "messages.json").write_text(json.dumps([{"role": "user", "content": "Why?"}]))
    arguments = [
        "generate",
        str(tmp_path / "thinks.gguf"),
        "--messages",
        str(tmp_path / "messages.json"),
        "-n",
        "4",
        "--temp",
        "0",
    ]
    text = run_json(capsys, *arguments)["text"]
    assert text.startswith("<think>\n") and len(text) > len("<think>\n")
    assert main(arguments) == 0
    assert capsys.readouterr().out == text + "\n"
    assert not run_json(capsys, *arguments, "--var", "thinking=false")["text"].startswith("<think>")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{}", "not a JSON list of messages"),
        ('[{"role": "user"}]', "message 0"),
        ('[{"role": "wizard", "content": "x"}]', "it needs a role"),
    ],
)
def test_messages_that_are_none(capsys: pytest.CaptureFixture[str], tmp_path: Path, content: str, words: str) -> None:
    path = tmp_path / "messages.json"
    path.write_text(content)
    assert main(["generate", TINY, "--messages", str(path)]) == 1
    error = capsys.readouterr().err
    assert words in error and error.count("\n") == 1


@pytest.mark.parametrize(
    ("ids", "words"),
    [("[]", "no token ids"), ("[512]", "out of range"), ("[[1],[2]]", "several lists"), (json.dumps([1] * 4097), "4097")],
)
def test_bad_ids(capsys: pytest.CaptureFixture[str], tmp_path: Path, ids: str, words: str) -> None:
    path = tmp_path / "ids.json"
    path.write_text(ids)
    assert main(["logits", TINY, "--ids-file", str(path), "--out", str(tmp_path / "x.npy")]) == 1
    error = capsys.readouterr().err
    assert words in error and error.count("\n") == 1


@pytest.mark.parametrize("option", [["--temp", "9"], ["--top-p", "-1"], ["--stop", ""], ["-c", "999999"]])
def test_bad_options_are_a_line(capsys: pytest.CaptureFixture[str], option: list[str]) -> None:
    assert main(["generate", TINY, "--prompt", "x", *option]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_a_missing_model(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["generate", str(tmp_path / "none.gguf"), "--prompt", "x"]) == 1
    assert "none.gguf" in capsys.readouterr().err


def test_chat_keeps_the_conversation(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("hello\nand more\n\n"))
    assert main(["chat", TINY, "--temp", "0", "-n", "8", "--system", "Be brief."]) == 0
    answers = capsys.readouterr().out
    assert answers.count("\n") >= 2
