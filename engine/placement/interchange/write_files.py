"""A Placement of ours as flags with their command, and as a `config.json`."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping

from engine.placement.export import to_flags
from engine.placement.flags import LlamaTool
from engine.placement.interchange.write_settings import (
    keys_note,
    memory_words,
    not_in_flags,
    own_notes,
    prefix_note,
    settings_words,
    short_key,
)
from engine.placement.interchange.written import Text, Written
from engine.placement.placement import Gpu, Numa


def write_flags(written: Written, tool: LlamaTool) -> Text:
    """The flags alone, or the whole command where options are written too."""
    done = to_flags(written.units, written.k_type, written.v_type, written.n_extra, tool)
    notes = (*done.notes, *not_in_flags(written))
    if written.options is None:
        return Text(f"{shlex.join(done.words)}\n", (*notes, *prefix_note(written)))
    words = [
        *memory_words(written),
        *_program(tool),
        "-m",
        written.model_path or "model.gguf",
        *done.words,
        *settings_words(written),
    ]
    return Text(f"{shlex.join(words)}\n", notes)


def _program(tool: LlamaTool) -> list[str]:
    return ["./ik_llama.cpp/build/bin/llama-server"] if tool == "ik" else ["llama-server"]


def write_config(written: Written) -> Text:
    """The file of settings, with the keys that hold something."""
    layers, head = written.of_kind("mixer"), written.place("head")
    order = [layers[one] for one in sorted(layers)]
    first = next((i for i, where in enumerate(order) if isinstance(where, Gpu)), len(order))
    n = len(order) - first + (written.n_extra if first < len(order) else 0) + isinstance(head, Gpu)
    value: dict[str, object] = {"model_path": written.model_path} if written.model_path else {}
    value["n_gpu_layers"] = n
    if written.options is not None:
        value |= _numbers(written)
    if len(written.nodes) == 1 and written.nodes[0] and not written.n_spread:
        value["numa_node"] = written.nodes[0]
    return Text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", tuple(_not_in_config(written, first)))


def _numbers(written: Written) -> dict[str, object]:
    options, found = written.options, dict[str, object]()
    assert options is not None
    if options.n_threads:
        found["n_threads"] = options.n_threads
    found["n_batch"] = options.prefill_chunk
    if options.n_ctx:
        found["ctx_size"] = options.n_ctx
    keys = {short_key(key, written.architecture): value for key, value in written.keys}
    if "rope.freq_base" in keys:
        found["rope_freq_base"] = keys["rope.freq_base"]
    if _scales_evenly(keys):
        found["rope_freq_scale"] = 1.0 / float(keys["rope.scaling.factor"])
    return found


def _scales_evenly(keys: Mapping[str, object]) -> bool:
    """Whether rotations are slowed down all alike, which a single number says."""
    return bool(keys.get("rope.scaling.factor")) and keys.get("rope.scaling.type", "linear") == "linear"


def _not_in_config(written: Written, first: int) -> list[str]:
    """What the keys cannot say."""
    notes = []
    whole = {unit.layer: where for unit, where in written.units if unit.kind == "mixer"}
    apart = [unit for unit, where in written.units if unit.layer >= 0 and type(where) is not type(whole.get(unit.layer, where))]
    if apart:
        notes.append(
            f"config.json has no key for parts of layers: {len(apart)} parts, such as {apart[0]}, lie elsewhere than their layer"
        )
    if any(isinstance(where, Numa) for layer, where in whole.items() if layer >= first):
        notes.append("config.json counts layers from the last one: layers between them that lie on the CPU cannot be named")
    if len(written.gpus) > 1:
        notes.append("config.json does not say which GPU a layer lies on")
    if (written.k_type, written.v_type) != ("f16", "f16"):
        notes.append("config.json has no key for the type of the cache on GPUs")
    if first < written.n_layers and isinstance(written.place("head"), Numa):
        notes.append("config.json counts the output as one more layer behind the last: it cannot lie elsewhere by itself")
    if written.pools:
        notes.append("config.json has no key for experts in slots of GPUs: whole layers of experts are written")
    keys = {short_key(key, written.architecture): value for key, value in written.keys}
    said = {"rope.freq_base", *(("rope.scaling.factor", "rope.scaling.type") if _scales_evenly(keys) else ())}
    unsaid = [one for one in written.keys if short_key(one[0], written.architecture) not in said]
    if written.n_spread or len(written.nodes) > 1:
        notes.append("config.json names one node of memory: parts on several cannot be said")
    return [*notes, *keys_note(unsaid, "config.json"), *own_notes(written)]
