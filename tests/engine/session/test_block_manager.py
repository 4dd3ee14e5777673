"""KV blocks are neither lost nor written by two, and a prefix is reused exactly where its tokens agree."""

from __future__ import annotations

from array import array
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, precondition, rule

from engine.errors import EngineBug
from engine.runtime.cache_groups import CacheGroup
from engine.session.block_manager import BlockManager, BlockTable
from engine.session.block_pool import common_prefix

BLOCK = 4
N_BLOCKS = 12


def manager_of(n_blocks: int) -> BlockManager:
    """One group that keeps whole contexts."""
    return BlockManager((CacheGroup(None, n_blocks, n_blocks, n_blocks),), BLOCK)


@pytest.mark.parametrize("n", [8, 16])
def test_a_chunk_of_whole_blocks_lies_over_no_more_blocks_than_its_own(n: int) -> None:
    manager = BlockManager((CacheGroup(2, N_BLOCKS, N_BLOCKS, N_BLOCKS),), BLOCK)
    for start in range(3 * BLOCK):
        for rest in range(1, 2 * n):
            taken = manager.cut(BlockTable(n_tokens=start), n, rest)
            assert 0 < taken <= min(n, rest)
            assert -(-(start % BLOCK + taken) // BLOCK) <= n // BLOCK


def run(manager: BlockManager, tokens: list[int]) -> tuple[BlockTable, int]:
    """A sequence that opens, computes all its tokens, and stays."""
    table = manager.open(tokens)
    reused = table.n_tokens
    manager.reserve(table, len(tokens))
    manager.commit(table, tokens[reused:])
    return table, reused


def test_the_next_turn_prefills_only_what_is_new() -> None:
    manager = manager_of(N_BLOCKS)
    first, reused = run(manager, list(range(10)))
    assert reused == 0
    manager.release(first)
    _, reused = run(manager, [*range(10), 50, 51])
    assert reused == 10


def test_an_edit_keeps_the_common_prefix_inside_a_block() -> None:
    manager = manager_of(N_BLOCKS)
    first, _ = run(manager, [1, 2, 3, 4, 5, 6, 7, 8])
    manager.release(first)
    _, reused = run(manager, [1, 2, 3, 4, 5, 6, 99, 98, 97])
    assert reused == 6


def test_the_last_token_is_always_computed() -> None:
    manager = manager_of(N_BLOCKS)
    tokens = list(range(8))
    first, _ = run(manager, tokens)
    manager.release(first)
    _, reused = run(manager, tokens)
    assert reused == 7


def test_full_blocks_are_shared_while_both_run_and_partial_ones_are_not() -> None:
    manager = manager_of(N_BLOCKS)
    first, _ = run(manager, [1, 2, 3, 4, 5, 6])
    second, reused = run(manager, [1, 2, 3, 4, 5, 6, 7])
    assert reused == 4
    assert second.groups[0][0] == first.groups[0][0]
    assert second.groups[0][1] != first.groups[0][1]
    assert manager.n_free[0] == N_BLOCKS - 3


def test_kept_blocks_are_evicted_oldest_first() -> None:
    manager = manager_of(3)
    for start in (0, 100, 200):
        table, _ = run(manager, list(range(start, start + BLOCK)))
        manager.release(table)
    table, _ = run(manager, list(range(300, 300 + BLOCK)))
    manager.release(table)
    assert manager.open([*range(100, 104), 1]).n_tokens == BLOCK
    assert manager.open([*range(0, 4), 1]).n_tokens == 0


def test_running_out_of_blocks_is_a_bug_of_the_caller() -> None:
    manager = manager_of(2)
    with pytest.raises(EngineBug):
        manager.reserve(BlockTable([array("i")], [0]), 9)


@given(st.lists(st.integers(0, 2), min_size=1, max_size=20), st.lists(st.integers(0, 2), min_size=1, max_size=20))
@settings(max_examples=200, deadline=None)
def test_reuse_is_the_longest_common_prefix(first: list[int], second: list[int]) -> None:
    manager = manager_of(N_BLOCKS)
    table, _ = run(manager, first)
    manager.release(table)
    assert manager.open(second).n_tokens == min(common_prefix(first, second), len(second) - 1)


class Blocks(RuleBasedStateMachine):
    """Random openings, growth and releases, beside a record of what each block truly holds."""

    tables: Bundle[tuple[BlockTable, list[int]]] = Bundle("tables")

    def __init__(self) -> None:
        super().__init__()
        self.manager = manager_of(N_BLOCKS)
        self.open_tables: list[tuple[BlockTable, list[int]]] = []
        self.written: dict[tuple[int, int], tuple[int, ...]] = {}

    def write(self, table: BlockTable, tokens: list[int], upto: int) -> None:
        start = table.n_tokens
        self.manager.reserve(table, upto)
        for position in range(start, upto):
            self.written[table.groups[0][position // BLOCK], position % BLOCK] = tuple(tokens[: position + 1])
        self.manager.commit(table, tokens[start:upto])

    @rule(target=tables, tokens=st.lists(st.integers(0, 1), min_size=1, max_size=14), share=st.floats(0, 1))
    def start(self, tokens: list[int], share: float) -> tuple[BlockTable, list[int]]:
        worst = sum(self.manager.n_needed(len(have) + 6) - len(table.groups[0]) for table, have in self.open_tables)
        if self.manager.n_free[0] - worst < self.manager.n_needed(len(tokens) + 6):
            tokens = []
        table = self.manager.open(tokens or [0])
        self.open_tables.append((table, tokens))
        if tokens:
            self.write(table, tokens, max(table.n_tokens, int(share * len(tokens))))
        return table, tokens

    @rule(pair=tables, token=st.integers(0, 1))
    def grow(self, pair: tuple[BlockTable, list[int]], token: int) -> None:
        table, tokens = pair
        if tokens and len(tokens) < 20 and any(table is one for one, _ in self.open_tables):
            if self.manager.n_free[0] == 0:
                return
            self.write(table, tokens, len(tokens))
            tokens.append(token)

    @precondition(lambda self: self.open_tables)
    @rule(pair=consumes(tables))
    def end(self, pair: tuple[BlockTable, list[int]]) -> None:
        self.open_tables = [one for one in self.open_tables if one[0] is not pair[0]]
        self.manager.release(pair[0])

    @invariant()
    def no_block_is_lost(self) -> None:
        held = {block for table, _ in self.open_tables for block in table.groups[0]}
        assert self.manager.n_free[0] + len(held) == N_BLOCKS

    @invariant()
    def every_valid_position_holds_its_prefix(self) -> None:
        for table, tokens in self.open_tables:
            for position in range(table.n_tokens):
                found = self.written[table.groups[0][position // BLOCK], position % BLOCK]
                assert found == tuple(tokens[: position + 1])

    @invariant()
    def only_full_blocks_are_shared(self) -> None:
        users = Counter(block for table, _ in self.open_tables for block in table.groups[0])
        for table, _ in self.open_tables:
            full = table.n_tokens // BLOCK
            assert all(users[block] == 1 for block in table.groups[0][full:])


TestBlocks = Blocks.TestCase
TestBlocks.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
