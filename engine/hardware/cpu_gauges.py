"""Use, clocks, temperatures and power of processors, from /proc and /sys. Never raises; what is missing has a reason."""

from __future__ import annotations

from pathlib import Path

from engine.hardware import sysfs
from engine.hardware.cpu_facts import energy_zones, package_power
from engine.hardware.rates import Rates
from engine.hardware.snapshot import CoreSample, CpuSample, Missing
from engine.hardware.thermal import celsius, chiplet_sensors, cpu_monitors, cpu_temperature
from engine.hardware.topology import Topology

NO_COUNTER = "this machine has no counter of its processors' energy"
HIDDEN = "the system hides it for security: root alone may read it"
NO_SENSOR = "the system shows no temperature sensor of the processor"
NO_CLOCK = "the system does not tell clocks, as in most virtual machines"
NO_CHIPLETS = "the processor does not tell the temperature of each chiplet"
FIRST = "it is measured from the second reading on"
UNREADABLE = "the system does not tell it"


class CpuGauges:
    """The processors of one machine; use is measured since the reading before.

    slow_s: between readings of clocks, temperatures and energy. A clock costs an interrupt of its core.
    """

    def __init__(self, root: Path, topology: Topology, slow_s: float) -> None:
        self._topology = topology
        self._slow_s = slow_s
        self._root = root
        self._stat = str(root / "proc/stat")
        self._before: dict[bytes, tuple[int, int]] = {}
        self._names = {cpu: f"cpu{cpu}".encode() for cpu in topology.cpus}
        self._slow_due = 0.0
        self._temperature: float | None = None
        self._power: float | None = None
        self._clocks: dict[int, float] = {}
        self._chiplets: dict[int, float | None] = {}
        self._energy = Rates()
        self._power_state = package_power(root)
        self._zones = [(str(one / "energy_uj"), sysfs.number(one / "max_energy_range_uj")) for one in energy_zones(root)]
        sensors = chiplet_sensors(cpu_monitors(root))
        # Labels are in the order of chiplets only where every chiplet has one.
        self._sensors = [str(one) for one in sensors] if len(sensors) == len(topology.l3_groups) else []
        self._clock_files = [
            (group.index, self._clock_file(topology.cores[group.cores[0]].cpus[0])) for group in topology.l3_groups
        ]
        self._use()

    def _clock_file(self, cpu: int) -> str:
        return str(self._root / f"sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq")

    def read(self, now: float) -> tuple[CpuSample, tuple[CoreSample, ...]]:
        """All processors, and the cores in the order of the Topology. now: monotonic seconds."""
        if now >= self._slow_due:
            self._slow_due = now + self._slow_s
            self._read_slow(now)
        use, steal, waiting = self._use()
        known = [self._names[cpu] for cpu in self._topology.cpus]
        cores = []
        for core in self._topology.cores if use else ():
            percent = tuple(use.get(self._names[cpu], 0.0) for cpu in core.cpus)
            cores.append(CoreSample(core.index, core.cpus, percent, self._clocks.get(core.l3), self._chiplets.get(core.l3)))
        sample = CpuSample(
            name=self._topology.facts.name,
            use_percent=tuple(use[name] for name in known if name in use),
            temperature_c=self._temperature,
            steal_percent=steal,
            waiting_percent=waiting,
            package_power_w=self._power,
            missing=self._missing(steal),
        )
        return sample, tuple(cores)

    def _use(self) -> tuple[dict[bytes, float], float | None, float | None]:
        """Percent by processor; of all together also what was stolen and waited. See proc(5) for the columns."""
        use: dict[bytes, float] = {}
        steal = waiting = None
        raw = sysfs.read(self._stat) or b""
        for line in raw.split(b"\n"):
            if not line.startswith(b"cpu"):
                break
            name, *words = line.split()
            if len(words) < 4:
                continue
            try:
                ticks = [int(word) for word in words[:8]]
            except ValueError:
                continue
            total, idle = sum(ticks), ticks[3] + (ticks[4] if len(ticks) > 4 else 0)
            if name == b"cpu":
                steal, waiting = self._share(b"steal", ticks, 7, total), self._share(b"iowait", ticks, 4, total)
                continue
            before = self._before.get(name)
            self._before[name] = (idle, total)
            passed = total - before[1] if before is not None else 0
            # Idle time runs backwards now and then on virtual machines.
            use[name] = (
                min(100.0, max(0.0, 100.0 * (1 - (idle - before[0]) / passed))) if before is not None and passed > 0 else 0.0
            )
        return use, steal, waiting

    def _share(self, name: bytes, ticks: list[int], column: int, total: int) -> float | None:
        if len(ticks) <= column:
            return None
        before = self._before.get(name)
        self._before[name] = (ticks[column], total)
        if before is None or total <= before[1]:
            return None
        return min(100.0, max(0.0, 100.0 * (ticks[column] - before[0]) / (total - before[1])))

    def _read_slow(self, now: float) -> None:
        self._temperature = cpu_temperature(self._root)
        self._clocks = {}
        for group, path in self._clock_files:
            khz = sysfs.number(path)
            if khz is not None and khz > 0:
                self._clocks[group] = khz / 1000
        self._chiplets = {group: celsius(path) for group, path in enumerate(self._sensors)}
        watts = []
        for path, wraps_at in self._zones if self._power_state == "readable" else ():
            micros = self._energy.of(path, sysfs.number(path), now, wraps_at)
            watts.append(None if micros is None else micros / 1e6)
        self._power = sum(one for one in watts if one is not None) if watts and None not in watts else None

    def _missing(self, steal: float | None) -> Missing:
        found = []
        if self._temperature is None:
            found.append(("temperature_c", NO_SENSOR))
        if steal is None:
            found += [("steal_percent", FIRST), ("waiting_percent", FIRST)]
        if self._power is None:
            why = {"absent": NO_COUNTER, "hidden": HIDDEN, "readable": FIRST}[self._power_state]
            found.append(("package_power_w", why))
        if not self._clocks:
            found.append(("frequency_mhz", NO_CLOCK))
        if not self._chiplets:
            found.append(("chiplet_temperature_c", NO_CHIPLETS))
        return tuple(found)
