"""Windows of readings for tests of the diagnosis: a healthy machine in the midst of an answer, with what a test changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from engine.advice.diagnosis.window import Facts, Reading, Window
from engine.api.values import (
    CoreSample,
    CpuSample,
    DeviceShare,
    DeviceWork,
    DiskSample,
    EngineSample,
    ForeignProcess,
    GpuSample,
    HardwareSnapshot,
    HoldingInfo,
    MemorySample,
    ModelInfo,
    PressureSample,
    ProcessSample,
    ThreadSample,
    TokenTrace,
    Topology,
    TraceSpan,
)
from engine.arch.units import UnitId
from engine.hardware.topology import Core, CpuFacts, L3Group, Node
from engine.placement.placement import Gpu, Numa, Placement, WorkerPlan

GB = 1_000_000_000
N_CORES = 8
N_READINGS = 11


def topology(n_nodes: int = 1, **facts: Any) -> Topology:
    """A machine of N_CORES cores with one thread each, evenly on nodes."""
    per = N_CORES // n_nodes
    cores = tuple(Core(i, (i,), i // per, i // per, i // per) for i in range(N_CORES))
    nodes = tuple(Node(n, tuple(range(n * per, n * per + per)), 64 * GB, (10,) * n_nodes) for n in range(n_nodes))
    groups = tuple(L3Group(n, n, tuple(range(n * per, n * per + per)), 32 << 20) for n in range(n_nodes))
    found = {
        "name": "A CPU",
        "instruction_set": "avx512",
        "frequency_driver": "amd-pstate-epp",
        "governor": "powersave",
        "energy_preference": "performance",
        "numa_balancing": False,
        "on_battery": False,
        "package_power": "absent",
    } | facts
    cpus = tuple(range(N_CORES))
    return Topology(
        n_nodes, nodes, groups, cores, cpus, N_CORES, cpus, None, None, None, container=False, gpus=(), facts=CpuFacts(**found)
    )


def placement(n_layers: int = 4, workers: tuple[int, ...] = tuple(range(N_CORES)), gpus: int = 0) -> Placement:
    """Experts in memory; attention on the first card where there is one."""
    there = Gpu(0) if gpus else Numa(0)
    units = [(UnitId("embed"), Numa(0))]
    for layer in range(n_layers):
        units += [(UnitId("mixer", layer), there), (UnitId("experts", layer), Numa(0))]
    return Placement(tuple(units), "f16", "f16", WorkerPlan(workers))


def info(gpus: int = 0, workers: tuple[int, ...] = tuple(range(N_CORES)), mapped: int = 10 * GB) -> ModelInfo:
    """A loaded model of 10 GB with 4 GB of it on each card."""
    cards = tuple(f"gpu{i}" for i in range(gpus))
    return ModelInfo(
        "/m.gguf",
        "A model",
        "qwen3moe",
        "Q4_K",
        30_000_000_000,
        4,
        1000,
        10 * GB,
        40_000,
        32_000,
        has_template=True,
        devices=(DeviceShare("numa0", "", 10 * GB), *(DeviceShare(one, "A card", 4 * GB) for one in cards)),
        placement=placement(workers=workers, gpus=gpus),
        holdings=(
            HoldingInfo("numa0", "weights", mapped, mapped=True),
            *(HoldingInfo(one, "weights", 4 * GB) for one in cards),
        ),
    )


def card(i: int = 0, **changes: Any) -> GpuSample:
    """A healthy card of 24 GB with 18 GB free."""
    fields: dict[str, Any] = {
        "state": "ok",
        "busy_percent": 60.0,
        "memory_total_bytes": 24 * GB,
        "memory_used_bytes": 4 * GB,
        "memory_free_bytes": 18 * GB,
        "temperature_c": 62.0,
        "power_w": 210.0,
        "power_limit_w": 450.0,
        "power_limit_default_w": 450.0,
        "core_clock_mhz": 2600.0,
        "core_clock_max_mhz": 2700.0,
        "slow_bits": 0,
        "link_generation": 4,
        "link_generation_max": 4,
        "link_width": 16,
        "link_width_max": 16,
        "node": 0,
    }
    return GpuSample(f"GPU-{i}", f"0000:0{i}:00.0", f"Card {i}", "nvidia", **(fields | changes))


def thread(n: int = 0, waiting: float = 0.3, taken: float = 4.0) -> ThreadSample:
    """A worker that has its core for itself."""
    return ThreadSample(100 + n, n, 98.0 - waiting, waiting, taken)


def snapshot(
    i: int, *, use: float = 97.0, own: float = 7.7, gpus: tuple[GpuSample, ...] = (), **changes: Any
) -> HardwareSnapshot:
    """A reading at second i."""
    fields: dict[str, Any] = {
        "cores": tuple(CoreSample(n, (n,), (use,), 3400.0) for n in range(N_CORES)),
        "memory": MemorySample(
            available_bytes=30 * GB,
            swap_in_bytes_per_s=0.0,
            process_swap_bytes=0,
            process_major_faults_per_s=0.0,
        ),
        "pressure": PressureSample(1.0, 0.0, 0.0, 0.0, 0.0),
        "disk": DiskSample(process_read_bytes_per_s=0.0, ceiling_bytes_per_s=3.4 * GB),
        "process": ProcessSample(own, tuple(thread(n) for n in range(N_CORES))),
        "gpus": gpus,
    }
    cpu = CpuSample("A CPU", (use,) * N_CORES, 65.0, steal_percent=0.0)
    fields = {"cpu": cpu} | fields | changes
    return HardwareSnapshot(100.0 + i, ram_used_bytes=20 * GB, ram_total_bytes=64 * GB, process_bytes=11 * GB, **fields)


def device(name: str, share: float, *, step_ms: float = 50.0, **changes: Any) -> DeviceWork:
    """What a device did in steps of step_ms of which it computed a share."""
    key = f"GPU-{name[3:]}" if name.startswith("gpu") else ""
    fields: dict[str, Any] = {
        "token_ms": share * step_ms,
        "waiting_ms": (1 - share) * step_ms,
        "read_bytes_per_token": GB,
        "read_bytes_per_s": 28 * GB,
        "card": key,
    }
    return DeviceWork(name, 100 * share, **(fields | changes))


def trace(total: float = 50.0, **kinds: float) -> TokenTrace:
    """A step; kinds: milliseconds of each on the first device."""
    return TokenTrace(1.0, total, tuple(TraceSpan("numa0", kind, 0, 0.0, ms) for kind, ms in kinds.items()))  # type: ignore[arg-type]


def work(i: int, devices: tuple[DeviceWork, ...] = (device("numa0", 0.97),), **changes: Any) -> EngineSample:
    """Decoding of one answer, 20 tokens a second."""
    fields: dict[str, Any] = {
        "n_answers": 1,
        "n_decode_steps": 20,
        "n_decoded": 20,
        "decode_tok_s": 19.5,
        "step_ms": 50.0,
        "outside_ms": 0.4,
        "kv_used_tokens": 1500,
        "kv_total_tokens": 32_000,
    }
    return EngineSample(100.0 + i, 1.0, devices=devices, **(fields | changes))


def facts(gpus: int = 0, **changes: Any) -> Facts:
    """A model that was loaded long ago and has answered."""
    fields: dict[str, Any] = {
        "topology": topology(),
        "info": info(gpus),
        "loaded_s": -1000.0,
        "n_answers": 5,
        "ceilings": {"numa0": 41.0 * GB},
    }
    return Facts(**(fields | changes))


def window(
    each: Callable[[int], HardwareSnapshot] = snapshot,
    works: Callable[[int], EngineSample | None] = work,
    known: Facts | None = None,
    late_s: float = 0.0,
) -> Window:
    """N_READINGS readings, a second apart. late_s: how long after the last one it is judged."""
    readings = tuple(Reading(each(i), works(i)) for i in range(N_READINGS))
    return Window(readings, known or facts(), readings[-1].snapshot.time_s + late_s)


def with_cards(*cards: GpuSample, **changes: Any) -> Callable[[int], HardwareSnapshot]:
    """Snapshots of a machine with these cards."""
    return lambda i: snapshot(i, use=60.0, own=4.7, gpus=cards, **changes)


def hybrid(cpu: float = 0.5, *gpus: float, **changes: Any) -> Callable[[int], EngineSample]:
    """Work of the CPU and of cards, by their shares of a step."""
    devices = (device("numa0", cpu), *(device(f"gpu{i}", share) for i, share in enumerate(gpus)))
    return lambda i: work(i, devices, **changes)


def memory(**changes: Any) -> MemorySample:
    """Healthy but for these."""
    return replace(snapshot(0).memory, **changes)


TWO = topology(2)
BROWSER = ProcessSample(5.0, tuple(thread(n, waiting=25.0, taken=90.0) for n in range(N_CORES)), (ForeignProcess("ffmpeg", 2.5),))
EVEN = (device("numa0", 0.5), device("numa1", 0.45))


def hog(i: int) -> HardwareSnapshot:
    """Another program on all cores of the second node, where workers get half of each."""
    busy = tuple(
        replace(thread(n), cpu_percent=97.0 if n < 4 else 50.0, waiting_percent=0.5 if n < 4 else 47.0) for n in range(8)
    )
    return snapshot(i, use=99.0, process=ProcessSample(5.9, busy, (ForeignProcess("ffmpeg", 2.0),)))
