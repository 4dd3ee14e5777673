"""Sequences over layers with a window: bounded pools, right tokens, and reuse as far as every group of layers remembers."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, precondition, rule

from engine.api.events import Event, Finished
from engine.api.values import RequestId, SamplingParams
from engine.errors import Cancelled
from engine.runtime.cache_groups import CacheGroup
from engine.session import scheduler
from engine.session.block_manager import GONE, BlockManager, BlockTable
from engine.session.generate import Session
from tests.helpers.fake_model import N_VOCAB, FakeTokenizer, answer
from tests.helpers.fake_windows import FakeWindows

BLOCK = 4
CHUNK = 8
WINDOWS = (None, 9, 3)


def groups(n_kept: int = 3) -> tuple[CacheGroup, ...]:
    """Groups with blocks of 4 tokens, chunks of 8, and room for n_kept blocks beside those of a window and a chunk."""
    found = [CacheGroup(None, 14, 14, 14)]
    for window in WINDOWS[1:]:
        assert window is not None
        decoding, needed = -(-window // BLOCK) + 1, -(-window // BLOCK) + CHUNK // BLOCK
        found.append(CacheGroup(window, needed + n_kept, needed, decoding))
    return tuple(found)


def run(manager: BlockManager, tokens: list[int], upto: int | None = None, table: BlockTable | None = None) -> BlockTable:
    """Computes the tokens up to `upto` in chunks."""
    table, upto = table or manager.open(tokens), len(tokens) if upto is None else upto
    while table.n_tokens < upto:
        n = manager.cut(table, CHUNK, upto - table.n_tokens)
        manager.reserve(table, table.n_tokens + n)
        manager.commit(table, tokens[table.n_tokens : table.n_tokens + n])
    return table


def test_a_window_holds_what_it_needs_and_no_more() -> None:
    manager = BlockManager(groups(), BLOCK)
    table = run(manager, list(range(40)))
    assert GONE not in table.groups[0] and len(table.groups[0]) == 10
    # The next token sees positions 32 on; the last one can be computed again, which sees 31 on.
    assert [block == GONE for block in table.groups[1]] == [True] * 7 + [False] * 3
    assert [block == GONE for block in table.groups[2]] == [True] * 9 + [False]
    assert manager.n_free == (4, groups()[1].n_blocks - 3, groups()[2].n_blocks - 1)


def test_the_next_turn_and_the_last_token_again_are_reused_whole() -> None:
    manager, tokens = BlockManager(groups(), BLOCK), list(range(38))
    manager.release(run(manager, tokens))
    again = manager.open(tokens)
    assert again.n_tokens == 37
    manager.release(run(manager, tokens, table=again))
    assert manager.open([*tokens, 90, 91]).n_tokens == 38


def test_the_end_of_a_prompt_outlives_a_long_answer() -> None:
    manager = BlockManager(groups(n_kept=5), BLOCK)
    prompt, answered = list(range(18)), list(range(100, 132))
    table = run(manager, prompt)
    manager.keep(table)
    for token in answered:  # decode: more tokens than the pools hold
        run(manager, [*prompt, *answered], table.n_tokens + 1, table)
        assert token in answered
    manager.release(table)
    assert manager.open(prompt).n_tokens == 17


def test_what_no_window_holds_is_computed_again() -> None:
    manager = BlockManager(groups(n_kept=0), BLOCK)
    manager.release(run(manager, list(range(40))))
    # Whole contexts remember 20 tokens; the windows have passed them.
    assert manager.open([*range(20), 99, 98]).n_tokens == 0


def test_chunks_end_at_block_boundaries() -> None:
    manager = BlockManager(groups(), BLOCK)
    table = run(manager, list(range(40)), 6)
    assert manager.cut(table, CHUNK, 30) == 6
    assert manager.cut(table, CHUNK, 6) == 6
    assert manager.cut(table, CHUNK, 7) == 6  # 7 would lie over three blocks
    assert manager.cut(table, 1, 30) == 1
    assert BlockManager(groups()[:1], BLOCK).cut(BlockTable(n_tokens=6), CHUNK, 30) == 8


class Windows(RuleBasedStateMachine):
    """Random openings, growth in chunks and releases, beside a record of what each block truly holds."""

    tables: Bundle[tuple[BlockTable, list[int]]] = Bundle("tables")
    limit = 24

    @staticmethod
    def shapes() -> tuple[CacheGroup, ...]:
        return groups()

    def __init__(self) -> None:
        super().__init__()
        self.manager = BlockManager(self.shapes(), BLOCK)
        self.running: list[tuple[BlockTable, list[int]]] = []
        self.prefilling: BlockTable | None = None
        self.written: dict[tuple[int, int, int], tuple[int, ...]] = {}

    @rule(target=tables, tokens=st.lists(st.integers(0, 1), min_size=1, max_size=22))
    def start(self, tokens: list[int]) -> tuple[BlockTable, list[int]]:
        tokens = list(tokens)
        if self.prefilling is not None or not self.manager.fits(self.limit, ((table, self.limit) for table, _ in self.running)):
            return BlockTable(), []
        table = self.manager.open(tokens)
        self.running.append((table, tokens))
        while table.n_tokens < len(tokens):
            self.write(table, tokens, self.manager.cut(table, CHUNK, len(tokens) - table.n_tokens))
        self.manager.keep(table)
        return table, tokens

    @rule(pair=tables, token=st.integers(0, 1))
    def grow(self, pair: tuple[BlockTable, list[int]], token: int) -> None:
        table, tokens = pair
        if any(table is one for one, _ in self.running) and len(tokens) < self.limit:
            tokens.append(token)
            self.write(table, tokens, 1)

    @precondition(lambda self: self.running)
    @rule(pair=consumes(tables))
    def end(self, pair: tuple[BlockTable, list[int]]) -> None:
        self.running = [one for one in self.running if one[0] is not pair[0]]
        self.manager.release(pair[0])

    def write(self, table: BlockTable, tokens: list[int], n: int) -> None:
        start = table.n_tokens
        self.manager.reserve(table, start + n)
        for position in range(start, start + n):
            for at, blocks in enumerate(table.groups):
                self.written[at, blocks[position // BLOCK], position % BLOCK] = tuple(tokens[: position + 1])
        for position in range(start, start + n):
            self.check(table, tokens, position)
        self.manager.commit(table, tokens[start : start + n])

    def check(self, table: BlockTable, tokens: list[int], position: int) -> None:
        """What a row at `position` sees is there and is its own past."""
        for at, (window, blocks) in enumerate(zip(WINDOWS, table.groups, strict=True)):
            for seen in range(0 if window is None else max(0, position - window + 1), position + 1):
                assert self.written[at, blocks[seen // BLOCK], seen % BLOCK] == tuple(tokens[: seen + 1])

    @invariant()
    def no_block_is_lost(self) -> None:
        for at, (free, shape) in enumerate(zip(self.manager.n_free, self.shapes(), strict=True)):
            held = {block for table, _ in self.running for block in table.groups[at]} - {GONE}
            assert free + len(held) == shape.n_blocks

    @invariant()
    def windows_hold_no_more_than_decoding_needs(self) -> None:
        for table, _ in self.running:
            for shape, blocks in zip(self.shapes(), table.groups, strict=True):
                assert sum(block != GONE for block in blocks) <= shape.n_decoding

    @invariant()
    def only_full_blocks_are_shared(self) -> None:
        for at in range(len(WINDOWS)):
            users = Counter(block for table, _ in self.running for block in table.groups[at] if block != GONE)
            for table, _ in self.running:
                assert all(users[block] == 1 for block in table.groups[at][table.n_tokens // BLOCK :])


class TightWindows(Windows):
    """The same without room beside a window and a chunk."""

    @staticmethod
    def shapes() -> tuple[CacheGroup, ...]:
        return groups(n_kept=0)


TestWindows = Windows.TestCase
TestWindows.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestTightWindows = TightWindows.TestCase
TestTightWindows.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


class Bench:
    """A session over the fake model, and what it said."""

    def __init__(self, window: int, chunk: int, **model: Any) -> None:
        self.model = FakeWindows(window, chunk, **model)
        self.events: list[Event] = []
        self.session = Session(self.model, FakeTokenizer(), chunk, self.events.append)  # type: ignore[arg-type]

    def ask(self, name: str, ids: list[int], n: int = 12) -> None:
        self.session.add(RequestId(name), ids, SamplingParams(temperature=0.0, max_tokens=n), 0.0)

    def run(self) -> None:
        for _ in range(3000):
            if self.session.idle:
                return
            self.session.step()
        raise AssertionError("the session does not come to an end")

    def end(self, name: str) -> Finished:
        (end,) = (one for one in self.events if isinstance(one, Finished) and one.request_id == name)
        return end


def prompt(n: int, start: int = 3) -> list[int]:
    return [(start + 5 * i) % (N_VOCAB - 1) for i in range(n)]


@pytest.mark.parametrize("window", [5, 32, 50])
def test_going_back_to_any_earlier_token(window: int) -> None:
    bench, ids = Bench(window, 64), prompt(300)
    bench.ask("whole", ids)
    bench.run()
    for n in [*range(1, 300, 13), 299]:
        bench.ask(f"back to {n}", ids[:n])
        bench.run()
        assert bench.end(f"back to {n}").usage.token_ids == tuple(answer(ids[:n], 12))


def test_regenerate_and_the_next_turn_compute_what_is_new() -> None:
    bench, ids = Bench(50, 64), prompt(300)
    bench.ask("a", ids, 60)
    bench.run()
    first = bench.end("a").usage.token_ids
    bench.ask("again", ids, 60)
    bench.run()
    assert bench.end("again").usage.n_reused == 299
    assert bench.end("again").usage.token_ids == first
    following = [*ids, *first, 1, 2, 3]
    bench.ask("next", following)
    bench.run()
    assert bench.end("next").usage.n_reused == len(following) - 4
    edited = [*ids[:298], 7, 8, 9]
    bench.ask("edit", edited)
    bench.run()
    assert bench.end("edit").usage.token_ids == tuple(answer(edited, 12))


actions = st.one_of(
    st.tuples(st.just("add"), st.integers(1, 200), st.integers(0, 3), st.integers(0, 40)),
    st.tuples(st.just("cancel"), st.integers(0, 20)),
    st.tuples(st.just("step"), st.integers(1, 6)),
    st.tuples(st.just("stop"), st.booleans()),
)


@given(st.lists(actions, max_size=25), st.sampled_from([5, 64, 96]), st.sampled_from([1, 24, 33, 70]), st.integers(0, 2))
@settings(max_examples=80, deadline=None)
def test_any_script_gives_the_right_tokens(script: list[tuple[Any, ...]], chunk: int, window: int, n_kept: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scheduler, "AHEAD", 1)  # many are paused
        _run_script(script, Bench(window, chunk, n_kept=n_kept))


def _run_script(script: list[tuple[Any, ...]], bench: Bench) -> None:
    asked: dict[str, tuple[list[int], int]] = {}
    for action, *args in script:
        if action == "add":
            name = f"r{len(asked)}"
            asked[name] = prompt(args[0], args[1]), args[2]
            bench.ask(name, *asked[name])
        elif action == "cancel":
            bench.session.cancel(RequestId(f"r{args[0]}"))
        elif action == "stop" and not bench.session.idle:
            bench.model.fail_with = Cancelled("stopped")
        elif action == "step":
            for _ in range(args[0]):
                bench.session.step()
    bench.run()
    for name, (ids, n) in asked.items():
        end, expected = bench.end(name), answer(ids, n)
        got = list(end.usage.token_ids)
        assert got == (expected[: len(got)] if end.reason == "cancelled" else expected)
    assert bench.session._blocks.n_free == tuple(group.n_blocks for group in bench.model.cache_groups)
