"""Ranges of the machine's memory that the driver of the GPUs was told of: cards read them where they lie, as fast as the bus
goes and without a core.

They cannot be swapped or moved while they are pinned, so that there are limits; and what is unmapped must be given back before.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right, insort
from typing import NamedTuple, Protocol

MAX_REFUSED = 3
"""So many ranges that are refused, and no more is tried."""


class Part(NamedTuple):
    """nbytes at an address."""

    address: int
    nbytes: int
    pinned: bool


class HostDriver(Protocol):
    """Who is told."""

    def register(self, address: int, nbytes: int) -> bool:
        """Whether the range can be read by cards from now on."""

    def unregister(self, address: int) -> None:
        """Of a range that begins there. Never raises."""


class Pins:
    """For any thread; each range is one thread's at a time. Without a driver nothing is pinned."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self._driver: HostDriver | None = None
        self._lock = threading.Lock()
        self._starts: list[int] = []
        self._sizes: dict[int, int] = {}
        self._refused = 0
        self.nbytes = 0
        """Pinned by now."""

    def use(self, driver: HostDriver) -> None:
        """From now on ranges can be pinned. The first one stays."""
        self._driver = self._driver or driver

    def has_room(self, nbytes: int) -> bool:
        """Whether it makes sense to pin so much."""
        return self._driver is not None and self._refused < MAX_REFUSED and self.nbytes + nbytes <= self.most_bytes

    def pin(self, address: int, nbytes: int) -> bool:
        """Whether the range, which overlaps no other, is pinned now. Takes a millisecond for 20 to 32 MiB."""
        with self._lock:
            driver = self._driver
            if driver is None or not self.has_room(nbytes):
                return False
            self.nbytes += nbytes
        done = driver.register(address, nbytes)
        with self._lock:
            if done:
                insort(self._starts, address)
                self._sizes[address] = nbytes
            else:
                self.nbytes -= nbytes
                self._refused += 1
        return done

    def holds(self, address: int, nbytes: int) -> bool:
        """Whether this very range is pinned."""
        return self._sizes.get(address) == nbytes

    def drop(self, address: int, nbytes: int = 1) -> None:
        """Gives back the ranges that overlap this one. No card may be reading them; the driver waits until all cards are idle."""
        with self._lock:
            i = bisect_right(self._starts, address)
            if i and self._starts[i - 1] + self._sizes[self._starts[i - 1]] > address:
                i -= 1
            end = bisect_left(self._starts, address + nbytes, lo=i)
            driver, going = self._driver, self._starts[i:end]
            del self._starts[i:end]
            self.nbytes -= sum(self._sizes.pop(start) for start in going)
        if driver is not None:
            for start in going:
                driver.unregister(start)

    @property
    def ranges(self) -> tuple[tuple[int, int], ...]:
        """(address, bytes) of all that is pinned."""
        with self._lock:
            return tuple((start, self._sizes[start]) for start in self._starts)

    def parts(self, address: int, nbytes: int) -> list[Part]:
        """The range in order, in parts that are pinned and parts that are not. One that is lies in a single pinned range: a copy
        reads from no two."""
        found: list[Part] = []
        end = address + nbytes
        with self._lock:
            i = max(0, bisect_right(self._starts, address) - 1)
            while address < end:
                start = self._starts[i] if i < len(self._starts) else end
                stop = start + self._sizes.get(start, 0)
                i += 1
                if stop <= address and start < end:
                    continue
                if address < start:
                    found.append(Part(address, min(start, end) - address, pinned=False))
                    address = min(start, end)
                if address < end:
                    found.append(Part(address, min(stop, end) - address, pinned=True))
                    address = min(stop, end)
        return found

    def close(self) -> None:
        """Gives everything back. Idempotent."""
        for address, _ in self.ranges:
            self.drop(address)
