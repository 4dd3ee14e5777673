"""What is written for another tool: a placement of ours with everything that such a text also says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.arch.units import UnitId, UnitKind
from engine.gguf.overrides import Override
from engine.placement.options import KvType, LoadOptions
from engine.placement.placement import Device, Gpu, Numa, Pool


@dataclass(frozen=True, slots=True)
class Written:
    """units, k_type, v_type, pools: as in a Placement. n_extra: layers of the file behind those that compute. n_experts: of a
    layer.

    options: whose threads, context and chunk are written; None: only places are. keys: of the file, whole, that they override.
    sigmoid: whether experts are scored by a sigmoid, which tells DeepSeek V3 from V2. n_spread: units that lie on several nodes
    of memory.
    """

    units: Sequence[tuple[UnitId, Device]]
    k_type: KvType = "f16"
    v_type: KvType = "f16"
    pools: tuple[Pool, ...] = ()
    architecture: str = ""
    n_extra: int = 0
    n_experts: int = 0
    sigmoid: bool = True
    model_path: str = ""
    n_workers: int = 0
    options: LoadOptions | None = field(default=None)
    keys: tuple[Override, ...] = ()
    n_spread: int = 0

    def of_kind(self, kind: UnitKind) -> dict[int, Device]:
        """The device of each unit of a kind, by layer."""
        return {unit.layer: where for unit, where in self.units if unit.kind == kind}

    def place(self, kind: UnitKind) -> Device:
        """The device of `embed` or `head`."""
        return dict(self.units).get(UnitId(kind), Numa(0))

    @property
    def n_layers(self) -> int:
        """Layers that compute."""
        return len(self.of_kind("mixer"))

    @property
    def nodes(self) -> tuple[int, ...]:
        """The nodes of memory that units have their home on."""
        return tuple(sorted({where.node for _, where in self.units if isinstance(where, Numa)}))

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """The GPUs in use."""
        found = {where for _, where in self.units if isinstance(where, Gpu)} | {one.gpu for one in self.pools}
        return tuple(sorted(found))


@dataclass(frozen=True, slots=True)
class Text:
    """A text for a tool, and what it cannot say, one sentence each."""

    text: str
    notes: tuple[str, ...] = ()
