"""Ordered rules of another tool to that tool's own map of tensors, and to the nearest Placement of ours.

The facts are those of llama.cpp (`src/llama-model.cpp`, load_tensors; `src/llama-model-loader.cpp`, create_tensor): the output
counts as one more layer behind the last; the last n_gpu_layers of them go to GPUs, cut by cumulative shares; the embedding stays
on the CPU; an override takes a tensor away from its layer. The cache of a layer stays with the layer, wherever its tensors go.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from engine.arch.spec import ModelSpec
from engine.arch.units import UnitId
from engine.errors import PlacementError
from engine.gguf import keys
from engine.gguf.info import GgufFile
from engine.graph.ops import Graph
from engine.hardware.gpus import GpuInfo
from engine.placement.differences import Difference, sentences
from engine.placement.flags import LlamaFlags
from engine.placement.options import KV_TYPES, KvType, LoadOptions
from engine.placement.placement import Device, Gpu, Numa, Placement, plan_workers, units_of
from engine.placement.tensors import tensor_uses

_LAYER = re.compile(r"blk\.(\d+)\.")
_GPU = re.compile(r"(?:CUDA|ROCm)(\d+)")
_NEAREST_TYPE: dict[str, KvType] = {
    "bf16": "f16",
    **dict.fromkeys(("q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1"), "q8_0"),
}
"""Types of cache that llama.cpp has and this engine has not."""


@dataclass(frozen=True, slots=True)
class Resolution:
    """tensors: what the tool itself would do, by its names of devices; placement: what is done here.

    differences: what of it cannot be done here; notes: what is probably not meant. One sentence each.
    """

    tensors: Mapping[str, str]
    placement: Placement
    differences: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def resolve(
    flags: LlamaFlags, spec: ModelSpec, graph: Graph, file: GgufFile, gpus: Sequence[GpuInfo], options: LoadOptions
) -> Resolution:
    """What the flags mean for this model on a machine with these GPUs. Cache types they do not name are those of `options`.

    Raises:
        PlacementError: a device that is not there. InvalidRequest: see `plan_workers`.
    """
    n_layers = n_layers_of(file) or spec.n_layers
    tensors = tensor_map(flags, file.tensors, n_layers, gpus)
    layers = layer_devices(flags, n_layers, gpus)
    found: list[Difference] = []
    units = _units(flags, spec, graph, file, layers, tensors, found)
    k_type, v_type = _cache_type(flags.k_type, options.k_type, found), _cache_type(flags.v_type, options.v_type, found)
    placement = Placement(units, k_type, v_type, plan_workers(options.n_threads, options.cores))
    idle = [rule for rule in flags.overrides if not any(rule.matches(name) for name in file.tensors)]
    notes = tuple(f"-ot {rule.pattern}={rule.device} matches no tensor of this model" for rule in idle if rule.below is None)
    return Resolution(tensors, placement, (*flags.unsupported, *sentences(found)), notes)


def n_layers_of(file: GgufFile) -> int:
    """Layers that the tool counts, those that predict further tokens among them; 0 where the file does not say."""
    found = file.metadata.get(keys.of(file.architecture, keys.BLOCK_COUNT), 0)
    return found if isinstance(found, int) else 0


def tensor_map(flags: LlamaFlags, names: Iterable[str], n_layers: int, gpus: Sequence[GpuInfo]) -> dict[str, str]:
    """Where the tool itself puts each tensor of a model of n_layers (those that predict further tokens among them).

    Raises:
        PlacementError: a device that is not there.
    """
    layers, known = layer_devices(flags, n_layers, gpus), _known_devices(gpus)
    for rule in flags.overrides:
        _check_device(rule.device, known, f"-ot {rule.pattern}")
    return {name: _tensor_device(name, flags, layers) for name in names}


def layer_devices(flags: LlamaFlags, n_layers: int, gpus: Sequence[GpuInfo]) -> tuple[str, ...]:
    """The device of each layer, and of the output behind them, by the tool's names.

    Raises:
        PlacementError: a GPU that is not there.
    """
    order = _used_gpus(flags, gpus)
    n_all = n_layers + 1
    n_gpu = min(n_all if flags.n_gpu_layers is None else flags.n_gpu_layers, n_all) if order else 0
    ends = _split_points(flags, order, gpus)
    first = n_all - n_gpu
    # The last share ends at 1 and positions are below it, so every position has a GPU.
    on_gpus = (order[bisect_right(ends, _f32(i / n_gpu))] for i in range(n_gpu))
    return ("CPU",) * first + tuple(on_gpus)


def device_of(name: str) -> Device:
    """Our device of the tool's name."""
    match = _GPU.fullmatch(name)
    return Numa(0) if match is None else Gpu(int(match[1]))


