"""NVIDIA's cards as the sensor process sees them: what each can tell is found out once, what fails is told with its reason.

A card that is lost, or whose library hangs or crashes, is its parent's business: `gpu_watch`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

import pynvml

from engine.hardware import sysfs
from engine.hardware.nvml_calls import CALLS, NO_FAN, UNSUPPORTED, Call, Shared, Tier, read_memory
from engine.hardware.pci import pci_address

LOST = (15, 16)
"""The card fell off the bus, or waits for a reset."""
UNKNOWN = 999
LOST_AFTER = 3
"""So many unknown errors in a row mean that it is gone as well."""
NO_ATTACH = 2
"""Initialises without touching cards that nobody asks about."""

_RANGES: Mapping[str, tuple[float, float]] = {
    "busy_percent": (0, 100),
    "memory_busy_percent": (0, 100),
    "fan_percent": (0, 200),
    "temperature_c": (-40, 200),
    "memory_temperature_c": (-40, 200),
    "slowdown_temperature_c": (1, 200),
    "shutdown_temperature_c": (1, 200),
    "margin_c": (-100, 200),
    "power_w": (0, 5000),
    "power_limit_w": (1, 5000),
    "power_limit_default_w": (1, 5000),
    "core_clock_mhz": (0, 20_000),
    "core_clock_max_mhz": (1, 20_000),
    "memory_clock_mhz": (0, 50_000),
    "memory_clock_max_mhz": (1, 50_000),
    "performance_state": (0, 15),
    "link_generation": (1, 9),
    "link_generation_max": (1, 9),
    "link_generation_card_max": (1, 9),
    "link_width": (1, 32),
    "link_width_max": (1, 32),
}
_NONSENSE = "the driver gave a value that cannot be"
_SHARED = "it shares the machine's memory"

LINK_COUNTERS = ("link_read_bytes_per_s", "link_write_bytes_per_s")
LINK_PERIOD_S = 2.0


def start(*, leave_asleep: bool) -> int:
    """Opens the library; the number of cards. leave_asleep: some cards sleep and are not to be touched.

    Raises:
        NVMLError.
    """
    pynvml.nvmlInitWithFlags(NO_ATTACH if leave_asleep else 0)
    return int(pynvml.nvmlDeviceGetCount())


def stop() -> None:
    """Closes the library. Raises: NVMLError."""
    pynvml.nvmlShutdown()


def listed(n: int) -> list[tuple[str, str, int, int]]:
    """(UUID, name, bytes of memory, bytes of them free) of each card, by number.

    Raises:
        NVMLError.
    """
    found = []
    for slot in range(n):
        handle = pynvml.nvmlDeviceGetHandleByIndex(slot)
        try:
            memory = read_memory(handle)
        except Shared:
            memory = {"memory_total_bytes": 0, "memory_free_bytes": 0}
        total, free = int(memory["memory_total_bytes"]), int(memory["memory_free_bytes"])
        found.append((_uuid(handle), _text(pynvml.nvmlDeviceGetName(handle)), total, free))
    return found


class Card:
    """One card: its handle, its identity, and which questions it answers."""

    def __init__(self, slot: int | str) -> None:
        """slot: number among the library's cards, or PCI address.

        Raises:
            NVMLError.
        """
        if isinstance(slot, int):
            self._handle = pynvml.nvmlDeviceGetHandleByIndex(slot)
        else:
            self._handle = pynvml.nvmlDeviceGetHandleByPciBusId(slot.encode())
        bus = _text(pynvml.nvmlDeviceGetPciInfo(self._handle).busId)
        self.pci = pci_address(bus) or bus.lower()
        self.name = _text(pynvml.nvmlDeviceGetName(self._handle))
        self.uuid = _uuid(self._handle) or self.pci
        self._off: dict[str, str] = {}
        self._link: LinkMeter | None = None
        self._unknown = 0

    def read(self, tiers: frozenset[Tier], *, details: bool) -> dict[str, Any]:
        """values and missing by field, and error: the number of what says that the card is gone, None while it is there.

        details: also which programs hold its memory, and the traffic of its link.
        """
        values: dict[str, Any] = {}
        missing: dict[str, str] = {}
        for call in CALLS:
            if call.tier in tiers:
                error = self._ask(call, values, missing)
                if error is not None:
                    return {"values": values, "missing": missing, "error": error}
        if details:
            self._details(values, missing)
        elif self._link is not None:
            self._link.close()
            self._link = None
        return {"values": values, "missing": missing, "error": None}

    def _ask(self, call: Call, values: dict[str, Any], missing: dict[str, str]) -> int | None:
        """Puts one question; the error that means that the card is gone."""
        reason = self._off.get(call.name)
        if reason is None:
            try:
                found = call.read(self._handle)
                self._unknown = 0
            except pynvml.NVMLError as error:
                if self._gone(error.value):
                    return int(error.value)
                reason = UNSUPPORTED.get(error.value, f"the driver does not tell ({error})")
                if error.value == 3 and call.fields == ("fan_percent",):
                    reason = NO_FAN
                if error.value in UNSUPPORTED:
                    self._off[call.name] = reason
            except Shared:
                reason = _SHARED
            except (AttributeError, TypeError, ValueError) as error:
                # A binding that is older or newer than the driver.
                reason = self._off[call.name] = f"the driver's interface differs ({error})"[:120]
            else:
                _take(found, values, missing)
                return None
        missing.update(dict.fromkeys(call.fields, reason))
        return None

    def _gone(self, error: int) -> bool:
        self._unknown = self._unknown + 1 if error == UNKNOWN else 0
        return error in LOST or self._unknown >= LOST_AFTER

    def _details(self, values: dict[str, Any], missing: dict[str, str]) -> None:
        try:
            values["processes"] = _processes(self._handle)
        except pynvml.NVMLError as error:
            missing["processes"] = UNSUPPORTED.get(error.value, f"the driver does not tell ({error})")
        if self._link is None:
            self._link = LinkMeter(self._handle)
        self._link.tell(values, missing)

    def close(self) -> None:
        """Ends what runs beside."""
        if self._link is not None:
            self._link.close()
            self._link = None


class LinkMeter:
    """Bytes a second over a card's link by the driver's counters, which cost nothing, or else by its question that takes 20 ms
    each way, which is why it is put on a thread, every 2 s."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self._before: tuple[float, int, int] | None = None
        self._counts = True
        self._rates: tuple[float, float] | None = None
        self._problem = ""
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def tell(self, values: dict[str, Any], missing: dict[str, str]) -> None:
        """Fills in what is known by now."""
        if self._counts:
            self._count()
        if not self._counts and self._thread is None:
            self._thread = threading.Thread(target=self._measure, name="link", daemon=True)
            self._thread.start()
        if self._rates is not None:
            values.update(zip(LINK_COUNTERS, self._rates, strict=True))
        else:
            missing.update(dict.fromkeys(LINK_COUNTERS, self._problem or "it is being measured"))

    def _count(self) -> None:
        ids = [pynvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES, pynvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES]
        try:
            read, written = pynvml.nvmlDeviceGetFieldValues(self._handle, ids)
        except (pynvml.NVMLError, AttributeError):
            self._counts = False
            return
        if read.nvmlReturn or written.nvmlReturn:
            self._counts = False
            return
        now = (time.monotonic(), int(read.value.ullVal), int(written.value.ullVal))
        if self._before is not None and now[0] > self._before[0]:
            seconds = now[0] - self._before[0]
            self._rates = (max(0, now[1] - self._before[1]) / seconds, max(0, now[2] - self._before[2]) / seconds)
        self._before = now

    def _measure(self) -> None:
        while not self._ended.is_set():
            try:
                # In KB a second; what the card receives is read from the host's memory.
                read = pynvml.nvmlDeviceGetPcieThroughput(self._handle, pynvml.NVML_PCIE_UTIL_RX_BYTES)
                written = pynvml.nvmlDeviceGetPcieThroughput(self._handle, pynvml.NVML_PCIE_UTIL_TX_BYTES)
                self._rates = (read * 1000.0, written * 1000.0)
            except pynvml.NVMLError as error:
                self._rates, self._problem = None, UNSUPPORTED.get(error.value, f"the driver does not tell ({error})")
                if error.value in UNSUPPORTED or error.value in LOST:
                    return
            self._ended.wait(LINK_PERIOD_S)

    def close(self) -> None:
        """Ends the thread soon; nobody waits for a question that is under way."""
        self._ended.set()


