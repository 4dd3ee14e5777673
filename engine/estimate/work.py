"""What a step makes each unit read and multiply: bytes, operations and ops, from the fused ops of the Plan's outline.

Layers of one shape need the same, so one layer of each shape is outlined, once as a lane of the CPU and once as one of a GPU. No
rates and no devices stand here: `engine.estimate.roofline` turns work into time.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from engine.arch.spec import BlockSpec, Mla, ModelSpec, MoeFfn
from engine.arch.units import UnitId, UnitKind
from engine.gguf.info import TensorInfo
from engine.graph.build import build_graph
from engine.placement.options import LoadOptions
from engine.placement.placement import Device, Gpu, Numa, Placement, WorkerPlan, units_of
from engine.program.fuse import Phase
from engine.program.lane_latent import LaneHeads, LaneLatentAttend, LaneLatentHeads
from engine.program.lane_ops import (
    LaneAttend,
    LaneDelta,
    LaneEmbed,
    LaneExpertsDown,
    LaneExpertsUp,
    LaneLinear,
    LaneOp,
    LanePrepare,
    LaneRoute,
)
from engine.program.lane_transfer import LaneTransfer
from engine.program.meetings import meetings
from engine.program.outline import outline
from engine.quants.formats import BY_ID, BY_NAME

Style = Literal["cpu", "gpu"]
_OWNERS: dict[UnitKind, UnitKind] = {"kv": "mixer", "state": "mixer"}


@dataclass(frozen=True, slots=True)
class Matrix:
    """nbytes of weights of one format in n_rows rows, which `ops` multiplications and additions use."""

    format: str
    nbytes: float
    ops: float
    n_rows: float = 0.0


@dataclass(frozen=True, slots=True)
class OpWork:
    """What one op takes. cache_bytes: for each token that is in the cache already, at most `window` of them; cache_ops likewise.

    state_bytes: read and written whatever the length. values: of pointwise work. launches: of a GPU, in usual ones. grouped: rows
    are dealt out over many matrices. meets: workers wait for each other after it.
    """

    matrices: tuple[Matrix, ...] = ()
    cache_bytes: float = 0.0
    cache_ops: float = 0.0
    window: int | None = None
    state_bytes: float = 0.0
    values: float = 0.0
    launches: float = 1.0
    grouped: bool = False
    meets: bool = True

    @property
    def nbytes(self) -> float:
        """Bytes of weights."""
        return sum(one.nbytes for one in self.matrices)


ROUTE_LAUNCHES, EXPERT_LAUNCHES, ATTEND_LAUNCHES, LATENT_LAUNCHES = 1.8, 1.6, 2.0, 3.4
"""What these ops take on a GPU at the beginning of a context beside what they read, in launches of a small linear op: they are
several, or end in one that hardly any multiprocessor has a part in (an H200, 27 to 48 layers)."""

UnitWork = tuple[OpWork, ...]
Shape = int
"""Number of a layer's shape; -1 for what stands once."""


