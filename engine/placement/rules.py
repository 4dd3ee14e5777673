"""Flags of llama.cpp and ik_llama.cpp to the tool's own map of tensors, and to the nearest Placement of ours.

The facts are those of llama.cpp (`src/llama-model.cpp`, load_tensors; `src/llama-model-loader.cpp`, create_tensor): the output
counts as one more layer behind the last; the last n_gpu_layers of them go to GPUs, cut by cumulative shares; the embedding stays
on the CPU; an override takes a tensor away from its layer. The cache of a layer stays with the layer, wherever its tensors go.
ik_llama.cpp (`src/llama.cpp`, `docs/parameters.md`) brings the output to a GPU only after all layers.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import cast

from engine.arch.spec import ModelSpec
from engine.errors import PlacementError
from engine.gguf import keys
from engine.gguf.info import GgufFile
from engine.graph.ops import Graph
from engine.hardware.gpus import GpuInfo
from engine.placement.differences import Difference, sentences
from engine.placement.flags import LlamaFlags
from engine.placement.options import LoadOptions
from engine.placement.placement import Placement, plan_workers
from engine.placement.resolution import Layout, Resolution, cache_type, check_device, nearest_units

_LAYER = re.compile(r"blk\.(\d+)\.")


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
    caches = layers if flags.kv_offload else ("CPU",) * len(layers)
    layout = Layout(tensors, layers, caches, lambda name: any(rule.matches(name) for rule in flags.overrides))
    units = nearest_units(layout, spec, graph, file, found)
    k_type, v_type = cache_type(flags.k_type, options.k_type, found), cache_type(flags.v_type, options.v_type, found)
    placement = Placement(units, k_type, v_type, plan_workers(options.n_threads, options.cores))
    differences = (*flags.unsupported, *sentences(found))
    return Resolution(tensors, placement, differences, (*_idle(flags, file), *_of_versions(flags, layers)), flags.settings)


def _idle(flags: LlamaFlags, file: GgufFile) -> tuple[str, ...]:
    """Rules that are about no tensor of the model."""
    idle = [rule for rule in flags.overrides if not any(rule.matches(name) for name in file.tensors)]
    return tuple(
        f"-ot {_shown(rule.pattern)}={rule.device} matches no tensor of this model" for rule in idle if rule.below is None
    )


def _shown(pattern: str) -> str:
    """A pattern for a sentence."""
    return re.sub(r"[\x00-\x1f]", " ", pattern if len(pattern) <= 120 else f"{pattern[:120]}...")


def _of_versions(flags: LlamaFlags, layers: Sequence[str]) -> tuple[str, ...]:
    """What versions of ik_llama.cpp do differently."""
    if flags.tool != "ik":
        return ()
    notes = []
    if len({*layers} - {"CPU"}) > 1:
        notes.append(
            "ik_llama.cpp of 2026 cuts layers over GPUs by their bytes, not by their number: a boundary may lie elsewhere"
        )
    if any(rule.below is not None for rule in flags.overrides):
        notes.append("-ncmoe: ik_llama.cpp of 2026 takes the last layers with experts, its documentation says the first")
    return tuple(notes)


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
        check_device(rule.device, known, f"-ot {_shown(rule.pattern)}")
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
    if flags.tool == "ik" and n_gpu < n_all:
        # There the output counts last: it follows when all layers have gone to GPUs.
        on_gpus = (order[bisect_right(ends, _f32(i / n_gpu))] for i in range(n_gpu))
        return (*("CPU",) * (n_layers - n_gpu), *on_gpus, "CPU")
    first = n_all - n_gpu
    # The last share ends at 1 and positions are below it, so every position has a GPU.
    on_gpus = (order[bisect_right(ends, _f32(i / n_gpu))] for i in range(n_gpu))
    return ("CPU",) * first + tuple(on_gpus)


def _known_devices(gpus: Sequence[GpuInfo]) -> tuple[str, ...]:
    return ("CPU", *(f"CUDA{one.index}" for one in gpus))


def _used_gpus(flags: LlamaFlags, gpus: Sequence[GpuInfo]) -> tuple[str, ...]:
    known = _known_devices(gpus)
    order = known[1:] if flags.devices is None else flags.devices
    for name in order:
        check_device(name, known, "-dev")
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
