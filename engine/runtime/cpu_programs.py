"""The CPU's lanes of all plans as compiled programs, over one arena and one team of workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

from engine.arch.units import UnitId
from engine.errors import EngineError, InvalidNumbers, InvalidRequest
from engine.placement.placement import Numa, WorkerPlan
from engine.program.lane_ops import LaneOp
from engine.program.plan import Lane, Plan
from engine.runtime.cache_groups import BLOCK
from engine.runtime.cpu_lane import describe, in_teams
from engine.runtime.descriptor import Descriptors, Memory
from engine.runtime.kv_cache import allocate
from engine.runtime.stealing import order_for
from engine.runtime.step import StepBatch
from engine.runtime.teams import Teams
from kernels_pyx.arena import Arena
from kernels_pyx.executor import CpuProgram
from kernels_pyx.pool import Pool


@dataclass(frozen=True, slots=True)
class Compiled:
    """A lane and its program. max_rows: of the plan; made: the lane's descriptors, before it is known who works."""

    lane: Lane
    program: CpuProgram
    max_rows: int
    made: Descriptors


@dataclass(frozen=True, slots=True)
class Team:
    """Workers, and the programs in the shares of so many: ready to take the place of others between two steps."""

    pool: Pool
    compiled: tuple[Compiled | None, ...]
    teams: Teams | None = None


class Room(Protocol):
    """Memory for the buffers of programs that others reach too."""

    @property
    def arena(self) -> Arena:
        """All of it."""

    def close(self) -> None:
        """Gives it back. Idempotent."""