def name_of(device: Device) -> str:
    """The tool's name of a device."""
    return f"CUDA{device.index}" if isinstance(device, Gpu) else "CPU"


def _known_devices(gpus: Sequence[GpuInfo]) -> tuple[str, ...]:
    return ("CPU", *(f"CUDA{one.index}" for one in gpus))


def _check_device(name: str, known: Sequence[str], where: str) -> None:
    if name in known or name.replace("ROCm", "CUDA") in known:
        return
    raise PlacementError(f"{where}: there is no device {name[:40]!r}; this machine has {', '.join(known)}")


def _used_gpus(flags: LlamaFlags, gpus: Sequence[GpuInfo]) -> tuple[str, ...]:
    known = _known_devices(gpus)
    order = known[1:] if flags.devices is None else flags.devices
    for name in order:
        _check_device(name, known, "-dev")
    order = tuple(name for name in order if name != "CPU")
    if not flags.single or not order or flags.main_gpu < 0:
        return () if flags.single and flags.main_gpu < 0 else order
    if flags.main_gpu >= len(order):
        raise PlacementError(f"-mg {flags.main_gpu}: there is no such GPU; this machine has {', '.join(order)}")
    return (order[flags.main_gpu],)


def _split_points(flags: LlamaFlags, order: Sequence[str], gpus: Sequence[GpuInfo]) -> list[float]:
    """Where the share of each GPU ends, 0 to 1, in the f32 arithmetic of the tool. Shares: as given, or the free memory."""
    shares = [*flags.tensor_split, *(0.0,) * len(order)][: len(order)]
    if not any(shares):
        free = {f"CUDA{one.index}": float(one.capacity) for one in gpus}
        shares = [free[name.replace("ROCm", "CUDA")] or 1.0 for name in order]
    ends, total = [], 0.0
    for share in shares:
        total = _f32(total + _f32(share))
        ends.append(total)
    return [_f32(end / total) for end in ends]


def _f32(value: float) -> float:
    return cast(float, struct.unpack("f", struct.pack("f", value))[0])


def _tensor_device(name: str, flags: LlamaFlags, layers: Sequence[str]) -> str:
    rule = next((one for one in flags.overrides if one.matches(name)), None)
    return _own_device(name, layers) if rule is None else rule.device


def _own_device(name: str, layers: Sequence[str]) -> str:
    """Where a tensor lies that no override is about."""
    match = _LAYER.match(name)
    if match is not None:
        return layers[min(int(match[1]), len(layers) - 1)]
    if name.startswith(("output", "cls")):
        return layers[-1]
    return layers[0] if name.startswith("rope_") else "CPU"


def _units(
    flags: LlamaFlags,
    spec: ModelSpec,
    graph: Graph,
    file: GgufFile,
    layers: Sequence[str],
    tensors: Mapping[str, str],
    found: list[Difference],
) -> tuple[tuple[UnitId, Device], ...]:
    """Every unit where most of its bytes are; what then lies elsewhere is added to `found`."""
    places: dict[UnitId, dict[str, str]] = {}
    for use in tensor_uses(graph):
        places.setdefault(use.unit, {})[use.name] = tensors[use.name]
    for unit, names in places.items():
        # Of these every layer, and a tied output, gets a copy of its own.
        for name in names:
            copied = name.startswith("rope_") or (unit.kind == "head" and name == spec.embed)
            if copied and not any(rule.matches(name) for rule in flags.overrides):
                names[name] = layers[unit.layer]
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
            theirs = layers[unit.layer] if flags.kv_offload else "CPU"
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


def _cache_type(asked: str | None, default: KvType, found: list[Difference]) -> KvType:
    if asked is None:
        return default
    same = next((one for one in KV_TYPES if one == asked), None)
    if same is not None:
        return same
    if asked not in _NEAREST_TYPE:
        raise PlacementError(f"the cache type {asked[:40]!r} is unknown; use {', '.join(KV_TYPES)}")
    found.append(Difference("a cache of", UnitId("kv"), asked, _NEAREST_TYPE[asked]))
    return _NEAREST_TYPE[asked]
