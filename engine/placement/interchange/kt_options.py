"""KTransformers' command lines: the server and chat of its own (`--gguf_path --cpu_infer --cache_lens ...`) and the `--kt-*`
options of its SGLang, as rules.

Both put attention, shared experts and everything else on GPUs and routed experts on the CPU; `--kt-num-gpu-experts` brings so
many of each layer to the GPU. The facts are in `ktransformers/server/args.py` and kt-kernel's README. Of an option the last
word counts.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from engine.arch.spec import ModelSpec, MoeFfn
from engine.arch.units import UnitId
from engine.errors import PlacementError
from engine.gguf.info import GgufFile
from engine.graph.ops import Graph
from engine.hardware.gpus import GpuInfo
from engine.placement.differences import Difference, sentences
from engine.placement.options import KvType, LoadOptions
from engine.placement.placement import Device, Gpu, Placement, Pool, plan_workers
from engine.placement.resolution import Layout, Resolution, check_device, nearest_units
from engine.placement.settings import Settings

_STRATEGIES = ("uniform", "frequency", "front-loading", "random")
_EXPERTS = re.compile(r"blk\.(\d+)\.ffn_(?:gate|up|down|gate_up)_exps\.")
_SAME = {
    "tp-size": "tp",
    "tensor-parallel-size": "tp",
    "model": "model-path",
    "model-dir": "model-path",
    "gguf-path": "gguf-path",
    "max-total-tokens": "max-total-tokens",
    "chunked-prefill-size": "chunk-size",
    "kt-gpu-prefill-threshold": "kt-gpu-prefill-token-threshold",
}
_ALONE = frozenset(
    [
        "kt-enable-dynamic-expert-update",
        "trust-remote-code",
        "enable-mixed-chunk",
        "enable-p2p-check",
        "disable-cuda-graph",
        "use-cuda-graph",
        "disable-shared-experts-fusion",
        "no-use-cuda-graph",
        "record-kt-gpu-expert-distribution",
    ]
)
_MOOT = {
    "kt-method": "experts are computed in the format of the file",
    "kt-weight-path": "the model's file holds its experts too",
    "kt-threadpool-count": "there is one team of threads a node of memory",
    "kt-max-deferred-experts-per-token": "no expert is put off to the next layer: that would change the answers",
    "use-cuda-graph": "decoding on GPUs is always a graph",
    "no-use-cuda-graph": "decoding on GPUs is always a graph",
    "disable-cuda-graph": "decoding on GPUs is always a graph",
    "backend-type": "answers side by side are always possible",
    "q4-gguf-path": "there is one file",
}
_NOT_HERE = {
    "optimize-config-path": "the default rules are taken; import that rule file itself",
    "kt-numa-nodes": "nodes of memory are not chosen by this option",
    "kt-expert-lora-path": "models are run as they are",
    "cpu-offload-gb": "weights of GPUs stay where they are put",
    "init-expert-location": "a file of counts is not read; the first experts of each layer are taken",
}
_KV_TYPES: dict[str, KvType] = {"fp8_e5m2": "int8", "fp8_e4m3": "int8", "bf16": "f16", "bfloat16": "f16", "float16": "f16"}


@dataclass(frozen=True, slots=True)
class KtOptions:
    """What a command line says about places. per_layer: experts of each layer on the GPU, or None with share, 0 to 1, of all of
    them.

    n_gpus: over how many each matrix is cut. front: the experts of the first layers go first. sglang: the server that is
    SGLang, which has the embedding on the GPU.
    """

    sglang: bool = True
    per_layer: int | None = 0
    share: float | None = None
    front: bool = False
    n_gpus: int = 1
    settings: Settings = field(default_factory=Settings)
    unsupported: tuple[str, ...] = ()
    moot: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()


def parse_options(words: Sequence[str], *, sglang: bool) -> KtOptions:
    """The rules of a command line in words. Raises: PlacementError, one sentence."""
    values, unsupported, moot, ignored = dict[str, str](), [], [], []
    for name, value, here in _pairs(words):
        values[name] = value
        if name in _NOT_HERE:
            unsupported.append(f"{here[:200]}: {_NOT_HERE[name]}")
        elif name in _MOOT:
            moot.append(f"{here[:80]}: {_MOOT[name]}")
        elif name.startswith("kt-") and name not in _KNOWN_KT:
            near = difflib.get_close_matches(name, _KNOWN_KT, n=1)
            unsupported.append(f"--{name} is unknown{f'; did you mean --{near[0]}?' if near else ''}")
        elif name not in _READ:
            ignored.append(here)
    strategy = values.get("kt-expert-placement-strategy", "uniform")
    if strategy not in _STRATEGIES:
        raise PlacementError(f"--kt-expert-placement-strategy {strategy[:40]!r} is unknown; it takes {', '.join(_STRATEGIES)}")
    if strategy in ("frequency", "random"):
        unsupported.append(f"--kt-expert-placement-strategy {strategy}: the first experts of each layer are taken to begin with")
    share = _share(values.get("kt-gpu-experts-ratio"))
    return KtOptions(
        sglang=sglang,
        per_layer=_number(values, "kt-num-gpu-experts", 0) if share is None else None,
        share=share,
        front=strategy == "front-loading",
        n_gpus=max(1, _number(values, "tp", 1)),
        settings=_settings(values, moot),
        unsupported=tuple(unsupported),
        moot=tuple(moot),
        ignored=tuple(ignored),
    )


_READ = frozenset(
    [
        "kt-num-gpu-experts",
        "tp",
        "cpu-infer",
        "kt-cpuinfer",
        "cache-lens",
        "context-length",
        "chunk-size",
        "kt-gpu-experts-ratio",
        "host",
        "port",
        "kt-expert-placement-strategy",
        "kt-gpu-prefill-token-threshold",
        "kt-enable-dynamic-expert-update",
        "model-path",
        "gguf-path",
        "max-new-tokens",
        "max-total-tokens",
        "kv-cache-dtype",
    ]
)
_KNOWN_KT = tuple(sorted(name for name in {*_READ, *_MOOT, *_NOT_HERE, *_ALONE} if name.startswith("kt-")))


def _pairs(words: Sequence[str]) -> list[tuple[str, str, str]]:
    """(name, value, as written) of every option."""
    found, at = [], 0
    while at < len(words):
        word = words[at]
        at += 1
        if not word.startswith("--"):
            continue
        name, equals, value = word.removeprefix("--").partition("=")
        name = name.replace("_", "-")
        name = _SAME.get(name, name)
        here = [word]
        while not equals and at < len(words) and not re.match(r"-[^\d.]", words[at]):
            here.append(words[at])
            at += 1
        value = value if equals else " ".join(here[1:])
        if not value and name in _READ and name not in _ALONE:
            raise PlacementError(f"{word} has no value; give one behind it")
        found.append((name, value, " ".join(here)))
    return found


def _number(values: Mapping[str, str], name: str, default: int) -> int:
    text = values.get(name)
    if text is None:
        return default
    if re.fullmatch(r"\d{1,9}", text) is None:
        raise PlacementError(f"--{name} {text[:40]!r} is not understood; it takes a whole number")
    return int(text)


def _share(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise PlacementError(f"--kt-gpu-experts-ratio {text[:40]!r} is not a share from 0 to 1; correct it")
    return value


def _settings(values: Mapping[str, str], moot: list[str]) -> Settings:
    threads = _number(values, "cpu-infer", 0) or _number(values, "kt-cpuinfer", 0)
    context = _number(values, "context-length", 0) or _number(values, "cache-lens", 0) or _number(values, "max-total-tokens", 0)
    threshold = _number(values, "kt-gpu-prefill-token-threshold", 0)
    kind = values.get("kv-cache-dtype", "auto")
    kv_type = None if kind == "auto" else _KV_TYPES.get(kind)
    if kind in ("fp8_e5m2", "fp8_e4m3"):
        moot.append(f"--kv-cache-dtype {kind}: a cache of 8 bits is int8 here")
    elif kv_type is None and kind != "auto":
        raise PlacementError(f"--kv-cache-dtype {kind[:40]!r} is unknown; it takes auto, {', '.join(_KV_TYPES)}")
    return Settings(
        n_threads=threads or None,
        n_ctx=context or None,
        prefill_chunk=_number(values, "chunk-size", 0) or None,
        k_type=kv_type,
        v_type=kv_type,
        stream_experts="auto" if threshold else None,
        model_path=values.get("gguf-path") or values.get("model-path", ""),
        max_tokens=_number(values, "max-new-tokens", 0) or None,
        host=values.get("host", ""),
        port=_number(values, "port", 0) or None,
    )


def expert_counts(options: KtOptions, spec: ModelSpec) -> dict[int, int]:
    """How many experts of each layer that has some lie on the GPU."""
    sizes = {block.index: block.ffn.n_experts for block in spec.blocks if isinstance(block.ffn, MoeFfn)}
    every = sum(sizes.values())
    if options.per_layer is not None:
        total = min(every, options.per_layer * len(sizes))
    else:
        total = min(every, int((options.share or 0.0) * every))
    counts: dict[int, int] = {}
    for i, (layer, size) in enumerate(sizes.items()):
        even = total // len(sizes) + (i < total % len(sizes))
        counts[layer] = min(size, total - sum(counts.values()) if options.front else even)
    return counts


def resolve_options(
    options: KtOptions, spec: ModelSpec, graph: Graph, file: GgufFile, gpus: Sequence[GpuInfo], load: LoadOptions
) -> Resolution:
    """What the options mean for this model on a machine with these GPUs.

    Raises:
        PlacementError: a device that is not there. InvalidRequest: see `plan_workers`.
    """
    known = ("CPU", *(f"CUDA{one.index}" for one in gpus))
    names = [f"CUDA{i}" for i in range(options.n_gpus)]
    for name in names:
        check_device(name, known, f"--tp {options.n_gpus}" if options.n_gpus > 1 else "attention on a GPU")
    counts = expert_counts(options, spec)
    sizes = {block.index: block.ffn.n_experts for block in spec.blocks if isinstance(block.ffn, MoeFfn)}
    whole = "+".join(names)

    def device(name: str) -> str:
        match = _EXPERTS.match(name)
        if match is None:
            return "CPU" if name.startswith("token_embd") and not options.sglang else whole
        layer = int(match[1])
        n, of = counts.get(layer, 0), sizes.get(layer, 0)
        return "CPU" if n == 0 else whole if n >= of else f"CPU+{whole}"

    tensors = {name: device(name) for name in file.tensors}
    n = len(spec.blocks)
    homes = [names[i * len(names) // max(1, n)] for i in range(n)] + [names[-1]]
    plain = {name: _one_place(where, name, homes) for name, where in tensors.items()}
    found: list[Difference] = []
    units = nearest_units(Layout(plain, homes, homes, lambda name: False), spec, graph, file, found)
    differences = [*options.unsupported, *sentences(found)]
    if options.n_gpus > 1:
        differences.append(
            f"every matrix is cut over {options.n_gpus} GPUs there: here layers lie whole, in order, on these GPUs"
        )
    k_type, v_type = options.settings.k_type or load.k_type, options.settings.v_type or load.v_type
    pools = tuple(_pool(layer, k, units) for layer, k in counts.items() if 0 < k < sizes[layer])
    placement = Placement(units, k_type, v_type, plan_workers(load.n_threads, load.cores), pools)
    return Resolution(tensors, placement, tuple(differences), options.moot, options.settings)


def _one_place(where: str, name: str, homes: Sequence[str]) -> str:
    """One device for a tensor that the tool cuts: that of its layer; of experts of which some are on the CPU, the CPU."""
    if where.startswith("CPU"):
        return "CPU"
    match = re.match(r"blk\.(\d+)\.", name)
    return homes[min(int(match[1]), len(homes) - 1)] if match is not None else homes[0 if name.startswith("token_embd") else -1]


def _pool(layer: int, n: int, units: Sequence[tuple[UnitId, Device]]) -> Pool:
    """The first n experts of a layer in slots of the GPU of its router."""
    home = dict(units)[UnitId("ffn", layer)]
    return Pool(layer, home if isinstance(home, Gpu) else Gpu(0), tuple(range(n)))
