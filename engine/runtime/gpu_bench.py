"""What a lane's ops name, as tensors of its GPU, and the kernels that compute with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import Tensor

from engine.graph.ops import Buffer
from engine.program.lane_ops import LaneRoute, Turn, Weight
from engine.program.lane_transfer import Choice, LaneRecv, LaneSend
from engine.program.plan import Lane
from engine.runtime.expert_slots import ExpertSlots
from engine.runtime.gpu_buffers import LaneTensors
from engine.runtime.gpu_cache import GpuCache
from engine.runtime.gpu_weights import GpuWeights
from engine.triton_kernels.kernels import Kernels
from engine.triton_kernels.tensors import Acts, Matrix, NormWeight, Pooled, StepInputs, Tally
from engine.triton_kernels.tensors import Choice as Chosen

Run = Callable[[], None]
NO_HOOKS: Mapping[int, Run] = {}
Exchange = Callable[[LaneSend | LaneRecv, tuple[Tensor, ...]], Run]
"""What a send or a receive does with the lane's own tensors: see `gpu_exchange`."""


@dataclass(frozen=True, slots=True)
class Resident:
    """What of the model lies on one GPU, and who computes with it."""

    kernels: Kernels
    weights: GpuWeights
    cache: GpuCache
    pools: ExpertSlots | None


@dataclass(frozen=True, slots=True)
class Bench:
    """Everything that the ops of one lane name, for steps of one shape."""

    resident: Resident
    lane: Lane
    found: LaneTensors
    step: StepInputs
    logits: Tensor | None
    exchange: Exchange
    before: Mapping[int, Run]
    behind: Mapping[int, Run]
    """By op, what is called before or behind it."""
    noted: Callable[[int, int], Tally | None]
    """(layer, rows of its router) to where its choice is noted."""

    def of(self, buffer: Buffer) -> Tensor:
        """The tensor of a buffer."""
        if buffer == self.lane.logits and self.logits is not None:
            return self.logits
        return self.found.tensors[buffer.name]

    def maybe(self, buffer: Buffer | None) -> Tensor | None:
        return None if buffer is None else self.of(buffer)

    def acts(self, buffer: Buffer) -> Acts:
        """What linears multiply: prepared, or f32 rows as they lie."""
        made = self.found.acts.get(buffer.name)
        return Acts(self.of(buffer), None, None, None) if made is None else made

    def vector(self, name: str | None) -> Tensor | None:
        return None if name is None else self.resident.weights.vector(name)

    def bias(self, weight: Weight) -> Tensor | None:
        """The bias of one matrix, of a longer one the part that belongs to its rows."""
        bias = self.vector(weight.bias)
        if bias is None or weight.first is None or len(bias) <= weight.out.width:
            return bias
        return bias[weight.first : weight.first + weight.out.width]

    def matrix(self, weight: Weight, n_in: int) -> Matrix:
        if weight.first is None:
            return self.resident.weights.matrix(weight.weight, n_in)
        return self.resident.weights.matrix(weight.weight, n_in, first=weight.first, n_rows=weight.out.width)

    def chosen(self, choice: Choice) -> Chosen:
        return Chosen(self.of(choice.chosen), self.of(choice.weights))

    @property
    def pools(self) -> ExpertSlots:
        """The pools of experts on this GPU."""
        found = self.resident.pools
        assert found is not None, "a pool that was not made"
        return found

    def pooled(self, op: LaneRoute) -> Pooled | None:
        """Where a router tells who computes what it chose."""
        if op.pool is None:
            return None
        return Pooled(self.pools.slot_of(op.unit.layer), self.of(op.pool.here), self.of(op.pool.there))

    def turn(self, turn: Turn) -> NormWeight | None:
        return None if turn.norm is None else self.resident.weights.norm(turn.norm)
