"""Answers of models with states: right whatever is gone back to, as little computed again as snapshots allow, no slot lost."""

from __future__ import annotations

from array import array
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.api.events import Event, Failed, Finished
from engine.api.values import RequestId, SamplingParams
from engine.errors import EngineError
from engine.session import scheduler
from engine.session.generate import Session
from engine.session.states import NONE, TAIL, StateHold, StateSlots
from tests.helpers.fake_model import N_VOCAB, FakeTokenizer, answer
from tests.helpers.fake_states import FakeStates


class Bench:
    """A session over the fake model with states."""

    def __init__(self, chunk: int = 16, **model: Any) -> None:
        self.model = FakeStates(**model)
        self.events: list[Event] = []
        self.session = Session(self.model, FakeTokenizer(), chunk, self.events.append)  # type: ignore[arg-type]
        self.n = 0

    def start(self, ids: list[int], n: int = 12) -> RequestId:
        self.n += 1
        name = RequestId(str(self.n))
        self.session.add(name, ids, SamplingParams(temperature=0.0, max_tokens=n), 0.0, ends_at_eog=False)
        return name

    def run(self) -> None:
        for _ in range(3000):
            if self.session.idle:
                return
            self.session.step()
        raise AssertionError("the session does not come to an end")

    def ask(self, ids: list[int], n: int = 12) -> Finished:
        name = self.start(ids, n)
        self.run()
        return self.end(name)

    def end(self, name: RequestId) -> Finished:
        (end,) = [e for e in self.events if isinstance(e, Finished) and e.request_id == name]
        return end

    def check_slots(self) -> None:
        """With nothing running, slots are held by snapshots only."""
        states = self.session._states
        assert len(set(states.held())) == len(states._snapshots) <= self.model.state_slots[1]


def prompt(n: int, start: int = 3) -> list[int]:
    return [(start + 5 * i) % (N_VOCAB - 1) for i in range(n)]


def truth(ids: list[int], n: int = 12) -> tuple[int, ...]:
    tokens = list(ids)
    while len(tokens) < len(ids) + n:
        tokens += answer(tokens, 1)
    return tuple(tokens[len(ids) :])


def test_regenerate_goes_back_to_just_before_the_end_of_the_prompt() -> None:
    bench = Bench()
    first = bench.ask(prompt(70))
    again = bench.ask(prompt(70))
    assert first.usage.token_ids == again.usage.token_ids == truth(prompt(70))
    assert (first.usage.n_reused, again.usage.n_reused) == (0, 70 - TAIL)


def test_the_next_turn_computes_only_what_is_new() -> None:
    bench = Bench()
    spoken = [*prompt(40), *bench.ask(prompt(40)).usage.token_ids]
    following = [*spoken, 5, 6, 7]
    end = bench.ask(following)
    assert end.usage.token_ids == truth(following)
    assert end.usage.n_reused == len(spoken) - 1  # the last token of an answer was never computed


def test_a_turn_whose_last_tokens_are_written_otherwise_goes_back_to_the_prompt() -> None:
    """As with templates that open a thought at the end of a prompt and leave thoughts out of earlier answers."""
    bench = Bench()
    bench.ask([*prompt(50), 90, 91])
    end = bench.ask([*prompt(50), 80, 81, 82, 83])
    assert end.usage.n_reused == 52 - TAIL


def test_an_edit_goes_back_to_the_turn_before() -> None:
    bench = Bench()
    first = prompt(60)
    spoken = [*first, *bench.ask(first).usage.token_ids]
    second = [*spoken, *prompt(30, 7)]
    bench.ask(second)
    edited = [*spoken, *prompt(20, 9)]
    end = bench.ask(edited)
    assert end.usage.token_ids == truth(edited)
    assert end.usage.n_reused == len(spoken) - 1


def test_a_cancelled_prompt_goes_on_where_it_stopped() -> None:
    bench = Bench(chunk=16)
    name = bench.start(prompt(100))
    for _ in range(3):
        bench.session.step()
    bench.session.cancel(name)
    end = bench.ask(prompt(100))
    assert (end.usage.n_reused, end.usage.token_ids) == (48, truth(prompt(100)))


def test_a_failed_sequence_leaves_no_snapshot() -> None:
    bench = Bench()
    bench.start(prompt(30))
    bench.session.step()
    bench.model.fail_with = EngineError("broken")
    bench.session.step()
    assert isinstance(bench.events[-1], Failed)
    assert not list(bench.session._states.held())
    assert bench.ask(prompt(30)).usage.n_reused == 0


