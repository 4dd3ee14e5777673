"""Whether a chunk of a prompt goes with the CPU's experts or brings them to the GPU: by what either takes."""

from __future__ import annotations

from dataclasses import dataclass

from engine.placement.options import StreamExperts

TELLING_ROWS = 32
"""Chunks of fewer rows say little of what the CPU takes for one."""
CPU_GOPS = 150.0
"""A guess of 10^9 operations a second and worker, until the first chunk tells: half of what 512-bit kernels do on a fast core."""
BUS_GBPS = 12.0
"""A guess of GB/s, where nothing has crossed yet: half of what a PCIe 4.0 x16 takes."""


@dataclass(frozen=True, slots=True)
class Load:
    """stream_bytes: what crosses in a chunk, on the busiest bus; ops_per_row: multiplications and additions of these experts."""

    stream_bytes: int
    ops_per_row: float
    n_workers: int


class StreamChoice:
    """The CPU's time grows with the rows. The bus takes the same for any number, and a GPU behind it computes meanwhile."""

    def __init__(self, mode: StreamExperts, load: Load | None) -> None:
        """load: None where there is nothing to bring."""
        self._mode: StreamExperts = "off" if load is None else mode
        self._bytes = 0 if load is None else load.stream_bytes
        self._row_s = 0.0 if load is None else load.ops_per_row / (load.n_workers * CPU_GOPS * 1e9)
        self._bus_s = self._bytes / (BUS_GBPS * 1e9)
        self._gpu_row_s = 0.0

    def streams(self, n_rows: int) -> bool:
        """Whether a chunk of so many rows brings the experts."""
        if self._mode != "auto":
            return self._mode == "on"
        return max(self._bus_s, n_rows * self._gpu_row_s) < n_rows * self._row_s

    @property
    def least_rows(self) -> int:
        """The shortest chunk for which that is faster, 0: none, as far as is known by now."""
        if self._mode != "auto" or self._gpu_row_s >= self._row_s:
            return int(self._mode == "on")
        return int(self._bus_s / self._row_s) + 1

    def measured(self, gbps: float) -> None:
        """What the bus really takes."""
        if gbps > 0:
            self._bus_s = self._bytes / (gbps * 1e9)

    def took(self, n_rows: int, seconds: float, *, streamed: bool) -> None:
        """What a chunk of a prompt took. A streamed one says what its rows take at most; the bus is measured apart."""
        if streamed:
            row_s = seconds / n_rows
            self._gpu_row_s = min(self._gpu_row_s, row_s) if self._gpu_row_s else row_s
        elif n_rows >= TELLING_ROWS:
            self._row_s = seconds / n_rows
