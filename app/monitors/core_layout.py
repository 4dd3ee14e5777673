"""Where each thread of each core stands in a picture of the processor: by node, then L3 group, then core. No Qt."""

from __future__ import annotations

from dataclasses import dataclass

from engine.api.values import Core, Topology

CELL_WIDTH, CELL_HEIGHT = 28, 28
THREAD_WIDTH = 21
"""Of each of several threads on a core, which stand side by side."""
GAP, GROUP_GAP, GROUP_PAD = 4, 12, 8
NODE_HEAD, GROUP_HEAD, NODE_GAP = 26, 20, 16


@dataclass(frozen=True, slots=True)
class Cell:
    """A thread. core: its index in the topology; thread: which of the core's, from 0."""

    cpu: int
    core: int
    thread: int
    node: int
    l3: int
    small: bool
    x: int
    y: int
    width: int
    height: int = CELL_HEIGHT


@dataclass(frozen=True, slots=True)
class Box:
    """The frame of an L3 group, or the line of a node (l3 -1): name at its top left."""

    node: int
    l3: int
    x: int
    y: int
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class CoreLayout:
    """cells: in the order of the topology's cores and their threads."""

    cells: tuple[Cell, ...]
    boxes: tuple[Box, ...]
    width: int
    height: int

    def at(self, x: float, y: float) -> Cell | None:
        """The cell at a point."""
        return next((one for one in self.cells if one.x <= x < one.x + one.width and one.y <= y < one.y + one.height), None)

    def step(self, cpu: int, dx: int, dy: int) -> int:
        """The processor that an arrow key leads to from `cpu`: the nearest in that direction, itself where there is none."""
        here = next(one for one in self.cells if one.cpu == cpu)
        if dx:
            row = sorted((one for one in self.cells if one.y == here.y), key=lambda one: one.x)
            at = row.index(here) + dx
            if 0 <= at < len(row):
                return row[at].cpu
            dy = dx  # from the end of a row to the begin of the next
        rows = sorted({one.y for one in self.cells})
        at = rows.index(here.y) + dy
        if not 0 <= at < len(rows):
            return cpu
        there = [one for one in self.cells if one.y == rows[at]]
        middle = here.x if not dx else (-1 if dx > 0 else 1 << 20)
        return min(there, key=lambda one: abs(one.x - middle)).cpu


def laid_out(topology: Topology, width: int) -> CoreLayout:
    """The picture in so many pixels across; a group that is wider than that goes over several lines."""
    cells: list[Cell] = []
    boxes: list[Box] = []
    y = 0
    for node in dict.fromkeys(core.node for core in topology.cores):
        boxes.append(Box(node, -1, 0, y, width, NODE_HEAD))
        y, x, tallest = y + NODE_HEAD, 0, 0
        for group in (one for one in topology.l3_groups if one.node == node):
            cores = [topology.cores[index] for index in group.cores]
            found = _group(cores, width - 2 * GROUP_PAD)
            across = max(one.x + one.width for one in found) + 2 * GROUP_PAD
            down = max(one.y + one.height for one in found) + GROUP_HEAD + GROUP_PAD
            if x and x + across > width:
                x, y, tallest = 0, y + tallest + GROUP_GAP, 0
            boxes.append(Box(node, group.index, x, y, across, down))
            cells += [_moved(one, x + GROUP_PAD, y + GROUP_HEAD) for one in found]
            x, tallest = x + across + GROUP_GAP, max(tallest, down)
        y += tallest + NODE_GAP
    order = {core.index: i for i, core in enumerate(topology.cores)}
    cells.sort(key=lambda one: (order[one.core], one.thread))
    return CoreLayout(tuple(cells), tuple(boxes), width, max(0, y - NODE_GAP))


def _group(cores: list[Core], width: int) -> list[Cell]:
    found, x, y = list[Cell](), 0, 0
    for core in cores:
        each = CELL_WIDTH if len(core.cpus) == 1 else THREAD_WIDTH
        across = each * len(core.cpus)
        if x and x + across > width:
            x, y = 0, y + CELL_HEIGHT + GAP
        small = core.kind == "efficient"
        for i, cpu in enumerate(core.cpus):
            found.append(Cell(cpu, core.index, i, core.node, core.l3, small, x + i * each, y, each - (i < len(core.cpus) - 1)))
        x += across + GAP
    return found


def _moved(cell: Cell, dx: int, dy: int) -> Cell:
    return Cell(
        cell.cpu, cell.core, cell.thread, cell.node, cell.l3, cell.small, cell.x + dx, cell.y + dy, cell.width, cell.height
    )