class ModelWork:
    """The work of one model's units, by phase and style. rows: of a chunk of a prompt."""

    def __init__(self, spec: ModelSpec, tensors: Mapping[str, TensorInfo], options: LoadOptions, rows: int) -> None:
        self.shapes: tuple[Shape, ...]
        self.shapes, few = distinct_layers(spec, tensors)
        self.rows = rows
        self._spec, self._tensors, self._options = few, tensors, options
        self._graph = build_graph(few)
        self._found: dict[tuple[Phase, Style], dict[tuple[UnitKind, Shape], UnitWork]] = {}

    def of(self, unit: UnitId, phase: Phase, style: Style) -> UnitWork:
        """The ops of a unit; those of caches and states count as their mixer's."""
        if (phase, style) not in self._found:
            self._found[phase, style] = self._outlined(phase, style)
        shape = -1 if unit.layer < 0 else self.shapes[unit.layer]
        return self._found[phase, style].get((unit.kind, shape), ())

    def _outlined(self, phase: Phase, style: Style) -> dict[tuple[UnitKind, Shape], UnitWork]:
        device: Device = Gpu(0) if style == "gpu" else Numa(0)
        places = tuple((unit, device) for unit in units_of(self._spec))
        placement = Placement(places, self._options.k_type, self._options.v_type, WorkerPlan((-1,)))
        rows = 1 if phase == "decode" else self.rows
        (lane,) = outline(self._graph, placement, phase, rows)
        shape_of = {block.index: self.shapes[block.index] for block in self._spec.blocks}
        meets = meetings(lane.ops) if style == "cpu" else (True,) * len(lane.ops)
        found: dict[tuple[UnitKind, Shape], list[OpWork]] = {}
        for op, met in zip(lane.ops, meets, strict=True):
            unit = op.unit
            key = _OWNERS.get(unit.kind, unit.kind), shape_of.get(unit.layer, -1)
            in_head = unit.kind == "head"
            found.setdefault(key, []).append(replace(self._work(op, 1 if in_head else rows, phase), meets=met))
        return {key: tuple(ops) for key, ops in found.items()}

    def _work(self, op: LaneOp, rows: int, phase: Phase) -> OpWork:
        match op:
            case LaneEmbed():
                return OpWork((self._rows_of(op.weight, op.out.width, rows),))
            case LaneLinear():
                parts = tuple(self._matrix(one.weight, op.source.width, one.out.width, rows) for one in op.weights)
                return OpWork(parts, values=rows * sum(one.out.width for one in op.weights))
            case LaneRoute():
                return OpWork(
                    (self._matrix(op.router.weight, op.source.width, op.router.out.width, rows),), launches=ROUTE_LAUNCHES
                )
            case LaneExpertsUp():
                halves = 2 if op.gate == op.up else 1
                names = dict.fromkeys((op.gate, op.up))
                parts = tuple(
                    self._experts(name, op.source.width, halves * op.out.width, op.choice.n_experts, op.choice.n_used, rows)
                    for name in names
                )
                return OpWork(parts, values=rows * op.choice.n_used * op.out.width, launches=EXPERT_LAUNCHES, grouped=True)
            case LaneExpertsDown():
                part = self._experts(op.down, op.source.width, op.out.width, op.choice.n_experts, op.choice.n_used, rows)
                return OpWork((part,), values=rows * op.out.width, launches=EXPERT_LAUNCHES, grouped=True)
            case LaneAttend():
                heads = op.heads
                per_key = 2.0 * heads.n_heads * (heads.head_dim + heads.v_dim)
                nbytes = heads.n_kv_heads * (
                    _value_bytes(self._options.k_type) * heads.head_dim + _value_bytes(self._options.v_type) * heads.v_dim
                )
                return OpWork((), nbytes, rows * per_key, heads.window, values=rows * op.out.width, launches=ATTEND_LAUNCHES)
            case LaneLatentAttend():
                return self._latent(op.mla, rows, 2.0 * op.mla.n_heads * (op.mla.latent + op.mla.rank))
            case LaneLatentHeads():
                made = 2.0 * op.mla.n_heads * op.mla.rank * (op.mla.k.n_out + op.mla.v.n_out)
                seen = 2.0 * op.mla.n_heads * (op.mla.head_dim + op.mla.v.n_out)
                return self._latent(op.mla, 1, made + rows * seen)
            case LaneHeads():
                each = op.matrices
                form = BY_ID[self._tensors[each.weight].type_id]
                name = "Q8_0" if each.transposed and not form.is_float else form.name
                size = each.n_heads * each.n_out * each.n_in
                return OpWork((Matrix(name, size * _bytes_per_value(name), 2.0 * rows * size),), values=rows * op.out.width)
            case LaneDelta():
                state = 8.0 * op.shape.state_floats * (rows if phase == "decode" else 1)
                return OpWork((), cache_ops=0.0, state_bytes=state, values=6.0 * rows * op.shape.n_v_heads * op.shape.dim**2)
            case LanePrepare():
                return OpWork(values=rows * op.slots * op.acts.width)
        if isinstance(op, LaneTransfer):
            return OpWork()
        return OpWork(
            values=rows * max((one.width for one in (getattr(op, "out", None), getattr(op, "x", None)) if one), default=0)
        )

    def _latent(self, mla: Mla, rows: int, per_key: float) -> OpWork:
        nbytes = mla.latent * _value_bytes(self._options.k_type)
        return OpWork((), nbytes, rows * per_key, values=rows * mla.n_heads * mla.rank, launches=LATENT_LAUNCHES)

    def _matrix(self, name: str, n_in: int, n_out: int, rows: int) -> Matrix:
        form = BY_ID[self._tensors[name].type_id]
        return Matrix(form.name, n_out * form.row_bytes(n_in), 2.0 * rows * n_in * n_out, n_out)

    def _experts(self, name: str, n_in: int, n_out: int, n_experts: int, n_used: int, rows: int) -> Matrix:
        """Rows choose independently: of many rows, hardly an expert stays unused."""
        form = BY_ID[self._tensors[name].type_id]
        touched = n_experts * (1.0 - (1.0 - n_used / n_experts) ** rows)
        return Matrix(form.name, touched * n_out * form.row_bytes(n_in), 2.0 * rows * n_used * n_in * n_out, touched * n_out)

    def _rows_of(self, name: str, width: int, rows: int) -> Matrix:
        form = BY_ID[self._tensors[name].type_id]
        return Matrix(form.name, rows * form.row_bytes(width), 0.0)


