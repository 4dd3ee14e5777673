"""All weights of a placement on their way to where they belong: beside a running placement on a thread of its own, while whatever
else the new one needs is compiled and bound."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from engine.errors import Cancelled
from engine.runtime.build import bring_to_cpu, bytes_of_tensors
from engine.runtime.gpu_side import GpuSide
from engine.runtime.placed import Placed
from engine.runtime.source import Building, ModelSource
from engine.runtime.spreading import Spreading


class Bringing:
    """A context: what fails within stops it, and nobody copies any more when that is told. nbytes: of all that is to come."""

    def __init__(
        self,
        source: ModelSource,
        on_cpu: frozenset[str],
        sides: Sequence[GpuSide],
        building: Building,
        beside: Placed | None,
        spreading: Spreading | None,
    ) -> None:
        self._source, self._on_cpu, self._sides = source, on_cpu, sides
        self._beside, self._spreading = beside, spreading
        self._pools = [side.slots for side in sides if side.slots is not None]
        new = on_cpu if beside is None else on_cpu - beside.on_cpu
        self.nbytes = bytes_of_tensors(source, new) + sum(side.weights.nbytes for side in sides)
        self.nbytes += sum(slots.nbytes for slots in self._pools)
        self._building = building
        self._begun = self._stopped = False
        self._problem: BaseException | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Bringing:
        """Sets off, where there is somebody to answer meanwhile."""
        if self._beside is not None:
            self._begun = True
            self._thread = threading.Thread(target=self._run, name="weights on their way", daemon=True)
            self._thread.start()
        return self

    def wait(self) -> None:
        """Until everything is there. Idempotent.

        Raises:
            Cancelled, ModelChanged, OutOfMemory, DeviceLost.
        """
        if not self._begun:
            self._begun = True
            self._bring()
        if self._thread is not None:
            with self._building.laps.lap("waiting for weights"):
                self._thread.join()
            self._thread = None
        if self._problem is not None:
            raise self._problem

    def __exit__(self, kind: object, *_: object) -> None:
        self._stopped = kind is not None
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        try:
            self._bring()
        except BaseException as error:
            self._problem = error

    def _bring(self) -> None:
        building, took, done = self._building, self._building.laps.seconds, 0

        def told(n: int, _: int = 0) -> None:
            if self._stopped:
                raise Cancelled("the move was stopped")
            building.progress("weights", done + n, self.nbytes)

        told(0)
        near: frozenset[str] = frozenset() if self._beside is None else self._beside.on_cpu
        started = time.perf_counter()
        for side in self._sides:
            side.weights.upload(told, building.abort, building.pause, near)
            done += side.weights.nbytes
        for slots in self._pools:
            slots.fill(told, building.abort)
            done += slots.nbytes
        took["upload"] = time.perf_counter() - started
        started = time.perf_counter()
        bring_to_cpu(self._source, self._on_cpu, self._beside, building, told, self._spreading)
        took["touch"] = time.perf_counter() - started
