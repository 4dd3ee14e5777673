"""Which cards NVIDIA's driver has and what memory is free there, asked in a process of its own: the driver's library can hang or
crash, and whoever wants to load a model should then be told, not taken along."""

from __future__ import annotations

import atexit
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from engine.errors import HelperDied
from engine.hardware.sensor_worker import MEMORY_BYTES
from engine.spawn import HelperProcess

WORKER = "engine.hardware.sensor_worker"
LIST_S = 15.0
"""The driver of many cards without persistence mode takes some seconds to start."""
AGAIN_S = 30.0
"""After it has hung or crashed it is not asked again so long: several parts of a load ask."""
NO_DRIVER = "there is no NVIDIA driver; install it to compute on a GPU"
SILENT = "the NVIDIA driver does not answer"

PROBLEMS = {
    9: "an NVIDIA driver is installed but not loaded; restart the computer",
    12: NO_DRIVER,
    18: "the NVIDIA driver was updated while it was in use; restart the computer",
}
"""By the number of the library's error."""

_MARKS = ("proc/driver/nvidia/version", "dev/nvidiactl", "dev/dxg")
"""Any of them says that a driver is there; the last one is that of Windows, below which Linux runs."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A card as the driver lists it. Bytes are None where only its files were read."""

    uuid: str
    name: str
    total_bytes: int | None = None
    free_bytes: int | None = None


def has_driver(root: Path = Path("/")) -> bool:
    """Whether NVIDIA's library is worth a question."""
    return any((root / mark).exists() for mark in _MARKS)


class _Lister:
    """The process that is asked; started with the first question on a machine with a driver, and kept."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._helper: HelperProcess | None = None
        self._not_before = 0.0

    def ask(self) -> tuple[list[Listed], str]:
        """See `listed_by_driver`."""
        with self._lock:
            if time.monotonic() < self._not_before:
                return [], SILENT
            if self._helper is None:
                self._helper = HelperProcess(WORKER, MEMORY_BYTES)
                atexit.register(self.close)
            try:
                answer = self._helper.request({"ask": "list"}, LIST_S)
            except HelperDied:
                self._not_before = time.monotonic() + AGAIN_S
                return [], SILENT
        if "error" in answer:
            return [], PROBLEMS.get(answer["error"], f"{SILENT} ({answer['text']})")
        return [Listed(*card) for card in answer["cards"]], ""

    def close(self) -> None:
        """Ends the process; the next question starts another. Idempotent."""
        with self._lock:
            helper, self._helper = self._helper, None
            self._not_before = 0.0
        if helper is not None:
            atexit.unregister(self.close)
            helper.close()


LISTER = _Lister()


def listed_by_driver(root: Path = Path("/")) -> tuple[list[Listed], str]:
    """The cards in the order of the PCI bus; or none, and why. Milliseconds, but for the first time."""
    return LISTER.ask() if has_driver(root) else ([], NO_DRIVER)
