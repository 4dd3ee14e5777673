"""A Placement of ours for KTransformers: as a rule file, and as `--kt-*` options of its SGLang.

Rules go from the special to the general: experts, shared experts, feed-forward parts, attention, then whole layers. Classes are
those that KTransformers has for the architecture; where it has none, the rules place modules and replace nothing but experts.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from engine.placement.interchange.kt_modules import NAMES, Names
from engine.placement.interchange.write_settings import keys_note, memory_notes, memory_words, own_notes, prefix_note
from engine.placement.interchange.written import Text, Written
from engine.placement.options import LoadOptions
from engine.placement.placement import Device, Gpu, Numa

_OPERATORS = "ktransformers.operators"
_MODELS = "ktransformers.models"


@dataclass(frozen=True, slots=True)
class Classes:
    """Of an architecture: the class of its feed-forward part with experts, what replaces it, its attention and its model."""

    moe: str = ""
    moe_in_place: str = ""
    attention_in_place: str = ""
    model_in_place: str = ""


_CLASSES = {
    "deepseek2": Classes(
        f"{_MODELS}.modeling_deepseek_v3.DeepseekV3MoE",
        f"{_OPERATORS}.experts.KDeepseekV3MoE",
        f"{_OPERATORS}.attention.KDeepseekV2Attention",
        f"{_OPERATORS}.models.KDeepseekV2Model",
    ),
    "deepseek2-v2": Classes(
        f"{_MODELS}.modeling_deepseek.DeepseekV2MoE",
        f"{_OPERATORS}.experts.KDeepseekV2MoE",
        f"{_OPERATORS}.attention.KDeepseekV2Attention",
        f"{_OPERATORS}.models.KDeepseekV2Model",
    ),
    "qwen2moe": Classes(
        f"{_MODELS}.modeling_qwen2_moe.Qwen2MoeSparseMoeBlock",
        f"{_OPERATORS}.experts.KQwen2MoeSparseMoeBlock",
        model_in_place=f"{_OPERATORS}.models.KQwen2MoeModel",
    ),
    "qwen3moe": Classes(
        f"{_MODELS}.modeling_qwen3_moe.Qwen3MoeSparseMoeBlock",
        f"{_OPERATORS}.experts.KQwen3MoeSparseMoeBlockV2",
        f"{_OPERATORS}.balance_serve_attention.KQwen3MoeAttention",
        f"{_OPERATORS}.models.KQwen2MoeModel",
    ),
    "glm4moe": Classes(
        f"{_MODELS}.modeling_glm4_moe.Glm4MoeMoE",
        f"{_OPERATORS}.experts.KGlm4MoeMoE",
        f"{_OPERATORS}.balance_serve_attention.KGlm4MoeAttention",
    ),
    "qwen3next": Classes(
        f"{_MODELS}.modeling_qwen3_next.Qwen3NextSparseMoeBlock",
        f"{_OPERATORS}.experts.KQwen3NextSparseMoeBlockV2",
    ),
}


def write_rules(written: Written) -> Text:
    """The rule file of a placement."""
    classes = _CLASSES.get("deepseek2-v2" if _is_v2(written) else written.architecture, Classes())
    names = NAMES.get(written.architecture, Names(()))
    mixers, ffns = written.of_kind("mixer"), written.of_kind("ffn")
    rules = [_rule("^model.embed_tokens", written.place("embed"))]
    for device, layers in _groups(written.of_kind("experts")):
        rules += _experts(device, layers, ffns, names)
    for device, layers in _groups(written.of_kind("shared")):
        rules.append(_rule(rf"{_layers(layers)}{names.moe}\.{names.shared}(_gate)?(\.|$)", device))
    for device, layers in _groups(ffns):
        parts = sorted({names.moe, "mlp"})
        pattern = rf"{_layers(layers)}({'|'.join(parts)})" if len(parts) > 1 else f"{_layers(layers)}mlp"
        if classes.moe:
            rules.append(_rule(rf"{_layers(layers)}{names.moe}$", device, classes.moe_in_place, of=classes.moe))
        rules.append(_rule(rf"{pattern}(\.|$)", device))
        rules.append(
            _rule(rf"{_layers(layers)}(post_attention_layernorm|pre_feedforward_layernorm|post_feedforward_layernorm)$", device)
        )
    for device, layers in _groups(mixers):
        if classes.attention_in_place:
            rules.append(_rule(rf"{_layers(layers)}self_attn$", device, classes.attention_in_place))
        rules.append(_rule(rf"{_layers(layers)}", device))
    rules.append(_rule("^(lm_head|model.norm)", written.place("head")))
    rules.append(_model(classes, mixers))
    head = [f"# Rules of KTransformers for {written.architecture or 'a model'}, written by Layerdeck.", *_command(written)]
    return Text("\n".join([*head, "", *rules]) + "\n", tuple(_notes(written, classes)))


def _is_v2(written: Written) -> bool:
    return written.architecture == "deepseek2" and not written.sigmoid


def _groups(places: Mapping[int, Device]) -> list[tuple[Device, list[int]]]:
    """The layers of each device."""
    return [(device, [layer for layer, one in places.items() if one == device]) for device in sorted({*places.values()})]


def _layers(layers: list[int]) -> str:
    return rf"^model\.layers\.({'|'.join(map(str, sorted(layers)))})\."


def _name(device: Device) -> str:
    return f"cuda:{device.index}" if isinstance(device, Gpu) else "cpu"


def _rule(
    name: str, device: Device, replacement: str = "default", *, of: str = "", more: tuple[str, ...] = (), recursive: bool = True
) -> str:
    lines = ["- match:", f"    name: {json.dumps(name)}"]
    if of:
        lines.append(f"    class: {of}")
    lines += [
        "  replace:",
        f'    class: "{replacement}"' if replacement == "default" else f"    class: {replacement}",
        "    kwargs:",
    ]
    lines.append(f'      generate_device: "{_name(device)}"')
    if not any(one.startswith("prefill_device") for one in more):
        lines.append(f'      prefill_device: "{_name(device)}"')
    lines += [f"      {one}" for one in more]
    return "\n".join([*lines, *([] if recursive else ["  recursive: False"])])


def _experts(device: Device, layers: list[int], ffns: Mapping[int, Device], names: Names) -> list[str]:
    """Rules for the experts of some layers: their results go to the router's device, which takes them for prompts."""
    found = []
    for home, own in _groups({layer: ffns.get(layer, device) for layer in layers}):
        on_cpu = isinstance(device, Numa)
        more = (
            f'prefill_device: "{_name(home if on_cpu else device)}"',
            'prefill_op: "KExpertsTorch"',
            f'generate_op: "{"KExpertsCPU" if on_cpu else "KExpertsMarlin"}"',
            f'out_device: "{_name(home)}"',
        )
        pattern = rf"{_layers(own)}{names.moe}\.experts$"
        found.append(_rule(pattern, device, f"{_OPERATORS}.experts.KTransformersExperts", more=more, recursive=False))
    return found


