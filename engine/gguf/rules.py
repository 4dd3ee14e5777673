"""Rules of the metadata that hold whatever the architecture: types and ranges of the common numbers, and numbers that contradict
each other. What only one family demands is checked where the family is read."""

from __future__ import annotations

import math
import re
from array import array
from typing import NamedTuple

from engine.gguf import keys
from engine.gguf.info import GgufFile

_ARCHITECTURE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]|\.(?!\.)){0,63}")
_BROKEN = "the file is broken; get another copy"


class _Range(NamedTuple):
    """A whole number from `low` to `high`, or, where `per_layer`, an array of numbers from 0 to `high`."""

    low: int
    high: int
    per_layer: bool = False


_RANGES = {
    keys.BLOCK_COUNT: _Range(1, 10_000),
    keys.CONTEXT_LENGTH: _Range(1, 2**31 - 1),
    keys.EMBEDDING_LENGTH: _Range(1, 1 << 24),
    keys.VOCAB_SIZE: _Range(1, 1 << 24),
    keys.FEED_FORWARD_LENGTH: _Range(0, 1 << 24, per_layer=True),
    keys.HEAD_COUNT: _Range(1, 1 << 16, per_layer=True),
    keys.HEAD_COUNT_KV: _Range(0, 1 << 16, per_layer=True),
    keys.KEY_LENGTH: _Range(1, 1 << 16),
    keys.VALUE_LENGTH: _Range(1, 1 << 16),
    keys.ROPE_DIMENSIONS: _Range(0, 1 << 16),
    keys.EXPERT_COUNT: _Range(0, 1 << 16),
    keys.EXPERT_USED_COUNT: _Range(0, 1 << 16, per_layer=True),
    keys.NEXTN_LAYERS: _Range(0, 1 << 10),
}
_POSITIVE_REALS = {keys.RMS_EPSILON: 1.0, keys.NORM_EPSILON: 1.0, keys.ROPE_FREQ_BASE: math.inf}
"""Key -> the value it stays below; all are finite and above zero."""


def check_metadata(file: GgufFile) -> None:
    """Raises: GgufError for metadata of the wrong type, out of range, or in contradiction with itself."""
    architecture = file.metadata.get(keys.ARCHITECTURE)
    if architecture is None:
        raise file.error(keys.ARCHITECTURE, "the key is missing", "the file is no model, choose another")
    if not isinstance(architecture, str) or not _ARCHITECTURE.fullmatch(architecture):
        raise file.error(keys.ARCHITECTURE, f"{architecture!r:.60} is no name of an architecture", _BROKEN)
    name = file.metadata.get(keys.NAME, "")
    if not isinstance(name, str):
        raise file.error(keys.NAME, "the value is not a string", _BROKEN)
    for key, allowed in _RANGES.items():
        _check_range(file, keys.of(architecture, key), allowed)
    for key, below in _POSITIVE_REALS.items():
        _check_real(file, keys.of(architecture, key), below)
    _check_experts(file, architecture)


def _check_range(file: GgufFile, key: str, allowed: _Range) -> None:
    value = file.metadata.get(key)
    if value is None:
        return
    if allowed.per_layer and isinstance(value, array) and value.typecode not in "fd":
        worst = next((n for n in value if not 0 <= n <= allowed.high), None)
        if worst is not None:
            raise file.error(key, f"{worst} is out of range (0 to {allowed.high:,})", _BROKEN)
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise file.error(key, "the value is not a whole number", _BROKEN)
    if not allowed.low <= value <= allowed.high:
        raise file.error(key, f"{value:,} is out of range ({allowed.low} to {allowed.high:,})", _BROKEN)


def _check_real(file: GgufFile, key: str, below: float) -> None:
    value = file.metadata.get(key)
    if value is None:
        return
    if not isinstance(value, float):
        raise file.error(key, "the value is not a real number", _BROKEN)
    if not 0.0 < value < below:
        raise file.error(key, f"{value} is out of range (above 0, below {below})", _BROKEN)


def _check_experts(file: GgufFile, architecture: str) -> None:
    used_key, count_key = keys.of(architecture, keys.EXPERT_USED_COUNT), keys.of(architecture, keys.EXPERT_COUNT)
    used, count = file.metadata.get(used_key, 0), file.metadata.get(count_key, 0)
    most = max(used, default=0) if isinstance(used, array) else used
    if isinstance(most, int) and isinstance(count, int) and most > count:
        raise file.error(used_key, f"{most} experts are used but there are {count} ({count_key})", _BROKEN)
