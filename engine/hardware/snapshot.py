"""One reading of the machine: what the sensors give and every monitor shows. Values only.

Units stand in the names. What cannot be had is None, and `missing` of the part says why, in words for people.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from engine.hardware.process_sample import ProcessSample

Missing = tuple[tuple[str, str], ...]
"""(field, why it is None): `("fan_percent", "this card has no fan of its own")`."""

GpuMaker = Literal["nvidia", "amd", "intel"]
GpuState = Literal["ok", "asleep", "resting", "silent", "lost", "off"]
"""ok: answers. asleep: the system has switched it off to save power, and it is not woken. resting: left alone so that it can fall
asleep. silent: the last question was not answered; it is asked again. lost: it fell off the bus. off: not asked any more."""


def why(missing: Missing, name: str) -> str:
    """Why a field is None, or ""."""
    return next((reason for field, reason in missing if field == name), "")


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A program that holds memory of a card. memory_bytes: None where the driver does not tell."""

    pid: int
    name: str
    memory_bytes: int | None


@dataclass(frozen=True, slots=True)
class GpuSample:
    """One card. key: its UUID, or its PCI address where it has none; it stays when the order of cards changes.

    problem: one sentence while state is not `ok`. age_s: how old the values are: they stay while a card is silent.
    busy_percent: of the time in which any kernel ran, a waiting one too; the engine's own figure is `DeviceWork.working_percent`.
    memory_used_bytes: of programs; what the driver keeps for itself is memory_reserved_bytes.
    margin_c: degrees before it slows down. slow_reasons: why its clock is low now, for people; () when it is not.
    link_*_max: what card and slot can both do; link_generation_card_max: the card alone. Generation falls while idle.
    link_read_bytes_per_s, link_write_bytes_per_s: to and from the card, by the driver; only while asked for.
    persistence: the driver keeps it ready while nobody uses it. mig: it is split into instances. compute_capability: `9.0`.
    nvlinks: direct links to other cards that work; nvlinks_down: those that do not.
    """

    key: str
    pci: str
    name: str
    maker: GpuMaker
    node: int | None = None
    state: GpuState = "ok"
    problem: str = ""
    age_s: float = 0.0
    busy_percent: float | None = None
    memory_busy_percent: float | None = None
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None
    memory_free_bytes: int | None = None
    memory_reserved_bytes: int | None = None
    temperature_c: float | None = None
    memory_temperature_c: float | None = None
    hotspot_temperature_c: float | None = None
    margin_c: float | None = None
    slowdown_temperature_c: float | None = None
    shutdown_temperature_c: float | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    power_limit_default_w: float | None = None
    fan_percent: float | None = None
    fan_rpm: float | None = None
    core_clock_mhz: float | None = None
    core_clock_max_mhz: float | None = None
    memory_clock_mhz: float | None = None
    memory_clock_max_mhz: float | None = None
    performance_state: int | None = None
    slow_reasons: tuple[str, ...] | None = None
    slow_bits: int | None = None
    link_generation: int | None = None
    link_generation_max: int | None = None
    link_generation_card_max: int | None = None
    link_width: int | None = None
    link_width_max: int | None = None
    link_replays: int | None = None
    link_read_bytes_per_s: float | None = None
    link_write_bytes_per_s: float | None = None
    ecc_errors: int | None = None
    bar1_total_bytes: int | None = None
    persistence: bool | None = None
    mig: bool | None = None
    compute_capability: str | None = None
    nvlinks: int | None = None
    nvlinks_down: int | None = None
    processes: tuple[GpuProcess, ...] | None = None
    missing: Missing = ()


@dataclass(frozen=True, slots=True)
class NodeSample:
    """The memory of one NUMA node. used_bytes holds neither free memory nor file_cache_bytes, which the system gives back.

    remote_pages_per_s: given to programs on other nodes; missed_pages_per_s: wanted from this node and taken from another,
    since this one was full; of the whole system. huge_bytes: reserved as huge pages, huge_free_bytes of them unused.
    """

    node: int
    total_bytes: int | None = None
    free_bytes: int | None = None
    used_bytes: int | None = None
    file_cache_bytes: int | None = None
    anonymous_bytes: int | None = None
    huge_bytes: int | None = None
    huge_free_bytes: int | None = None
    remote_pages_per_s: float | None = None
    missed_pages_per_s: float | None = None
    missing: Missing = ()