def _model(classes: Classes, mixers: Mapping[int, Device]) -> str:
    """The rule of the model itself, with the layers at which rows change the device."""
    order = [mixers[layer] for layer in sorted(mixers)]
    first = order[0] if order else Numa(0)
    moves = [(i, b) for i, (a, b) in enumerate(pairwise(order), 1) if a != b]
    more = ["per_layer_prefill_intput_threshold: 0"] if classes.model_in_place else []
    if moves and classes.model_in_place:
        more += ["transfer_map:", *(f'  {i}: "{_name(device)}"' for i, device in moves)]
    return _rule("^model$", first, classes.model_in_place or "default", more=tuple(more))


def _command(written: Written) -> list[str]:
    """The command that takes the rules, as a comment."""
    if written.options is None:
        return []
    words = [*memory_words(written), "python", "-m", "ktransformers.server.main"]
    words += ["--gguf_path", written.model_path or "MODEL_DIR"]
    words += ["--optimize_config_path", "rules.yaml"]
    if written.options.n_threads:
        words += ["--cpu_infer", str(written.options.n_threads)]
    if written.options.n_ctx:
        words += ["--cache_lens", str(written.options.n_ctx)]
    if written.options.prefill_chunk != LoadOptions().prefill_chunk:
        words += ["--chunk_size", str(written.options.prefill_chunk)]
    return [f"# {shlex.join(words)}"]


