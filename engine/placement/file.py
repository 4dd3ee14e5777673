"""A Placement as a JSON file: what the editor saves, `placement import` writes and `--placement` reads.

    {"layerdeck": "placement", "version": 1, "model": {"architecture": "qwen3moe", "fingerprint": "..."},
     "k_type": "f16", "v_type": "f16", "units": {"embed": "numa0", "mixer.0": "gpu0", ...},
     "pools": {"experts.4": {"gpu1": [3, 17]}}, "spreads": {"experts.5": {"split": {"numa0": 1, "numa1": 1}}},
     "rules": {"tool": "llama.cpp", "words": ["-ngl", "99"], "text": "-ngl 99"}}

Types of the cache that it does not name are those of the options. Who works is not in it: teams are made for the machine at hand.
`pools`, where there are any, are copies of single experts on GPUs, see `Pool`; `spreads` are of units that lie on several nodes
of memory, see `engine.placement.spread`. `rules` is there when the placement was made from
them; a file with nothing else is for any model, and its rules are resolved when it is used.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args

from engine.arch.spec import ModelSpec, MoeFfn
from engine.arch.units import UnitId, UnitKind
from engine.errors import PlacementError
from engine.hardware.gpus import GpuInfo
from engine.placement.options import KV_TYPES, KvType, LoadOptions
from engine.placement.over_nodes import spreads_from_json, spreads_to_json
from engine.placement.placement import Device, Gpu, Numa, Placement, Pool, plan_workers, units_of
from engine.placement.pools import check_pools, pools_from_json, pools_to_json

MARK = "placement"
VERSION = 1
_DEVICE = re.compile(r"(numa|gpu)(\d{1,4})")
_UNIT = re.compile(r"([a-z]+)(?:\.(\d{1,6}))?")


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of another tool that a placement was made from, word by word; text: as they were typed."""

    tool: str
    words: tuple[str, ...]
    text: str = ""


def fingerprint(spec: ModelSpec) -> str:
    """Tells models apart for which a placement means different things: what there is to place, and of what shape."""
    blocks = [
        (type(one.mixer).__name__, one.ffn.n_experts if isinstance(one.ffn, MoeFfn) else 0, one.ffn.gate.n_out)
        for one in spec.blocks
    ]
    text = json.dumps([spec.architecture, spec.n_vocab, spec.n_embd, [str(unit) for unit in units_of(spec)], blocks])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def to_json(placement: Placement, spec: ModelSpec, rules: Rules | None = None, *, types: bool = True) -> str:
    """The text of the file of a placement for a model. types: whether it also chooses the types of the cache."""
    value: dict[str, Any] = {
        "model": {"architecture": spec.architecture, "fingerprint": fingerprint(spec)},
        **({"k_type": placement.k_type, "v_type": placement.v_type} if types else {}),
        "units": {str(unit): str(device) for unit, device in placement.units},
        **({"pools": pools_to_json(placement.pools)} if placement.pools else {}),
        **({"spreads": spreads} if (spreads := spreads_to_json(placement)) else {}),
    }
    return _text(value, rules)


def rules_to_json(rules: Rules) -> str:
    """The text of a file of rules for any model."""
    return _text({}, rules)


def _text(value: dict[str, Any], rules: Rules | None) -> str:
    head = {"layerdeck": MARK, "version": VERSION}
    tail = {} if rules is None else {"rules": {"tool": rules.tool, "words": list(rules.words), "text": rules.text}}
    return json.dumps(head | value | tail, indent=1, ensure_ascii=False) + "\n"


def from_json(
    text: str, spec: ModelSpec, gpus: Sequence[GpuInfo], options: LoadOptions, where: str, nodes: Sequence[int] = (0,)
) -> Placement:
    """The placement of a file for this model on a machine with these GPUs and nodes of memory; where: names the file in errors.

    Raises:
        PlacementError: no such file, one of another version or model, a unit or device that is not there, a unit without a place.
    """
    value = _object(text, where)
    model = value.get("model")
    made_for = model.get("fingerprint") if isinstance(model, dict) else None
    if made_for != fingerprint(spec):
        other = model.get("architecture") if isinstance(model, dict) else None
        kind = (
            "another model of this architecture" if other == spec.architecture else f"a model of architecture {str(other)[:40]!r}"
        )
        raise PlacementError(f"{where}: this placement was made for {kind}; make one for this model")
    units = _units(value.get("units"), spec, gpus, where, nodes)
    placement = Placement(
        tuple((unit, units[unit]) for unit in units_of(spec)),
        _kv_type(value.get("k_type", options.k_type), where),
        _kv_type(value.get("v_type", options.v_type), where),
        plan_workers(options.n_threads, options.cores),
        pools_from_json(value.get("pools", {}), where),
        spreads_from_json(value.get("spreads", {}), units_of(spec), nodes, where),
    )
    check_caches(placement, where)
    check_pools(placement, spec, where)
    return placement


