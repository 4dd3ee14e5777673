"""How one unit lies over several NUMA nodes, and how its rows are dealt out: values only.

`Split`: each node has a part of the rows of every matrix (of experts: of their intermediate dimension), which its own team
multiplies. `Interleave`: pages in turns over the nodes, read by everybody.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

NodePolicy = Literal["split", "interleave", "single", "mapped", "first touch", ""]
"""How the weights of a model come to nodes of memory; "": the machine has one. mapped: as the threads that read the file first
left it; first touch: the system denies policies, threads pinned to a node write what belongs there."""

GRAIN = 256
"""The intermediate dimension of experts is cut at multiples of this: the largest block of a weight format."""
SMALL_GRAINS = (32, 16)
"""Where the dimension is no multiple of that, no format with such blocks can hold it, and these do."""
ROW_GRAINS = (64, 16)
"""Rows of other matrices are cut at multiples of these: a panel of weights, a cache line of results."""


@dataclass(frozen=True, slots=True)
class Split:
    """shares: (node, part of the whole), the parts proportional to what the nodes read in a second; by node."""

    shares: tuple[tuple[int, float], ...]

    @property
    def nodes(self) -> tuple[int, ...]:
        """Where it lies."""
        return tuple(node for node, _ in self.shares)

    @property
    def parts(self) -> tuple[float, ...]:
        """The part of each node, together 1."""
        total = sum(share for _, share in self.shares)
        return tuple(share / total for _, share in self.shares)


@dataclass(frozen=True, slots=True)
class Interleave:
    """nodes: in ascending order."""

    nodes: tuple[int, ...]

    @property
    def parts(self) -> tuple[float, ...]:
        """The same of each."""
        return (1 / len(self.nodes),) * len(self.nodes)


Spread = Split | Interleave


def cuts(total: int, split: Split, grain: int) -> tuple[tuple[int, int], ...]:
    """[first, end) of each node: together all of `total`, cut at multiples of the grain as near to the shares as can be."""
    ends, upto = [0], 0.0
    for part in split.parts[:-1]:
        upto += part
        ends.append(min(total, max(ends[-1], round(upto * total / grain) * grain)))
    ends.append(total)
    return tuple(pairwise(ends))


def expert_cuts(n_ff: int, split: Split) -> tuple[tuple[int, int], ...] | None:
    """The parts of the intermediate dimension; None: it cannot be cut."""
    grain = next((one for one in (GRAIN, *SMALL_GRAINS) if n_ff % one == 0), None)
    return None if grain is None else cuts(n_ff, split, grain)


def row_cuts(n_rows: int, split: Split) -> tuple[tuple[int, int], ...]:
    """The parts of the rows of a matrix; of a small one the first node has all."""
    n = len(split.shares)
    grain = next((one for one in ROW_GRAINS if n_rows >= one * n), None)
    return ((0, n_rows), *((n_rows, n_rows),) * (n - 1)) if grain is None else cuts(n_rows, split, grain)


def nodes_in(spread: Spread | None, home: int) -> tuple[int, ...]:
    """Where a unit lies that has its home on a node."""
    return (home,) if spread is None else spread.nodes


def shared(nbytes: int, spread: Spread | None, home: int) -> dict[int, int]:
    """Bytes by node, about as they are dealt out; together all of them."""
    if spread is None:
        return {home: nbytes}
    found = {node: int(part * nbytes) for node, part in zip(spread.nodes, spread.parts, strict=True)}
    found[spread.nodes[0]] += nbytes - sum(found.values())
    return found


def even(nodes: Sequence[int]) -> Split:
    """The same to each."""
    return Split(tuple((node, 1.0) for node in sorted(nodes)))
