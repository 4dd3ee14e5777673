"""What the engine's thread does while nothing is asked: it takes weights into memory of its own, then sleeps."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from engine.api.commands import Command, WatchSensors
from engine.api.events import Event
from engine.api.values import RequestId
from engine.service import state as state_module
from engine.service.loop import Loop
from engine.service.mailbox import Mailbox
from engine.service.state import ExpertWatch


@dataclass
class FakeLoaded:
    """A model with `left` pieces to take; closes the mailbox when it is settled, or at a step when one is to be made."""

    mailbox: Mailbox
    left: int
    done: list[str] = field(default_factory=list)
    owns: bool = False
    answers: int = 0
    experts: None = None
    pools: None = None
    warm_in_s: None = None

    @property
    def settling(self) -> bool:
        return self.left > 0

    def settle(self) -> None:
        self.done.append("settle")
        self.left, self.owns = max(0, self.left - 1), True
        if not self.left:
            self.mailbox.close()

    @property
    def idle(self) -> bool:
        return self.answers == 0

    def active(self) -> tuple[RequestId, ...]:
        return tuple(RequestId(str(i)) for i in range(self.answers))

    def step(self) -> None:
        self.done.append("step")
        self.answers -= 1

    def close(self) -> None:
        self.done.append("close")


def loop_of(fake: FakeLoaded, events: list[Event]) -> Loop:
    made = Loop(fake.mailbox, events.append)
    made._state.loaded = cast(
        Any, SimpleNamespace(model=fake, session=fake, holding=SimpleNamespace(look=lambda: None), close=fake.close)
    )
    return made


def test_weights_are_taken_when_there_are_no_answers_to_make() -> None:
    fake = FakeLoaded(Mailbox(), left=2, answers=3)
    loop_of(fake, []).run()
    assert fake.done == ["step", "step", "step", "settle", "settle", "close"]


def test_commands_come_before_the_next_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeLoaded(Mailbox(), left=3)
    taken: list[Command] = []
    monkeypatch.setattr("engine.service.loop.handle", lambda state, command: taken.append(command))
    settle = fake.settle

    def asked_meanwhile() -> None:
        settle()
        fake.mailbox.put(WatchSensors(RequestId(str(len(taken))), 0.0))
        assert len(taken) == len(fake.done) - 1

    monkeypatch.setattr(fake, "settle", asked_meanwhile)
    loop_of(fake, []).run()
    assert len(taken) == 2


def test_the_thread_sleeps_but_for_a_look_when_it_owns_memory() -> None:
    fake = FakeLoaded(Mailbox(), left=0)
    state = loop_of(fake, [])._state
    assert state.patience_s() is None
    fake.owns = True
    assert state.patience_s() == state_module.OWNER_LOOKS_S
    fake.experts = cast(Any, SimpleNamespace(n_tokens=3))
    state.expert_watch = ExpertWatch(RequestId("0"), 1.0, time.monotonic() + 1)
    assert 0.5 < cast(float, state.patience_s()) <= 1
    fake.left = 1
    assert state.patience_s() == 0
