"""Who holds which KV block: allocation, sharing and reuse of prefixes over all cache groups, in plain Python.

A block holds the keys and values of up to `block` consecutive tokens for the layers of one cache group. Where the layers have a
window, a sequence gives back the blocks that its window has passed; a prefix is reused only as far as every group still holds
what the next token sees, and the rest is computed again.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from engine.runtime.cache_groups import CacheGroup
from engine.session.block_pool import ROOT, BlockPool, chain

GONE = -1
"""In a block table: the window has passed, the block was given back."""


@dataclass(slots=True)
class BlockTable:
    """The blocks of one sequence. The first `n_tokens` positions were computed, and what the next one sees is held.

    groups: per cache group, the int32 block of each run of positions, GONE before `first` of that group. keys: chain key after
    each full block.
    """

    groups: list[array[int]] = field(default_factory=list)
    first: list[int] = field(default_factory=list)
    keys: list[bytes] = field(default_factory=list)
    n_tokens: int = 0


class BlockManager:
    """Deals the blocks of every cache group out to sequences."""

    def __init__(self, groups: Sequence[CacheGroup], block: int) -> None:
        """groups: the pools; block: tokens in each block."""
        self.block = block
        self._groups = tuple(groups)
        self._pools = tuple(BlockPool(group.n_blocks) for group in groups)

    @property
    def n_free(self) -> tuple[int, ...]:
        """Per cache group, blocks that no sequence uses, those with kept content among them."""
        return tuple(pool.n_free for pool in self._pools)

    @property
    def live(self) -> tuple[list[int], ...]:
        """Per cache group, blocks whose content matters."""
        return tuple(pool.live for pool in self._pools)

    def n_needed(self, n_tokens: int) -> int:
        """Blocks that n_tokens positions take."""
        return -(-n_tokens // self.block)

    def fits(self, limit: int, running: Iterable[tuple[BlockTable, int]]) -> bool:
        """Whether a sequence has room for `limit` tokens beside others, given as (table, limit), that grow to theirs."""
        others = tuple(running)
        for at, (group, pool) in enumerate(zip(self._groups, self._pools, strict=True)):
            worst = [min(self.n_needed(one), group.n_decoding) for one in (limit, *(most for _, most in others))]
            if group.window is None:
                held = sum(len(table.groups[at]) for table, _ in others)
                if sum(worst) - held > pool.n_free:
                    return False
            # One sequence at a time is in the midst of a prompt and holds a chunk beside its window.
            elif sum(worst) + group.n_needed - group.n_decoding > pool.n_blocks:
                return False
        return True

    def cut(self, table: BlockTable, n: int, rest: int) -> int:
        """How many of the `rest` next tokens a step of up to n takes: all, or up to a block boundary, so that windows and chunk
        fill whole blocks."""
        lies_over = n % self.block == 0 and table.n_tokens % self.block + rest > n  # one block more than the chunk's own
        if (rest <= n and not lies_over) or all(group.window is None for group in self._groups):
            return min(n, rest)
        whole = (table.n_tokens + n) // self.block * self.block - table.n_tokens
        return whole if whole > 0 else n

    def open(self, tokens: Sequence[int], stops: Sequence[int] | None = None) -> BlockTable:
        """A table for a sequence that starts with `tokens`, holding the longest prefix that every group can go on from.

        stops: lengths of the only prefixes that the model can go on from, beside the empty one; None: any. The last token is
        never reused: its logits are wanted, so it must be computed.
        """
        usable = len(tokens) - 1
        keys = self._known(tokens, usable)
        found = [[pool.find(key) for key in keys] for pool in self._pools]
        runs = [list(accumulate(blocks, lambda n, one: 0 if one is None else n + 1, initial=0)) for blocks in found]
        for full in range(len(keys), -1, -1):
            rest = tokens[full * self.block : min(usable, (full + 1) * self.block)]
            parts = [pool.partly(keys[full - 1] if full else ROOT, rest) for pool in self._pools]
            for length in self._lengths(full, min((length for _, length in parts), default=0), stops):
                firsts = [self._first_seen(group, full * self.block + length) for group in self._groups]
                if all(full - first <= run[full] for first, run in zip(firsts, runs, strict=True)):
                    return self._take(keys[:full], found, firsts, [index for index, _ in parts], length)
        raise AssertionError("nothing is needed before the first token")

    def _lengths(self, full: int, longest: int, stops: Sequence[int] | None) -> list[int]:
        """How many tokens may be reused behind so many full blocks, up to `longest`; the most first."""
        if stops is None:
            return [longest, 0] if longest else [0]
        start = full * self.block
        return sorted({one - start for one in (*stops, 0) if start <= one <= start + longest}, reverse=True)

    def _known(self, tokens: Sequence[int], usable: int) -> list[bytes]:
        """Chain keys of the full blocks, as far as the groups that hold whole contexts have them."""
        keys: list[bytes] = []
        whole = [pool for group, pool in zip(self._groups, self._pools, strict=True) if group.window is None]
        for start in range(0, usable - self.block + 1, self.block):
            key = chain(keys[-1] if keys else ROOT, tokens[start : start + self.block])
            if any(pool.find(key) is None for pool in whole):
                break
            keys.append(key)
        return keys

    def _first_seen(self, group: CacheGroup, n_tokens: int) -> int:
        """Index of the first block that the token at position n_tokens sees."""
        return 0 if group.window is None else max(0, n_tokens - group.window + 1) // self.block

    def _take(
        self, keys: list[bytes], found: list[list[int | None]], firsts: list[int], parts: list[int], length: int
    ) -> BlockTable:
        """The table of the found blocks from `firsts` on, and of the first `length` tokens of the next block."""
        table = BlockTable(first=firsts, keys=keys, n_tokens=len(keys) * self.block + length)
        for pool, blocks, first, part in zip(self._pools, found, firsts, parts, strict=True):
            used = [index for index in blocks[first : len(keys)] if index is not None]
            for index in used:
                pool.use(index)
            if length:
                pool.take_over(part, length)
                used.append(part)
            table.groups.append(array("i", [GONE] * first + used))
        return table

    def has_room(self, wanted: Iterable[tuple[BlockTable, int]]) -> bool:
        """Whether `reserve` finds blocks for all of these, given as (table, n_tokens)."""
        tables = tuple(wanted)
        for at, pool in enumerate(self._pools):
            if sum(max(0, self.n_needed(n) - len(table.groups[at])) for table, n in tables) > pool.n_free:
                return False
        return True

    def reserve(self, table: BlockTable, n_tokens: int) -> None:
        """Gives the table blocks for its first n_tokens positions, those that a window has passed apart.

        Raises:
            EngineBug: no block is left; callers ask `has_room` before.
        """
        for pool, blocks in zip(self._pools, table.groups, strict=True):
            while len(blocks) < self.n_needed(n_tokens):
                blocks.append(pool.allocate())

    def commit(self, table: BlockTable, tokens: Sequence[int]) -> None:
        """The positions of `tokens`, the next ones of the table, have been computed; gives back what windows have passed."""
        done = 0
        while done < len(tokens):
            at, inside = divmod(table.n_tokens, self.block)
            part = tokens[done : done + self.block - inside]
            before, key = table.keys[at - 1] if at else ROOT, None
            if inside + len(part) == self.block:
                key = chain(before, [*self._pools[0].tokens(table.groups[0][at]), *part])
                table.keys.append(key)
            for pool, blocks in zip(self._pools, table.groups, strict=True):
                pool.write(blocks[at], before, part, key)
            done += len(part)
            table.n_tokens += len(part)
        self._pass(table)

    def _pass(self, table: BlockTable) -> None:
        """Gives back what the windows have passed; one more token stays, so that the last one can be computed again."""
        for at, (group, pool) in enumerate(zip(self._groups, self._pools, strict=True)):
            first, blocks = max(0, self._first_seen(group, table.n_tokens - 1)), table.groups[at]
            for index in range(table.first[at], first):
                pool.release(blocks[index])
                blocks[index] = GONE
            table.first[at] = max(first, table.first[at])

    def keep(self, table: BlockTable) -> None:
        """Somebody will likely go back to where the sequence stands: what its windows hold is given up last."""
        for pool, blocks, first in zip(self._pools, table.groups, table.first, strict=True):
            for index in blocks[first:]:
                pool.cherish(index)

    def release(self, table: BlockTable) -> None:
        """Gives the blocks back and empties the table; their content stays until the space is needed."""
        if not table.groups:
            return  # never opened
        self.keep(table)
        # Back to front: the tail of a conversation is evicted before its head, which more prompts share.
        for pool, blocks, first in zip(self._pools, table.groups, table.first, strict=True):
            for index in reversed(blocks[first:]):
                pool.release(index)
        table.groups.clear()
        table.first.clear()
        table.keys.clear()
        table.n_tokens = 0