def _take(found: Mapping[str, Any], values: dict[str, Any], missing: dict[str, str]) -> None:
    for field, value in found.items():
        low, high = _RANGES.get(field, (0, 1 << 60))
        if value is None:
            missing[field] = UNSUPPORTED[13]
        elif isinstance(value, int | float) and not low <= value <= high:
            missing[field] = _NONSENSE
        else:
            values[field] = value
    used, total = values.get("memory_used_bytes"), values.get("memory_total_bytes")
    if used is not None and total is not None and used > total:
        for field in ("memory_used_bytes", "memory_free_bytes"):
            values.pop(field, None)
            missing[field] = _NONSENSE


def _processes(handle: Any) -> list[list[Any]]:
    """[pid, name, bytes or None] of each program with memory on the card, the largest first."""
    found: dict[int, int | None] = {}
    for ask in (pynvml.nvmlDeviceGetComputeRunningProcesses, pynvml.nvmlDeviceGetGraphicsRunningProcesses):
        for one in ask(handle):
            nbytes = one.usedGpuMemory
            if nbytes is None or nbytes < 1 << 50:  # older drivers fill a longer struct than we read: junk
                found[one.pid] = nbytes
    order = sorted(found.items(), key=lambda pair: -(pair[1] or 0))
    return [[pid, sysfs.text(f"/proc/{pid}/comm") or "", nbytes] for pid, nbytes in order]


def _uuid(handle: Any) -> str:
    try:
        return _text(pynvml.nvmlDeviceGetUUID(handle))
    except pynvml.NVMLError as error:
        if error.value in UNSUPPORTED:
            return ""
        raise


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
