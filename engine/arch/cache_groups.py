"""Which layers keep keys and values for equally long: those of one window are a group, with a pool of blocks of their own.

A group's block table maps a sequence's blocks of positions to blocks of the pool; within a window only the newest are held.
"""

from __future__ import annotations

from engine.arch.spec import Attention, ModelSpec

Window = int | None
"""Keys that a row sees, its own among them; None: all."""


def windows(spec: ModelSpec) -> tuple[Window, ...]:
    """The window of each cache group: None first, then the widest first."""
    found = {block.mixer.window for block in spec.blocks if isinstance(block.mixer, Attention)}
    return tuple(sorted(found, key=lambda window: (window is not None, -(window or 0))))


def groups_of(spec: ModelSpec) -> dict[int, int]:
    """layer -> index of its cache group; layers that keep no keys are absent."""
    order = windows(spec)
    return {block.index: order.index(block.mixer.window) for block in spec.blocks if isinstance(block.mixer, Attention)}
