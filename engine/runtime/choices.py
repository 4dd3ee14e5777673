"""What the routers of one step chose: memory that lanes write, and how it is read when a step is done.

A step of few rows leaves the ids of every row; one of more rows, a chunk of a prompt, how often each expert was chosen. Rows that
pad a bucket are not read, and no step that failed is. One of these an executor: its lanes hold the addresses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.arch.spec import ModelSpec, MoeFfn
from engine.program.lane_ops import LaneRoute
from engine.program.plan import Plan
from engine.runtime.step import StepBatch
from kernels_pyx.executor import FEW_MAX

I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class MoeLayers:
    """The layers of a model that have experts. used: experts that a token passes, by layer."""

    layers: tuple[int, ...]
    used: tuple[int, ...]
    n_experts: int

    @property
    def most_used(self) -> int:
        """The most that any layer has."""
        return max(self.used, default=0)

    @property
    def words(self) -> int:
        """int32 of one layer: ids of few rows, then counts."""
        return FEW_MAX * self.most_used + self.n_experts


def moe_layers(spec: ModelSpec) -> MoeLayers:
    """Those of a model."""
    found = [(block.index, block.ffn) for block in spec.blocks if isinstance(block.ffn, MoeFfn)]
    return MoeLayers(
        tuple(index for index, _ in found),
        tuple(ffn.n_used for _, ffn in found),
        max((ffn.n_experts for _, ffn in found), default=0),
    )


def few(n_rows: int, n_out: int) -> bool:
    """Whether a step leaves ids: the same for all of its layers."""
    return max(n_rows, n_out) <= FEW_MAX


@dataclass(frozen=True, slots=True)
class Chosen:
    """What one row chose, or all rows of a step of more. n_late: rows of the layers `late` (places among `MoeLayers`).

    sequence: of the row, or of all rows; -1: of several. flat: place * n_experts + id of each choice, each once; counts:
    [n_layers, n_experts], of more rows. One of the two.
    """

    sequence: int
    n_rows: int
    n_late: int
    late: I64
    flat: I64 | None
    counts: I32 | None


@dataclass(frozen=True, slots=True)
class _Group:
    """Layers whose choices lie in one piece of memory and are of one size: places among all layers, and places * n_experts."""

    words: I32
    places: I64
    used: int
    base: I64

    def flat(self, row: int) -> I64:
        """What a row chose."""
        found: I64 = (self.words[self.places, row * self.used : (row + 1) * self.used] + self.base).reshape(-1)
        return found


class StepChoices:
    """The memory of one executor, and what its last step chose."""

    def __init__(self, spec: ModelSpec) -> None:
        self.moe = moe_layers(spec)
        self.last: tuple[Chosen, ...] = ()
        n = len(self.moe.layers)
        self._place = {layer: i for i, layer in enumerate(self.moe.layers)}
        self._words: list[I32] = [np.zeros((n, self.moe.words), np.int32)]  # [n_layers, words] a device, the CPU's first
        self._whose = np.zeros(n, np.int64)
        self._groups: dict[int, tuple[I64, list[_Group], list[_Group]]] = {}
        self._plans: list[Plan] = []  # whose ids are keys

    def ids_address(self, layer: int) -> int:
        """Where the CPU leaves ids of a layer, [FEW_MAX, n_used] int32."""
        return int(self._words[0][self._place[layer]].ctypes.data)

    def counts_address(self, layer: int) -> int:
        """Where it leaves counts, [n_experts] int32."""
        return self.ids_address(layer) + 4 * FEW_MAX * self.moe.most_used

    def reads(self, layers: Sequence[int], words: I32) -> None:
        """From now on what these layers chose is found there, [n_layers of the model, words]."""
        self._words.append(words)
        self._whose[[self._place[layer] for layer in layers]] = len(self._words) - 1
        self._groups.clear()

    def read(self, batch: StepBatch, plan: Plan) -> None:
        """A step of the plan is done."""
        if not self.moe.layers:
            return
        late, early_groups, late_groups = self._of(plan)
        n_rows, n_out = len(batch.token_ids), len(batch.out_rows)
        if few(n_rows, n_out):
            out_of = {row: i for i, row in enumerate(batch.out_rows.tolist())} if len(late) else None
            self.last = tuple(
                self._row(r, sequence, late, out_of, early_groups, late_groups)
                for r, sequence in enumerate(batch.seq_of_row.tolist())
            )
            return
        counts = np.empty((len(self.moe.layers), self.moe.n_experts), np.int32)
        for i, words in enumerate(self._words):
            mine = self._whose == i
            counts[mine] = words[mine, FEW_MAX * self.moe.most_used :]
        if not n_out:
            counts[late] = 0  # nobody went there, and nothing was written
        sequence = int(batch.seq_of_row[0])
        alone = bool((batch.seq_of_row == sequence).all())
        self.last = (Chosen(sequence if alone else -1, n_rows, n_out, late, None, counts),)

    def _row(
        self,
        r: int,
        sequence: int,
        late: I64,
        out_of: dict[int, int] | None,
        early_groups: list[_Group],
        late_groups: list[_Group],
    ) -> Chosen:
        flat, n_late = [one.flat(r) for one in early_groups], 1
        if out_of is not None:
            n_late = int(r in out_of)
            flat += [one.flat(out_of[r]) for one in late_groups] if n_late else []
        whole = flat[0] if len(flat) == 1 else np.concatenate(flat) if flat else np.zeros(0, np.int64)
        return Chosen(sequence, 1, n_late, late, whole, None)

    def _of(self, plan: Plan) -> tuple[I64, list[_Group], list[_Group]]:
        """(places of layers that only wanted rows pass, groups of the others, groups of those)."""
        if id(plan) not in self._groups:
            routes = (op for lane in plan.lanes for op in lane.ops if isinstance(op, LaneRoute))
            late = np.array(sorted(self._place[op.unit.layer] for op in routes if op.out_rows), np.int64)
            early = np.setdiff1d(np.arange(len(self.moe.layers)), late)
            self._plans.append(plan)
            self._groups[id(plan)] = late, self._grouped(early), self._grouped(late)
        return self._groups[id(plan)]

    def _grouped(self, places: I64) -> list[_Group]:
        kinds: dict[tuple[int, int], list[int]] = {}
        for place in places.tolist():
            kinds.setdefault((int(self._whose[place]), self.moe.used[place]), []).append(place)
        found = []
        for (whose, used), mine in kinds.items():
            at = np.array(mine, np.int64)
            found.append(_Group(self._words[whose], at, used, at[:, None] * self.moe.n_experts))
        return found
