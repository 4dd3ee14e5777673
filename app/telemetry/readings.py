"""One reading of machine and engine as values by name of gauge: what a Timeline and a recording keep of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from app.telemetry import keys
from engine.api.values import CoreSample, EngineSample, HardwareSnapshot

GPU_FIELDS = (
    "temperature_c", "busy_percent", "memory_used_bytes", "power_w", "core_clock_mhz", "fan_percent", "memory_clock_mhz",
    "memory_busy_percent", "memory_temperature_c", "hotspot_temperature_c", "margin_c", "link_read_bytes_per_s",
    "link_write_bytes_per_s",
)  # fmt: skip
NODE_FIELDS = ("used_bytes", "free_bytes", "file_cache_bytes", "anonymous_bytes", "remote_pages_per_s", "missed_pages_per_s")
CPU_FIELDS = ("temperature_c", "package_power_w", "steal_percent", "waiting_percent")
MEMORY_FIELDS = (
    "available_bytes", "swap_used_bytes", "swap_in_bytes_per_s", "swap_out_bytes_per_s", "process_major_faults_per_s",
)  # fmt: skip
PRESSURE_FIELDS = (
    "cpu_some_percent", "memory_some_percent", "memory_full_percent", "io_some_percent", "io_full_percent",
)  # fmt: skip
DISK_FIELDS = ("process_read_bytes_per_s", "device_read_bytes_per_s", "device_busy_percent")
DEVICE_FIELDS = (
    "working_percent", "token_ms", "waiting_ms", "read_bytes_per_s", "read_bytes_per_token", "in_bytes_per_s", "out_bytes_per_s",
)  # fmt: skip
ENGINE_FIELDS = ("step_ms", "outside_ms", "kv_used_tokens", "n_answers")
CORE_FIELDS = ("use_percent", "temperature_c", "frequency_mhz")

KEPT_GPU_FIELDS = ("temperature_c", "power_w", "memory_used_bytes")
_KEPT_DEVICE_FIELDS = ("working_percent", "read_bytes_per_s")
_KEPT_ALONE = (
    keys.decode(), keys.prefill(), keys.first_token(), keys.vram_used(), keys.ram_used(), keys.power(), keys.cpu("use_percent"),
    keys.cpu("temperature_c"),
)  # fmt: skip

Values = dict[str, float]


def readings(snapshot: HardwareSnapshot, sample: EngineSample | None, node_of_core: Mapping[int, int]) -> Values:
    """What is known, by key; what is not known is left out. node_of_core: the node of each CoreSample's index, {} leaves out what
    is summed up by node. Prefill and first token are of answers, not of readings: they are not in here."""
    found: Values = {keys.ram_used(): float(snapshot.ram_used_bytes)}
    if snapshot.cpu.use_percent:
        found[keys.cpu("use_percent")] = _mean(snapshot.cpu.use_percent)
    _take(found, keys.cpu(""), snapshot.cpu, CPU_FIELDS)
    _take(found, keys.memory(""), snapshot.memory, MEMORY_FIELDS)
    _take(found, keys.pressure(""), snapshot.pressure, PRESSURE_FIELDS)
    _take(found, keys.disk(""), snapshot.disk, DISK_FIELDS)
    for node in snapshot.nodes:
        _take(found, keys.node(node.node, ""), node, NODE_FIELDS)
    _of_cores(found, snapshot.cores, node_of_core)
    _of_cards(found, snapshot)
    if sample is not None:
        _of_engine(found, sample)
    return found


def _of_cards(found: Values, snapshot: HardwareSnapshot) -> None:
    cards = [gpu for gpu in snapshot.gpus if gpu.state == "ok"]
    for gpu in cards:
        _take(found, keys.gpu(gpu.key, ""), gpu, GPU_FIELDS)
    held = [gpu.memory_used_bytes for gpu in cards if gpu.memory_used_bytes is not None]
    if held:
        found[keys.vram_used()] = float(sum(held))
    watts = [gpu.power_w for gpu in cards if gpu.power_w is not None]
    if snapshot.cpu.package_power_w is not None:
        watts.append(snapshot.cpu.package_power_w)
    if watts:
        found[keys.power()] = sum(watts)


def _of_cores(found: Values, cores: Iterable[CoreSample], node_of_core: Mapping[int, int]) -> None:
    sums: dict[str, list[float]] = {}
    for core in cores:
        number = node_of_core.get(core.index)
        if number is None:
            continue
        values = (_mean(core.use_percent) if core.use_percent else None, core.temperature_c, core.frequency_mhz)
        for field, value in zip(CORE_FIELDS, values, strict=True):
            if value is not None:
                sums.setdefault(keys.node(number, field), []).append(value)
    for key, values_of in sums.items():
        # The hottest core is the one that slows the others down.
        found[key] = max(values_of) if key.endswith("temperature_c") else _mean(values_of)


def _of_engine(found: Values, sample: EngineSample) -> None:
    if sample.decode_tok_s is not None:
        found[keys.decode()] = sample.decode_tok_s
    _take(found, keys.engine(""), sample, ENGINE_FIELDS)
    for device in sample.devices:
        _take(found, keys.device(device.device, ""), device, DEVICE_FIELDS)


def _take(found: Values, start: str, part: object, fields: Iterable[str]) -> None:
    for field in fields:
        value: Any = getattr(part, field)
        if value is not None:
            found[start + field] = float(value)


def _mean(values: Iterable[float]) -> float:
    listed = tuple(values)
    return sum(listed) / len(listed)


def kept(values: Mapping[str, float]) -> dict[str, float]:
    """Of one reading, what is kept with a message."""
    return {key: value for key, value in values.items() if _is_kept(key)}


def _is_kept(key: str) -> bool:
    kind, _, name = keys.split(key)
    return key in _KEPT_ALONE or (kind == "gpu" and name in KEPT_GPU_FIELDS) or (kind == "device" and name in _KEPT_DEVICE_FIELDS)
