"""What the kernel has said since the start, where this program may read it: cards that fell off the bus, programs that were
ended. Never raises, never waits."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

MOST_RECORDS = 20_000
_CHUNK = 8192
_XID = re.compile(r"NVRM: Xid \(PCI:([0-9a-fA-F:.]+)\): (\d+)")
_OFF_THE_BUS = re.compile(
    r"GPU at PCI:([0-9a-fA-F:.]+).*fallen off the bus|GPU ([0-9a-fA-F:.]+).*fallen off the bus", re.IGNORECASE
)
_KILLED = re.compile(r"(?:Out of memory|Memory cgroup out of memory): Killed process (\d+) \(([^)]*)\)")
FELL_OFF = 79
"""The driver's number for a card that has fallen off the bus; newer drivers say it in words alone."""


@dataclass(frozen=True, slots=True)
class KernelLog:
    """xids: (PCI address, the driver's number of the error), as often as they came. killed: (process, name) ended for memory."""

    xids: tuple[tuple[str, int], ...] = ()
    killed: tuple[tuple[int, str], ...] = ()


def read_kernel_log(root: Path = Path("/")) -> KernelLog | None:
    """What it says; None where this program may not read it, as on most systems without root."""
    text = _text(root / "dev/kmsg")
    if text is None:
        return None
    xids = [(pci.lower(), int(number)) for pci, number in _XID.findall(text)]
    told = {pci for pci, number in xids if number == FELL_OFF}
    for one, other in _OFF_THE_BUS.findall(text):
        pci = (one or other).lower()
        if not any(pci.startswith(known) or known.startswith(pci) for known in told):
            xids.append((pci, FELL_OFF))
            told.add(pci)
    return KernelLog(tuple(xids), tuple((int(pid), name) for pid, name in _KILLED.findall(text)))


def _text(path: Path) -> str | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    pieces: list[bytes] = []
    try:
        # One record a call; at the end it would block, and a record that was overwritten meanwhile is an error (EPIPE).
        for _ in range(MOST_RECORDS):
            try:
                piece = os.read(fd, _CHUNK)
            except BrokenPipeError:
                continue
            except OSError:
                break
            if not piece:
                break
            pieces.append(piece)
    finally:
        with suppress(OSError):
            os.close(fd)
    return b"".join(pieces).decode("utf-8", "replace")
