"""From the readings of a NUMA node, and what the engine counted on it, to what its card on the dashboard shows."""

from __future__ import annotations

from collections.abc import Iterable

from app.i18n import filled, tr
from app.monitors import timeline as keys
from app.monitors.core_grid import CoreCell, shown_load
from app.monitors.facts import Facts
from app.monitors.node_card import NodeFigures
from app.monitors.reading import Reading, unknown
from app.telemetry.shown import Shown
from app.widgets.format import bytes_in_unit_of, exact_bytes
from engine.api.values import DeviceWork, HardwareSnapshot, NodeSample, why

_MUCH_REMOTE = 0.05
_LINES = {"warm": "warn", "hot": "err"}


def node_figures(shown: Shown, facts: Facts, span_s: float, span: str) -> tuple[NodeFigures, ...]:
    """Every node of memory. span: `last 5 minutes`."""
    snapshot = shown.snapshot
    assert snapshot is not None
    samples = snapshot.nodes or (NodeSample(0, snapshot.ram_total_bytes, used_bytes=snapshot.ram_used_bytes),)
    health = shown.healths.get("cpu")
    found = []
    for sample in samples:
        number = sample.node
        work = _work(shown, number)
        cells = _cells(snapshot, facts, number, alone=len(samples) == 1)
        read, read_bar = _read(work, facts, number)
        remote, remote_bar = _remote(sample, facts, alone=len(samples) == 1)
        memory, memory_bar = _memory(sample, facts)
        peak = shown.timeline.peak(plot_key(number), span_s)
        found.append(
            NodeFigures(
                node=number,
                title=filled(tr("Monitors", "NUMA %1"), number),
                cores=cores_text([cell.index for cell in cells]),
                temperature=_temperature(shown, snapshot, number),
                clock=_clock(shown, snapshot, number),
                use=_use(shown, snapshot, number, cells),
                read=read,
                remote=remote,
                memory=memory,
                read_bar=read_bar,
                remote_bar=remote_bar,
                memory_bar=memory_bar,
                plot_label=filled(tr("Monitors", "DRAM read, %1"), span),
                plot_note="" if peak is None else filled(tr("Monitors", "peak %1 GB/s"), _three(peak / 1e9)),
                line="line" if health is None else _LINES.get(health.level, "line"),
                cells=cells,
            )
        )
    return tuple(found)


def plot_key(node: int) -> str:
    """The gauge of the line at the foot."""
    return keys.device(f"numa{node}", "read_bytes_per_s")


def cores_note(snapshot: HardwareSnapshot, facts: Facts) -> str:
    """`128 cores, one square each, 96 work for the model`."""
    n = len(snapshot.cores) or len(snapshot.cpu.use_percent)
    if not n:
        return ""
    text = tr("Monitors", "1 core") if n == 1 else filled(tr("Monitors", "%1 cores, one square each"), n)
    ours = len(facts.worker_cpus)
    return text if not ours else text + filled(tr("Monitors", "; the %1 outlined work for the model"), ours)


def cores_text(numbers: list[int]) -> str:
    """`cores 0–63`."""
    if not numbers:
        return tr("Monitors", "memory alone")
    if len(numbers) == 1:
        return filled(tr("Monitors", "core %1"), numbers[0])
    return filled(tr("Monitors", "cores %1"), f"{min(numbers)}–{max(numbers)}")


def _work(shown: Shown, node: int) -> DeviceWork | None:
    devices: Iterable[DeviceWork] = () if shown.work is None else shown.work.devices
    return next((one for one in devices if one.device == f"numa{node}"), None)


def _cells(snapshot: HardwareSnapshot, facts: Facts, node: int, *, alone: bool) -> tuple[CoreCell, ...]:
    """The cores of a node in the order of the topology; where that is unknown, logical processors."""
    places = {} if facts.topology is None else {core.index: core for core in facts.topology.cores}
    ours, kept = facts.worker_cpus, facts.kept_cpus
    found = []
    for core in snapshot.cores:
        place = places.get(core.index)
        if place is None or place.node != node:
            continue
        loads = tuple(shown_load(use) for use in core.use_percent)
        owned, spare = not ours.isdisjoint(core.cpus), not kept.isdisjoint(core.cpus)
        found.append(CoreCell(core.index, place.l3, core.cpus, loads, owned, spare))
    if not found and alone:
        found = [CoreCell(i, 0, (i,), (shown_load(use),), i in ours) for i, use in enumerate(snapshot.cpu.use_percent)]
    return tuple(found)


def _temperature(shown: Shown, snapshot: HardwareSnapshot, node: int) -> Reading:
    label, key = tr("Monitors", "Temperature"), keys.node(node, "temperature_c")
    celsius, health = shown.timeline.latest(key), shown.healths.get("cpu")
    if celsius is None:
        celsius, key = snapshot.cpu.temperature_c, keys.cpu("temperature_c")
    if celsius is None:
        reason = why(snapshot.cpu.missing, "temperature_c") or tr("Monitors", "this system has no sensor for it")
        return unknown(label, reason)
    tone = "text" if health is None else _LINES.get(health.level, "text")
    tip = tr("Monitors", "Of the hottest core of this node")
    return Reading(label, f"{celsius:.0f}", "°C", tip if health is None or not health.sentence else health.sentence, key, tone)


