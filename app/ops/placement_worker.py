"""PlacementWorker: reading headers and searching, beside the window: the end is brought to its thread."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypeVar

from app.bridge.ui_thread import UiThread
from app.errors import UserFacingError
from app.ops.placement_cards import Family, families
from app.ops.placement_planning import MakePlanner, PlacementPlanner
from engine.api.errors import EngineError
from engine.api.pure import Device, Gpu, Machine, ModelOutline, Placement, Prediction, UnitFacts, UnitId
from engine.api.values import LoadOptions

T = TypeVar("T")
Failure = Callable[[UserFacingError], None]


@dataclass(frozen=True, slots=True)
class Opened:
    """A model, its machine, and what loading it without a placement gives.

    facts, families: of its units. planner: for the window's thread; solver: for the worker, which searches beside the editor.
    """

    outline: ModelOutline
    machine: Machine
    planner: PlacementPlanner
    solver: PlacementPlanner
    placement: Placement
    prediction: Prediction
    facts: Mapping[UnitId, UnitFacts]
    families: Mapping[UnitId, Family]


class PlacementWorker:
    """One model at a time: what belongs to the one before ends in nothing."""

    def __init__(
        self,
        ui: UiThread,
        pool: ThreadPoolExecutor,
        make_planner: MakePlanner,
        read: Callable[[str], ModelOutline],
        machine: Callable[[], Machine],
    ) -> None:
        self._ui, self._pool = ui, pool
        self._make_planner, self._read, self._machine = make_planner, read, machine
        self._number = 0

    def open(
        self, path: str, options: LoadOptions, start: Placement | None, success: Callable[[Opened], None], failure: Failure
    ) -> None:
        """Reads a model; what was asked for before is forgotten. start: the placement to begin with, None: the default."""
        self._number += 1

        def read() -> Opened:
            outline, machine = self._read(path), self._machine()
            planner, solver = (self._make_planner(outline, options, machine) for _ in range(2))
            first = planner.default() if start is None else start
            facts = {fact.unit: fact for fact in outline.units}
            return Opened(outline, machine, planner, solver, first, planner.estimate(first), facts, families(facts))

        self._run(read, success, failure)

    def solver(self, opened: Opened, options: LoadOptions, lost: Collection[Device]) -> PlacementPlanner:
        """Who searches: on the machine without the GPUs that are gone, though it may still list them. For the worker."""
        if not lost:
            return opened.solver
        left = tuple(one for one in opened.machine.gpus if Gpu(one.index) not in lost)
        return self._make_planner(opened.outline, options, replace(opened.machine, gpus=left))

    def search(self, work: Callable[[], T], success: Callable[[T], None], failure: Failure) -> None:
        """Runs what takes a while, for the model that is open now."""
        self._run(work, success, failure)

    def close(self) -> None:
        """Forgets whatever is under way."""
        self._number += 1

    def _run(self, work: Callable[[], T], success: Callable[[T], None], failure: Failure) -> None:
        number = self._number

        def known() -> T:
            try:
                return work()
            except EngineError as error:
                raise UserFacingError(str(error)) from error

        def ended(found: T) -> None:
            if number == self._number:
                success(found)

        def failed(error: UserFacingError) -> None:
            if number == self._number:
                failure(error)

        if self._ui.is_open:
            self._ui.deliver(self._pool.submit(known), ended, failed)
