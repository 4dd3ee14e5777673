"""A model whose lanes all run on this CPU, each over its own memory: in pieces one after another, or side by side with flags."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from engine.arch.registry import build_spec
from engine.arch.units import UnitId
from engine.gguf.reader import read_gguf
from engine.graph.build import build_graph
from engine.graph.ops import Graph
from engine.placement.options import KV_TYPES
from engine.placement.placement import Device, Placement, default_placement, units_of
from engine.program.fuse import Phase, fuse_lane, named_ops
from engine.program.lane_ops import writes
from engine.program.lane_transfer import LaneRecv, LaneSend
from engine.program.lower import lower_lanes
from engine.program.outline import LaneOutline
from engine.program.partition import partition
from engine.program.plan import Lane, Plan
from engine.runtime.cpu_lane import describe
from engine.runtime.derived import DerivedWeights, derived_parts
from engine.runtime.descriptor import Memory
from engine.runtime.kv_cache import BLOCK, KvCache
from engine.runtime.rope_table import RopeTables
from engine.runtime.states import StatePool, plan_slots
from engine.runtime.step import StepBatch
from engine.runtime.weights import Weights
from kernels_pyx.arena import Arena
from kernels_pyx.executor import AbortFlag, CpuProgram
from kernels_pyx.handoff import Handoff, handoff_bytes
from kernels_pyx.pool import Pool
from tests.helpers.runs import EXACT

Bytes = npt.NDArray[np.uint8]
N_CTX = 512
ROWS: tuple[tuple[Phase, int], ...] = (("decode", 1), ("prefill", 128))


def lane_each(graph: Graph, placement: Placement, phase: Phase, max_rows: int) -> tuple[LaneOutline, ...]:
    """A lane of the CPU's for each device, where the product makes one of all nodes: two sides of exchanges without a GPU."""
    named, last = named_ops(graph.ops, phase)
    logits = last[graph.logits.name]
    found = []
    for part in partition(named, placement):
        ops = fuse_lane(part.ops, phase, max_rows, "cpu", part.late)
        here = any(buffer == logits for op in ops for buffer in writes(op))
        found.append(LaneOutline(part.device, ops, logits if here else None))
    return tuple(found)


