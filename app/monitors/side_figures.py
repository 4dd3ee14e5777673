"""From the state of all gauges to the short monitor beside the chat: cards, nodes, pinned values, as they are written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.i18n import filled, tr
from app.telemetry import keys
from app.telemetry.shown import Shown
from app.widgets.format import bytes_text, used_of_bytes
from engine.advice.health import Health
from engine.api.values import DeviceWork, GpuSample, HardwareSnapshot, ModelInfo, NodeSample, Topology, why

NOT_KNOWN = "n/a"
TONES = {"ok": "text", "warm": "warn", "hot": "err", "lost": "err", "unknown": "text3"}
_OWNERS = {"weights": "attn", "derived": "attn", "kv": "kv", "kept windows": "kv", "state": "kv", "workspace": "buffers"}
MAX_PINNED = 8


@dataclass(frozen=True, slots=True)
class SideGpu:
    """One card. working: percent of the time that it worked for us, else busy by its driver; segments: shares of its memory by
    colour.

    sentence: what is wrong with it, or what is missing; "" when all is well.
    """

    key: str
    title: str
    temperature: str
    tone: str
    working: float | None
    power: str
    memory: str
    segments: tuple[tuple[float, str], ...]
    sentence: str = ""


@dataclass(frozen=True, slots=True)
class SideNode:
    """One node of memory, or the whole machine where it has one. loads: percent of each core. read: "" where nothing reads."""

    title: str
    temperature: str
    tone: str
    loads: tuple[float, ...]
    use: str
    read: str
    memory: str
    segments: tuple[tuple[float, str], ...]
    sentence: str = ""


@dataclass(frozen=True, slots=True)
class Pinned:
    """A value that was pinned on the Monitors page."""

    key: str
    label: str
    value: str


def side_gpus(shown: Shown, model: ModelInfo | None) -> tuple[SideGpu, ...]:
    """Every card, in the order of the readings."""
    snapshot = shown.snapshot
    if snapshot is None:
        return ()
    names = gpu_names(shown)
    works = {} if shown.work is None else {one.card: one for one in shown.work.devices if one.card}
    return tuple(
        _gpu(gpu, names[gpu.key], works.get(gpu.key), shown.healths.get(gpu.key, Health("ok")), model) for gpu in snapshot.gpus
    )


def gpu_names(shown: Shown) -> Mapping[str, str]:
    """`gpu0` by key: the engine's name of a card that it uses; the others take what is left, in order."""
    gpus = () if shown.snapshot is None else shown.snapshot.gpus
    used = {} if shown.work is None else {one.card: one.device for one in shown.work.devices if one.card}
    free = iter(name for i in range(len(gpus) + len(used)) if (name := f"gpu{i}") not in used.values())
    return {gpu.key: used[gpu.key] if gpu.key in used else next(free) for gpu in gpus}


def _gpu(gpu: GpuSample, device: str, work: DeviceWork | None, health: Health, model: ModelInfo | None) -> SideGpu:
    answers = gpu.state in ("ok", "silent")
    working = gpu.busy_percent if work is None else work.working_percent
    used, total = gpu.memory_used_bytes, gpu.memory_total_bytes
    memory = used_of_bytes(used, total) if used is not None and total else NOT_KNOWN
    missing = [
        f"{label}: {why(gpu.missing, field)}"
        for label, field in ((tr("Side", "VRAM"), "memory_used_bytes"), (tr("Side", "Power"), "power_w"))
        if getattr(gpu, field) is None and why(gpu.missing, field)
    ]
    return SideGpu(
        key=gpu.key,
        title=f"GPU {device.removeprefix('gpu')} · {_short(gpu.name)}",
        temperature=NOT_KNOWN if gpu.temperature_c is None else f"{gpu.temperature_c:.0f} °C",
        tone=TONES[health.level],
        working=working if answers else None,
        power="" if gpu.power_w is None else f"{gpu.power_w:.0f} W",
        memory=memory,
        segments=_memory_of(device, used or 0, total or 0, model),
        sentence=health.sentence or "; ".join(missing),
    )


def _memory_of(device: str, used: int, total: int, model: ModelInfo | None) -> tuple[tuple[float, str], ...]:
    """What the model holds by owner, and behind it what others hold."""
    if not total or not used:
        return ()
    ours: dict[str, int] = {}
    for one in () if model is None else model.holdings:
        if one.device == device:
            token = _OWNERS.get(one.owner, "buffers")
            ours[token] = ours.get(token, 0) + one.nbytes
    held = sum(ours.values())
    scale = min(1.0, used / held) if held else 1.0
    parts = [(round(nbytes * scale / total, 3), token) for token, nbytes in ours.items()]
    rest = (used - held * scale) / total
    return (*parts, (round(rest, 3), "text3")) if rest > 0.002 else tuple(parts)


