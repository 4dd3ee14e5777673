"""From a map of tensors to devices, as another tool makes it, to the nearest Placement of ours.

A unit goes where most of its bytes would be; a cache goes to the attention that reads it. Whatever then lies elsewhere than
with the other tool is a Difference.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from engine.arch.spec import ModelSpec
from engine.arch.units import UnitId
from engine.errors import PlacementError
from engine.gguf.info import GgufFile
from engine.graph.ops import Graph
from engine.placement.differences import Difference
from engine.placement.options import KV_TYPES, KvType
from engine.placement.placement import Device, Gpu, Numa, Placement, units_of
from engine.placement.settings import Settings
from engine.placement.tensors import tensor_uses

_LAYER = re.compile(r"blk\.(\d+)\.")
_GPU = re.compile(r"(?:CUDA|ROCm|XPU|NPU)(\d+)")
_NEAREST_TYPE: dict[str, KvType] = {
    "bf16": "f16",
    **dict.fromkeys(("q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1", "q6_0", "q8_KV"), "q8_0"),
}
"""Types of cache that llama.cpp or ik_llama.cpp has and this engine has not."""


@dataclass(frozen=True, slots=True)
class Resolution:
    """tensors: what the tool itself would do, by its names of devices; placement: what is done here; settings: what else it says.

    differences: what of it cannot be done here; notes: what is probably not meant, or means nothing here. One sentence each.
    """

    tensors: Mapping[str, str]
    placement: Placement
    differences: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    settings: Settings = field(default_factory=Settings)


def device_of(name: str) -> Device:
    """Our device of the tool's name."""
    match = _GPU.fullmatch(name)
    return Numa(0) if match is None else Gpu(int(match[1]))


def name_of(device: Device) -> str:
    """The tool's name of a device."""
    return f"CUDA{device.index}" if isinstance(device, Gpu) else "CPU"


def check_device(name: str, known: Sequence[str], where: str) -> None:
    """Raises PlacementError where a device by the tool's name is not there; `where` says who asks for it."""
    match = _GPU.fullmatch(name)
    if name in known or (match is not None and f"CUDA{match[1]}" in known):
        return
    raise PlacementError(f"{where}: there is no device {name[:40]!r}; this machine has {', '.join(known)}")


@dataclass(frozen=True, slots=True)
class Layout:
    """What the other tool does with a model. tensors: by name; layers: the device of each layer and of the output behind them;
    caches: of the cache or state of each layer. own: whether a tensor lies where rules say and not with whatever reads it."""

    tensors: Mapping[str, str]
    layers: Sequence[str]
    caches: Sequence[str]
    own: Callable[[str], bool]


def nearest_units(
    layout: Layout, spec: ModelSpec, graph: Graph, file: GgufFile, found: list[Difference]
) -> tuple[tuple[UnitId, Device], ...]:
    """Every unit where most of its bytes are; what then lies elsewhere is added to `found`."""
    places: dict[UnitId, dict[str, str]] = {}
    for use in tensor_uses(graph):
        places.setdefault(use.unit, {})[use.name] = layout.tensors[use.name]
    for unit, names in places.items():
        # Of these every layer, and a tied output, gets a copy of its own.
        for name in names:
            copied = name.startswith("rope_") or (unit.kind == "head" and name == spec.embed)
            if copied and not layout.own(name):
                names[name] = layout.layers[unit.layer]
    chosen: dict[UnitId, str] = {}
    for unit, names in places.items():
        chosen[unit] = _most(names, file)
        found += [
            Difference(f"{_stem(name)} of", unit, device, chosen[unit])
            for name, device in names.items()
            if device_of(device) != device_of(chosen[unit])
        ]
    for unit in units_of(spec):
        if unit.kind in ("kv", "state"):
            theirs = layout.caches[unit.layer]
            chosen[unit] = chosen[UnitId("mixer", unit.layer)]
            if device_of(theirs) != device_of(chosen[unit]):
                found.append(Difference("the cache of" if unit.kind == "kv" else "the state of", unit, theirs, chosen[unit]))
    return tuple((unit, device_of(chosen[unit])) for unit in units_of(spec))


def _most(names: Mapping[str, str], file: GgufFile) -> str:
    """The device of most bytes; of equals the one that comes first."""
    nbytes: dict[str, int] = {}
    for name, device in names.items():
        nbytes[device] = nbytes.get(device, 0) + file.tensors[name].nbytes
    return max(nbytes, key=lambda device: nbytes[device])


def _stem(name: str) -> str:
    """The name without its layer and its ending."""
    return _LAYER.sub("", name).removesuffix(".weight")


def cache_type(asked: str | None, default: KvType, found: list[Difference]) -> KvType:
    """The nearest of our types of cache; None asks for the default. Raises: PlacementError."""
    if asked is None:
        return default
    same = next((one for one in KV_TYPES if one == asked), None)
    if same is not None:
        return same
    if asked not in _NEAREST_TYPE:
        raise PlacementError(f"the cache type {asked[:40]!r} is unknown; use {', '.join(KV_TYPES)}")
    found.append(Difference("a cache of", UnitId("kv"), asked, _NEAREST_TYPE[asked]))
    return _NEAREST_TYPE[asked]
