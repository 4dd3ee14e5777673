"""A model in memory: steps, what is held where, and the move from one placement to another."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from engine.arch.spec import ModelSpec
from engine.errors import EngineError, InvalidRequest
from engine.graph.reference import ReferenceModel
from engine.placement.placement import Device, Placement
from engine.placement.spread import NodePolicy
from engine.runtime.build import owning_of, read_per_token
from engine.runtime.cache_groups import CacheGroup
from engine.runtime.choices import Chosen
from engine.runtime.executor import PlanRunner
from engine.runtime.move import Move
from engine.runtime.move_plan import check_move
from engine.runtime.node_memory import Meant
from engine.runtime.on_nodes import meant_places, policy_of
from engine.runtime.owning import Owning
from engine.runtime.placed import Placed
from engine.runtime.pool_keeper import PoolKeeper
from engine.runtime.residency import Residency
from engine.runtime.source import ModelSource
from engine.runtime.step import StepBatch
from engine.runtime.tally import ExpertTally
from engine.runtime.written import Live, everything
from kernels_pyx.executor import AbortFlag

IDLE_S = 5.0
"""After so long without a step nobody is likely to mind a few seconds of compiling."""
USUAL_STEPS = 16
"""Over which the time of steps is averaged."""


def nothing() -> None:
    """Nobody waits to be woken."""


class LoadedModel:
    """A model in memory. Used by one thread at a time; `close` it when done."""

    def __init__(
        self,
        source: ModelSource,
        runs: Placed | ReferenceModel,
        abort: AbortFlag,
        groups: tuple[CacheGroup, ...] = (),
        state_slots: tuple[int, int] = (0, 0),
    ) -> None:
        """runs: what makes the steps, which `abort` stops. groups, state_slots: of the reference model."""
        self.source = source
        self.abort = abort
        self._used_at = time.monotonic()
        self._reference = runs if isinstance(runs, ReferenceModel) else None
        self._placed = None if isinstance(runs, ReferenceModel) else runs
        self._read_bytes = 0 if self._placed is None else read_per_token(source.file, source.graph)
        self.cache_groups = groups if self._placed is None else self._placed.cache.groups
        self.state_slots = state_slots if self._placed is None else self._placed.state_slots
        self._owning = None if self._placed is None else owning_of(source, self._placed)
        self._move: Move | None = None
        runner = self.executor
        self.experts = ExpertTally(runner.choices.moe) if runner is not None and runner.choices.moe.layers else None
        """How often each expert was passed, wherever they lay; None: the model has none, or is the reference."""
        self.workers_chosen = bool(source.options.n_threads)
        """Whether somebody asked for as many workers as there are."""
        self.usual_step_s = 0.0
        """What a step of decoding takes, of late."""

    @property
    def spec(self) -> ModelSpec:
        """What the model is."""
        return self.source.spec

    @property
    def n_ctx(self) -> int:
        """Tokens that a sequence may hold."""
        return self.source.n_ctx

    @property
    def placed(self) -> Placed | None:
        """The model as its placement has it. None for the reference model."""
        return self._placed

    @property
    def placement(self) -> Placement | None:
        """Where its parts lie. None for the reference model."""
        return None if self._placed is None else self._placed.placement

    @property
    def notes(self) -> tuple[str, ...]:
        """What of the placement that was asked for could not be met, one sentence each."""
        return () if self._placed is None else self._placed.notes

    def step(self, batch: StepBatch) -> npt.NDArray[np.float32]:
        """Logits [n_out, n_vocab] f32 of the rows that the batch names.

        Raises:
            Cancelled: the abort flag was set. ModelChanged: the file lost bytes while it was read; the logits are void.
            EngineError: values that are not finite. InvalidRequest: the batch does not fit.
        """
        started = time.perf_counter()
        if self._move is not None:
            self._move.stepping(batch)
        try:
            logits = self._stepper.step(batch)
        except EngineError:
            self.source.weights.check_lost()  # explains every other failure
            raise
        self.source.weights.check_lost()
        if self.experts is not None:
            self.experts.add(self.chosen)
        self._took(batch, time.perf_counter() - started)
        self._used_at = time.monotonic()
        return logits

    def rehearse(self, batch: StepBatch) -> float:
        """Seconds of a step that is no answer's, and that nothing counts. Raises as `step` does."""
        started = time.perf_counter()
        self._stepper.step(batch)
        taken = time.perf_counter() - started
        self.source.weights.check_lost()
        self._used_at = time.monotonic()
        return taken

    def _took(self, batch: StepBatch, seconds: float) -> None:
        if self._move is not None:
            self._move.stepped(batch, seconds)
            return
        if batch.phase == "decode":
            usual = self.usual_step_s or seconds
            self.usual_step_s = usual + (seconds - usual) / USUAL_STEPS
        if self._owning is not None:
            self._owning.beside_steps(self.last_step_s)

    @property
    def chosen(self) -> tuple[Chosen, ...]:
        """Which experts the rows of the last step passed."""
        return () if self.executor is None else self.executor.choices.last

    @property
    def pools(self) -> PoolKeeper | None:
        """What keeps the pools of experts on GPUs; None: there are none."""
        return None if self.executor is None else self.executor.pools

    def forget_counts(self) -> None:
        """What was passed to try the model out does not count."""
        if self.experts is not None:
            self.experts.clear()
        if self.pools is not None:
            self.pools.forget()

    def begin_move(self, target: Placement, live: Callable[[], Live] | None = None, wake: Callable[[], None] = nothing) -> Move:
        """Sets off to another placement. `poll` it between steps until it is over, then call `end_move`.

        live: what of caches and states is wanted, None: all. wake: called, by another thread, when it should be polled.

        Raises:
            InvalidRequest: the model cannot move, or does so already. PlacementError: see `check_move`.
        """
        if self._placed is None:
            raise InvalidRequest("the reference model has no placement; load the model without it")
        if self._move is not None:
            raise InvalidRequest("another placement is being applied; wait for its end, or cancel it")
        check_move(self.spec, self._placed.placement, target)
        everywhere = everything(self.cache_groups, self.state_slots[0])
        self._move = Move(self, target, live or (lambda: everywhere), wake)
        return self._move

    @property
    def moving(self) -> bool:
        """Whether it is on its way to another placement."""
        return self._move is not None

    def end_move(self) -> None:
        """After a move is over. Raises what ended it: the model lies as it did."""
        assert self._move is not None
        move, self._move = self._move, None
        move.end()

    def move(self, target: Placement) -> Move:
        """The same at once, without steps meanwhile."""
        found = self.begin_move(target)
        try:
            found.wait()
        finally:
            self._move = None
        return found

    def take(self, placed: Placed) -> None:
        """The next step runs in this placement. For `Move`, between steps."""
        self._placed = placed

    @property
    def owning(self) -> Owning | None:
        """What takes weights into memory of our own."""
        return self._owning

    def renew_owning(self, owning: Owning | None) -> None:
        """What does so from now on. For `Move`, beside steps: nothing else touches it meanwhile."""
        self._owning = owning

    @property
    def _stepper(self) -> PlanRunner | ReferenceModel:
        if self._placed is not None:
            return self._placed.executor
        assert self._reference is not None
        return self._reference

    @property
    def residency(self) -> Residency:
        """What lies where by now."""
        if self._placed is None:
            return Residency((), 0)
        found = Residency(self._placed.holdings, self._read_bytes)
        if self._owning is not None:
            found = found.owned(self._owning.owned_bytes).beside(self._placed.placement.home, self._owning.unread_bytes)
        return replace(found, holdings=found.holdings + self._placed.executor.holdings())

    @property
    def places(self) -> tuple[Meant, ...]:
        """Weights, caches and states that are meant to lie in the memory of a node, or of several."""
        placed = self._placed
        return () if placed is None else meant_places(self.source, placed)

    @property
    def node_policy(self) -> NodePolicy:
        """How weights come to the nodes of memory that they lie on."""
        return "" if self._placed is None else policy_of(self.source, self._placed)

    @property
    def settling(self) -> bool:
        """Whether weights are still to be taken into memory of our own, or to leave it. Steps run at any time meanwhile, a little
        slower."""
        return self._owning is not None and self._move is None and not self._owning.done

    @property
    def owns(self) -> bool:
        """Whether weights lie in memory of our own, which the system cannot take."""
        return self._owning is not None and self._owning.owned_bytes + self._owning.unread_bytes > 0

    @property
    def chunk(self) -> int:
        """Most tokens of a prompt in one step."""
        return self.source.chunk

    @property
    def warm_in_s(self) -> float | None:
        """How long nobody must ask for anything until a kind of step is made ready that was not needed yet; None: all are."""
        if self._move is not None or self.executor is None or not self.executor.is_cold:
            return None
        return max(0.0, self._used_at + IDLE_S - time.monotonic())

    def settle(self) -> None:
        """For when there are no steps to make: takes more weights, or gives some back where the system is short of memory.

        After a while it makes kinds of steps ready, a few seconds each, that would be compiled in the midst of answers else.
        """
        settled = not self.settling
        if self._owning is not None and self._move is None:
            self._owning.advance()
            self._owning.relieve()
        if settled and self.warm_in_s == 0.0 and self.executor is not None:
            self.executor.warm_next()

    @property
    def executor(self) -> PlanRunner | None:
        """What runs the plans: plans and timings. None for the reference model."""
        return None if self._placed is None else self._placed.executor

    @property
    def last_step_s(self) -> float:
        """Seconds that the last step spent in its program; 0 for the reference model."""
        return 0.0 if self.executor is None else self.executor.last_step_s

    @property
    def shares(self) -> tuple[tuple[Device, str, int], ...]:
        """(device, what its maker calls it, bytes held there) of every device in use."""
        held: Counter[Device] = Counter()
        for holding in self.residency.holdings:
            held[holding.device] += holding.nbytes
        names = {} if self._placed is None else self._placed.names
        return tuple((device, names.get(device, ""), held[device]) for device in sorted(held))

    def check_identity(self) -> None:
        """Raises ModelChanged when the file is no longer the one that was loaded. Takes microseconds."""
        self.source.weights.check_identity()

    def close(self) -> None:
        """Gives memory and threads back. Idempotent."""
        if self._move is not None:
            self._move.abandon()
            with suppress(EngineError):
                self._move.wait()
            self._move = None
        self._stepper.close()
        if self._owning is not None:
            self._owning.close()
        if self._placed is not None:
            self._placed.close()
        self.source.weights.close()
