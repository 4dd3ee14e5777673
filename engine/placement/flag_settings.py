"""Flags of llama.cpp and ik_llama.cpp that are not about places: those that this engine has as settings of its own, and those
that need not be said here, with the reason.

What they mean is in llama.cpp's `tools/server/README.md` and in ik_llama.cpp's `docs/parameters.md`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace

from engine.errors import PlacementError
from engine.placement.settings import Settings

_FLAGS: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (("-t", "--threads"), "threads", "a number of threads"),
    (("-c", "--ctx-size"), "context", "a number of tokens"),
    (("-b", "--batch-size"), "batch", "a number of tokens"),
    (("-ub", "--ubatch-size"), "ubatch", "a number of tokens"),
    (("--rope-freq-base",), "base", "a number"),
    (("--rope-freq-scale",), "scale", "a number"),
    (("-m", "--model"), "model", "the path of a model"),
    (("-n", "--predict", "--n-predict"), "tokens", "a number of tokens"),
    (("--host",), "host", "an address"),
    (("--port",), "port", "the number of a port"),
)
SETTINGS = {flag: what for flags, _, what in _FLAGS for flag in flags}
"""Flags with a value that is a setting here too, and what the value is."""
_NAMES = {flag: name for flags, name, _ in _FLAGS for flag in flags}
_BATCH, _UBATCH = 2048, 512
"""What both tools take where nothing is said."""

_FUSED = "gate, up and activation of experts are one operation here"
_ATTENTION = "attention reads the cache in blocks here, whatever is said"
_MAPPED = "weights are mapped, or copied into huge pages, as the file and the machine ask for"
_GRAPH = "a step is always one graph here"
_LATENT = "latent attention is absorbed for decoding and decompressed for long prompts, whatever the number"
_REPACK = "weights are read as the file holds them; ik_llama.cpp itself advises against it where experts stay on the CPU"
_MOOT: tuple[tuple[tuple[str, ...], str], ...] = (
    (("-fa", "--flash-attn", "-no-fa", "--no-fa", "--no-flash-attn"), _ATTENTION),
    (("-mla", "--mla-use"), _LATENT),
    (("-fmoe", "--fused-moe", "-no-fmoe", "--no-fmoe", "--no-fused-moe"), _FUSED),
    (("-fug", "--fused-up-gate", "-no-fug", "--no-fug", "--no-fused-up-gate", "-muge", "--merge-up-gate-experts"), _FUSED),
    (("-mqkv", "--merge-qkv"), "queries, keys and values are one operation here"),
    (("-rtr", "--run-time-repack"), _REPACK),
    (("--repack", "-nr", "--no-repack", "--no-host"), "weights are read as the file holds them"),
    (("-amb", "--attention-max-batch"), "the scratch of attention is bounded here"),
    (("-gr", "--graph-reuse", "-no-gr", "--no-gr", "--no-graph-reuse"), _GRAPH),
    (("--mmap", "--no-mmap", "--mlock", "-lm", "--load-mode", "-dio", "--direct-io"), _MAPPED),
    (("-thp", "--transparent-huge-pages"), _MAPPED),
    (("-ger", "--grouped-expert-routing"), "groups of experts are chosen as the model says"),
    (("-tb", "--threads-batch"), "prompts and answers have the same threads here"),
    (("-ooae", "-no-ooae", "--no-offload-only-active-experts", "--op-offload", "--no-op-offload", "-op", "--offload-policy"),
     "experts of the CPU come to a GPU for long prompts where that is faster; see --stream-experts"),
    (("-sas", "--scheduler-async", "--scheduler_async", "-smgs", "--split-mode-graph-scheduling"), _GRAPH),
)  # fmt: skip
MOOT = {flag: why for flags, why in _MOOT for flag in flags}
"""Flags that change no place and no result here, and why."""
OPTIONAL = frozenset(
    [
        "-fa",
        "--flash-attn",
        "--no-fa",
        "--no-flash-attn",
        "-no-fa",
        "-fmoe",
        "--fused-moe",
        "-no-fmoe",
        "--no-fmoe",
        "--no-fused-moe",
        "-rtr",
        "--run-time-repack",
        "--mmap",
        "--no-mmap",
        "--mlock",
        "-gr",
        "--graph-reuse",
        "-ger",
        "--grouped-expert-routing",
    ]
)
"""Flags that stand alone or have one word of `on`, `off` or `auto` behind them, as versions and tools have it."""
IK_ONLY = frozenset(
    [
        "-mla",
        "--mla-use",
        "-fmoe",
        "--fused-moe",
        "-rtr",
        "--run-time-repack",
        "-amb",
        "--attention-max-batch",
        "-ser",
        "--smart-expert-reduction",
        "-ger",
        "--grouped-expert-routing",
        "-fug",
        "--fused-up-gate",
        "-muge",
        "--merge-up-gate-experts",
        "-mqkv",
        "-khad",
        "--k-cache-hadamard",
        "-vhad",
        "--v-cache-hadamard",
        "-gr",
        "--graph-reuse",
        "-ooae",
        "-no-ooae",
        "-op",
        "-smgs",
    ]
)
"""Flags that only ik_llama.cpp has."""


def settings_of(said: Iterable[tuple[str, str]]) -> tuple[Settings, tuple[str, ...]]:
    """The settings of flags with their values, of which the last counts, and what is not quite the same here, one sentence each.

    Raises:
        PlacementError: a value that means nothing; one sentence.
    """
    found, flags, notes = Settings(), dict[str, str](), []
    values: dict[str, float] = {}
    for flag, text in said:
        name = _NAMES[flag]
        flags[name] = flag
        if name == "model":
            found = replace(found, model_path=text)
        elif name == "host":
            found = replace(found, host=text)
        else:
            values[name] = _READ[name](flag, text)
    numbers = {name: int(value) for name, value in values.items() if name not in ("base", "scale")}
    if (context := numbers.get("context")) is not None:
        if context <= 0:
            notes.append(
                f"{flags['context']} {context}: the model's whole context is meant; here 0 ends at 8192, so give a number"
            )
        else:
            found = replace(found, n_ctx=context)
    if "batch" in numbers or "ubatch" in numbers:
        found = replace(found, prefill_chunk=max(1, min(numbers.get("batch", _BATCH), numbers.get("ubatch", _UBATCH))))
    found = replace(
        found,
        n_threads=threads if (threads := numbers.get("threads", 0)) > 0 else None,
        max_tokens=tokens if (tokens := numbers.get("tokens", 0)) > 0 else None,
        port=numbers.get("port"),
        overrides=rope_overrides(values.get("base"), values.get("scale")),
    )
    return found, tuple(notes)


def rope_overrides(base: float | None, scale: float | None) -> tuple[tuple[str, bool | int | float | str], ...]:
    """A base and a scale of rotations as keys of the file, where they are not what `the model's own` is written as."""
    found: list[tuple[str, bool | int | float | str]] = []
    if base:
        found.append(("rope.freq_base", base))
    if scale and scale != 1.0:
        found += [("rope.scaling.type", "linear"), ("rope.scaling.factor", 1.0 / scale)]
    return tuple(found)


def _whole(least: int, most: int) -> Callable[[str, str], float]:
    def read(flag: str, text: str) -> float:
        if re.fullmatch(r"[+-]?\d{1,9}", text.strip()) is None or not least <= int(text) <= most:
            raise PlacementError(f"{flag} {text[:40]!r} is not understood; it takes {SETTINGS[flag]}")
        return int(text)

    return read


def _real(flag: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e30:
        raise PlacementError(f"{flag} {text[:40]!r} is not understood; it takes {SETTINGS[flag]}, 0 or more")
    return value


_READ: dict[str, Callable[[str, str], float]] = {
    "threads": _whole(-1, 1 << 20),
    "context": _whole(-1, 1 << 30),
    "batch": _whole(1, 1 << 30),
    "ubatch": _whole(1, 1 << 30),
    "tokens": _whole(-2, 1 << 30),
    "port": _whole(0, 65535),
    "base": _real,
    "scale": _real,
}
