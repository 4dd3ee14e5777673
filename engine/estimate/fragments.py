"""What one layer adds to the lanes of its devices, lowered by itself: working memory, and what workers and kernels keep for it.

Whole plans take a tenth of a second and more to lower, and most layers are like others: a layer of a known shape whose units
share devices in a known way is looked up. What workers and kernels keep are maxima over ops and come out exactly. Working memory
comes out without what a buffer stays alive for beyond its layer: `engine.estimate.quick` says what is added for that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from engine.arch.spec import ModelSpec
from engine.arch.units import UnitId, UnitKind
from engine.estimate.kernels import kept_by_kernels
from engine.estimate.work import Shape, distinct_layers
from engine.estimate.workers import worker_bytes
from engine.gguf.info import TensorInfo
from engine.graph.build import build_graph
from engine.placement.placement import Device, Gpu, Numa, Placement, Pool, WorkerPlan, units_of
from engine.program.fuse import Phase
from engine.program.lower import lower_lanes
from engine.program.outline import outline
from engine.program.plan import crossing_bytes
from engine.quants.formats import BY_ID

Kind = tuple[Phase, int]
"""A plan's phase and most rows."""
Pattern = tuple[int, ...]
"""Of mixer, ffn, shared expert and experts of a layer, the numbers of their devices: GPUs 1, 2, ... in order of appearance, all
nodes of memory -1; 0: the layer has no such unit."""
PLACED: tuple[UnitKind, ...] = ("mixer", "ffn", "shared", "experts")
_FAR = 1000
"""Devices beside those of the layer, on which the rest of the model lies."""


@dataclass(frozen=True, slots=True)
class Fragment:
    """Of one device: bytes of working memory, of one worker, by purpose those that kernels keep, and of the largest buffer that a
    GPU exchanges with a node. Devices that a layer does not use have none."""

    arena: int
    worker: int
    kernels: tuple[tuple[str, int], ...]
    crossing: int


class Fragments:
    """The fragments of one model's layers."""

    def __init__(
        self, spec: ModelSpec, tensors: Mapping[str, TensorInfo], types: Mapping[str, int], n_ctx: int, *, f32: bool
    ) -> None:
        self._spec, self._tensors, self._types, self._n_ctx, self._f32 = spec, tensors, types, n_ctx, f32
        # Of a format, plans depend on what it is multiplied with alone.
        self.shapes, _ = distinct_layers(spec, tensors, lambda kind: BY_ID[kind].act if kind in BY_ID else "")
        self._firsts = {shape: self.shapes.index(shape) for shape in set(self.shapes)}
        self._known: dict[tuple[Shape, Pattern, Kind, int], dict[int, Fragment]] = {}

    def of(self, shape: Shape, pattern: Pattern, kind: Kind, n_pooled: int = 0) -> dict[int, Fragment]:
        """By number of the pattern, what a layer of this shape adds. n_pooled: of its experts in a pool."""
        key = shape, pattern, kind, n_pooled
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._lowered(shape, pattern, kind, n_pooled)
        return found

    def ends(self, unit: UnitKind, number: int, kind: Kind) -> Fragment:
        """What embedding or head add to a device. number: 1: a GPU, -1: a node."""
        key = -1 if unit == "embed" else -2, (number,), kind, 0
        found = self._known.get(key)
        if found is None:
            bare = replace(self._spec, blocks=())
            places = {UnitId("embed"): _device(_FAR), UnitId("head"): _device(_FAR)} | {UnitId(unit): _device(number)}
            found = self._known[key] = self._run(bare, places, kind)
        return found.get(number, Fragment(0, 0, (), 0))

    def _lowered(self, shape: Shape, pattern: Pattern, kind: Kind, n_pooled: int) -> dict[int, Fragment]:
        block = self._spec.blocks[self._firsts[shape]]
        one = replace(self._spec, blocks=(block,))
        numbers = dict(zip(PLACED, pattern, strict=True))
        numbers |= {"kv": numbers["mixer"], "state": numbers["mixer"], "embed": _FAR, "head": _FAR}
        router = _device(numbers["ffn"])
        pools = (Pool(block.index, router, tuple(range(n_pooled))),) if n_pooled and isinstance(router, Gpu) else ()
        return self._run(one, {unit: _device(numbers[unit.kind]) for unit in units_of(one)}, kind, pools)

    def _run(
        self, spec: ModelSpec, places: dict[UnitId, Device], kind: Kind, pools: tuple[Pool, ...] = ()
    ) -> dict[int, Fragment]:
        phase, rows = kind
        placement = Placement(tuple(places.items()), "f16", "f16", WorkerPlan((-1,)), pools)
        plan = lower_lanes(outline(build_graph(spec), placement, phase, rows), phase, rows, self._types, f32=self._f32)
        return {
            _number(lane.device): Fragment(
                lane.arena_bytes,
                worker_bytes(lane, rows, self._types),
                tuple(kept_by_kernels(lane, rows, self._tensors, self._n_ctx, f32=self._f32).items()),
                crossing_bytes(plan, lane) if isinstance(lane.device, Gpu) else 0,
            )
            for lane in plan.lanes
        }


def _device(number: int) -> Device:
    return Gpu(number) if number > 0 else Numa(-number)


def _number(device: Device) -> int:
    return device.index if isinstance(device, Gpu) else -device.node
