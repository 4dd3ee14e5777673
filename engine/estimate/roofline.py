"""Seconds of a unit's work on a device: the larger of what reading and what multiplying takes, and what each op costs beside."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engine.estimate.rates import GPU_READ_GBPS, GPU_TFLOPS, Calibration, GpuRates, NodeRates
from engine.estimate.work import OpWork, UnitWork
from engine.placement.placement import Device, Gpu
from engine.program.fuse import Phase
from engine.quants.formats import BY_NAME
from kernels_pyx.executor import FEW_MAX

GPU_REACH = 0.75
"""Of the read rate of a GPU, what kernels of few rows get through on large matrices."""
GPU_DENSE = 0.55
"""Of the rate of dense products, what prompts reach with weights that are unpacked on the way."""
GPU_UNPACK = 0.17
"""Weights of experts that are unpacked for few rows each, for each byte that could be read meanwhile (an H200)."""
ROW_NS = 5.0
"""What each row of weights costs a thread beside its bytes, with one row of activations."""
VALUE_NS = 0.25
"""Pointwise work, a value and core."""
ATTEND_SHARE = 0.7
"""Of the read rate, what attention over a long past gets through in decode."""

FROM_AFAR = 0.5
"""Of what a node gives its own cores, those of another node get: links between processors carry about so much."""


@dataclass(frozen=True, slots=True)
class Part:
    """Seconds by what they go to. read: memory; multiply: products that memory does not hold up; fixed: meetings and launches."""

    read: float = 0.0
    multiply: float = 0.0
    fixed: float = 0.0
    bound: float = 0.0

    @property
    def seconds(self) -> float:
        """All of it."""
        return self.read + self.multiply + self.fixed

    def __add__(self, other: Part) -> Part:
        return Part(self.read + other.read, self.multiply + other.multiply, self.fixed + other.fixed, self.bound + other.bound)

    def part(self, share: float) -> Part:
        """A share of it."""
        return Part(share * self.read, share * self.multiply, share * self.fixed, share * self.bound)

    def __mul__(self, factor: float) -> Part:
        return Part(factor * self.read, factor * self.multiply, factor * self.fixed, self.bound)


class Roofline:
    """Times on one machine with one team of workers a node. depth: tokens in the cache already."""

    def __init__(self, calibration: Calibration, threads: int | Mapping[int, int]) -> None:
        """threads: of each team, or by the number of its node."""
        self.calibration, self._threads = calibration, threads

    def team(self, node: int) -> tuple[int, float]:
        """How many work on what a node has, and how much of its rate they get: where nobody works, those of other nodes do."""
        if isinstance(self._threads, int):
            return max(1, self._threads), 1.0
        mine = self._threads.get(node, 0)
        return (mine, 1.0) if mine else (max(1, sum(self._threads.values())), FROM_AFAR)

    def unit(self, work: UnitWork, device: Device, phase: Phase, depth: int, rows: int) -> Part:
        """What the ops of a unit take on a device; `bound`: what reading its bytes takes if nothing else did."""
        found = Part()
        if isinstance(device, Gpu):
            gpu = self.gpu(device)
            for op in work:
                found += self._on_gpu(op, gpu, phase, depth, rows)
            factor = self.calibration.corrections.decode_gpu if phase == "decode" else self.calibration.corrections.prefill_gpu
            return found * factor
        node, team = self.node(device.node), self.team(device.node)
        for op in work:
            found += self._on_node(op, node, team, phase, depth, rows)
        factor = self.calibration.corrections.decode_cpu if phase == "decode" else self.calibration.corrections.prefill_cpu
        return found * factor

    def node(self, number: int) -> NodeRates:
        """The rates of a node; those of the first where the machine has fewer."""
        nodes = self.calibration.nodes
        return nodes[number] if number < len(nodes) else nodes[0]

    def gpu(self, device: Gpu) -> GpuRates:
        """The rates of a GPU; those of the last, or of a usual one, where the machine has fewer."""
        gpus = self.calibration.gpus
        if not gpus:
            return GpuRates(GPU_READ_GBPS, GPU_TFLOPS)
        return gpus[device.index] if device.index < len(gpus) else gpus[-1]

    def _on_node(self, op: OpWork, node: NodeRates, team: tuple[int, float], phase: Phase, depth: int, rows: int) -> Part:
        threads, near = team
        gbps = node.read(threads) * near * 1e9
        cached = op.cache_bytes * _seen(op, depth)
        bound = (op.nbytes + cached + op.state_bytes) / (node.limit * 1e9)
        fixed = node.op_us * 1e-6 + (node.meet_us * 1e-6 if op.meets else 0.0)
        read = op.state_bytes / gbps + cached / (gbps * ATTEND_SHARE)
        multiply = op.cache_ops * _mean_seen(op, depth, rows if phase == "prefill" else 1) / (node.float_gops * threads * 1e9)
        multiply += op.values * VALUE_NS * 1e-9 / threads
        for one in op.matrices:
            rates = node.format(one.format)
            through = (one.nbytes / rates.stream_gbps + one.n_rows * ROW_NS) * 1e-9 / threads
            stream = max(one.nbytes / (gbps * rates.share), through)
            form = BY_NAME[one.format]
            weights = one.nbytes * form.block / form.type_size
            if one.ops <= 2.0 * FEW_MAX * weights:
                read += stream
                continue
            dense = (one.ops / rates.gops + weights * rates.unpack_ns) * 1e-9 / threads
            read += stream
            multiply += max(0.0, dense - stream)
        return Part(read, multiply, fixed, bound)

    def _on_gpu(self, op: OpWork, gpu: GpuRates, phase: Phase, depth: int, rows: int) -> Part:
        nbytes = op.nbytes + op.state_bytes + op.cache_bytes * _seen(op, depth)
        bound = nbytes / (gpu.read_gbps * 1e9)
        read = nbytes / (gpu.read_gbps * GPU_REACH * 1e9)
        n_ops = sum(one.ops for one in op.matrices) + op.cache_ops * _mean_seen(op, depth, rows if phase == "prefill" else 1)
        multiply = n_ops / (gpu.tflops * GPU_DENSE * 1e12) if phase == "prefill" else 0.0
        if phase == "prefill" and op.grouped:
            weights = sum(one.nbytes * BY_NAME[one.format].block / BY_NAME[one.format].type_size for one in op.matrices)
            multiply += weights / (gpu.read_gbps * GPU_UNPACK * 1e9)
        return Part(read, max(0.0, multiply - read), op.launches * gpu.node_us * 1e-6, bound)


def _seen(op: OpWork, depth: int) -> float:
    return depth if op.window is None else min(depth, op.window)


def _mean_seen(op: OpWork, depth: int, rows: int) -> float:
    """Keys that a row sees on average."""
    return _seen(op, depth + rows // 2)
