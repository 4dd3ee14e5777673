"""A driver of GPUs that only notes which memory it was told of."""

from __future__ import annotations

import threading


class FakeHost:
    """known: bytes by address. refuses: says no. A range that overlaps another, or that nobody told it of, is an error."""

    def __init__(self, *, refuses: bool = False) -> None:
        self.known: dict[int, int] = {}
        self.asked = 0
        self._refuses = refuses
        self._lock = threading.Lock()

    def register(self, address: int, nbytes: int) -> bool:
        """See `engine.runtime.pins.HostDriver`."""
        with self._lock:
            self.asked += 1
            if self._refuses:
                return False
            assert all(address + nbytes <= other or other + size <= address for other, size in self.known.items())
            self.known[address] = nbytes
            return True

    def unregister(self, address: int) -> None:
        """See `engine.runtime.pins.HostDriver`."""
        with self._lock:
            del self.known[address]
