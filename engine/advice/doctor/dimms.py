"""Which memory modules sit in which channels: of the error counters (EDAC), which anyone may read, and of the firmware's table
(DMI), which root alone may. Never raises.

Formats: Documentation/admin-guide/ras.rst of the kernel; System Management BIOS 3.6, 7.18 (Memory Device, type 17).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from engine.hardware import sysfs

MOST_BYTES = 1 << 20
_CHANNEL = re.compile(r"CHANNEL[ _-]?(\w)\b|DIMM[ _-]*(?:\d[ _-]*)?([A-P])\d?\b", re.IGNORECASE)
_SOCKET = re.compile(r"\bP(?:ROC)?[ _-]?(\d)|CPU[ _-]?(\d)|NODE[ _-]?(\d)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Modules:
    """n: modules that are there. slots: places for one, None where empty places are not told.

    channels, filled: channels of memory, and those with a module; None where names do not tell them apart. mt_s: million
    transfers a second that the slowest module is run at, None where it is not told.
    """

    n: int
    slots: int | None
    channels: int | None
    filled: int | None
    mt_s: int | None

    @property
    def theoretical_gbps(self) -> float | None:
        """GB/s that channels of 64 bits give together at that speed."""
        return None if self.mt_s is None or not self.filled else self.filled * self.mt_s * 8 / 1000


def read_modules(root: Path) -> Modules | None:
    """What is known of the modules below a root; None where nothing is."""
    return _from_table(root) or _from_counters(root)


def _from_counters(root: Path) -> Modules | None:
    """The driver lists modules that are there; empty places only some drivers know."""
    places, n = set(), 0
    for number, controller in sysfs.numbered(root / "sys/devices/system/edac/mc", "mc"):
        for prefix in ("dimm", "rank"):
            for _, module in sysfs.numbered(controller, prefix):
                size_mb = sysfs.number(module / "size")
                if size_mb is not None and size_mb > 0:
                    n += 1
                    places.add((number, _channel_of(sysfs.text(module / "dimm_location") or "")))
    if not n:
        return None
    known = all(channel is not None for _, channel in places)
    return Modules(n, None, None, len(places) if known else None, None)


def _channel_of(location: str) -> str | None:
    """`channel 3 slot 0`, or `csrow 0 channel 3`."""
    words = location.split()
    place = words.index("channel") if "channel" in words else -1
    return words[place + 1] if 0 <= place < len(words) - 1 else None


def _from_table(root: Path) -> Modules | None:
    raw = sysfs.read(root / "sys/firmware/dmi/tables/DMI")
    devices = [] if not raw else list(_memory_devices(raw[:MOST_BYTES]))
    there = [one for one in devices if one.size_mb]
    if not there:
        return None
    known = [one.channel for one in devices if one.channel is not None]
    told = len(known) == len(devices)
    speeds = [one.mt_s for one in there if one.mt_s]
    return Modules(
        n=len(there),
        slots=len(devices),
        channels=len(set(known)) if told else None,
        filled=len({one.channel for one in there}) if told else None,
        mt_s=min(speeds) if speeds else None,
    )


@dataclass(frozen=True, slots=True)
class _Device:
    size_mb: int
    mt_s: int
    channel: str | None


def _memory_devices(table: bytes) -> Iterator[_Device]:
    """Of each structure of type 17, up to the first that is broken."""
    at = 0
    while at + 4 <= len(table):
        kind, length = table[at], table[at + 1]
        end = table.find(b"\0\0", at + length)
        if length < 4 or end < 0:
            return
        if kind == 17 and length >= 0x17:
            yield _device(table[at : at + length], table[at + length : end].split(b"\0"))
        at = end + 2


def _device(fixed: bytes, strings: list[bytes]) -> _Device:
    (size,) = struct.unpack_from("<H", fixed, 0x0C)
    if size == 0x7FFF and len(fixed) >= 0x20:
        (size,) = struct.unpack_from("<I", fixed, 0x1C)
    elif size == 0xFFFF:
        size = 0
    elif size & 0x8000:
        size = (size & 0x7FFF) >> 10  # in kilobytes
    (speed,) = struct.unpack_from("<H", fixed, 0x20) if len(fixed) >= 0x22 else struct.unpack_from("<H", fixed, 0x15)
    names = [strings[fixed[i] - 1].decode("ascii", "replace") if 0 < fixed[i] <= len(strings) else "" for i in (0x11, 0x10)]
    return _Device(size, 0 if speed == 0xFFFF else speed, _channel(names))


def _channel(names: list[str]) -> str | None:
    """Socket and channel of `P0 CHANNEL A`, or of `CPU1_DIMM_A2`; boards name them as they like."""
    socket = next((found for name in names for found in _SOCKET.findall(name)), ())
    for name in names:
        match = _CHANNEL.search(name)
        if match:
            return f"{''.join(socket)}{(match[1] or match[2]).upper()}"
    return None
