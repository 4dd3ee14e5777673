"""Ops of a CPU's lane whose weights are split over NUMA nodes: one op for each node, whose workers do its part.

Matrices are cut by rows: each node makes its values of the result. Experts are cut along their intermediate dimension (gate and
up by rows, down by columns), so that what lies between the two never leaves its node: each makes a sum of its own over all values
of the result, and these are added. Cuts along it are at whole blocks of every format: products are those of the whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from engine.arch.units import UnitId
from engine.graph.ops import Buffer
from engine.placement.placement import Placement
from engine.placement.spread import Split, expert_cuts, row_cuts
from engine.program.lane_ops import LaneAdd, LaneExpertsDown, LaneExpertsUp, LaneLinear, LaneOp, LanePrepare, Part, Source

_Ranges = Mapping[int, tuple[int, int]]
"""By node."""


def spread(ops: Sequence[LaneOp], placement: Placement) -> tuple[LaneOp, ...]:
    """The ops with those of split units in parts."""
    splits = {unit: one for unit, _ in placement.units if isinstance(one := placement.spread_of(unit), Split)}
    return tuple(ops) if not splits else tuple(_Spread(splits).run(ops))


class _Spread:
    def __init__(self, splits: Mapping[UnitId, Split]) -> None:
        self._splits = splits
        self._hidden: dict[str, _Ranges] = {}  # by the buffer between up and down

    def run(self, ops: Sequence[LaneOp]) -> list[LaneOp]:
        found: list[LaneOp] = []
        for op in ops:
            found += self._one(op)
        return found

    def _one(self, op: LaneOp) -> Sequence[LaneOp]:
        if isinstance(op, LaneExpertsUp):
            return self._up(op)
        if isinstance(op, LanePrepare | LaneExpertsDown) and op.source.x.name in self._hidden:
            ranges = self._hidden[op.source.x.name]
            return self._prepared(op, ranges) if isinstance(op, LanePrepare) else self._down(op, ranges)
        split = self._splits.get(op.unit)
        return [op] if split is None or not isinstance(op, LaneLinear) else self._linear(op, split)

    def _up(self, op: LaneExpertsUp) -> Sequence[LaneOp]:
        split = self._splits.get(op.unit)
        found = None if split is None else expert_cuts(op.out.width, split)
        if split is None or found is None:
            return [op]
        ranges = {node: one for node, one in zip(split.nodes, found, strict=True) if one[0] < one[1]}
        self._hidden[op.out.name] = ranges
        return [replace(op, out=_part(op.out, node, one), part=Part(node, (one, one))) for node, one in ranges.items()]

    @staticmethod
    def _prepared(op: LanePrepare, ranges: _Ranges) -> Sequence[LaneOp]:
        return [
            replace(op, source=_source(op.source, node, one), acts=_part(op.acts, node, one), part=Part(node))
            for node, one in ranges.items()
        ]

    @staticmethod
    def _down(op: LaneExpertsDown, ranges: _Ranges) -> Sequence[LaneOp]:
        """A sum of each node; the first does besides what is done once. None is added to rows that others may still read."""
        found: list[LaneOp] = []
        sums: list[Buffer] = []
        alone = len(ranges) == 1
        for node, one in ranges.items():
            acts = None if op.acts is None else _part(op.acts, node, one)
            part = replace(op, source=_source(op.source, node, one), acts=acts, part=Part(node, (one,)))
            if not alone and (op.add or sums):
                sums.append(Buffer(f"{op.out.name}/{node}", op.out.width))
                part = replace(part, out=sums[-1], add=False)
            if found:
                part = replace(part, bias=None, beside=None, share=None)
            elif not alone and not op.add:
                sums.append(op.out)
            found.append(part)
        others = [one for one in sums if one != op.out]
        pairs = [(others[i], others[i + 1] if i + 1 < len(others) else None) for i in range(0, len(others), 2)]
        return [*found, *(LaneAdd(op.unit, op.out, one, op.out_rows, None, more) for one, more in pairs)]

    @staticmethod
    def _linear(op: LaneLinear, split: Split) -> Sequence[LaneOp]:
        cut = [row_cuts(weight.out.width, split) for weight in op.weights]
        found: list[LaneOp] = []
        for k, node in enumerate(split.nodes):
            kept = [i for i, one in enumerate(cut) if one[k][0] < one[k][1]]
            if kept:
                weights = tuple(op.weights[i] for i in kept)
                found.append(replace(op, weights=weights, part=Part(node, tuple(cut[i][k] for i in kept))))
        return found


def _part(buffer: Buffer, node: int, span: tuple[int, int]) -> Buffer:
    return Buffer(f"{buffer.name}/{node}", span[1] - span[0])


def _source(source: Source, node: int, span: tuple[int, int]) -> Source:
    return replace(source, x=_part(source.x, node, span))