class Pieced:
    """Steps of up to 128 rows. where: the device of each unit; caches and states lie with their mixers."""

    def __init__(self, path: Path, where: Callable[[UnitId], Device], n_threads: int = 2) -> None:
        file = read_gguf(path)
        self.spec = build_spec(file)
        graph = build_graph(self.spec)
        base = default_placement(self.spec, replace(EXACT, n_threads=n_threads))

        def of(unit: UnitId) -> Device:
            return where(UnitId("mixer", unit.layer) if unit.kind in ("kv", "state") else unit)

        placement = replace(base, units=tuple((unit, of(unit)) for unit in units_of(self.spec)))
        self.abort = AbortFlag()
        weights = Weights(file)
        cache = KvCache(self.spec, N_CTX, "f32", "f32", 128)
        self._states = StatePool(self.spec, plan_slots(self.spec, 1 << 24)[0])
        f32 = KV_TYPES.index("f32")
        ropes, derived = RopeTables(weights, N_CTX), DerivedWeights(weights, derived_parts(self.spec), self.abort, f32=True)
        memory = Memory(weights, derived, ropes, cache.layers, f32, f32, self._states)
        self._keep = weights, cache, memory
        self._groups = cache.groups
        types = {tensor: one.type_id for tensor, one in file.tensors.items()}
        self.plans: dict[Phase, Plan] = {}
        self.programs: dict[Phase, list[CpuProgram]] = {}
        self.arenas: dict[Phase, list[Arena]] = {}
        self.pools: list[Pool] = []
        for phase, rows in ROWS:
            plan = lower_lanes(lane_each(graph, placement, phase, rows), phase, rows, types, f32=True)
            self.plans[phase] = plan
            self.arenas[phase] = [Arena(lane.arena_bytes) for lane in plan.lanes]
            while len(self.pools) < len(plan.lanes):
                self.pools.append(Pool([-1] * n_threads))
            self.programs[phase] = [
                self._program(lane, arena, pool, memory, rows)
                for lane, arena, pool in zip(plan.lanes, self.arenas[phase], self.pools, strict=False)
            ]
        n_flags = len(self.plans["decode"].exchanges)
        self.words = Arena(handoff_bytes(n_flags))
        self.handoff = Handoff(self.words, n_flags, limit_s=20.0)

    def _program(self, lane: Lane, arena: Arena, pool: Pool, memory: Memory, rows: int) -> CpuProgram:
        made = describe(lane, memory, f32=True)
        return CpuProgram(
            made.ops,
            arena,
            pool,
            max_rows=rows,
            max_position=N_CTX,
            n_blocks=[group.n_blocks for group in self._groups],
            n_states=self._states.n_slots,
            keep=made.keep,
        )

    def step(self, batch: StepBatch) -> npt.NDArray[np.float32]:
        """Logits, by the pieces of the schedule, one after another."""
        phase: Phase = "decode" if len(batch.token_ids) == 1 else "prefill"
        plan, arguments = self.plans[phase], self._arguments(batch)
        for piece in plan.schedule:
            assert self.programs[phase][piece.lane].run(*arguments, first=piece.first, end=piece.end) == (False, -1)
            for op in plan.lanes[piece.lane].ops[piece.first : piece.end]:
                if isinstance(op, LaneSend):
                    self.copy(phase, op.flag)
        self._done(batch)
        return arguments[5]

    def step_beside(self, batch: StepBatch) -> npt.NDArray[np.float32]:
        """Logits of a row: lane 0 in one run with flags, the other one in pieces by a thread that plays a GPU."""
        arguments = self._arguments(batch)
        self.handoff.epoch = (self.handoff.epoch + 1) & 0xFFFFFFFF
        player = threading.Thread(target=self.play, args=(arguments,))
        player.start()
        result = self.programs["decode"][0].run(*arguments, handoff=self.handoff)
        player.join()
        assert result == (False, -1)
        self._done(batch)
        return arguments[5]

    def play(self, arguments: tuple[npt.NDArray[np.int32], ...]) -> None:
        """What a GPU does: waits for flags, reads slots of lane 0, computes, writes them, sets flags."""
        lane, program, first = self.plans["decode"].lanes[1], self.programs["decode"][1], 0
        for i, op in enumerate(lane.ops):
            if not isinstance(op, LaneSend | LaneRecv):
                continue
            if i > first:
                program.run(*arguments, first=first, end=i)
            first = i + 1
            if isinstance(op, LaneRecv):
                if not self.handoff.wait(op.flag):
                    return
                self.copy("decode", op.flag)
            else:
                self.copy("decode", op.flag)
                self.handoff.signal(op.flag)
        if first < len(lane.ops):
            program.run(*arguments, first=first, end=len(lane.ops))

    def copy(self, phase: Phase, flag: int) -> None:
        """The rows of one exchange from the memory of one lane to that of the other."""
        plan = self.plans[phase]
        one = plan.exchanges[flag]
        send, recv = plan.lanes[one.source].ops[one.send], plan.lanes[one.target].ops[one.recv]
        assert isinstance(send, LaneSend) and isinstance(recv, LaneRecv)
        for ours, theirs in zip(send.buffers, recv.buffers, strict=True):
            self._rows(phase, one.target, theirs.name)[:] = self._rows(phase, one.source, ours.name)

    def _rows(self, phase: Phase, lane: int, name: str) -> Bytes:
        slot = self.plans[phase].lanes[lane].slots[name]
        memory = np.frombuffer(self.arenas[phase][lane], np.uint8)[slot.offset : slot.offset + slot.nbytes]
        return memory.reshape(-1, slot.stride)

    def _arguments(self, batch: StepBatch):  # type: ignore[no-untyped-def]
        tables = np.full((len(self._groups), len(batch.block_tables), -(-N_CTX // BLOCK)), 0, np.int32)
        for i, table in enumerate(batch.block_tables):
            tables[:, i, : table.shape[-1]] = table
        logits = np.full((len(batch.out_rows), self.spec.n_vocab), np.nan, np.float32)
        states = self._states.own(len(batch.block_tables)) if self._states.n_slots else None
        rows = (batch.token_ids, batch.positions, batch.seq_of_row, tables, batch.out_rows)
        return (*rows, logits, self.abort, None, states)

    def _done(self, batch: StepBatch) -> None:
        self._states.done(len(batch.block_tables))

    def close(self) -> None:
        """Ends the teams."""
        for pool in self.pools:
            pool.close()
        self._keep[0].close()
