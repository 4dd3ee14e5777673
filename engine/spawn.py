"""Helper processes for work that must not run in ours: one protocol of length-prefixed JSON over pipes, limits of memory and
time, and a restart with back-off. Each helper's main lives with its subject and calls `serve`."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from engine.errors import HelperDied

MAX_FRAME_BYTES = 64 << 20
HELPER_OPTION = "--helper"
"""In a frozen program, which has no interpreter to start, the first argument that makes it a helper; the second is the module."""

_LENGTH = struct.Struct("<I")
_BACK_OFF_S = (0.0, 0.0, 0.25, 0.5, 1.0, 2.0)
_START_S = 20.0
_ALIVE_PAUSE_S = 0.5


class HelperProcess:
    """One helper: started at the first request, killed when it breaks a limit, started again at the next request. Requests of
    several threads wait for each other."""

    def __init__(self, module: str, memory_bytes: int) -> None:
        self._module = module
        self._memory_bytes = memory_bytes
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._failures = 0
        self._not_before = 0.0
        self._closed = False

    @property
    def pid(self) -> int | None:
        """Process id while the helper runs."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def start(self) -> None:
        """Starts the helper now, so that the first request does not wait for it. Raises: HelperDied."""
        with self._lock:
            self._ensure()

    def request(self, message: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        """The helper's answer to a message.

        Raises: HelperDied when it does not answer in time, ends, or cannot be started; the next request gets a new one.
        """
        with self._lock:
            process = self._ensure()
            try:
                _write_frame(process, message, time.monotonic() + timeout_s)
                answer = _read_frame(process, time.monotonic() + timeout_s)
            except (OSError, ValueError, EOFError, TimeoutError) as error:
                hung = isinstance(error, TimeoutError)
                signal_number = self._kill()
                reason = f"it took more than {timeout_s:g} s" if hung else "it ended or broke a limit"
                raise HelperDied(
                    f"the helper process {self._module} gave no answer ({reason}); it is started again",
                    None if hung else signal_number,
                    hung=hung,
                ) from error
            self._failures = 0
            return answer

    def close(self) -> None:
        """Ends the helper. Further requests raise."""
        with self._lock:
            self._closed = True
            process, self._process = self._process, None
            if process is None:
                return
            with contextlib.suppress(OSError):
                _pipe(process.stdin).close()
            try:
                process.wait(_ALIVE_PAUSE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            _pipe(process.stdout).close()

    def _ensure(self) -> subprocess.Popen[bytes]:
        if self._closed:
            raise HelperDied(f"the helper process {self._module} is closed; start the program again")
        if self._process is not None and self._process.poll() is None:
            return self._process
        if self._process is not None:
            self._kill()
        time.sleep(max(0.0, self._not_before - time.monotonic()))
        try:
            self._process = _launch(self._module, self._memory_bytes)
            hello = _read_frame(self._process, time.monotonic() + _START_S)
        except (OSError, ValueError, EOFError, TimeoutError) as error:
            self._kill()
            raise HelperDied(
                f"the helper process {self._module} did not start ({error}); check that the program is complete"
            ) from error
        if hello != {"ready": True}:
            self._kill()
            raise HelperDied(f"the helper process {self._module} did not start properly; check that the program is complete")
        return self._process

    def _kill(self) -> int | None:
        """Ends the process; the signal that ended it, if that was one."""
        process, self._process = self._process, None
        code = 0
        if process is not None:
            process.kill()
            code = process.wait()
            for pipe in (process.stdin, process.stdout):
                # A pipe to a dead process may still hold what could not be written.
                with contextlib.suppress(OSError):
                    _pipe(pipe).close()
        pause = _BACK_OFF_S[min(self._failures, len(_BACK_OFF_S) - 1)]
        self._failures += 1
        self._not_before = time.monotonic() + pause
        return -code if code < 0 else None


def serve(handle: Callable[[dict[str, Any]], Mapping[str, Any]], limit_s: float) -> None:
    """The main loop of a helper: answers messages until the pipe closes. A message that takes longer than `limit_s` ends the
    process even when nobody is left to kill it. Standard output carries the protocol; other prints go to standard error."""
    source, sink = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    _send(sink, {"ready": True})
    while (message := _receive(source)) is not None:
        signal.setitimer(signal.ITIMER_REAL, limit_s)
        answer = handle(message)
        signal.setitimer(signal.ITIMER_REAL, 0)
        _send(sink, answer)


def limit_this_process(memory_bytes: int) -> None:
    """Limits the address space of this process, and forbids it to write files and core dumps."""
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def helper_main(module: str) -> None:
    """Runs the helper `module`: what a frozen program does with `HELPER_OPTION`."""
    import importlib

    importlib.import_module(module).main()


def _launch(module: str, memory_bytes: int) -> subprocess.Popen[bytes]:
    if getattr(sys, "frozen", False):
        command = [sys.executable, HELPER_OPTION, module]
    else:
        command = [sys.executable, "-X", "utf8", "-m", module]
    root = str(Path(__file__).resolve().parent.parent)
    inherited = os.environ.get("PYTHONPATH")
    environment = os.environ | {
        "PYTHONPATH": root if not inherited else f"{root}{os.pathsep}{inherited}",
        "LAYERDECK_HELPER_MEMORY": str(memory_bytes),
    }
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment, bufsize=0
    )


def memory_limit(default: int) -> int:
    """The limit that the parent set for this helper, in bytes."""
    return int(os.environ.get("LAYERDECK_HELPER_MEMORY", default))


def _pipe(pipe: Any) -> Any:
    assert pipe is not None
    return pipe


def _write_frame(process: subprocess.Popen[bytes], message: Mapping[str, Any], deadline: float) -> None:
    body = json.dumps(message).encode()
    if len(body) > MAX_FRAME_BYTES:
        raise ValueError(f"a message of {len(body)} bytes is too large")
    data = memoryview(_LENGTH.pack(len(body)) + body)
    fd = _pipe(process.stdin).fileno()
    os.set_blocking(fd, False)
    while data:
        _wait(fd, deadline, write=True)
        with contextlib.suppress(BlockingIOError):
            data = data[os.write(fd, data) :]


def _read_frame(process: subprocess.Popen[bytes], deadline: float) -> dict[str, Any]:
    fd = _pipe(process.stdout).fileno()
    (n_bytes,) = _LENGTH.unpack(_read_exactly(fd, _LENGTH.size, deadline))
    if n_bytes > MAX_FRAME_BYTES:
        raise ValueError(f"an answer of {n_bytes} bytes is too large")
    answer = json.loads(_read_exactly(fd, n_bytes, deadline))
    if not isinstance(answer, dict):
        raise ValueError("the answer is no object")
    return answer


def _read_exactly(fd: int, n_bytes: int, deadline: float) -> bytes:
    chunks = []
    while n_bytes:
        _wait(fd, deadline, write=False)
        chunk = os.read(fd, min(n_bytes, 1 << 20))
        if not chunk:
            raise EOFError("the process ended")
        chunks.append(chunk)
        n_bytes -= len(chunk)
    return b"".join(chunks)


def _wait(fd: int, deadline: float, *, write: bool) -> None:
    poll = select.poll()
    poll.register(fd, select.POLLOUT if write else select.POLLIN)
    left_ms = (deadline - time.monotonic()) * 1000
    if left_ms <= 0 or not poll.poll(left_ms):
        raise TimeoutError


def _send(sink: BinaryIO, message: Mapping[str, Any]) -> None:
    body = json.dumps(message).encode()
    sink.write(_LENGTH.pack(len(body)) + body)
    sink.flush()


def _receive(source: BinaryIO) -> dict[str, Any] | None:
    head = source.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    body = source.read(_LENGTH.unpack(head)[0])
    message: dict[str, Any] = json.loads(body)
    return message
