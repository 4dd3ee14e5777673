"""Flags of llama.cpp and ik_llama.cpp that are not about places: those that this engine has as settings of its own, and those
that need not be said here, with the reason.

What they mean is in llama.cpp's `tools/server/README.md` and in ik_llama.cpp's `docs/parameters.md`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from engine.errors import InvalidRequest, PlacementError
from engine.gguf.overrides import Override, parse_override
from engine.placement.settings import Settings

_FLAGS: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (("-t", "--threads"), "threads", "a number of threads"),
    (("-c", "--ctx-size"), "context", "a number of tokens"),
    (("-b", "--batch-size"), "batch", "a number of tokens"),
    (("-ub", "--ubatch-size"), "ubatch", "a number of tokens"),
    (("--rope-freq-base",), "base", "a number"),
    (("--rope-freq-scale",), "scale", "a number"),
    (("--rope-scale",), "factor", "a number"),
    (("--rope-scaling",), "scaling", "none, linear or yarn"),
    (("--yarn-orig-ctx",), "original", "a number of tokens"),
    (("--override-kv", "-okv"), "keys", "KEY=TYPE:VALUE,..."),
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
    texts, flags, notes, overrides = dict[str, str](), dict[str, str](), list[str](), list[Override]()
    numbers, reals = dict[str, int](), dict[str, float]()
    for flag, text in said:
        name = _NAMES[flag]
        flags[name] = flag
        if name == "keys":
            overrides += _keys(flag, text)
        elif name in ("model", "host"):
            texts[name] = text
        elif name == "scaling":
            texts[name] = _scaling(flag, text)
        else:
            first, comma, _ = text.partition(",")  # llama-bench takes several, to measure each
            if comma:
                notes.append(f"{flag} {text[:40]}: the first of several values is taken")
            if name in _RANGES:
                numbers[name] = _whole(flag, first, *_RANGES[name])
            else:
                reals[name] = _real(flag, first)
    context = numbers.get("context")
    if context is not None and context <= 0:
        notes.append(f"{flags['context']} {context}: the model's whole context is meant; here 0 ends at 8192, so give a number")
    chunk = min(numbers.get("batch", _BATCH), numbers.get("ubatch", _UBATCH))
    rope = rope_overrides(
        reals.get("base"), reals.get("scale"), reals.get("factor"), texts.get("scaling"), numbers.get("original")
    )
    return Settings(
        n_threads=_positive(numbers.get("threads")),
        n_ctx=_positive(context),
        prefill_chunk=max(1, chunk) if "batch" in numbers or "ubatch" in numbers else None,
        overrides=tuple(dict((*rope, *overrides)).items()),
        model_path=texts.get("model", ""),
        max_tokens=_positive(numbers.get("tokens")),
        host=texts.get("host", ""),
        port=numbers.get("port"),
    ), tuple(notes)


def rope_overrides(
    base: float | None, scale: float | None, factor: float | None = None, scaling: str | None = None, original: int | None = None
) -> tuple[Override, ...]:
    """What is said of rotations as keys of the file. scale: of frequencies; factor: its reverse, by which the context grows."""
    found: list[Override] = []
    if base:
        found.append(("rope.freq_base", base))
    grown = factor or (1.0 / scale if scale else 1.0)
    if grown != 1.0:
        found += [("rope.scaling.type", scaling or "linear"), ("rope.scaling.factor", grown)]
    elif scaling is not None:
        found.append(("rope.scaling.type", scaling))
    if original:
        found.append(("rope.scaling.original_context_length", original))
    return tuple(found)


def _keys(flag: str, text: str) -> list[Override]:
    """Keys of the file with values, apart by commas."""
    try:
        return [parse_override(one) for one in text.split(",")]
    except InvalidRequest as error:
        raise PlacementError(f"{flag} {text[:80]!r} is not understood; it takes {SETTINGS[flag]}") from error


def _scaling(flag: str, text: str) -> str:
    if text not in ("none", "linear", "yarn"):
        raise PlacementError(f"{flag} {text[:40]!r} is unknown; it takes {SETTINGS[flag]}")
    return text


def _whole(flag: str, text: str, least: int, most: int) -> int:
    if re.fullmatch(r"[+-]?\d{1,9}", text.strip()) is None or not least <= int(text) <= most:
        raise PlacementError(f"{flag} {text[:40]!r} is not understood; it takes {SETTINGS[flag]}")
    return int(text)


def _real(flag: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e30:
        raise PlacementError(f"{flag} {text[:40]!r} is not understood; it takes {SETTINGS[flag]}, 0 or more")
    return value


def _positive(number: int | None) -> int | None:
    """The number, None where the tool itself chooses."""
    return number if number is not None and number > 0 else None


_RANGES = {
    "threads": (-1, 1 << 20),
    "context": (-1, 1 << 30),
    "batch": (1, 1 << 30),
    "ubatch": (1, 1 << 30),
    "tokens": (-2, 1 << 30),
    "port": (0, 65535),
    "original": (0, 1 << 30),
}
"""What whole numbers may be."""