@pytest.mark.parametrize("chunk", [5, 32, 64])
def test_going_back_to_any_earlier_token_gives_the_same_answer(chunk: int) -> None:
    bench = Bench(chunk=chunk, state_slots=(8, 3))
    tokens = [*prompt(50), *bench.ask(prompt(50), 30).usage.token_ids]
    for n in (*range(len(tokens) - 1, 0, -7), *range(2, len(tokens), 11)):
        assert bench.ask(tokens[:n], 5).usage.token_ids == truth(tokens[:n], 5)
    bench.check_slots()


def test_steps_that_are_stopped_are_repeated() -> None:
    bench = Bench()
    one, two = bench.start(prompt(45)), bench.start(prompt(33, 8))
    while not bench.session.idle:
        bench.model.stop = 1
        bench.session.step()
        bench.session.step()
    assert bench.end(one).usage.token_ids == truth(prompt(45))
    assert bench.end(two).usage.token_ids == truth(prompt(33, 8))
    bench.check_slots()


def test_no_more_run_than_have_slots() -> None:
    bench = Bench(n_blocks=64, state_slots=(8, 3))  # two sequences and a mark
    names = [bench.start(prompt(20, i)) for i in range(5)]
    bench.session.step()
    assert len([one for one in bench.session._scheduler.sequences() if one.phase != "waiting"]) == 2
    bench.run()
    for i, name in enumerate(names):
        assert bench.end(name).usage.token_ids == truth(prompt(20, i))
    bench.check_slots()


@settings(max_examples=60, deadline=None)
@given(
    script=st.lists(
        st.tuples(st.integers(0, 3), st.integers(1, 90), st.integers(1, 28), st.sampled_from(["wait", "step", "cancel", "stop"])),
        max_size=12,
    ),
    chunk=st.sampled_from([3, 16, 50]),
    slots=st.sampled_from([(4, 1), (7, 2), (20, 3)]),
    n_blocks=st.sampled_from([4, 6, 24]),
)
def test_any_script_gives_the_right_tokens(
    script: list[tuple[int, int, int, str]], chunk: int, slots: tuple[int, int], n_blocks: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scheduler, "AHEAD", 1)  # many are paused
        _run_script(script, Bench(chunk=chunk, n_blocks=n_blocks, n_ctx=128, state_slots=slots))


def _run_script(script: list[tuple[int, int, int, str]], bench: Bench) -> None:
    asked: dict[RequestId, tuple[list[int], int]] = {}
    spoken: list[int] = []
    for start, length, n, then in script:
        ids = [*spoken[: length // 2], *prompt(length - length // 2, start)][:100]
        name = bench.start(ids, n)
        asked[name] = (ids, n)
        if then == "wait":
            bench.run()
            spoken = [*ids, *bench.end(name).usage.token_ids]
        elif then == "cancel":
            bench.session.step()
            bench.session.cancel(name)
        else:
            bench.model.stop += then == "stop"
            bench.session.step()
    bench.run()
    for name, (ids, n) in asked.items():
        end = bench.end(name)
        assert end.usage.token_ids == truth(ids, n)[: len(end.usage.token_ids)]
        assert end.reason == "cancelled" or len(end.usage.token_ids) == n
    bench.check_slots()


class TestSlots:
    def test_a_snapshot_is_kept_until_it_is_the_oldest_of_too_many(self) -> None:
        slots = StateSlots(5, 2)
        for n in (3, 4, 5):
            hold = StateHold()
            slots.prepare(hold)
            slots.advance(hold, array("i", range(n)))
            slots.end(hold, array("i", range(n)))
        assert slots.stops(array("i", range(9))) == (4, 5)
        assert Counter(slots.held()).total() == 2

    def test_one_that_was_gone_back_to_is_not_the_oldest(self) -> None:
        slots = StateSlots(7, 2)
        for n in (3, 4):
            hold = StateHold()
            slots.prepare(hold)
            slots.advance(hold, array("i", range(n)))
            slots.end(hold, array("i", range(n)))
        hold = slots.resume(array("i", range(9)), 3)
        slots.prepare(hold)
        slots.advance(hold, array("i", range(5)))
        slots.end(hold, array("i", range(5)))
        assert slots.stops(array("i", range(9))) == (3, 5)

    def test_the_whole_prompt_is_no_stop(self) -> None:
        slots = StateSlots(5, 2)
        hold = StateHold()
        slots.prepare(hold)
        slots.advance(hold, array("i", [1, 2]))
        slots.end(hold, array("i", [1, 2]))
        assert slots.stops(array("i", [1, 2])) == ()
        assert slots.stops(array("i", [1, 2, 3])) == (2,)
        assert slots.stops(array("i", [1, 3, 3])) == ()

    def test_models_without_states_do_nothing(self) -> None:
        slots = StateSlots(0, 0)
        hold = StateHold()
        slots.advance(hold, array("i", [1]))
        slots.end(hold, array("i", [1]))
        assert not slots.in_use
        assert hold.now == NONE