def _clock(shown: Shown, snapshot: HardwareSnapshot, node: int) -> Reading:
    label, key = tr("Monitors", "Clock"), keys.node(node, "frequency_mhz")
    mhz = shown.timeline.latest(key)
    if mhz is None:
        reason = why(snapshot.cpu.missing, "frequency_mhz") or tr("Monitors", "this system does not tell it")
        return unknown(label, reason)
    return Reading(label, f"{mhz / 1000:.2f}", "GHz", tr("Monitors", "Mean of its L3 groups"), key)


def _use(shown: Shown, snapshot: HardwareSnapshot, node: int, cells: tuple[CoreCell, ...]) -> Reading:
    label, key = tr("Monitors", "Use of its cores"), keys.node(node, "use_percent")
    use = shown.timeline.latest(key)
    if use is None:
        use, key = shown.timeline.latest(keys.cpu("use_percent")), keys.cpu("use_percent")
    if use is None or not cells:
        return unknown(label, why(snapshot.cpu.missing, "use_percent") or tr("Monitors", "it has no cores of its own"))
    return Reading(label, f"{use:.0f} %", "", "", key)


def _read(work: DeviceWork | None, facts: Facts, node: int) -> tuple[Reading, tuple[tuple[float, str], ...]]:
    label, key, ceiling = tr("Monitors", "DRAM read"), plot_key(node), facts.ceilings.get(node)
    if work is None:
        if facts.model is None:
            return unknown(label, tr("Monitors", "no model is loaded")), ()
        return unknown(label, tr("Monitors", "the model uses no memory of this node")), ()
    gbps = (work.read_bytes_per_s or 0.0) / 1e9
    tip = tr("Monitors", "Weights and cache that its workers read while they compute, counted by the engine")
    if not ceiling:
        measure = tr("Monitors", "What its memory can give was not measured yet: layerdeck estimate --calibrate")
        return Reading(label, _three(gbps), tr("Monitors", "GB/s"), f"{tip}\n{measure}", key), ()
    share = gbps / ceiling
    whole = filled(tr("Monitors", "%1 % of what its memory gave when it was measured"), f"{100 * share:.0f}")
    text = filled(tr("Monitors", "%1 of %2"), _three(gbps), _three(ceiling))
    bar = ((round(min(1.0, share), 3), "experts"),) if gbps else ()
    return Reading(label, text, tr("Monitors", "GB/s"), f"{tip}\n{whole}", key), bar


def _three(gbps: float) -> str:
    return f"{gbps:.0f}" if gbps >= 99.5 or not gbps else f"{gbps:.1f}"


def _remote(sample: NodeSample, facts: Facts, *, alone: bool) -> tuple[Reading, tuple[tuple[float, str], ...]]:
    """What of the model is read across the link between nodes: the part of its pages that lies elsewhere."""
    label, key = tr("Monitors", "Remote access"), keys.node(sample.node, "remote_pages_per_s")
    if alone:
        return unknown(label, tr("Monitors", "this machine has one node of memory")), ()
    pages = sample.remote_pages_per_s
    given = ""
    if pages is not None:
        given = filled(tr("Monitors", "%1 pages a second of this node are given to programs on others"), f"{pages:,.0f}")
    if facts.off_node is None:
        reason = (
            tr("Monitors", "no model is loaded")
            if facts.model is None
            else tr("Monitors", "the system does not tell where its pages lie")
        )
        return Reading(label, "n/a", "", "\n".join(part for part in (reason, given) if part), tone="text3"), ()
    tip = tr("Monitors", "Of the sampled pages of the model's weights, the part that lies on another node than planned")
    share = facts.off_node
    bar = ((round(max(share, 0.004), 3), "warn" if share > _MUCH_REMOTE else "ok"),) if share else ()
    said = "\n".join(part for part in (tip, given) if part)
    return Reading(label, f"{100 * share:.1f} %", "", said, key, "warn" if share > _MUCH_REMOTE else "text"), bar


def _memory(sample: NodeSample, facts: Facts) -> tuple[Reading, tuple[tuple[float, str], ...]]:
    label, total, used = tr("Monitors", "RAM"), sample.total_bytes, sample.used_bytes
    if not total or used is None:
        reason = (
            why(sample.missing, "used_bytes") or why(sample.missing, "total_bytes") or tr("Monitors", "it has not been read yet")
        )
        return unknown(label, reason), ()
    held = [one for one in (() if facts.model is None else facts.model.holdings) if one.device == f"numa{sample.node}"]
    cache = sample.file_cache_bytes or 0
    mapped = min(cache, sum(one.nbytes for one in held if one.mapped))
    own = min(used, sum(one.nbytes for one in held if not one.mapped))
    parts = (
        (own + mapped, "attn", tr("Monitors", "The model")),
        (used - own, "buffers", tr("Monitors", "Other programs")),
        (cache - mapped, "line2", tr("Monitors", "Files that the system keeps, and gives back when it must")),
    )
    tip = "\n".join(f"{name}: {exact_bytes(n)}" for n, _, name in parts if n > 0)
    text = f"{bytes_in_unit_of(used + mapped, total)} / {exact_bytes(total)}"
    bar = tuple((round(n / total, 3), token) for n, token, _ in parts if n > 0.002 * total)
    return Reading(label, text, "", tip, keys.node(sample.node, "used_bytes")), bar
