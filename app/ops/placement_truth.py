"""What was loaded against what was planned: bytes by device and owner, cards that lie elsewhere, slow kernels, leaks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.i18n import filled, tr
from app.ops.placement_cards import Family, families, family_name
from app.ops.placement_planning import device_name
from engine.api.pure import Device, Gpu, Numa, Placement, Prediction, UnitId
from engine.api.values import HoldingInfo, HoldingTrend

OWNERS = ("weights", "derived", "kv", "kept_windows", "state", "workspace")
"""Fields of `DeviceBytes`; holdings write `kept windows`."""
WORTH_SAYING = 0.02
"""A share of strange pages below this is what moves about in any process."""


@dataclass(frozen=True, slots=True)
class OwnerBytes:
    """Bytes of one owner on one device. real None: nobody counts them. mapped: pages of the file's cache among the real ones."""

    device: Device
    owner: str
    predicted: int
    real: int | None
    mapped: bool = False


@dataclass(frozen=True, slots=True)
class Misplaced:
    """Cards of one kind that were put on one device and lie on another."""

    units: tuple[UnitId, ...]
    asked: Device
    found: Device


def device_of(text: str) -> Device:
    """`gpu1` as a device."""
    kind, number = text[:3], text.lstrip("gpunma")
    return Gpu(int(number)) if kind == "gpu" else Numa(int(number))


def against(prediction: Prediction, holdings: Sequence[HoldingInfo]) -> tuple[OwnerBytes, ...]:
    """Predicted and real bytes, device by device in the order of the prediction; owners that neither knows are left out."""
    real: dict[tuple[Device, str], int] = {}
    mapped: set[tuple[Device, str]] = set()
    for one in holdings:
        key = (device_of(one.device), one.owner.replace(" ", "_"))
        real[key] = real.get(key, 0) + one.nbytes
        if one.mapped:
            mapped.add(key)
    found = []
    for device in prediction.devices:
        if not device.used and not any(where == device.device for where, _ in real):
            continue
        known = [*OWNERS, *(owner for where, owner in real if where == device.device and owner not in OWNERS)]
        for owner in dict.fromkeys(known):
            planned, held = int(getattr(device.owners, owner, 0)), real.get((device.device, owner), 0)
            if planned or held:
                found.append(OwnerBytes(device.device, owner, planned, held, (device.device, owner) in mapped))
        if device.owners.other:
            found.append(OwnerBytes(device.device, "other", device.owners.other, None))
    return tuple(found)


def misplaced(asked: Placement, found: Placement) -> tuple[Misplaced, ...]:
    """What lies elsewhere than it was put, by kind and by both places."""
    places = dict(found.units)
    groups: dict[tuple[str, Device, Device], list[UnitId]] = {}
    for unit, device in asked.units:
        there = places.get(unit, device)
        if there != device:
            groups.setdefault((unit.kind, device, there), []).append(unit)
    return tuple(Misplaced(tuple(units), asked_of, there) for (_, asked_of, there), units in groups.items())


def elsewhere(asked: Placement, found: Placement) -> tuple[str, ...]:
    """A sentence for everything that lies otherwise than it was put: cards, parts on several nodes, copies of hot experts."""
    names = families(unit for unit, _ in asked.units)
    told = [_misplaced_text(one, names) for one in misplaced(asked, found)]
    groups: dict[tuple[Family, tuple[int, ...], tuple[int, ...]], list[int]] = {}
    for unit, device in asked.units:
        if found.places.get(unit) == device and asked.spread_of(unit) != found.spread_of(unit):
            groups.setdefault((names[unit], asked.nodes_of(unit), found.nodes_of(unit)), []).append(unit.layer)
    for (family, wanted, there), layers in groups.items():
        text = tr("Placement", "%1 should lie on %2 and lies on %3, or is cut otherwise.")
        told.append(filled(text, _card_text(family, layers), _nodes_text(wanted), _nodes_text(there)))
    held = {(pool.layer, pool.gpu, len(pool.experts)) for pool in found.pools if found.pool_of(pool.layer) is not None}
    missing: dict[Device, list[int]] = {}
    for pool in asked.pools:
        if asked.pool_of(pool.layer) is not None and (pool.layer, pool.gpu, len(pool.experts)) not in held:
            missing.setdefault(pool.gpu, []).append(pool.layer)
    for gpu, layers in missing.items():
        text = tr("Placement", "%1 should lie on %2 and are not all there.")
        told.append(filled(text, _card_text("hot", layers), device_name(gpu)))
    return tuple(told)


def _card_text(family: Family, layers: Sequence[int]) -> str:
    """`Experts 4–6, 9`."""
    numbers = sorted(layer for layer in layers if layer >= 0)
    return f"{family_name(family)} {ranges_text(numbers)}" if numbers else family_name(family)


def _nodes_text(nodes: Sequence[int]) -> str:
    """`NUMA 0, NUMA 1`."""
    return ", ".join(device_name(Numa(node)) for node in nodes)


def sentences(
    asked: Placement | None,
    found: Placement | None,
    fallbacks: Sequence[str],
    trends: Sequence[HoldingTrend],
    off_node_share: float | None,
) -> tuple[tuple[str, str], ...]:
    """(tone, sentence) for everything that was looked at: what is wrong first, then what is right."""
    wrong: list[tuple[str, str]] = []
    right: list[tuple[str, str]] = []
    if asked is not None and found is not None:
        strange = elsewhere(asked, found)
        wrong += [("err", sentence) for sentence in strange]
        if not strange:
            right.append(("ok", tr("Placement", "Every card lies where it was put.")))
    wrong += [("warn", sentence) for sentence in fallbacks]
    if not fallbacks:
        right.append(("ok", tr("Placement", "Every device uses its fast kernels.")))
    leaks = [one.sentence for one in trends if one.sentence]
    wrong += [("warn", sentence) for sentence in leaks]
    minutes = round(max((one.span_s for one in trends), default=0.0) / 60)
    if minutes and not leaks:  # of the first moments nothing can be said
        right.append(("ok", filled(tr("Placement", "Memory is steady over the last %1 min."), minutes)))
    if off_node_share is not None:
        share = f"{100 * off_node_share:.1f}"
        if off_node_share > WORTH_SAYING:
            text = tr("Placement", "%1 % of the sampled pages lie on another node than intended.")
            wrong.append(("warn", text.replace("%1", share)))
        else:
            right.append(("ok", tr("Placement", "The pages lie on the intended nodes.")))
    return (*wrong, *right)


def _misplaced_text(one: Misplaced, names: Mapping[UnitId, Family]) -> str:
    what = _card_text(names[one.units[0]], [unit.layer for unit in one.units])
    return filled(tr("Placement", "%1 should lie on %2 and lies on %3."), what, device_name(one.asked), device_name(one.found))


def ranges_text(numbers: Sequence[int]) -> str:
    """`4–6, 9`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]}–{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