def distinct_layers(
    spec: ModelSpec, tensors: Mapping[str, TensorInfo], kind_of: Callable[[int], Hashable] = int
) -> tuple[tuple[Shape, ...], ModelSpec]:
    """The number of each layer's shape, and the model with the first layer of each shape alone.

    kind_of: what of a tensor's format makes a difference, by its ggml id.
    """
    seen: dict[tuple[str, tuple[Hashable, ...]], Shape] = {}
    shapes: list[Shape] = []
    firsts: list[BlockSpec] = []
    types = layer_types(spec, tensors)
    for block in spec.blocks:
        key = repr(replace(block, index=0)).replace(f"blk.{block.index}.", "blk."), tuple(map(kind_of, types[block.index]))
        if key not in seen:
            seen[key] = len(seen)
            firsts.append(block)
        shapes.append(seen[key])
    return tuple(shapes), replace(spec, blocks=tuple(firsts))


def layer_types(spec: ModelSpec, tensors: Mapping[str, TensorInfo]) -> list[tuple[int, ...]]:
    """The ids of the formats of each layer's tensors, by name."""
    found: list[list[tuple[str, int]]] = [[] for _ in spec.blocks]
    for name, tensor in tensors.items():
        head, _, rest = name.partition(".")
        number, _, part = rest.partition(".")
        if head == "blk" and number.isdecimal() and int(number) < len(found):
            found[int(number)].append((part, tensor.type_id))
    return [tuple(kind for _, kind in sorted(one)) for one in found]


def read_per_token(spec: ModelSpec, tensors: Mapping[str, TensorInfo], work: ModelWork) -> Iterator[tuple[UnitId, int]]:
    """Bytes of weights that one token reads of each unit."""
    for unit in units_of(spec):
        yield unit, round(sum(op.nbytes for op in work.of(unit, "decode", "cpu")))


def experts_of(spec: ModelSpec, layer: int) -> tuple[int, int]:
    """(experts, of them used by a token) of a layer; (0, 0): it has none."""
    ffn = spec.blocks[layer].ffn
    return (ffn.n_experts, ffn.n_used) if isinstance(ffn, MoeFfn) else (0, 0)


def _value_bytes(kind: str) -> float:
    """Bytes of a value in the cache, its share of a scale included, roughly."""
    return {"f32": 4.0, "f16": 2.0, "q8_0": 1.0625, "int8": 1.016}[kind]


def _bytes_per_value(name: str) -> float:
    form = BY_NAME[name]
    return form.type_size / form.block
