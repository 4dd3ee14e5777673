"""Which layers keep keys and values for equally long: those of one window are a group, with a pool of blocks of their own.

A group's block table maps a sequence's blocks of positions to blocks of the pool; within a window only the newest are held.
"""

from __future__ import annotations

from engine.arch.spec import Attention, Mla, ModelSpec

Window = int | None
"""Keys that a row sees, its own among them; None: all."""


def windows(spec: ModelSpec) -> tuple[Window, ...]:
    """The window of each cache group: None first, then the widest first."""
    found = set(_of_layers(spec).values())
    return tuple(sorted(found, key=lambda window: (window is not None, -(window or 0))))


def groups_of(spec: ModelSpec) -> dict[int, int]:
    """layer -> index of its cache group; layers that keep no keys are absent."""
    order = windows(spec)
    return {layer: order.index(window) for layer, window in _of_layers(spec).items()}


def _of_layers(spec: ModelSpec) -> dict[int, Window]:
    """The windows of the layers that keep keys; latent rows are kept for all of the context."""
    found: dict[int, Window] = {}
    for block in spec.blocks:
        if isinstance(block.mixer, Attention):
            found[block.index] = block.mixer.window
        elif isinstance(block.mixer, Mla):
            found[block.index] = None
    return found
