"""Helper processes: answers, limits, restarts, and no orphan left behind."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine import spawn
from engine.errors import HelperDied
from engine.spawn import HelperProcess

WORKER = """
import os, sys, time
from engine.spawn import limit_this_process, memory_limit, serve


def handle(message):
    match message["do"]:
        case "echo":
            return {"echo": message["value"]}
        case "print":
            print("noise")
            return {}
        case "sleep":
            time.sleep(message["s"])
            return {}
        case "exit":
            os._exit(3)
        case "allocate":
            return {"bytes": len(bytes(message["n"]))}
        case "write":
            with open(message["path"], "w") as file:
                file.write("x" * 10)
            return {}
        case "list":
            sys.stdout.flush()
            return [1]
        case "big":
            return {"big": "x" * message["n"]}


def main():
    limit_this_process(memory_limit(0))
    serve(handle, 1.0)


if __name__ == "__main__":
    main()
"""


@pytest.fixture
def helper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HelperProcess]:
    (tmp_path / "ld_test_worker.py").write_text(WORKER)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    process = HelperProcess("ld_test_worker", 128 << 20)
    yield process
    process.close()


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_messages_come_back(helper: HelperProcess) -> None:
    assert helper.pid is None
    values = ["", "é\ud800\0", "x" * 300_000, [1, {"a": None}]]
    assert [helper.request({"do": "echo", "value": v}, 10)["echo"] for v in values] == values
    assert helper.pid is not None


def test_prints_do_not_disturb_the_protocol(helper: HelperProcess) -> None:
    assert helper.request({"do": "print"}, 10) == {}
    assert helper.request({"do": "echo", "value": 1}, 10) == {"echo": 1}


def test_slow_answer_ends_the_helper_and_the_next_request_gets_a_new_one(helper: HelperProcess) -> None:
    helper.start()
    first = helper.pid
    assert first is not None
    with pytest.raises(HelperDied, match=r"it took more than 0.2 s"):
        helper.request({"do": "sleep", "s": 30}, 0.2)
    assert not alive(first)
    assert helper.request({"do": "echo", "value": 1}, 10) == {"echo": 1}
    assert helper.pid != first


@pytest.mark.parametrize(
    "message", [{"do": "exit"}, {"do": "list"}, {"do": "allocate", "n": 1 << 30}, {"do": "big", "n": 70 << 20}]
)
def test_broken_limit_or_protocol_is_known(helper: HelperProcess, message: dict[str, object]) -> None:
    with pytest.raises(HelperDied):
        helper.request(message, 10)
    assert helper.request({"do": "echo", "value": 1}, 10) == {"echo": 1}


def test_helper_cannot_write_files(helper: HelperProcess, tmp_path: Path) -> None:
    target = tmp_path / "out"
    with pytest.raises(HelperDied):
        helper.request({"do": "write", "path": str(target)}, 10)
    assert target.stat().st_size == 0


def test_helper_without_parent_ends_itself_in_mid_work(helper: HelperProcess) -> None:
    helper.start()
    pid = helper.pid
    assert pid is not None
    with pytest.raises(HelperDied):
        helper.request({"do": "sleep", "s": 60}, 5)  # its own limit of 1 s comes first
    assert not alive(pid)


def test_killed_helper_is_started_again(helper: HelperProcess) -> None:
    helper.start()
    pid = helper.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 5
    while helper.pid is not None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert helper.request({"do": "echo", "value": 1}, 10) == {"echo": 1}


def test_threads_share_one_helper(helper: HelperProcess) -> None:
    answers: list[object] = []
    threads = [
        threading.Thread(target=lambda i=i: answers.append(helper.request({"do": "echo", "value": i}, 20)["echo"]))
        for i in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == list(range(8))  # type: ignore[type-var]


def test_unknown_module_is_a_known_error() -> None:
    process = HelperProcess("no_such_module_here", 128 << 20)
    with pytest.raises(HelperDied, match="did not start"):
        process.start()
    process.close()


def test_closed_helper_is_gone(helper: HelperProcess) -> None:
    helper.start()
    pid = helper.pid
    assert pid is not None
    helper.close()
    assert not alive(pid)
    with pytest.raises(HelperDied, match="closed"):
        helper.request({"do": "echo", "value": 1}, 1)


def test_frozen_program_starts_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []

    def popen(command: list[str], **_: object) -> None:
        commands.append(command)
        raise OSError("no")

    monkeypatch.setattr(sys, "frozen", True, raising=False)
    monkeypatch.setattr(spawn.subprocess, "Popen", popen)
    with pytest.raises(HelperDied):
        HelperProcess("engine.tokenizer.template_worker", 1).start()
    assert commands == [[sys.executable, spawn.HELPER_OPTION, "engine.tokenizer.template_worker"]]