def _notes(written: Written, classes: Classes) -> list[str]:
    notes = []
    if not classes.moe and written.of_kind("experts"):
        notes.append(f"KTransformers has no classes for the architecture {written.architecture or 'of this model'!r}")
    if (written.k_type, written.v_type) != ("f16", "f16"):
        notes.append("rules of KTransformers choose no type of cache")
    if written.pools:
        notes.append("rules of KTransformers place whole layers of experts: those in slots of GPUs are left out")
    cards = {layer: where for layer, where in written.of_kind("experts").items() if isinstance(where, Gpu)}
    if cards:
        notes.append("experts on a GPU need KTransformers without its graphs, with use_cuda_graph off")
    beside = (*memory_notes(written), *prefix_note(written), *own_notes(written))
    return [*notes, *keys_note(written.keys, "KTransformers"), *beside]


def write_options(written: Written) -> Text:
    """The options of KTransformers' SGLang that come nearest."""
    n_gpus = max(1, len(written.gpus))
    words = [
        *memory_words(written),
        "python",
        "-m",
        "sglang.launch_server",
        "--model-path",
        "HF_DIR",
        "--kt-weight-path",
        written.model_path or "GGUF_DIR",
    ]
    words += ["--kt-method", "LLAMAFILE"]
    if written.options is not None and written.options.n_threads:
        words += ["--kt-cpuinfer", str(written.options.n_threads)]
    words += ["--kt-threadpool-count", "1"]
    notes = _elsewhere(written)
    words += _expert_words(written, notes)
    if n_gpus > 1:
        words += ["--tensor-parallel-size", str(n_gpus)]
        notes.append(f"every matrix is cut over {n_gpus} GPUs there: layers cannot be put on one of them")
    if written.options is not None and written.options.n_ctx:
        words += ["--context-length", str(written.options.n_ctx)]
    if written.options is not None and written.options.prefill_chunk != LoadOptions().prefill_chunk:
        words += ["--chunked-prefill-size", str(written.options.prefill_chunk)]
    notes += [*memory_notes(written), *keys_note(written.keys, "KTransformers"), *own_notes(written)]
    return Text(shlex.join(words) + "\n", tuple(notes))


def _expert_words(written: Written, notes: list[str]) -> list[str]:
    """How many experts are on GPUs."""
    layers, n = written.of_kind("experts"), written.n_experts
    cards = [layer for layer, where in layers.items() if isinstance(where, Gpu)]
    slots = {pool.layer: len(pool.experts) for pool in written.pools if isinstance(layers.get(pool.layer), Numa)}
    counts = {layer: n if layer in cards else slots.get(layer, 0) for layer in layers}
    if not counts or not any(counts.values()):
        return ["--kt-num-gpu-experts", "0"]
    if len(set(counts.values())) == 1 and n:
        return ["--kt-num-gpu-experts", str(next(iter(counts.values())))]
    if n and sorted(cards) == sorted(layers)[: len(cards)] and not slots:
        # Rounded up: the tool cuts the number of experts that the share gives.
        share = math.ceil(len(cards) / len(layers) * 1e6) / 1e6
        return ["--kt-gpu-experts-ratio", f"{share:.6f}".rstrip("0"), "--kt-expert-placement-strategy", "front-loading"]
    mean = sum(counts.values()) // max(1, len(counts)) if n else 0
    notes.append("the experts of single layers cannot be chosen: as many on the whole are spread evenly")
    return ["--kt-num-gpu-experts", str(mean)]


def _elsewhere(written: Written) -> list[str]:
    away = [unit for unit, where in written.units if isinstance(where, Numa) and unit.kind not in ("experts", "embed")]
    notes = []
    if away:
        notes.append(
            f"{len(away)} parts that lie on the CPU here, such as {away[0]}, are on the GPU there: only experts can stay"
        )
    if (written.k_type, written.v_type) != ("f16", "f16"):
        notes.append("the type of the cache is chosen by --kv-cache-dtype, which has no type of 8 bits with scales")
    return notes
