"""The door of the commands: exit codes, one line for errors, and nothing imported that is not needed."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

import engine
from engine.cli import main as cli
from tests.helpers.gguf_builder import tiny_llama
from tests.helpers.models import GOLDEN

ROOT = Path(__file__).parents[3]
RUN = "import sys; from engine.cli.main import main; code = main(sys.argv[1:]); {after}; sys.exit(code)"


def launch(*arguments: str, after: str = "pass") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", RUN.format(after=after), *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60, check=False)


def test_version_is_that_of_the_project(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.split(" (build ")[0].rstrip() == f"layerdeck {engine.VERSION}"
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == engine.VERSION


@pytest.mark.parametrize("argv", [[], ["nonsense"], ["inspect"], ["inspect", "a", "b"], ["tokenize", "m"]])
def test_wrong_usage_is_exit_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(argv) == 2
    assert "layerdeck" in "".join(capsys.readouterr())


@pytest.mark.parametrize("argv", [["--help"], ["inspect", "--help"], ["render", "--help"]])
def test_help_is_exit_0(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(argv) == 0
    assert "usage" in capsys.readouterr().out


def test_known_error_is_one_line_and_exit_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a\nb.gguf"
    path.write_bytes(b"GGUF")
    assert cli.main(["inspect", str(path), "--json"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1 and "version at byte 4" in err and "download it again" in err


def test_inspect_imports_neither_numpy_nor_qt_nor_the_tokenizer_library() -> None:
    after = "print(sorted({m.partition('.')[0] for m in sys.modules}), file=sys.stderr)"
    done = launch("inspect", str(GOLDEN / "models/llama-mha-spm.f16.gguf"), "--json", after=after)
    assert done.returncode == 0
    loaded = set(eval(done.stderr))
    assert not loaded & {"numpy", "PySide6", "shiboken6", "tokenizers", "jinja2", "torch", "gguf", "kernels_pyx", "psutil"}


def test_inspect_is_quick() -> None:
    times = []
    for _ in range(3):
        start = time.perf_counter()
        assert launch("inspect", str(GOLDEN / "models/llama-mha-spm.f16.gguf")).returncode == 0
        times.append(time.perf_counter() - start)
    assert min(times) < 1.0  # 0.06 s on an idle machine


def test_closed_pipe_is_quiet(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(tiny_llama(n_layers=30, n_embd=32, n_ff=32))
    command = [sys.executable, "-c", RUN.format(after="pass"), "inspect", str(path), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(30) == 1


def test_interrupt_is_quiet(tmp_path: Path) -> None:
    script = """
import os, signal, sys, time
import engine.cli.inspect
from engine.cli.main import main

# Ignored signals are inherited: a shell starts its background jobs so.
signal.signal(signal.SIGINT, signal.default_int_handler)

def run(args):
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(9)

engine.cli.inspect.run = run
sys.exit(main(["inspect", "x"]))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, cwd=ROOT, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (128 + signal.SIGINT, b"")


def test_every_command_has_a_module_name() -> None:
    assert {
        "inspect",
        "convert",
        "tokenize",
        "detokenize",
        "render",
        "logits",
        "generate",
        "chat",
        "tune",
        "doctor",
        "selftest",
        "perplexity",
        "bench",
        "estimate",
        "fit",
        "placement",
        "topology",
        "sensors",
    } == set(cli.COMMANDS)
    assert cli.is_command("inspect") and cli.is_command("--version") and not cli.is_command("model.gguf")