@dataclass(frozen=True, slots=True)
class CoreSample:
    """One physical core. cpus and use_percent: of its threads, in the same order; where it lies is in the Topology under index.

    frequency_mhz: of its L3 group, where it is read (one core of each group is asked). temperature_c: of its chiplet.
    """

    index: int
    cpus: tuple[int, ...]
    use_percent: tuple[float, ...]
    frequency_mhz: float | None = None
    temperature_c: float | None = None


@dataclass(frozen=True, slots=True)
class CpuSample:
    """use_percent: one value per logical core that is on, 0..100, in the order of their numbers.

    steal_percent: of the time that a virtual machine's host gave to others. package_power_w: of all sockets.
    waiting_percent: idle with a disk to wait for. missing: also why no core has a frequency or a temperature.
    """

    name: str
    use_percent: tuple[float, ...]
    temperature_c: float | None
    steal_percent: float | None = None
    waiting_percent: float | None = None
    package_power_w: float | None = None
    missing: Missing = ()


@dataclass(frozen=True, slots=True)
class PressureSample:
    """Percent of the last 10 s in which something waited (`some`) or everything did (`full`) for a resource (kernel's PSI)."""

    cpu_some_percent: float | None = None
    memory_some_percent: float | None = None
    memory_full_percent: float | None = None
    io_some_percent: float | None = None
    io_full_percent: float | None = None
    missing: Missing = ()


@dataclass(frozen=True, slots=True)
class DiskSample:
    """Reading from disks. process_read_bytes_per_s: by this process, faults of mapped files too. device: of the watched file.

    ceiling_bytes_per_s: the most that the device ever gave while watched.
    """

    process_read_bytes_per_s: float | None = None
    device: str | None = None
    device_read_bytes_per_s: float | None = None
    device_busy_percent: float | None = None
    ceiling_bytes_per_s: float | None = None
    missing: Missing = ()


@dataclass(frozen=True, slots=True)
class MemorySample:
    """The machine's memory beyond what it holds. available_bytes: what can be taken, control groups considered.

    Rates are of the time since the reading before: pages swapped system-wide, faults of this process that needed a disk.
    """

    available_bytes: int | None = None
    limit_bytes: int | None = None
    swap_total_bytes: int | None = None
    swap_used_bytes: int | None = None
    swap_in_bytes_per_s: float | None = None
    swap_out_bytes_per_s: float | None = None
    process_swap_bytes: int | None = None
    process_major_faults_per_s: float | None = None
    process_minor_faults_per_s: float | None = None
    missing: Missing = ()


@dataclass(frozen=True, slots=True)
class SensorCost:
    """What reading costs. gpu_ms: of the last round of questions to cards, in the helper process; cpu_ms: time of a processor in
    this process for the last reading; period_s: between readings now. note: why it is longer than was asked for, or ""."""

    gpu_ms: float | None
    cpu_ms: float
    period_s: float
    note: str = ""


@dataclass(frozen=True, slots=True)
class HardwareSnapshot:
    """time_s is monotonic: the clock of every event. gpu_problem: why there are no cards here, or "".

    `gpus` keep their order while the program runs; `nodes` and `cores` are in the order of the Topology.
    """

    time_s: float
    cpu: CpuSample
    ram_used_bytes: int
    ram_total_bytes: int
    process_bytes: int
    disk_free_bytes: int | None = None
    gpus: tuple[GpuSample, ...] = ()
    gpu_problem: str = ""
    nodes: tuple[NodeSample, ...] = ()
    cores: tuple[CoreSample, ...] = ()
    memory: MemorySample = MemorySample()
    pressure: PressureSample = PressureSample()
    disk: DiskSample = DiskSample()
    process: ProcessSample = field(default_factory=ProcessSample)
    cost: SensorCost | None = None
