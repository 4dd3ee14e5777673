"""One step of a model that lies wholly in the machine's memory: picks the program for the batch, runs it in one call, and says
what went wrong. `gpu_executor` runs models of which a part lies on a GPU."""

from __future__ import annotations

import time
from typing import Protocol

import numpy as np
import numpy.typing as npt

from engine.errors import Cancelled, InvalidRequest
from engine.program.plan import Lane, Plan
from engine.runtime.buckets import pick
from engine.runtime.choices import StepChoices
from engine.runtime.cpu_programs import CpuPrograms, not_finite, refused
from engine.runtime.measured import Crossed, StepTimes, cpu_part, node_parts, room_for
from engine.runtime.pool_keeper import PoolKeeper
from engine.runtime.residency import Holding
from engine.runtime.source import ModelSource
from engine.runtime.stamps import Stamps, cpu_piece
from engine.runtime.states import StatePool
from engine.runtime.step import StepBatch
from kernels_pyx.executor import AbortFlag


class PlanRunner(Protocol):
    """What runs the plans of a model, wherever its parts lie."""

    profile: bool
    measure: bool
    measured: StepTimes | None
    crossed: Crossed
    last_step_s: float
    choices: StepChoices
    pools: PoolKeeper | None

    @property
    def plans(self) -> tuple[Plan, ...]:
        """One per phase and bucket."""

    def step(self, batch: StepBatch) -> npt.NDArray[np.float32]:
        """Logits [n_out, n_vocab]."""

    def op_times(self) -> tuple[tuple[str, float], ...]:
        """(op, seconds) of the last step that ran while `profile` was set."""

    def holdings(self) -> tuple[Holding, ...]:
        """What is held on GPUs by now."""

    @property
    def is_cold(self) -> bool:
        """Whether some kind of decode step would first have to be compiled."""

    def warm_next(self) -> None:
        """Compiles one."""

    def settle(self) -> None:
        """What this was built beside is about to go."""

    def close(self) -> None:
        """Gives everything back."""


class Executor:
    """The plans of a model as CPU programs over one arena and one team of workers. Used by one thread."""

    def __init__(
        self,
        source: ModelSource,
        plans: tuple[Plan, ...],
        cpu: CpuPrograms,
        states: StatePool,
        choices: StepChoices,
        abort: AbortFlag,
    ) -> None:
        """cpu: the programs of the plans, which it owns from now on. choices: where they write them. abort: stops every step."""
        self.plans = plans
        self._n_vocab = source.spec.n_vocab
        self._abort = abort
        self._states = states
        self.last_step_s = 0.0
        self.profile = self.measure = False
        self.measured: StepTimes | None = None
        self.crossed: Crossed = {}
        self._times: tuple[tuple[str, float], ...] = ()
        self.choices = choices
        self.pools: PoolKeeper | None = None
        self._cpu = cpu

    def step(self, batch: StepBatch) -> npt.NDArray[np.float32]:
        """Logits [n_out, n_vocab] f32 of the rows that the batch names.

        Raises:
            Cancelled: the abort flag was set. EngineError: values that are not finite; the message names the layer.
            InvalidRequest: a batch that does not fit the model or its caches.
        """
        if not self._cpu.compiled:
            raise InvalidRequest("the model is closed")
        if self._abort.is_set:
            raise Cancelled("the step was stopped")
        index = pick(self.plans, batch)
        chosen = self._cpu.compiled[index]
        assert chosen is not None
        logits = np.empty((len(batch.out_rows), self._n_vocab), np.float32)
        times = np.zeros(chosen.program.n_ops, np.int64) if self.profile or self.measure else None
        teams = self._cpu.teams if self.measure else None
        spent = room_for(teams)
        n_seqs, use = len(batch.block_tables), batch.states
        if self._states.n_slots and use is None:
            use = self._states.own(n_seqs)
        started = time.perf_counter()
        try:
            aborted, bad_op = chosen.program.run(
                batch.token_ids,
                batch.positions,
                batch.seq_of_row,
                self._cpu.fill_tables(batch),
                batch.out_rows,
                logits,
                self._abort,
                times,
                use,
                worker_ns=spent,
            )
        except ValueError as error:
            raise refused(error) from error
        self.last_step_s = time.perf_counter() - started
        if times is not None and self.profile:
            self._times = named_times(chosen.lane, times)
        if times is not None and self.measure:
            ended = time.monotonic_ns()
            part, ops = cpu_part(chosen.lane, times)
            piece = cpu_piece(chosen.lane, 0, len(chosen.lane.ops), times, ended)
            parts = (part,) if teams is None or spent is None else node_parts(teams, spent, self.last_step_s)
            self.measured = StepTimes(parts, ops, Stamps(ended - round(self.last_step_s * 1e9), ended, (piece,)))
        if aborted:
            raise Cancelled("the step was stopped")
        if bad_op >= 0:
            raise not_finite(chosen.lane, bad_op)
        if batch.states is None:
            self._states.done(n_seqs)
        self.choices.read(batch, self.plans[index])
        return logits

    def op_times(self) -> tuple[tuple[str, float], ...]:
        """(op, seconds) of the last step that ran while `profile` was set."""
        return self._times

    def holdings(self) -> tuple[Holding, ...]:
        """Nothing is held on GPUs."""
        return ()

    @property
    def is_cold(self) -> bool:
        """Everything was compiled when it was made."""
        return False

    def warm_next(self) -> None:
        """Nothing to do."""

    def settle(self) -> None:
        """Nothing is taken from others later."""

    def close(self) -> None:
        """Ends the workers and drops the programs. Idempotent."""
        self._cpu.close()


def named_times(lane: Lane, times: npt.NDArray[np.int64]) -> tuple[tuple[str, float], ...]:
    """(op, seconds) of a lane's ops. times: in ns."""
    return tuple(
        (f"{op.unit} {type(op).__name__.removeprefix('Lane').lower()}", ns * 1e-9)
        for op, ns in zip(lane.ops, times.tolist(), strict=True)
    )
