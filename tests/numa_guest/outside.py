"""Other programs of the guest: `python -m tests.numa_guest.outside WHAT` does something to the engine's process or its machine.

`send PID FROM TO`: pages of a process from one node to the other. `pin THREAD CPU`. `busy CPU...`: keeps processors busy. `fill
NODE MIB`: takes the memory of a node but for some MiB beyond what the kernel keeps free. Each says `ready PID`, waits for a line,
acts, and says `done`; those that go on have no parent of ours by then, or they would count as the engine's own.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

MIGRATE_PAGES, SET_MEMPOLICY, BIND = 256, 238, 2
PIECE = 4 << 20
LIVES = ("busy", "fill")


@contextmanager
def program(*words: object) -> Iterator[Program]:
    """Another program, ready to act; what goes on is ended with the block."""
    command = [sys.executable, "-m", "tests.numa_guest.outside", *map(str, words)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        first = process.stdout.readline().split()
        assert first[:1] == ["ready"], (words, first)
        made = Program(process, int(first[1]))
        try:
            yield made
        finally:
            if words[0] in LIVES:
                made.end()


class Program:
    """pid: of what acts."""

    def __init__(self, process: subprocess.Popen[str], pid: int) -> None:
        self._process, self.pid = process, pid

    def act(self) -> str:
        """It acts now; what it says when that is done."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()

    def end(self) -> None:
        """It and those it has started. Idempotent."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)


def _call(number: int, *arguments: object) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(number, *arguments) < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def _send(pid: int, before: int, then: int) -> str:
    old, new = ctypes.c_ulong(1 << before), ctypes.c_ulong(1 << then)
    _call(MIGRATE_PAGES, pid, 65, ctypes.byref(old), ctypes.byref(new))
    return f"sent from node {before} to node {then}"


def _busy(cpus: list[int]) -> str:
    for cpu in cpus:
        if os.fork() == 0:
            os.sched_setaffinity(0, {cpu})
            while True:
                pass
    return f"busy on {cpus}"


def _fill(node: int, leave_mib: int) -> tuple[str, list[mmap.mmap]]:
    """Never what the kernel keeps for itself: a bound program that finds nothing is killed."""
    mask = ctypes.c_ulong(1 << node)
    _call(SET_MEMPOLICY, BIND, ctypes.byref(mask), 65)
    held = []
    while free_mib(node) > kept_mib(node) + leave_mib + (PIECE >> 20):
        held.append(mmap.mmap(-1, PIECE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
        held[-1][:] = b"\1" * PIECE
    return f"took {len(held) * (PIECE >> 20)} MiB of node {node}, {free_mib(node)} MiB are left", held


def kept_mib(node: int) -> int:
    """What the kernel wants free on a node, below which it looks for memory elsewhere or gives some back."""
    pages, here = 0, False
    for line in Path("/proc/zoneinfo").read_text().splitlines():
        words = line.split()
        if words[:1] == ["Node"]:
            here = words[1] == f"{node},"
        elif here and words[:1] == ["high"] and len(words) == 2:
            pages += int(words[1])
    return pages * 4096 >> 20


def free_mib(node: int) -> int:
    """Of a node, nothing given back for it."""
    lines = Path(f"/sys/devices/system/node/node{node}/meminfo").read_text().splitlines()
    return next(int(line.split()[3]) for line in lines if line.split()[2] == "MemFree:") >> 10


def _orphan() -> None:
    """From here on this is a child of the first program, in a group of its own."""
    if os.fork():
        os._exit(0)
    os.setsid()


def main() -> None:
    """See the module."""
    what, *words = sys.argv[1:]
    numbers = [int(word) for word in words]
    if what in LIVES:
        _orphan()
    sys.stdout.write(f"ready {os.getpid()}\n")
    sys.stdout.flush()
    sys.stdin.readline()
    held: list[mmap.mmap] = []
    if what == "send":
        told = _send(*numbers)
    elif what == "pin":
        os.sched_setaffinity(numbers[0], {numbers[1]})
        told = f"thread {numbers[0]} on {numbers[1]}"
    elif what == "busy":
        told = _busy(numbers)
    else:
        told, held = _fill(*numbers)
    sys.stdout.write(f"done: {told}\n")
    sys.stdout.flush()
    while what in LIVES and held is not None:
        time.sleep(3600)


if __name__ == "__main__":
    main()
