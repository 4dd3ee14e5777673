"""`config.json`, the file of settings that a server is started with: read, checked and written with the same names of keys.

    {"model_path": "model.gguf", "n_gpu_layers": 45, "n_threads": 64, "n_batch": 512, "ctx_size": 16384, "rope_freq_base":
    10000.0,
     "rope_freq_scale": 1.0, "flash_attn": false, "use_mmap": true, "use_mlock": false, "numa_node": 0,
     "kvcache_cpu": true, "kvcache_cpu_quantize": "int8", "kvcache_cpu_max_tokens": 14000}

Layers are counted as llama.cpp counts them: the last n_gpu_layers, the output being one more behind the last.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable
from typing import Any

from engine.errors import PlacementError
from engine.placement.flag_settings import rope_overrides
from engine.placement.flags import LlamaFlags
from engine.placement.settings import Settings

Check = Callable[[Any], bool]


def _whole(least: int, most: int) -> Check:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _real(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e12


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _text(value: Any) -> bool:
    return isinstance(value, str) and "\0" not in value


KEYS: dict[str, tuple[Check, str]] = {
    "model_path": (_text, "the path of a model"),
    "n_gpu_layers": (_whole(-1, 1 << 20), "a number of layers, -1 for all"),
    "n_threads": (_whole(0, 1 << 12), "a number of threads"),
    "n_batch": (_whole(1, 1 << 20), "a number of tokens"),
    "ctx_size": (_whole(0, 1 << 28), "a number of tokens"),
    "rope_freq_base": (_real, "a number above 0"),
    "rope_freq_scale": (_real, "a number above 0"),
    "flash_attn": (_flag, "true or false"),
    "use_mmap": (_flag, "true or false"),
    "use_mlock": (_flag, "true or false"),
    "numa_node": (_whole(0, 255), "the number of a node"),
    "kvcache_cpu": (_flag, "true or false"),
    "kvcache_cpu_quantize": (lambda value: value in ("none", "f16", "int8", "q8_0"), "none, f16, int8 or q8_0"),
    "kvcache_cpu_max_tokens": (_whole(0, 1 << 28), "a number of tokens"),
}
"""Every key, what it may be, and how that is told."""


def parse_config(text: str, where: str) -> LlamaFlags:
    """The rules of a file. Raises: PlacementError: an unknown key (with the nearest), a value of another type; one sentence."""
    value = _object(text, where)
    for key, given in value.items():
        if key not in KEYS:
            near = difflib.get_close_matches(key, KEYS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"it knows {', '.join(KEYS)}"
            raise PlacementError(f"{where}: the key {key[:40]!r} is unknown; {hint}")
        check, what = KEYS[key]
        if not check(given):
            raise PlacementError(f"{where}: {key} is {json.dumps(given)[:40]}; it takes {what}")
    unsupported, moot = _told(value)
    layers = value.get("n_gpu_layers", -1)
    settings = Settings(
        n_threads=value.get("n_threads") or None,
        n_ctx=value.get("ctx_size") or None,
        prefill_chunk=value.get("n_batch"),
        overrides=rope_overrides(_float(value.get("rope_freq_base")), _float(value.get("rope_freq_scale"))),
        node=value.get("numa_node"),
        model_path=value.get("model_path", ""),
    )
    return LlamaFlags(
        n_gpu_layers=None if layers < 0 else layers, unsupported=tuple(unsupported), moot=tuple(moot), settings=settings
    )


def is_config(text: str) -> bool:
    """Whether a JSON text is such a file, or at least meant to be one."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return False
    if not isinstance(value, dict) or "layerdeck" in value or len(value) > 4 * len(KEYS):
        return False
    return any(key in KEYS or difflib.get_close_matches(key[:40], KEYS, n=1, cutoff=0.8) for key in value)


def _object(text: str, where: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise PlacementError(f"{where}: this is not a JSON file ({str(error)[:80]}); correct the file") from error
    if not isinstance(value, dict):
        raise PlacementError(f"{where}: this is not a JSON object with keys such as n_gpu_layers; correct the file")
    return value


def _float(value: int | float | None) -> float | None:
    return None if value is None else float(value)


def _told(value: dict[str, Any]) -> tuple[list[str], list[str]]:
    """What cannot be done here, and what need not be said."""
    unsupported, moot = [], []
    if value.get("kvcache_cpu"):
        kind, most = value.get("kvcache_cpu_quantize", "f16"), value.get("kvcache_cpu_max_tokens", 0)
        older = f", {most} of them as {kind}" if most else f" as {kind}"
        unsupported.append(f"kvcache_cpu: older tokens go to the machine's memory there{older}; here a layer's cache lies whole")
    if value.get("use_mlock"):
        moot.append("use_mlock: pages are not locked; experts of the CPU lie in huge pages where the machine has them")
    if "flash_attn" in value:
        moot.append("flash_attn: attention reads the cache in blocks here, whatever is said")
    if value.get("use_mmap") is False:
        moot.append("use_mmap: weights are mapped, or copied into huge pages, as the file and the machine ask for")
    return unsupported, moot
