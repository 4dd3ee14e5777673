"""A placement that is being applied to the loaded model: its events, and its end. Polled by the engine thread between steps."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, cast

from engine.api.events import Event, Failed, Finished, MigrationProgress, PlacementApplied
from engine.api.values import RequestId
from engine.errors import Cancelled, EngineError
from engine.placement.placement import Placement
from engine.runtime.move import Progress
from engine.service.loaded import Loaded, lying

TELL_S = 0.05
"""How often progress within a phase is told at most."""
LOOK_S = 0.05
"""How often an idle engine looks whether there is progress to tell."""


class Migration:
    """Ends its request once, in Finished or Failed."""

    def __init__(
        self,
        request_id: RequestId,
        loaded: Loaded,
        target: Placement,
        emit: Callable[[Event], None],
        wake: Callable[[], None],
    ) -> None:
        """wake: brings the engine thread to `poll`.

        Raises:
            InvalidRequest, PlacementError: see `LoadedModel.begin_move`.
        """
        self.request_id = request_id
        self._loaded = loaded
        self._emit = emit
        self._told: Progress | None = None
        self._told_at = 0.0
        self._move = loaded.model.begin_move(target, lambda: loaded.session.live(), wake)

    def poll(self) -> bool:
        """Between two steps: carries on; whether the request has ended."""
        over = self._move.poll()
        self._tell()
        if over:
            self._end()
        return over

    def cancel(self) -> None:
        """Undoes what was done, beside the steps; the request ends when that is over."""
        self._move.cancel()

    def abandon(self) -> None:
        """Ends at once, for a model that is about to be dropped."""
        self._move.abandon()
        while not self._move.poll():
            time.sleep(0.001)
        self._end()

    def _tell(self) -> None:
        now, found = time.monotonic(), self._move.progress
        last = self._told
        if found == last or (last is not None and last.phase == found.phase and now - self._told_at < TELL_S):
            return
        self._told, self._told_at = found, now
        self._emit(MigrationProgress(self.request_id, cast(Any, found.phase), found.done, found.total))

    def _end(self) -> None:
        loaded, move = self._loaded, self._move
        try:
            loaded.model.end_move()
        except Cancelled:
            self._emit(Finished(self.request_id, "cancelled"))
            return
        except EngineError as error:
            loaded.info = lying(loaded.info, loaded.model)
            self._emit(Failed(self.request_id, type(error).__name__, str(error)))
            return
        loaded.info = lying(loaded.info, loaded.model)
        self._emit(PlacementApplied(self.request_id, loaded.info, move.moved_bytes, move.pause_s))
        self._emit(Finished(self.request_id, "done"))
