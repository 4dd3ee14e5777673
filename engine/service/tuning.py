"""A sweep over numbers of workers and chunks of prompts, in pieces of a few hundred milliseconds between commands. Polled by the
engine thread while there are no answers; when one comes it has the workers from before, and the sweep goes on behind it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Literal

from engine.api.events import Event, Failed, Finished, TunedRate, TuneProgress, WorkersTuned
from engine.api.values import RequestId
from engine.errors import Cancelled, EngineError, InvalidRequest
from engine.estimate.tuned import Tuned
from engine.hardware.topology import Topology
from engine.placement.placement import WorkerPlan, plan_workers
from engine.runtime.repin import repin
from engine.runtime.tune_plan import best, chunk_sizes, in_turns, rate, spread, thread_counts
from engine.service.loaded import Loaded
from engine.session.rehearsal import Rehearsal

ROUNDS = 3
PIECE_S = 0.2
"""Of decoding, behind SETTLING tokens that are not timed: weights lie in caches as the workers before left them."""
SETTLING = 2
DEPTH = 32
"""Tokens before the decoded ones, fewer where a chunk is shorter."""
DECODE_S = 3.0
"""A further round begins only where it would be over by then: of a model that takes a second for a token there is one."""
PROMPTS_S = 2.5
"""For all chunks of prompts together; one that would not fit is left out, and then nothing is said about chunks."""


class Tuning:
    """Ends its request once, in Finished or Failed."""

    def __init__(
        self,
        request_id: RequestId,
        loaded: Loaded,
        machine: Topology,
        emit: Callable[[Event], None],
        keep: Callable[[Tuned], str],
    ) -> None:
        """keep: keeps what was found and says why it cannot, "".

        Raises:
            InvalidRequest: the model has no workers.
        """
        if loaded.model.placement is None:
            raise InvalidRequest("the reference model has no workers; load the model without it")
        self.request_id = request_id
        self._loaded, self._emit, self._keep = loaded, emit, keep
        self._before: WorkerPlan = loaded.model.placement.workers
        self._chosen = loaded.model.workers_chosen
        self._counts = thread_counts(machine)
        self._sizes = chunk_sizes(min(loaded.model.chunk, loaded.model.n_ctx))
        self._decode: dict[int, list[float]] = {n: [] for n in self._counts}
        self._prefill: dict[int, list[float]] = {}
        self._depth = min(DEPTH, self._sizes[-1] - 1)
        self._total = ROUNDS * len(self._counts) + 2 * len(self._sizes)
        self._done = 0
        self._room: Rehearsal | None = None
        self._pieces = self._sweep()
        self._spent_s = 0.0
        self._waiting = False

    def piece(self) -> bool:
        """The next measurement; whether the request has ended."""
        started = time.perf_counter()
        self._waiting = False
        try:
            next(self._pieces)
        except StopIteration:
            self._spent_s += time.perf_counter() - started
            self._end()
            return True
        except Cancelled:
            self.cancel()
            return True
        except EngineError as error:
            self._back()
            self._emit(Failed(self.request_id, type(error).__name__, str(error)))
            return True
        self._spent_s += time.perf_counter() - started
        return False

    def rest(self) -> None:
        """Somebody needs the model: it is as it was before, until the next piece."""
        self._back()
        if not self._waiting:
            self._waiting = True
            self._emit(TuneProgress(self.request_id, "waiting", self._done, self._total))

    def cancel(self) -> None:
        """Ends it; nothing is kept."""
        self._back()
        self._emit(Finished(self.request_id, "cancelled"))

    def _sweep(self) -> Iterator[None]:
        began = self._spent_s
        for turn in range(ROUNDS):
            if turn and (self._spent_s - began) * (turn + 1) / turn > DECODE_S:
                self._done += len(self._counts)
                continue
            for n in in_turns(self._counts, turn + 1)[-len(self._counts) :]:
                self._use(n)
                tok_s = self._decoded()
                self._decode[n].append(tok_s)
                self._told("decode", n, tok_s)
                yield
        fastest, left, sizes = best(self._decode), PROMPTS_S, list(self._sizes)
        for size in in_turns(self._sizes, 2):
            known = self._prefill.get(size) or self._prefill.get(max(self._prefill, default=0))
            if size not in sizes or (known is not None and size / rate(known) > left):
                self._done += 1
                sizes = [one for one in sizes if one < size]
                continue
            self._use(fastest)
            taken = self._loaded.model.rehearse(self._there.prompt(size))
            left -= taken
            self._prefill.setdefault(size, []).append(size / taken)
            self._told("prefill", size, size / taken)
            yield

    @property
    def _there(self) -> Rehearsal:
        """Room for steps, with a prompt in it when it is new."""
        if self._room is None:
            self._room = self._loaded.session.rehearsal()
            self._loaded.model.rehearse(self._room.prompt(self._depth + 1))
        return self._room

    def _use(self, n: int) -> None:
        """So many workers are at work from now on."""
        model, wanted = self._loaded.model, plan_workers(n)
        if model.placement is not None and model.placement.workers != wanted:
            repin(model, wanted, chosen=True)

    def _decoded(self) -> float:
        """Tokens a second of a piece."""
        model, room, n, seconds = self._loaded.model, self._there, 0, 0.0
        for _ in range(SETTLING):
            first = model.rehearse(room.token(self._depth))
            if first > PIECE_S:
                break  # what lay in caches is nothing beside such a token
        while seconds < PIECE_S:
            seconds += model.rehearse(room.token(self._depth))
            n += 1
        return n / seconds

    def _told(self, what: Literal["decode", "prefill"], setting: int, tok_s: float) -> None:
        self._done += 1
        self._emit(TuneProgress(self.request_id, what, self._done, self._total, setting, tok_s))

    def _back(self) -> None:
        if self._room is not None:
            room, self._room = self._room, None
            room.close()
        placement = self._loaded.model.placement
        if placement is not None and placement.workers != self._before and not self._loaded.model.moving:
            with suppress(EngineError):  # a core of before has gone: those of the sweep work on
                repin(self._loaded.model, self._before, chosen=self._chosen)

    def _end(self) -> None:
        self._back()
        threads, chunk = best(self._decode), 0
        if self._sizes[-1] in self._prefill:  # what the model was made ready for, unless a shorter one is better
            chunk = -best({-size: found for size, found in self._prefill.items()})
        prefill = rate(self._prefill[chunk]) if chunk else None
        why_not = self._keep(Tuned(threads, chunk or None, rate(self._decode[threads]), prefill))
        decode, prompts = _rates(self._decode), _rates(self._prefill)
        found = WorkersTuned(self.request_id, decode, prompts, threads, chunk, self._spent_s, not why_not, why_not)
        self._emit(found)
        self._emit(Finished(self.request_id, "done"))


def _rates(found: dict[int, list[float]]) -> tuple[TunedRate, ...]:
    return tuple(TunedRate(one, rate(found[one]), spread(found[one]), len(found[one])) for one in sorted(found))
