"""Where the parts of the dashboard stand, for any width and any number of cards and nodes. Pure arithmetic, no widgets.

Cards stand in rows of equal width; one that would become too narrow goes to the next row, and the page scrolls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

GAP = 12
MARGIN = 20
TITLE = 38
TOP = 15
_TILE_LEAST, _TILE_HEIGHT = 150, 112
_GPU_LEAST, _GPU_MOST, _GPU_HEIGHT = 286, 480, 246
_NODE_LEAST, _TRACE_LEAST = 318, 380
_NODES_SHARE = 0.6
_STRETCH = 160
"""What cards may be higher than they must: beyond that a line over time says no more."""
_NOTE = 30


@dataclass(frozen=True, slots=True)
class Box:
    """A place in pixels."""

    x: int
    y: int
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class Places:
    """gpu_title, node_title, trace_title: y of the line above the cards, with x and width. gpu_note: in place of cards.

    height: of everything.
    """

    tiles: tuple[Box, ...]
    gpu_title: Box
    gpu_note: Box | None
    gpus: tuple[Box, ...]
    node_title: Box
    nodes: tuple[Box, ...]
    trace_title: Box
    trace: Box
    height: int


def n_columns(n: int, width: int, least: int) -> int:
    """As many as fit, in rows that are as equal as can be."""
    most = max(1, min(n, (width + GAP) // (least + GAP)))
    rows = -(-n // most)
    return -(-n // rows)


def cells(n: int, x: int, y: int, width: int, height: int, columns: int, most: int = 1 << 20) -> tuple[Box, ...]:
    """n boxes in rows of so many, each at most `most` wide."""
    each = min(most, (width - GAP * (columns - 1)) / columns) if n else 0
    found = []
    for i in range(n):
        left = x + round((i % columns) * (each + GAP))
        found.append(Box(left, y + (i // columns) * (height + GAP), round(each), height))
    return tuple(found)


def place(
    width: int, height: int, n_tiles: int, n_gpus: int, n_nodes: int, node_height: Callable[[int], int], trace_height: int
) -> Places:
    """width, height: of what is seen. node_height: of the highest node card at a width; trace_height: the least of the trace."""
    inner = max(240, width - 2 * MARGIN)
    tiles = cells(n_tiles, MARGIN, TOP, inner, _TILE_HEIGHT, n_columns(n_tiles, inner, _TILE_LEAST))
    y = _bottom(tiles, TOP)
    gpu_title = Box(MARGIN, y, inner, TITLE)
    y += TITLE
    gpu_note = None if n_gpus else Box(MARGIN, y - 6, inner, _NOTE)
    columns = n_columns(max(1, n_gpus), inner, _GPU_LEAST)
    gpus = cells(n_gpus, MARGIN, y, inner, _GPU_HEIGHT, columns, _GPU_MOST if n_gpus > 1 else inner)
    y = _bottom(gpus, y + (_NOTE - 14 if gpu_note else 0))
    title_y, y = y, y + TITLE
    beside = _beside(inner, n_nodes, n_gpus)
    if beside:
        nodes_width = round(inner * _NODES_SHARE) if n_nodes > 1 else round((inner - GAP) * 0.5)
        nodes, trace = _side_by_side(y, inner, nodes_width, height, n_nodes, node_height, trace_height)
        trace_title = Box(trace.x, title_y, trace.width, TITLE)
    else:
        nodes_width = inner
        columns = n_columns(max(1, n_nodes), inner, _NODE_LEAST)
        each = round((inner - GAP * (columns - 1)) / columns)
        nodes = cells(n_nodes, MARGIN, y, inner, node_height(each), columns)
        below = _bottom(nodes, y)
        trace_title = Box(MARGIN, below, inner, TITLE)
        trace = Box(
            MARGIN, below + TITLE, inner, max(trace_height, min(height - below - TITLE - MARGIN, trace_height + 2 * _STRETCH))
        )
    total = max(_bottom(nodes, y), trace.y + trace.height) + MARGIN
    return Places(tiles, gpu_title, gpu_note, gpus, Box(MARGIN, title_y, nodes_width, TITLE), nodes, trace_title, trace, total)


def _beside(inner: int, n_nodes: int, n_gpus: int) -> bool:
    """Whether the trace stands beside the nodes: where both have room, and no room is left below by cards that are not there."""
    if n_nodes > 2 or (n_nodes == 2 and not n_gpus):
        return False
    return inner >= max(1, n_nodes) * _NODE_LEAST + (max(1, n_nodes) - 1) * GAP + GAP + _TRACE_LEAST


def _side_by_side(
    y: int, inner: int, nodes_width: int, height: int, n_nodes: int, node_height: Callable[[int], int], trace_height: int
) -> tuple[tuple[Box, ...], Box]:
    columns = max(1, n_nodes)
    each = round((nodes_width - GAP * (columns - 1)) / columns)
    least = max(node_height(each) if n_nodes else 0, trace_height)
    tall = max(least, min(height - y - MARGIN, least + _STRETCH))
    nodes = cells(n_nodes, MARGIN, y, nodes_width, tall, columns)
    left = MARGIN + nodes_width + GAP
    return nodes, Box(left, y, inner + MARGIN - left, tall)


def _bottom(boxes: Sequence[Box], otherwise: int) -> int:
    return max((box.y + box.height for box in boxes), default=otherwise)
