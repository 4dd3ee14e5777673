"""The questions that are put to NVIDIA's library about a card, each with what it fills of a `GpuSample`. Used by the sensor
process alone: this library can hang, crash, and slow down what it watches.

Costs are of an H200 under driver 580; what takes a millisecond is asked once or every 5 s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pynvml

Tier = Literal["once", "often", "seldom"]
"""once: when a card is met; often: with every reading; seldom: every 5 s."""

Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Call:
    """One question. read(handle) gives values by the fields that it fills; it raises what the library says."""

    name: str
    tier: Tier
    fields: tuple[str, ...]
    read: Callable[[Any], Values]


def read_memory(handle: Any) -> Values:
    """Memory of a card by its owners.

    Raises:
        NVMLError. Shared: it has none of its own.
    """
    try:
        found = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
    except pynvml.NVMLError as error:
        if error.value not in UNSUPPORTED:
            raise
        # The first version counts what the driver keeps for itself as used.
        found = pynvml.nvmlDeviceGetMemoryInfo(handle)
    if not found.total:
        raise Shared
    return {
        "memory_total_bytes": found.total,
        "memory_used_bytes": found.used,
        "memory_free_bytes": found.free,
        "memory_reserved_bytes": getattr(found, "reserved", None),
    }


class Shared(Exception):
    """The card has no memory of its own."""


def _utilisation(handle: Any) -> Values:
    found = pynvml.nvmlDeviceGetUtilizationRates(handle)
    return {"busy_percent": found.gpu, "memory_busy_percent": found.memory}


def _memory_temperature(handle: Any) -> Values:
    (found,) = pynvml.nvmlDeviceGetFieldValues(handle, [pynvml.NVML_FI_DEV_MEMORY_TEMP])
    if found.nvmlReturn:
        raise pynvml.NVMLError(found.nvmlReturn)
    # Cards without such a sensor say 0 on some drivers.
    if not found.value.uiVal:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
    return {"memory_temperature_c": found.value.uiVal}


def _margin(handle: Any) -> Values:
    return {"margin_c": pynvml.nvmlDeviceGetMarginTemperature(handle)}


def _threshold(field: str, which: int) -> Callable[[Any], Values]:
    return lambda handle: {field: pynvml.nvmlDeviceGetTemperatureThreshold(handle, which)}


def _watts(field: str, ask: Callable[[Any], int]) -> Callable[[Any], Values]:
    return lambda handle: {field: ask(handle) / 1000}


def _fans(handle: Any) -> Values:
    try:
        n = pynvml.nvmlDeviceGetNumFans(handle)
    except pynvml.NVMLError as error:
        if error.value not in UNSUPPORTED:
            raise
        return {"fan_percent": pynvml.nvmlDeviceGetFanSpeed(handle)}
    if not n:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
    return {"fan_percent": max(pynvml.nvmlDeviceGetFanSpeed_v2(handle, i) for i in range(n))}


def _clock(field: str, ask: Callable[[Any, int], int], which: int) -> Callable[[Any], Values]:
    return lambda handle: {field: ask(handle, which)}


def _reasons(handle: Any) -> Values:
    try:
        bits = pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle)
    except pynvml.NVMLError as error:
        if error.value not in UNSUPPORTED:
            raise
        bits = pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
    return {"slow_bits": bits, "slow_reasons": [text for bit, text in SLOW_REASONS.items() if bits & bit]}


def _link(handle: Any) -> Values:
    return {
        "link_generation": pynvml.nvmlDeviceGetCurrPcieLinkGeneration(handle),
        "link_width": pynvml.nvmlDeviceGetCurrPcieLinkWidth(handle),
    }


def _link_max(handle: Any) -> Values:
    return {
        "link_generation_max": pynvml.nvmlDeviceGetMaxPcieLinkGeneration(handle),
        "link_width_max": pynvml.nvmlDeviceGetMaxPcieLinkWidth(handle),
    }


def _ecc(handle: Any) -> Values:
    uncorrected, since_start = pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC
    return {"ecc_errors": pynvml.nvmlDeviceGetTotalEccErrors(handle, uncorrected, since_start)}


MOST_NVLINKS = 18
"""Of a card, on the boards that have most."""


def _nvlinks(handle: Any) -> Values:
    up = down = 0
    for link in range(MOST_NVLINKS):
        try:
            state = pynvml.nvmlDeviceGetNvLinkState(handle, link)
        except pynvml.NVMLError as error:
            if not link or error.value not in (*UNSUPPORTED, pynvml.NVML_ERROR_INVALID_ARGUMENT):
                raise
            break
        up, down = up + bool(state), down + (not state)
    return {"nvlinks": up, "nvlinks_down": down}


def _capability(handle: Any) -> Values:
    major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
    return {"compute_capability": f"{major}.{minor}"}


def _one(field: str, ask: Callable[[Any], Any]) -> Callable[[Any], Values]:
    return lambda handle: {field: ask(handle)}


UNSUPPORTED = {
    3: "this card does not offer it",
    13: "the installed driver does not offer it",
    25: "the installed driver does not offer it",
    4: "the system wants administrator rights for it",
}
"""Answers, by number, after which a question is not put to this card again, and what they mean."""

SLOW_REASONS = {
    0x2: "its clock is set by a program or its user",
    0x4: "it is at its power limit",
    0x8: "its hardware slows it down",
    0x10: "it runs in step with other cards",
    0x20: "it is hot: the driver slows it down",
    0x40: "it is too hot: its hardware slows it down",
    0x80: "power brake: the power supply or its cable asks for less",
    0x100: "its display sets the clock",
}
"""By bit. 0x1, idle, is no reason to tell; 0x4 alone is normal under full load."""

NO_FAN = "this card has no fan of its own"

CALLS = (
    Call("thresholds: slow down", "once", ("slowdown_temperature_c",), _threshold("slowdown_temperature_c", 1)),
    Call("thresholds: shut down", "once", ("shutdown_temperature_c",), _threshold("shutdown_temperature_c", 0)),
    Call("maximum clock", "once", ("core_clock_max_mhz",), _clock("core_clock_max_mhz", pynvml.nvmlDeviceGetMaxClockInfo, 1)),
    Call(
        "maximum memory clock",
        "once",
        ("memory_clock_max_mhz",),
        _clock("memory_clock_max_mhz", pynvml.nvmlDeviceGetMaxClockInfo, 2),
    ),
    Call(
        "default power limit",
        "once",
        ("power_limit_default_w",),
        _watts("power_limit_default_w", pynvml.nvmlDeviceGetPowerManagementDefaultLimit),
    ),
    Call("link at most", "once", ("link_generation_max", "link_width_max"), _link_max),
    Call(
        "card's link at most",
        "once",
        ("link_generation_card_max",),
        _one("link_generation_card_max", pynvml.nvmlDeviceGetGpuMaxPcieLinkGeneration),
    ),
    Call(
        "BAR1",
        "once",
        ("bar1_total_bytes",),
        lambda handle: {"bar1_total_bytes": pynvml.nvmlDeviceGetBAR1MemoryInfo(handle).bar1Total},
    ),
    Call(
        "persistence", "once", ("persistence",), lambda handle: {"persistence": bool(pynvml.nvmlDeviceGetPersistenceMode(handle))}
    ),
    Call("instances", "once", ("mig",), lambda handle: {"mig": bool(pynvml.nvmlDeviceGetMigMode(handle)[0])}),
    Call("compute capability", "once", ("compute_capability",), _capability),
    Call("links between cards", "once", ("nvlinks", "nvlinks_down"), _nvlinks),
    Call(
        "memory",
        "often",
        ("memory_total_bytes", "memory_used_bytes", "memory_free_bytes", "memory_reserved_bytes"),
        read_memory,
    ),
    Call("utilisation", "often", ("busy_percent", "memory_busy_percent"), _utilisation),
    Call(
        "temperature", "often", ("temperature_c",), lambda handle: {"temperature_c": pynvml.nvmlDeviceGetTemperature(handle, 0)}
    ),
    Call("memory temperature", "often", ("memory_temperature_c",), _memory_temperature),
    Call("power", "often", ("power_w",), _watts("power_w", pynvml.nvmlDeviceGetPowerUsage)),
    Call("power limit", "often", ("power_limit_w",), _watts("power_limit_w", pynvml.nvmlDeviceGetEnforcedPowerLimit)),
    Call("clock", "often", ("core_clock_mhz",), _clock("core_clock_mhz", pynvml.nvmlDeviceGetClockInfo, 1)),
    Call("memory clock", "often", ("memory_clock_mhz",), _clock("memory_clock_mhz", pynvml.nvmlDeviceGetClockInfo, 2)),
    Call("performance state", "often", ("performance_state",), _one("performance_state", pynvml.nvmlDeviceGetPerformanceState)),
    Call("reasons", "often", ("slow_bits", "slow_reasons"), _reasons),
    Call("link", "often", ("link_generation", "link_width"), _link),
    Call("margin", "seldom", ("margin_c",), _margin),
    Call("fans", "seldom", ("fan_percent",), _fans),
    Call("link replays", "seldom", ("link_replays",), _one("link_replays", pynvml.nvmlDeviceGetPcieReplayCounter)),
    Call("memory errors", "seldom", ("ecc_errors",), _ecc),
)
