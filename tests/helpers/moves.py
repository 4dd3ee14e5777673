"""Models that move between placements while sequences run on them."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from engine.api.events import Event, Finished
from engine.api.values import RequestId, SamplingParams
from engine.placement.placement import Placement
from engine.runtime.loader import LoadedModel
from engine.runtime.move import Move
from engine.runtime.step import StepBatch
from engine.session.generate import Session
from tests.helpers.fake_model import FakeTokenizer
from tests.helpers.placed import Where


def target(model: LoadedModel, where: Where) -> Placement:
    """The placement of a loaded model with its units elsewhere."""
    assert model.placement is not None
    return replace(model.placement, units=tuple((unit, where(unit, model.spec)) for unit, _ in model.placement.units))


def holdings(model: LoadedModel) -> list[str]:
    """The ledger, in an order of its own. Pages of our own follow later."""
    return sorted(str(one) for one in model.residency.holdings)


class Counted:
    """A model that counts the rows of prompts that it computes."""

    def __init__(self, model: LoadedModel) -> None:
        self._model = model
        self.n_prefilled = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def step(self, batch: StepBatch) -> Any:
        self.n_prefilled += len(batch.token_ids) if batch.phase == "prefill" else 0
        return self._model.step(batch)


class Talk:
    """A session on a model, one answer at a time, greedy."""

    def __init__(self, model: LoadedModel, chunk: int = 64) -> None:
        self.model = model
        self.counted = Counted(model)
        self.events: list[Event] = []
        self.session = Session(self.counted, FakeTokenizer(n_vocab=512), chunk, self.events.append)  # type: ignore[arg-type]

    def ask(self, name: str, ids: list[int], n: int) -> None:
        """Queues an answer of n tokens."""
        self.session.add(RequestId(name), ids, SamplingParams(temperature=0.0, max_tokens=n), 0.0, ends_at_eog=False)

    def steps(self, n: int) -> None:
        """So many steps, as far as there are any to make."""
        for _ in range(n):
            if not self.session.idle:
                self.session.step()

    def run(self) -> None:
        """All that is left."""
        while not self.session.idle:
            self.session.step()

    def end(self, name: str) -> Finished:
        """How an answer ended."""
        return next(one for one in self.events if isinstance(one, Finished) and one.request_id == name)

    def ids(self, name: str) -> list[int]:
        """The tokens of an answer that has ended."""
        return list(self.end(name).usage.token_ids)

    def move(self, where: Where, beside: int = 1) -> Move:
        """Moves the model in the midst of everything: `beside` steps are made meanwhile."""
        found = self.model.begin_move(target(self.model, where), self.session.live)
        return self.finish(found, beside)

    def finish(self, move: Move, beside: int = 1) -> Move:
        """Polls a move to its end, with steps between. Raises what ended it."""
        while not move.poll():
            if beside:
                self.steps(1)
                beside -= 1
            else:
                time.sleep(0.001)
        self.model.end_move()
        return move


def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    """Waits for something that another thread does."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


def noted_tensors(monkeypatch: pytest.MonkeyPatch) -> list[weakref.ref[object]]:
    """What is allocated on emulated devices from now on, as long as it lives."""
    from engine.runtime.gpu import GpuMemory

    found: list[weakref.ref[object]] = []
    usual = GpuMemory.allocate

    def allocate(self: GpuMemory, *args: Any, **options: Any) -> Any:
        tensor = usual(self, *args, **options)
        found.append(weakref.ref(tensor))
        return tensor

    monkeypatch.setattr(GpuMemory, "allocate", allocate)
    return found
