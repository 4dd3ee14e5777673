"""A plain choice of places for who makes none: as much on the GPUs as fits, what every token passes first, experts last.

Layers keep their order over the GPUs, cut by the memory that is free. The last layers go to GPUs first, as with llama.cpp's
`--n-gpu-layers`; whatever does not fit, or has no GPU kernels, stays with the CPU. Estimates decide what fits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import accumulate

from engine.arch.spec import ModelSpec
from engine.arch.units import UnitId
from engine.estimate.memory import DeviceBytes, Estimate, Estimator
from engine.estimate.quick import QuickBytes
from engine.hardware.gpus import GpuInfo
from engine.placement.options import LoadOptions
from engine.placement.over_nodes import over_nodes
from engine.placement.placement import Device, Gpu, Numa, Placement, default_placement, units_of

RESERVE_BYTES = 300 << 20
"""Left free on each GPU: what allocators lose between tensors, and what other programs take meanwhile."""
RESERVE_SHARE = 1 / 16
"""The most of a small GPU that is left free."""

FEW_LAYERS = 12
"""Models with more are judged by quick estimates first: it takes half a second to lower what is tried of a large one."""

Judge = Callable[[Placement], Estimate]


def automatic_placement(
    spec: ModelSpec, estimator: Estimator, options: LoadOptions, quick: QuickBytes | None = None, home: Placement | None = None
) -> Placement:
    """Where everything goes on the machine of the estimator; without GPUs, or where nothing fits on them, all on the CPU.

    quick: of the same estimator, if there is one. home: where everything goes that goes on no GPU.

    Raises:
        InvalidRequest: see `default_placement`.
    """
    home = home or over_nodes(default_placement(spec, options), estimator.machine)
    if spec.n_layers > FEW_LAYERS:
        fast = QuickBytes(spec, estimator) if quick is None else quick
        found = filled(home, spec, estimator, lambda placement: fast.estimate(placement)[0])
        if roomy(fast.refine(found)):
            return found
    return filled(home, spec, estimator, estimator.estimate)


def filled(home: Placement, spec: ModelSpec, estimator: Estimator, judge: Judge) -> Placement:
    """As much of a model that lies at home in memory on the GPUs as `judge` finds roomy."""
    gpus = [one for one in estimator.machine.gpus if one.capacity]
    total = sum(estimator.unit_bytes(home).values())
    for n in range(1, len(gpus)):  # a model that fits on fewer GPUs is faster there
        if sum(one.capacity for one in gpus[:n]) > total:
            found = _over(gpus[:n], home, spec, estimator, judge)
            if not any(isinstance(where, Numa) for unit, where in found.units if unit.kind != "embed"):
                return found
    return _over(gpus, home, spec, estimator, judge) if gpus else home


def _over(gpus: Sequence[GpuInfo], home: Placement, spec: ModelSpec, estimator: Estimator, judge: Judge) -> Placement:
    """As much as fits on these GPUs."""
    shares, unreadable = {Gpu(one.index): one.capacity for one in gpus}, estimator.without_gpu_kernels()
    low, high, best = 1, spec.n_layers, home
    while low <= high:  # most layers without their experts; all of them is tried first
        n = high if best is home and high == spec.n_layers else (low + high + 1) // 2
        tried = _with_layers(home, spec, n, shares, unreadable)
        if roomy(judge(tried)):
            best, low = tried, n + 1
        else:
            high = n - 1
    return _with_experts(best, estimator, list(shares), unreadable, judge)


def roomy(estimate: Estimate) -> bool:
    """Whether every GPU keeps its reserve."""
    return all(spare(one) >= 0 for one in estimate.devices if isinstance(one.device, Gpu) and one.used)


def spare(there: DeviceBytes) -> int:
    """Bytes that are left of a GPU beside its reserve; negative: so many are missing."""
    reserve = min(RESERVE_BYTES, int(RESERVE_SHARE * there.capacity))
    return there.capacity - there.used - reserve


def _with_layers(home: Placement, spec: ModelSpec, n: int, shares: dict[Gpu, int], unreadable: frozenset[UnitId]) -> Placement:
    """The last n layers on GPUs without their experts, and the head on the last of them."""
    first, places = spec.n_layers - n, {}
    gpus, ends = list(shares), [end / sum(shares.values()) for end in accumulate(shares.values())]
    for unit in units_of(spec):
        if unit.kind in ("embed", "experts") or 0 <= unit.layer < first:
            continue
        # The head counts as one more layer.
        at = ((n if unit.kind == "head" else unit.layer - first) + 0.5) / (n + 1)
        owner = UnitId("mixer", unit.layer) if unit.kind in ("kv", "state") else unit
        if owner not in unreadable:
            places[unit] = gpus[next(i for i, end in enumerate(ends) if at <= end or i == len(ends) - 1)]
    return moved(home, places)


def _with_experts(
    placement: Placement, estimator: Estimator, gpus: list[Gpu], unreadable: frozenset[UnitId], judge: Judge
) -> Placement:
    """As many layers' experts as fit beside the rest of their layer, the last ones first."""
    sizes, found = estimator.unit_bytes(placement), judge(placement)
    candidates: dict[Gpu, list[UnitId]] = {gpu: [] for gpu in gpus}
    for unit, _ in reversed(placement.units):
        where = placement.device_of(UnitId("ffn", unit.layer)) if unit.kind == "experts" else None
        if isinstance(where, Gpu) and unit not in unreadable:
            candidates[where].append(unit)
    counts = {gpu: _how_many((sizes[unit] for unit in units), spare(found.of(gpu))) for gpu, units in candidates.items()}
    while any(counts.values()):
        tried = moved(placement, {unit: gpu for gpu, units in candidates.items() for unit in units[: counts[gpu]]})
        found = judge(tried)
        full = [gpu for gpu in gpus if spare(found.of(gpu)) < 0]
        if not full:
            return tried
        for gpu in full:
            counts[gpu] = max(0, counts[gpu] - 1)
    return placement


def _how_many(sizes: Iterable[int], room: int) -> int:
    n = 0
    for size in sizes:
        room -= size
        if room < 0:
            return n
        n += 1
    return n


def moved(placement: Placement, places: dict[UnitId, Gpu] | dict[UnitId, Numa] | dict[UnitId, Device]) -> Placement:
    """The placement with some units elsewhere."""
    return replace(placement, units=tuple((unit, places.get(unit, where)) for unit, where in placement.units))