class CpuPrograms:
    """Used by one thread. lanes: by plan, None where the CPU has no part in it. teams: on several nodes of memory."""

    def __init__(
        self,
        plans: Sequence[Plan],
        memory: Memory,
        workers: WorkerPlan,
        n_blocks: Sequence[int],
        *,
        n_ctx: int,
        f32: bool,
        room: Callable[[int], Room] | None = None,
        weight_bytes: int = 0,
        beside: CpuPrograms | None = None,
    ) -> None:
        """Compiles and starts the workers. n_blocks: of each cache group. room: who gives so many bytes for the buffers.

        weight_bytes: of all tensors that the lanes read. beside: programs of the same model, whose team works here too where it
        is the same, never at once.

        Raises:
            OutOfMemory: no room for the buffers. UnsupportedModel, GgufError: see `Weights`.
        """
        self._memory = memory  # descriptors hold addresses of what it owns
        lanes = [cpu_lane(plan) for plan in plans]
        nbytes = max(lane.arena_bytes for lane in lanes if lane is not None)
        self.weight_bytes = weight_bytes
        self._room = None if room is None else room(nbytes)
        why = "the working memory", "choose a smaller prefill chunk"
        self.arena = allocate(nbytes, *why) if self._room is None else self._room.arena
        self._memory = memory  # programs point into it
        self._spreading = memory.spreading
        self.teams = None if memory.spreading is None else memory.spreading.teams(workers)
        workers = workers if self.teams is None else self.teams.workers
        shared = None if beside is None else beside.team
        if shared is not None and shared.cores != workers.cores:
            shared = None
        self._pool = shared or Pool(workers.cores)
        self._owns_team = shared is None
        self._tables = np.zeros((len(n_blocks), 1, -(-n_ctx // BLOCK)), np.int32)
        self._n_ctx, self._n_blocks = n_ctx, tuple(n_blocks)
        self.compiled: list[Compiled | None] = []
        for plan, lane in zip(plans, lanes, strict=True):
            if lane is None:
                self.compiled.append(None)
                continue
            made = describe(lane, memory, f32=f32)
            program = self._program(lane, made, plan.max_rows, self._pool, self.teams)
            self.compiled.append(Compiled(lane, program, plan.max_rows, made))

    def _program(self, lane: Lane, made: Descriptors, max_rows: int, pool: Pool, teams: Teams | None) -> CpuProgram:
        ops = made.ops
        if teams is not None and self._spreading is not None:
            ops = in_teams(ops, lane, self._spreading.placement, teams)
        return CpuProgram(
            ops,
            self.arena,
            pool,
            max_rows=max_rows,
            max_position=self._n_ctx,
            n_blocks=self._n_blocks,
            n_states=self._memory.states.n_slots,
            keep=made.keep,
            teams=None if teams is None else teams.of,
            order=order_for(pool.cores),
        )

    @property
    def workspace_bytes(self) -> int:
        """Memory of the buffers, and of the workers' own."""
        programs = [one.program for one in self.compiled if one is not None]
        return self.arena.nbytes + sum(program.scratch_bytes for program in programs)

    @property
    def ops(self) -> tuple[LaneOp, ...]:
        """All that is done here."""
        return tuple(op for one in self.compiled if one is not None for op in one.lane.ops)

    def with_team(self, workers: WorkerPlan) -> Team:
        """The same programs for other workers, who are started; `use` puts them to work, else close their pool.

        Raises:
            ValueError: the programs do not take them. OSError: no more threads. MemoryError.
        """
        teams = None if self._spreading is None else self._spreading.teams(workers)
        pool = Pool(workers.cores if teams is None else teams.workers.cores)

        def renewed(one: Compiled | None) -> Compiled | None:
            return one and replace(one, program=self._program(one.lane, one.made, one.max_rows, pool, teams))

        try:
            found = tuple(map(renewed, self.compiled))
        except BaseException:
            pool.close()
            raise
        return Team(pool, found, teams)

    def use(self, team: Team) -> None:
        """Between two steps: the next one is made by this team; the one before it ends. Nobody else may share the workers."""
        assert self._owns_team
        before, self._pool = self._pool, team.pool
        self.compiled[:], self.teams = team.compiled, team.teams
        before.close()

    def fill_tables(self, batch: StepBatch) -> npt.NDArray[np.int32]:
        """The block tables of a batch as programs take them, [n_groups, n_seqs, blocks]; overwritten by the next."""
        n_groups, n_room, width = self._tables.shape
        n_seqs = len(batch.block_tables)
        if n_seqs != n_room:
            self._tables = np.zeros((n_groups, n_seqs, width), np.int32)
        for i, table in enumerate(batch.block_tables):
            used = min(table.shape[-1], width)
            self._tables[:, i, :used] = table[..., :used]
            self._tables[:, i, used : used + 1] = -1
        return self._tables

    @property
    def team(self) -> Pool | None:
        """The workers; None once closed."""
        return self._pool if self.compiled else None

    def take_team(self, other: CpuPrograms) -> None:
        """The workers of the other programs end with these from now on, where both share them."""
        if other._pool is self._pool:
            self._owns_team, other._owns_team = True, False

    def close(self) -> None:
        """Drops the programs, and ends the workers unless they are others' too. Idempotent."""
        self.compiled.clear()
        if self._owns_team:
            self._pool.close()
        if self._room is not None:
            self._room.close()


def cpu_lane(plan: Plan) -> Lane | None:
    """The CPU's part in a plan."""
    return next((lane for lane in plan.lanes if isinstance(lane.device, Numa)), None)


def not_finite(lane: Lane, op: int) -> EngineError:
    """What to say of an op that computed values that are not finite."""
    return not_finite_in(lane.ops[op].unit)


def not_finite_in(unit: UnitId) -> EngineError:
    """What to say of a unit in which values became something else than finite numbers."""
    where = f"layer {unit.layer} ({unit.kind})" if unit.layer >= 0 else f"the {unit.kind}"
    return InvalidNumbers(f"the model computed non-finite values in {where}; the file is probably damaged, get it again")


def refused(error: ValueError) -> InvalidRequest:
    """What to say of a batch that does not fit a program."""
    return InvalidRequest(f"the step cannot run: {error}")
