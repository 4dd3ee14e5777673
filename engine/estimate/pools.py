"""Bytes of pools of experts on GPUs: those of a whole set times the share of it that has slots."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from engine.gguf.info import TensorInfo
from engine.graph.ops import Experts
from engine.placement.placement import Device, Placement
from engine.quants.padding import padded_bytes

ALIGN = 256


def slot_bytes(op: Experts, tensors: Mapping[str, TensorInfo]) -> int:
    """Of one expert in a pool, without biases."""
    names = {op.gate, op.up, op.down}
    return sum(padded_bytes(tensors[name].type_name, tensors[name].nbytes // op.n_experts) for name in names)


def pool_bytes(ops: Iterable[object], tensors: Mapping[str, TensorInfo], placement: Placement, device: Device) -> tuple[int, int]:
    """(weights, biases made to f32) of all pools on a device. ops: of the graph."""
    weights = biases = 0
    for op in ops:
        pool = placement.pool_of(op.unit.layer) if isinstance(op, Experts) and placement.pools else None
        if pool is None or pool.gpu != device or not isinstance(op, Experts):
            continue
        n = len(pool.experts)
        for name in {op.gate, op.up, op.down}:
            each = padded_bytes(tensors[name].type_name, tensors[name].nbytes // op.n_experts)
            weights += -(-n * each // ALIGN) * ALIGN
        given = (name for name in (op.gate_bias, op.up_bias, op.down_bias) if name is not None)
        biases += sum(4 * n * (tensors[name].n_elements // op.n_experts) for name in given)
    return weights, biases