def rules_of(text: str, where: str) -> Rules | None:
    """The rules in a file, None where the placement was not made from any. Raises: see `from_json`."""
    rules = _object(text, where).get("rules")
    if rules is None:
        return None
    words = rules.get("words") if isinstance(rules, dict) else None
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words) or not isinstance(rules.get("tool"), str):
        raise PlacementError(f"{where}: its rules are not a tool and a list of words; correct the file")
    return Rules(rules["tool"], tuple(words), str(rules.get("text", "")))


def has_units(text: str, where: str) -> bool:
    """Whether a file says more than rules. Raises: see `from_json`."""
    return "units" in _object(text, where)


def places_in(text: str, where: str) -> tuple[tuple[tuple[UnitId, Device], ...], KvType, KvType]:
    """The places and cache types in a file, without a model to compare them with. Raises: see `from_json`."""
    value = _object(text, where)
    units = value.get("units")
    if not isinstance(units, dict):
        raise PlacementError(f"{where}: it has no units; correct the file")
    places = tuple((_unit(name, where), _device(device, where)) for name, device in units.items())
    return places, _kv_type(value.get("k_type", "f16"), where), _kv_type(value.get("v_type", "f16"), where)


def pools_in(text: str, where: str) -> tuple[Pool, ...]:
    """The pools in a file, without a model to compare them with. Raises: see `from_json`."""
    return pools_from_json(_object(text, where).get("pools", {}), where)


def n_spread_in(text: str, where: str) -> int:
    """How many units a file spreads over several nodes of memory. Raises: see `from_json`."""
    spreads = _object(text, where).get("spreads")
    return len(spreads) if isinstance(spreads, dict) else 0


def architecture_in(text: str, where: str) -> str:
    """The architecture of the model that a file is for, or "". Raises: see `from_json`."""
    model = _object(text, where).get("model")
    return str(model.get("architecture", "")) if isinstance(model, dict) else ""


def check_caches(placement: Placement, where: str) -> None:
    """Raises PlacementError where a cache or state lies apart from the attention that reads it at every token."""
    places = dict(placement.units)
    for unit, device in placement.units:
        mixer = UnitId("mixer", unit.layer)
        if unit.kind in ("kv", "state") and places.get(mixer) != device:
            raise PlacementError(f"{where}: {unit} is on {device} and {mixer} on {places.get(mixer)}; put both on one device")


def device_names(gpus: Sequence[GpuInfo], nodes: Sequence[int] = (0,)) -> str:
    """What there is, for messages."""
    return ", ".join((*(f"numa{node}" for node in nodes), *(f"gpu{one.index}" for one in gpus)))


def _object(text: str, where: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise PlacementError(f"{where}: this is not a JSON file ({error}); correct the file") from error
    if not isinstance(value, dict) or value.get("layerdeck") != MARK:
        raise PlacementError(f"{where}: this is no placement of Layerdeck; make one with: layerdeck placement import")
    if value.get("version") != VERSION:
        found = str(value.get("version"))[:20]
        raise PlacementError(f"{where}: this placement has version {found}, this program reads version {VERSION}; make it again")
    return value


def _units(value: Any, spec: ModelSpec, gpus: Sequence[GpuInfo], where: str, nodes: Sequence[int]) -> dict[UnitId, Device]:
    if not isinstance(value, dict):
        raise PlacementError(f"{where}: it has no units; correct the file")
    there: set[Device] = {*map(Numa, nodes), *(Gpu(one.index) for one in gpus)}
    known, found = set(units_of(spec)), {}
    for name, text in value.items():
        unit, device = _unit(name, where), _device(text, where)
        if unit not in known:
            raise PlacementError(f"{where}: this model has no unit {name[:40]!r}; make a placement for this model")
        if device not in there:
            names = device_names(gpus, nodes)
            raise PlacementError(f"{where}: {unit} is on {device}, which is not there; this machine has {names}")
        found[unit] = device
    missing = next((unit for unit in units_of(spec) if unit not in found), None)
    if missing is not None:
        raise PlacementError(f"{where}: the unit {missing} has no place; make the placement again")
    return found


def _unit(name: str, where: str) -> UnitId:
    match = _UNIT.fullmatch(name)
    kind: UnitKind | None = None if match is None else next((one for one in get_args(UnitKind) if one == match[1]), None)
    if match is None or kind is None:
        raise PlacementError(f"{where}: there is no unit {name[:40]!r}; correct the file")
    return UnitId(kind) if match[2] is None else UnitId(kind, int(match[2]))


def _device(text: Any, where: str) -> Device:
    match = _DEVICE.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise PlacementError(
            f"{where}: there is no device {str(text)[:40]!r}; write numa0 for the CPU and gpu0, gpu1, ... for GPUs"
        )
    return Numa(int(match[2])) if match[1] == "numa" else Gpu(int(match[2]))


def _kv_type(text: Any, where: str) -> KvType:
    found = next((one for one in KV_TYPES if one == text), None)
    if found is None:
        raise PlacementError(f"{where}: the cache type {str(text)[:40]!r} is unknown; use {', '.join(KV_TYPES)}")
    return found