def side_nodes(shown: Shown, topology: Topology | None) -> tuple[SideNode, ...]:
    """Every node of memory; the whole machine as one where it has only one."""
    snapshot = shown.snapshot
    if snapshot is None:
        return ()
    health = shown.healths.get("cpu", Health("ok"))
    if len(snapshot.nodes) <= 1:
        return (_machine(snapshot, shown, health),)
    of_core = {} if topology is None else {core.index: core.node for core in topology.cores}
    loads: dict[int, list[float]] = {}
    for core in snapshot.cores:
        if core.use_percent:
            loads.setdefault(of_core.get(core.index, -1), []).append(sum(core.use_percent) / len(core.use_percent))
    return tuple(_node(node, snapshot, shown, tuple(loads.get(node.node, ())), health) for node in snapshot.nodes)


def _machine(snapshot: HardwareSnapshot, shown: Shown, health: Health) -> SideNode:
    cpu, total = snapshot.cpu, max(1, snapshot.ram_total_bytes)
    own = min(snapshot.process_bytes, snapshot.ram_used_bytes)
    return SideNode(
        title=cpu.name,
        temperature="" if cpu.temperature_c is None else f"{cpu.temperature_c:.0f} °C",
        tone=TONES[health.level],
        loads=cpu.use_percent,
        use=_mean(cpu.use_percent),
        read=_read(shown, 0),
        memory=used_of_bytes(snapshot.ram_used_bytes, total) if snapshot.ram_total_bytes else "n/a",
        segments=((round(own / total, 3), "attn"), (round((snapshot.ram_used_bytes - own) / total, 3), "buffers")),
        sentence=health.sentence,
    )


def _node(node: NodeSample, snapshot: HardwareSnapshot, shown: Shown, loads: tuple[float, ...], health: Health) -> SideNode:
    celsius = shown.timeline.latest(keys.node(node.node, "temperature_c"))
    used, total = node.used_bytes, node.total_bytes
    known = used is not None and bool(total)
    return SideNode(
        title=f"NUMA {node.node} · {_short(snapshot.cpu.name)}",
        temperature="" if celsius is None else f"{celsius:.0f} °C",
        tone=TONES[health.level],
        loads=loads,
        use=_mean(loads),
        read=_read(shown, node.node),
        memory=used_of_bytes(used or 0, total or 0) if known else NOT_KNOWN,
        segments=((round((used or 0) / total, 3), "attn"),) if known and total else (),
        sentence=health.sentence if known else why(node.missing, "used_bytes"),
    )


def _read(shown: Shown, number: int) -> str:
    rate = shown.timeline.latest(keys.device(f"numa{number}", "read_bytes_per_s"))
    return "" if rate is None else f"{rate / 1e9:.0f} GB/s" if rate >= 1e10 else f"{rate / 1e9:.1f} GB/s"


def _mean(loads: Sequence[float]) -> str:
    return f"{sum(loads) / len(loads):.0f} %" if loads else NOT_KNOWN


def _short(name: str) -> str:
    for word in ("NVIDIA ", "GeForce ", "AMD ", "Intel(R) ", "Xeon(R) ", "(R)", "(TM)", " Processor", " 32-Core", " CPU"):
        name = name.replace(word, "")
    return name.strip() or "?"


def pinned_values(shown: Shown, wanted: Sequence[str]) -> tuple[Pinned, ...]:
    """The values that were pinned, at most MAX_PINNED."""
    names = gpu_names(shown)
    return tuple(Pinned(key, label_of(key, names), value_text(key, shown.timeline.latest(key))) for key in wanted[:MAX_PINNED])


def label_of(key: str, names: Mapping[str, str]) -> str:
    """`GPU 0 power` for people; names: of cards by their keys."""
    kind, which, field = keys.split(key)
    unit_end = next((end for end in keys.UNITS if field.endswith(end)), "")
    words = field.removesuffix(unit_end).replace("_", " ")
    if kind == "gpu":
        return f"GPU {names.get(which, which).removeprefix('gpu')} {words}"
    if kind == "device":
        place = f"GPU {which[3:]}" if which.startswith("gpu") else f"NUMA {which.removeprefix('numa')}"
        return f"{place} {words}"
    places = {"node": f"NUMA {which} ", "cpu": tr("Side", "Processor") + " ", "disk": tr("Side", "Disk") + " "}
    known = {"vram used": tr("Side", "VRAM"), "ram used": tr("Side", "RAM"), "first token": tr("Side", "First token")}
    text = places.get(kind, "") + known.get(words, words)
    return text[:1].upper() + text[1:]


def value_text(key: str, value: float | None) -> str:
    """The value with its unit."""
    if value is None:
        return NOT_KNOWN
    unit = keys.unit(key)
    if unit in ("bytes", "bytes/s", "bytes/token"):
        return bytes_text(round(value)) + unit.removeprefix("bytes")
    digits = f"{value:.0f}" if abs(value) >= 100 or unit in ("%", "°C", "W", "MHz", "rpm", "tokens") else f"{value:.1f}"
    return filled(tr("Side", "%1 %2"), digits, unit).strip()
