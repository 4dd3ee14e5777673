"""Pools of experts on GPUs: the bytes of their copies, and the share of passes that they may be expected to take."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from engine.gguf.info import TensorInfo
from engine.graph.ops import Experts, Op
from engine.placement.placement import Device, Placement
from engine.quants.padding import padded_bytes

ALIGN = 256
LOCALITY = 0.19
"""Text comes back to experts: of 512, the newest 64 take 67 % of the passes, (64 / 512) ** 0.19 (published figures)."""


@dataclass(frozen=True, slots=True)
class _Layer:
    """Bytes of one expert on a GPU, tensor by tensor, and of its biases as f32; how many experts there are."""

    each: tuple[int, ...]
    biases: int
    n_experts: int


class PoolSums:
    """What pools of one model take."""

    def __init__(self, ops: Iterable[Op], tensors: Mapping[str, TensorInfo]) -> None:
        """ops: of the graph."""
        self._layers: dict[int, _Layer] = {}
        for op in ops:
            if isinstance(op, Experts):
                found = [tensors[name] for name in sorted({op.gate, op.up, op.down})]
                given = [tensors[name] for name in (op.gate_bias, op.up_bias, op.down_bias) if name is not None]
                self._layers[op.unit.layer] = _Layer(
                    tuple(padded_bytes(one.type_name, one.nbytes // op.n_experts) for one in found),
                    sum(4 * one.n_elements // op.n_experts for one in given),
                    op.n_experts,
                )

    def of(self, placement: Placement) -> dict[Device, tuple[int, int]]:
        """By GPU, bytes of copies of weights and of biases."""
        found: dict[Device, tuple[int, int]] = {}
        for pool in placement.pools:
            layer, n = self._layers.get(pool.layer), len(pool.experts)
            if layer is not None and placement.pool_of(pool.layer) is not None:
                weights, biases = found.get(pool.gpu, (0, 0))
                weights += sum(-(-n * each // ALIGN) * ALIGN for each in layer.each)
                found[pool.gpu] = weights, biases + n * layer.biases
        return found


def expected_hits(n_slots: int, n_experts: int) -> float:
    """The share of a layer's passes that its pool takes while experts come and go; 0 without slots."""
    return min(1.0, n_slots / n_experts) ** LOCALITY if n_slots else 0.0
