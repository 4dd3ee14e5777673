"""A reading of the machine for people: a gauge a line, with its unit, and the reason where there is none."""

from __future__ import annotations

from collections.abc import Iterator

from engine.hardware.snapshot import GpuSample, HardwareSnapshot, Missing, NodeSample, why

GIB = 1 << 30
_WIDTH = 22
_NO_REASON = "the system does not tell"


def lines(snapshot: HardwareSnapshot) -> list[str]:
    """All of it."""
    found = [*_processor(snapshot), *_memory(snapshot), *_disk(snapshot)]
    if len(snapshot.nodes) > 1:
        for node in snapshot.nodes:
            found += _node(node)
    for gpu in snapshot.gpus:
        found += _card(gpu)
    if snapshot.gpu_problem:
        found.append(f"No cards: {snapshot.gpu_problem}")
    return found


def _row(label: str, text: str) -> str:
    return f"  {label:<{_WIDTH}} {text}"


def _gauge(label: str, value: float | None, unit: str, missing: Missing, field: str, form: str = ",.0f") -> str:
    if value is None:
        return _row(label, f"n/a: {why(missing, field) or _NO_REASON}")
    return _row(label, f"{value:{form}} {unit}")


def _bytes(label: str, value: int | None, missing: Missing, field: str, of: int | None = None) -> str:
    if value is None:
        return _row(label, f"n/a: {why(missing, field) or _NO_REASON}")
    return _row(label, f"{value / GIB:.1f} {f'of {of / GIB:.1f} ' if of else ''}GiB")


def _rate(label: str, value: float | None, missing: Missing, field: str) -> str:
    return _gauge(label, None if value is None else value / 1e6, "MB/s", missing, field, ",.1f")


def _processor(snapshot: HardwareSnapshot) -> Iterator[str]:
    cpu, use = snapshot.cpu, snapshot.cpu.use_percent
    clocks = [core.frequency_mhz for core in snapshot.cores if core.frequency_mhz is not None]
    yield f"Processor: {cpu.name}"
    yield _gauge("busy", sum(use) / len(use) if use else None, f"% of {len(use)} threads", cpu.missing, "use_percent")
    yield _gauge("clock", sum(clocks) / len(clocks) if clocks else None, "MHz", cpu.missing, "frequency_mhz")
    yield _gauge("temperature", cpu.temperature_c, "°C", cpu.missing, "temperature_c")
    yield _gauge("power", cpu.package_power_w, "W", cpu.missing, "package_power_w")
    yield _gauge("taken by the host", cpu.steal_percent, "%", cpu.missing, "steal_percent", ".1f")
    yield _gauge("waiting for disks", cpu.waiting_percent, "%", cpu.missing, "waiting_percent", ".1f")


def _memory(snapshot: HardwareSnapshot) -> Iterator[str]:
    memory, pressure = snapshot.memory, snapshot.pressure
    yield "Memory"
    yield _bytes("used", snapshot.ram_used_bytes, (), "", snapshot.ram_total_bytes)
    yield _bytes("can be taken", memory.available_bytes, memory.missing, "available_bytes")
    yield _bytes("in swap", memory.swap_used_bytes, memory.missing, "swap_used_bytes", memory.swap_total_bytes)
    yield _rate("from swap", memory.swap_in_bytes_per_s, memory.missing, "swap_in_bytes_per_s")
    for label, field in (
        ("waiting for a core", "cpu_some_percent"),
        ("waiting for memory", "memory_some_percent"),
        ("all of it waiting", "memory_full_percent"),
        ("waiting for disks", "io_some_percent"),
    ):
        yield _gauge(label, getattr(pressure, field), "% of the last 10 s", pressure.missing, field, ".1f")


def _disk(snapshot: HardwareSnapshot) -> Iterator[str]:
    disk = snapshot.disk
    yield "Disk"
    yield _bytes("free", snapshot.disk_free_bytes, (), "")
    yield _rate("read by this program", disk.process_read_bytes_per_s, disk.missing, "process_read_bytes_per_s")


def _node(node: NodeSample) -> Iterator[str]:
    yield f"Memory node {node.node}"
    yield _bytes("used", node.used_bytes, node.missing, "used_bytes", node.total_bytes)
    yield _bytes("files that are kept", node.file_cache_bytes, node.missing, "file_cache_bytes")
    yield _bytes("free", node.free_bytes, node.missing, "free_bytes")
    yield _gauge("pages for others", node.remote_pages_per_s, "a second", node.missing, "remote_pages_per_s")
    yield _gauge("pages from others", node.missed_pages_per_s, "a second", node.missing, "missed_pages_per_s")


def _card(gpu: GpuSample) -> Iterator[str]:
    yield f"Card: {gpu.name} ({gpu.pci or gpu.key})"
    if gpu.state != "ok":
        yield _row(gpu.state, gpu.problem)
        return
    missing = gpu.missing
    yield _gauge("busy", gpu.busy_percent, "%", missing, "busy_percent")
    yield _bytes("memory of programs", gpu.memory_used_bytes, missing, "memory_used_bytes", gpu.memory_total_bytes)
    yield _bytes("free", gpu.memory_free_bytes, missing, "memory_free_bytes")
    yield _gauge("temperature", gpu.temperature_c, "°C", missing, "temperature_c")
    yield _gauge("of its memory", gpu.memory_temperature_c, "°C", missing, "memory_temperature_c")
    yield _gauge("before it slows down", gpu.margin_c, "°C", missing, "margin_c")
    limit = "" if gpu.power_limit_w is None else f" of {gpu.power_limit_w:,.0f} W"
    yield _gauge("power", gpu.power_w, f"W{limit}", missing, "power_w")
    most = "" if gpu.core_clock_max_mhz is None else f" of {gpu.core_clock_max_mhz:,.0f} MHz"
    yield _gauge("clock", gpu.core_clock_mhz, f"MHz{most}", missing, "core_clock_mhz")
    if gpu.slow_reasons is None:
        yield _row("clock is low because", f"n/a: {why(missing, 'slow_reasons') or why(missing, 'slow_bits') or _NO_REASON}")
    elif gpu.slow_reasons:
        yield _row("clock is low because", "; ".join(gpu.slow_reasons))
    yield _gauge("fan", gpu.fan_percent, "%", missing, "fan_percent")
    if gpu.link_generation is None or gpu.link_width is None:
        yield _row("link", f"n/a: {why(missing, 'link_generation') or why(missing, 'link_width') or _NO_REASON}")
    else:
        most = f" of {gpu.link_width_max}" if gpu.link_width_max not in (None, gpu.link_width) else ""
        yield _row("link", f"PCIe {gpu.link_generation}, {gpu.link_width}{most} lanes")
    yield _gauge("link, sent again", gpu.link_replays, "packets", missing, "link_replays")
    yield _gauge("memory errors", gpu.ecc_errors, "", missing, "ecc_errors").rstrip()
    if gpu.link_read_bytes_per_s is not None:
        yield _rate("to the card", gpu.link_read_bytes_per_s, missing, "link_read_bytes_per_s")
        yield _rate("from the card", gpu.link_write_bytes_per_s, missing, "link_write_bytes_per_s")
    for process in gpu.processes or ():
        held = "n/a" if process.memory_bytes is None else f"{process.memory_bytes / GIB:.1f} GiB"
        yield _row("held by", f"{process.name} ({process.pid}): {held}")
