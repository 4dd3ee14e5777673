"""Which layers see only a window of the newest keys, and how wide it is."""

from __future__ import annotations

from engine.arch.cache_groups import Window
from engine.arch.hparams import Header
from engine.errors import GgufError


def layer_windows(header: Header, n_layers: int, period: int) -> tuple[Window, ...]:
    """The window of each layer. Of each `period` layers the last one sees all keys, unless the file says otherwise.

    `attention.sliding_window` is the width (0 or absent: no layer has a window); `attention.sliding_window_pattern` a period, or
    for each layer whether it has a window. Raises GgufError: contradicting metadata.
    """
    width = header.integer("attention.sliding_window", 0, high=1 << 30)
    if width == 0:
        return (None,) * n_layers
    name = "attention.sliding_window_pattern"
    stored = header.metadata.get(header.key(name))
    if not isinstance(stored, list | tuple):
        period = header.integer(name, period, low=1)
        return tuple(None if (index + 1) % period == 0 else width for index in range(n_layers))
    if len(stored) < n_layers or not all(isinstance(one, bool) for one in stored):
        raise GgufError(
            f"{header.key(name)} is not one truth value for each of {n_layers} layers; the metadata contradicts itself"
        )
    return tuple(width if narrow else None for narrow in stored[:n_layers])
