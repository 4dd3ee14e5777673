"""What starts what: arguments, one instance, the guard against crash loops, and what must not be imported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.__main__ import WindowArguments, main, window_arguments
from app.crash_guard import CrashGuard
from app.instance import Instance
from app.paths import find_paths

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], WindowArguments()),
        (["model.gguf"], WindowArguments("model.gguf")),
        (["./some/file"], WindowArguments("./some/file")),
        (["--prompt", "Hi"], WindowArguments(prompt="Hi")),
        (["a.gguf", "--prompt=Hi there"], WindowArguments("a.gguf", "Hi there")),
        (["inspect", "a.gguf"], None),
        (["--version"], None),
        (["a.gguf", "b.gguf"], None),
        (["--prompt"], None),
        (["nonsense"], None),
    ],
)
def test_arguments(arguments: list[str], expected: WindowArguments | None) -> None:
    assert window_arguments(arguments) == expected


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["--help"], 0, "usage: layerdeck shots DIR"),
        ([], 2, "usage: layerdeck shots DIR"),
        (["pictures", "--light"], 2, "usage: layerdeck shots DIR"),
        (["pictures", "no_such_screen"], 2, "there is no screen named no_such_screen; there are "),
    ],
)
def test_shots_say_how_they_are_asked_for(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    status: int,
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["shots", *arguments]) == status
    told = capsys.readouterr()
    assert (told.err if status else told.out).startswith(words)
    assert not list(tmp_path.iterdir())


def test_home_can_be_moved(own_home: Path) -> None:
    paths = find_paths()
    assert paths.database == own_home / "data" / "chats.db"
    paths.ensure()
    assert (own_home / "config").stat().st_mode & 0o777 == 0o700
    assert find_paths({"HOME": "/x"}).database.name == "chats.db"


def test_a_second_instance_raises_the_first(qtbot: QtBot, tmp_path: Path) -> None:
    first, second = Instance(tmp_path / "lock"), Instance(tmp_path / "lock")
    assert first.acquire()
    assert not second.acquire()
    with qtbot.waitSignal(first.raised) as raised:
        assert second.raise_first("/models/x.gguf")
    assert raised.args == ["/models/x.gguf"]
    first.release()
    assert second.acquire()
    second.release()


def test_a_lock_left_by_a_killed_process_is_taken_over(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    code = (
        "import os,sys\nfrom PySide6.QtCore import QCoreApplication\nfrom pathlib import Path\napp = QCoreApplication([])\n"
        "from app.instance import Instance\ni = Instance(Path(sys.argv[1]))\nassert i.acquire()\nos.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(lock)], cwd=ROOT, check=False)
    assert done.returncode == -9
    assert lock.exists()
    instance = Instance(lock)
    assert instance.acquire()
    instance.release()


def test_three_crashes_in_five_minutes_are_safe_mode(tmp_path: Path) -> None:
    file = tmp_path / "starts"
    assert [CrashGuard(file, at).safe_mode for at in (0.0, 10.0, 20.0, 30.0)] == [False, False, False, True]
    guard = CrashGuard(file, 400.0)
    assert not guard.safe_mode
    guard.ended()
    assert file.read_text() == ""
    file.write_bytes(b"\xff\xfe rubbish")
    assert not CrashGuard(file, 1.0).safe_mode
    assert not CrashGuard(tmp_path / "no" / "folder", 1.0).safe_mode


def test_commands_import_no_qt_and_the_window_imports_no_torch() -> None:
    code = "import sys, app.__main__, app.preflight\nassert not [m for m in sys.modules if m.startswith(('PySide6', 'numpy'))]"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
    code = (
        "import sys, app.main, app.windows.main_window\n"
        "heavy = {'torch', 'ziamath', 'tokenizers', 'numpy', 'gguf', 'triton', 'jinja2'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, env={**os.environ, "QT_QPA_PLATFORM": "offscreen"})
