"""One reading of the machine. Units stand in the names; a missing value is None."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CpuSample:
    """use_percent: one value per logical core, 0..100."""

    name: str
    use_percent: tuple[float, ...]
    temperature_c: float | None


@dataclass(frozen=True, slots=True)
class HardwareSnapshot:
    """time_s is monotonic."""

    time_s: float
    cpu: CpuSample
    ram_used_bytes: int
    ram_total_bytes: int
    process_bytes: int
    disk_free_bytes: int | None = None
