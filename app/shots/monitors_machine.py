"""The machine of the monitors' pictures, as its sensors and the engine would tell of it: four cards, two sockets of 64 cores.

Every figure is a function of the second, so that a picture is the same twice.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace

from app.monitors.facts import Facts, Held
from engine.api.values import (
    Core,
    CoreSample,
    CpuFacts,
    CpuSample,
    DeviceWork,
    EngineSample,
    GpuSample,
    HardwareSnapshot,
    HoldingInfo,
    L3Group,
    MemorySample,
    ModelInfo,
    Node,
    NodeSample,
    SensorCost,
    TokenTrace,
    Topology,
    TraceKind,
    TraceSpan,
)

GB = 1_000_000_000
N_CORES, IN_GROUP, WORKERS = 64, 8, 0.75
"""Of each node: its cores, those with a common L3 cache, and the part of them that works."""
N_LAYERS = 61


@dataclass(frozen=True, slots=True)
class Card:
    """What is told of one card. held: of the model."""

    name: str
    celsius: float
    watts: float
    limit_w: float
    mhz: float
    used_gb: float
    fan: float
    link: tuple[int, int]
    working: float
    rates: tuple[float, float]
    held: Held


def _held(*gigabytes: float) -> Held:
    return Held(*(round(one * GB) for one in gigabytes))


CARDS = (
    Card("NVIDIA GeForce RTX 4090", 58, 148, 450, 2520, 14.2, 34, (4, 16), 36, (0.42, 0.91), _held(4.8, 1.9, 0, 4.8, 2.7)),
    Card("NVIDIA GeForce RTX 4090", 61, 142, 450, 2505, 13.9, 36, (4, 16), 34, (0.38, 0.82), _held(4.6, 2.1, 0, 4.5, 2.6)),
    Card("NVIDIA GeForce RTX 3090", 64, 171, 350, 1695, 21.6, 41, (4, 8), 21, (0.31, 0.22), _held(0, 0, 19.2, 0, 2.3)),
    Card("NVIDIA GeForce RTX 3090", 66, 134, 350, 1710, 21.5, 45, (3, 4), 18, (0.29, 0.21), _held(0, 0, 19.0, 0, 2.4)),
)


def topology(n_nodes: int = 2, n_cores: int = N_CORES, threads: int = 2) -> Topology:
    """Nodes of one socket each; threads: of a core."""
    total = n_nodes * n_cores
    cores = tuple(
        Core(i, tuple(i + thread * total for thread in range(threads)), i // n_cores, i // n_cores, i // IN_GROUP)
        for i in range(total)
    )
    groups = tuple(
        L3Group(i, i * IN_GROUP // n_cores, tuple(range(i * IN_GROUP, (i + 1) * IN_GROUP)), 32 << 20)
        for i in range(total // IN_GROUP)
    )
    nodes = tuple(
        Node(n, tuple(cpu for core in cores if core.node == n for cpu in core.cpus), 256 * GB, (10, 32)) for n in range(n_nodes)
    )
    cpus = tuple(range(total * threads))
    facts = CpuFacts("AMD EPYC 7763 64-Core Processor", "avx2", "acpi-cpufreq", "performance", None, False, False, "readable")
    return Topology(n_nodes, nodes, groups, cores, cpus, len(cpus), cpus, None, None, 2, False, (), facts)


def wave(at: float, base: float, swing: float, seed: int) -> float:
    """A figure that moves about its base as figures do."""
    chance = random.Random(seed * 7919 + int(at))
    slow = math.sin(at / 17 + seed) + 0.6 * math.sin(at / 41 + 2 * seed) + 0.5 * math.sin(at / 5.3 + 3 * seed)
    return base + swing * (0.5 * slow + chance.uniform(-0.12, 0.12))


def cards(at: float, *, busy: bool = True) -> tuple[GpuSample, ...]:
    """The four cards at a second."""
    found = []
    for i, card in enumerate(CARDS):
        load = 1.0 if busy else 0.18
        found.append(
            GpuSample(
                f"GPU-{i}", f"0000:{i + 1:02x}:00.0", card.name, "nvidia", i // 2,
                busy_percent=round(wave(at, card.working * 1.6 * load, 4, i + 20)) if busy else 0.0,
                memory_total_bytes=24 * GB, memory_used_bytes=round(card.used_gb * GB),
                memory_free_bytes=round((24 - card.used_gb - 0.4) * GB), memory_reserved_bytes=400_000_000,
                temperature_c=card.celsius if busy else 34.0 + 2 * i, margin_c=83 - card.celsius if busy else 48.0,
                slowdown_temperature_c=98.0, power_w=round(wave(at, card.watts, 4, i)) if busy else 21.0 + i,
                power_limit_w=card.limit_w, power_limit_default_w=card.limit_w, fan_percent=card.fan if busy else 0.0,
                core_clock_mhz=card.mhz if busy else 210.0, core_clock_max_mhz=2520.0 if i < 2 else 1980.0,
                memory_clock_mhz=10501.0 if i < 2 else 9751.0, performance_state=2 if busy else 8, slow_reasons=(),
                slow_bits=0, link_generation=card.link[0] if busy else 1, link_generation_max=card.link[0],
                link_width=card.link[1], link_width_max=16,
                missing=(("memory_temperature_c", "not offered by this card"),),
            )
        )  # fmt: skip
    return tuple(found)


def snapshot(at: float, machine: Topology, *, busy: bool = True, gpus: tuple[GpuSample, ...] | None = None) -> HardwareSnapshot:
    """One reading."""
    n_nodes = len(machine.nodes)
    cores = []
    for core in machine.cores:
        each = len(machine.cores) // n_nodes
        works = busy and core.index % each < each * WORKERS
        load = min(100.0, max(0.0, wave(at, 72 if works else (9 if busy else 2), 30 if works else 8, core.index)))
        second = min(100.0, max(0.0, wave(at, 8 if busy else 1, 8, core.index + 500)))
        uses = (load, second)[: len(core.cpus)]
        cores.append(
            CoreSample(
                core.index, core.cpus, uses, 3420.0 - 40 * core.node if busy else 1500.0, (61.0 if busy else 38.0) + 3 * core.node
            )
        )
    nodes = tuple(
        NodeSample(n.node, 256 * GB, 68 * GB, 169 * GB if busy else 168 * GB, 19 * GB, 160 * GB, 0, 0, 120.0, 0.0)
        for n in machine.nodes
    )
    total = n_nodes * 256 * GB
    return HardwareSnapshot(
        time_s=at,
        cpu=CpuSample(
            machine.facts.name,
            tuple(use for core in cores for use in core.use_percent),
            64.0 if busy else 41.0,
            package_power_w=wave(at, 451, 12, 90) if busy else 132.0,
        ),
        ram_used_bytes=n_nodes * 169 * GB,
        ram_total_bytes=total,
        process_bytes=n_nodes * 150 * GB,
        gpus=cards(at, busy=busy) if gpus is None else gpus,
        nodes=nodes,
        cores=tuple(cores),
        memory=MemorySample(total - n_nodes * 169 * GB, swap_total_bytes=8 * GB, swap_used_bytes=0),
        cost=SensorCost(1.2, 2.0, 1.0),
    )


def sample(at: float, n_nodes: int = 2, n_gpus: int = 4) -> EngineSample:
    """What the engine did in the last second."""
    gpus = tuple(
        DeviceWork(
            f"gpu{i}", wave(at, card.working, 5, i + 20), 5.0, 61.0, GB, 300 * GB, wave(at, card.rates[0], 0.05, i) * GB,
            wave(at, card.rates[1], 0.05, i + 4) * GB, f"GPU-{i}",
        )
        for i, card in enumerate(CARDS[:n_gpus])
    )  # fmt: skip
    nodes = tuple(DeviceWork(f"numa{n}", 48.0, 30.0, 40.0, 6 * GB, wave(at, 171 - 3 * n, 9, n + 31) * GB) for n in range(n_nodes))
    return EngineSample(
        at, 1.0, 1, 13, 13, decode_tok_s=wave(at, 13.1, 0.5, 1), step_ms=76.3, outside_ms=0.4, devices=gpus + nodes,
        kv_used_tokens=8214, kv_total_tokens=65536, trace=trace(at, n_nodes, n_gpus),
    )  # fmt: skip


def trace(at: float, n_nodes: int = 2, n_gpus: int = 4) -> TokenTrace:
    """Layer by layer: attention and shared FFN on the first two cards, experts where they lie."""
    spans: list[TraceSpan] = []
    clock = 0.0

    def add(device: str, kind: TraceKind, layer: int, ms: float) -> None:
        nonlocal clock
        spans.append(TraceSpan(device, kind, layer, clock, ms))
        clock += ms

    nodes = [f"numa{n}" for n in range(n_nodes)]
    for layer in range(N_LAYERS):
        near = f"gpu{0 if layer < 31 else 1}" if n_gpus else nodes[layer * n_nodes // N_LAYERS]
        add(near, "attention", layer, 0.16)
        add(near, "ffn", layer, 0.07)
        if layer < 3:
            continue
        far = nodes[min(n_nodes - 1, layer * n_nodes // N_LAYERS)]
        if n_gpus > 2 and (layer < 6 or layer > 57):
            add("gpu2" if layer < 6 else "gpu3", "experts", layer, 0.25)
        else:
            clock += 0.016 if n_gpus else 0.0
            add(far, "experts", layer, 1.17)
            clock += 0.016 if n_gpus else 0.0
    return TokenTrace(at, clock, tuple(sorted(spans, key=lambda span: (span.device, span.start_ms))))


def facts(machine: Topology) -> Facts:
    """What is known beside the readings."""
    each = len(machine.cores) // len(machine.nodes)
    workers = frozenset(core.cpus[0] for core in machine.cores if core.index % each < each * WORKERS)
    kept = frozenset(core.cpus[0] for core in machine.cores if core.index % each >= each - 2)
    held = tuple(HoldingInfo(f"numa{node.node}", "weights", 150 * GB) for node in machine.nodes)
    model = ModelInfo(
        "/models/deepseek-v3.1.gguf", "DeepSeek-V3.1 671B", "deepseek2", "Q4_K", 671 * GB, N_LAYERS, 129_280, 405 * GB, 163_840,
        65_536, True, holdings=held,
    )  # fmt: skip
    return Facts(
        topology=machine,
        model=model,
        held={f"gpu{i}": card.held for i, card in enumerate(CARDS)},
        ceilings={node.node: 204.0 for node in machine.nodes},
        worker_cpus=workers,
        kept_cpus=kept,
        off_node=0.021,
        prompt_tokens=2114,
        first_token_p95_s=14.2,
        host="homelab-01",
    )


def hot(gpus: tuple[GpuSample, ...]) -> tuple[GpuSample, ...]:
    """The third card is hot and lowers its clock."""
    third = replace(
        gpus[2], temperature_c=91.0, margin_c=7.0, fan_percent=100.0, core_clock_mhz=1410.0, slow_bits=0x20, power_w=212.0,
        slow_reasons=("the driver lowers it because of heat",),
    )  # fmt: skip
    return (*gpus[:2], third, *gpus[3:])


def silent(gpus: tuple[GpuSample, ...], age_s: float = 12.0) -> tuple[GpuSample, ...]:
    """The driver has not answered for a while."""
    problem = "the driver has not answered since; it is asked again every 5 s"
    return tuple(replace(gpu, state="silent", problem=problem, age_s=age_s) for gpu in gpus)
