"""A real drag: the board in an X server of its own under a window manager, dragged by xdotool. Skipped where these are absent."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from app import preflight

TOOLS = ("Xvfb", "openbox", "xdotool")
PATIENCE_S = 60.0
ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.slow


class Screen:
    """An X server with a window manager and the board, and what the board said."""

    def __init__(self, env: dict[str, str]) -> None:
        self._env = env
        self.said: list[dict[str, Any]] = []
        command = [sys.executable, "-m", "tests.helpers.board_child"]
        self.board = subprocess.Popen(
            command, cwd=ROOT, env=env | {"QT_QPA_PLATFORM": "xcb"}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        os.set_blocking(self.board.stdout.fileno(), False)  # type: ignore[union-attr]

    def wait(self, what: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The first line of that kind."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            found = next((one for one in self.said if what(one)), None)
            if found is not None:
                return found
            assert self.board.poll() is None, "the board ended"
            line = self.board.stdout.readline()  # type: ignore[union-attr]
            if line:
                self.said.append(json.loads(line))
            else:
                time.sleep(0.05)
        raise AssertionError(f"the board never said it: {self.said}")

    def point(self, *words: object) -> None:
        """One command of xdotool."""
        subprocess.run(["xdotool", *map(str, words)], env=self._env, check=True, timeout=PATIENCE_S)

    def click(self, at: list[int]) -> None:
        """Clicks somewhere."""
        self.point("mousemove", *at)
        self.point("click", 1)
        time.sleep(0.2)

    def drag(self, start: list[int], end: list[int], held: str) -> None:
        """Presses, pulls, waits until the board shows what is held over the column, lets go."""
        self.point("mousemove", *start)
        self.point("mousedown", 1)
        for step in range(1, 9):
            self.point("mousemove", *(a + (b - a) * step // 8 for a, b in zip(start, end, strict=True)))
            time.sleep(0.05)
        self.wait(lambda one: one.get("held") == held)
        self.point("mousemove", end[0] + 2, end[1] + 2)
        time.sleep(0.2)
        self.point("mouseup", 1)


@pytest.fixture
def screen() -> Iterator[Screen]:
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} is not installed: apt-get install xvfb openbox xdotool")
    folder = preflight.pyside_folder()
    found = None if folder is None else preflight.missing("xcb", folder)
    lacking = [name for name in (found.packages if found is not None else ()) if name != preflight.FONT_PACKAGE]
    if lacking:
        pytest.skip(f"Qt cannot open windows on X here; it lacks {', '.join(lacking)}")
    read, write = os.pipe()
    server = subprocess.Popen(
        ["Xvfb", "-displayfd", str(write), "-screen", "0", "1280x800x24", "-nolisten", "tcp"],
        pass_fds=(write,),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(write)
    with os.fdopen(read) as told:
        display = f":{told.readline().strip()}"
    env = dict(os.environ) | {"DISPLAY": display}
    env.pop("WAYLAND_DISPLAY", None)
    manager = subprocess.Popen(["openbox"], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    made = Screen(env)
    yield made
    made.board.stdin.close()  # type: ignore[union-attr]
    try:
        made.board.wait(10)
    except subprocess.TimeoutExpired:
        made.board.kill()
    made.board.stdout.close()  # type: ignore[union-attr]
    for process in (manager, server):
        process.terminate()
        process.wait(10)


def test_the_pointer_drags_a_card_and_then_two(screen: Screen) -> None:
    said = screen.wait(lambda one: "Layer 4" in one.get("places", {}))
    time.sleep(1.0)
    screen.drag(said["places"]["Layer 4"], said["to"], "gpu1")
    moved = screen.wait(lambda one: one.get("moved", {}).get("4") == "gpu1")
    assert moved["moved"] == {"4": "gpu1", "5": "numa0", "6": "numa0"}
    assert moved["devices"] == ["gpu1", "numa0"]
    said = screen.wait(lambda one: "Layer 5" in one.get("places", {}) and "Layer 4" not in one["places"])
    screen.click(said["places"]["Layer 5"])
    screen.point("keydown", "ctrl")
    screen.click(said["places"]["Layer 6"])
    screen.point("keyup", "ctrl")
    screen.said.clear()
    screen.drag(said["places"]["Layer 6"], said["to"], "gpu1")
    moved = screen.wait(lambda one: "moved" in one)
    assert moved["moved"] == {"4": "gpu1", "5": "gpu1", "6": "gpu1"}
