"""A Placement of ours as flags with their command, as a `config.json`, and as a launch script."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence

from engine.placement.export import to_flags
from engine.placement.flags import LlamaTool
from engine.placement.interchange.written import Text, Written
from engine.placement.placement import Gpu, Numa


def write_flags(written: Written, tool: LlamaTool) -> Text:
    """The flags alone, or the whole command where options are written too."""
    done = to_flags(written.units, written.k_type, written.v_type, written.n_extra, tool)
    notes = (*done.notes, *_pools(written))
    if written.options is None:
        return Text(f"{shlex.join(done.words)}\n", notes)
    words = [*_program(tool), "-m", written.model_path or "model.gguf", *done.words, *_settings(written)]
    return Text(f"{shlex.join(words)}\n", notes)


def _program(tool: LlamaTool) -> list[str]:
    return ["./ik_llama.cpp/build/bin/llama-server"] if tool == "ik" else ["llama-server"]


def _settings(written: Written, numbers: Mapping[str, str] | None = None) -> list[str]:
    """Threads, context and chunk. numbers: words to write in their places."""
    options, found = written.options, list[str]()
    if options is None:
        return found
    given = numbers or {}
    for flag, value in (("-c", options.n_ctx), ("-t", options.n_threads)):
        if value or flag in given:
            found += [flag, given.get(flag, str(value))]
    if options.prefill_chunk != 512:
        found += ["-ub", str(options.prefill_chunk)] if options.prefill_chunk <= 2048 else []
        found += [] if options.prefill_chunk <= 2048 else ["-b", str(options.prefill_chunk), "-ub", str(options.prefill_chunk)]
    for key, given_value in options.overrides:
        if key.endswith("rope.freq_base"):
            found += ["--rope-freq-base", f"{given_value}"]
    return found


def _pools(written: Written) -> tuple[str, ...]:
    return ("experts in slots of GPUs have no flag: whole layers of experts are written",) if written.pools else ()


def write_config(written: Written) -> Text:
    """The file of settings, with the keys that hold something."""
    layers, head = written.of_kind("mixer"), written.place("head")
    order = [layers[one] for one in sorted(layers)]
    first = next((i for i, where in enumerate(order) if isinstance(where, Gpu)), len(order))
    n = len(order) - first + (isinstance(head, Gpu) and bool(order))
    value: dict[str, object] = {"model_path": written.model_path} if written.model_path else {}
    value["n_gpu_layers"] = n + written.n_extra if n else 0
    if written.options is not None:
        value |= _numbers(written)
    return Text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", tuple(_not_in_config(written, first)))


def _numbers(written: Written) -> dict[str, object]:
    options, found = written.options, dict[str, object]()
    assert options is not None
    if options.n_threads:
        found["n_threads"] = options.n_threads
    found["n_batch"] = options.prefill_chunk
    if options.n_ctx:
        found["ctx_size"] = options.n_ctx
    for key, value in options.overrides:
        if key.endswith("rope.freq_base"):
            found["rope_freq_base"] = value
    return found


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
    if isinstance(written.place("head"), Gpu) != (first < written.n_layers) and written.n_layers:
        notes.append("config.json counts the output as one more layer behind the last: it cannot lie elsewhere by itself")
    return notes + list(_pools(written))


def write_script(written: Written) -> Text:
    """A script that looks at the machine, says what is read, and starts ik_llama.cpp's server or llama.cpp's."""
    done = to_flags(written.units, written.k_type, written.v_type, written.n_extra, "llama.cpp")
    options = written.options
    threads, context = (options.n_threads, options.n_ctx) if options is not None else (0, 0)
    flags = shlex.join(done.words)
    numbers = {flag: name for flag, name in (("-c", '"$CTX"'), ("-t", '"$THREADS"'))}
    lines = [
        "#!/usr/bin/env bash",
        "# Starts a model with the placement that Layerdeck shows. It changes nothing about the machine.",
        "set -euo pipefail",
        "",
        'ENGINE="llama-server"',
        f"MODEL_PATH={shlex.quote(written.model_path or 'model.gguf')}",
        f"THREADS={threads or '-1'}",
        f"CTX={context or 8192}",
        "",
        'echo "[1/3] Nodes of memory"',
        "if command -v numactl > /dev/null; then numactl --hardware | head -n 8; fi",
        'echo "[2/3] Memory that holds files already (it is used again, so nothing is flushed)"',
        "grep -E '^(MemAvailable|Cached):' /proc/meminfo",
        'echo "[3/3] Starting $ENGINE"',
        'exec "$ENGINE" \\',
        '    -m "$MODEL_PATH" \\',
        f"    {flags} \\",
        f"    {' '.join(_joined(('-c', '-t'), numbers))}{_more(written)}",
    ]
    return Text("\n".join(lines) + "\n", (*done.notes, *_pools(written)))


def _joined(flags: Sequence[str], values: Mapping[str, str]) -> list[str]:
    return [word for flag in flags for word in (flag, values[flag])]


def _more(written: Written) -> str:
    """The other settings, behind context and threads."""
    words = _settings(written)
    for flag in ("-c", "-t"):
        if flag in words:
            at = words.index(flag)
            del words[at : at + 2]
    return f" {shlex.join(words)}" if words else ""
