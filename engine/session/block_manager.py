"""Who holds which KV block: allocation, sharing and reuse of prefixes, in plain Python.

A block holds the keys and values of up to `block` consecutive tokens. What it holds is known by the tokens in it and by the
chained hash of everything before them; blocks that nobody uses keep their content until the space is needed, oldest first.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.errors import EngineBug

ROOT = b""
"""The chain key in front of the first block."""


@dataclass(slots=True)
class BlockTable:
    """The blocks of one sequence. The first `n_tokens` positions hold valid keys and values.

    keys: chain key after each full block.
    """

    blocks: list[int] = field(default_factory=list)
    keys: list[bytes] = field(default_factory=list)
    n_tokens: int = 0


@dataclass(slots=True)
class _Block:
    users: int = 0
    before: bytes = ROOT
    tokens: list[int] = field(default_factory=list)
    key: bytes | None = None


class BlockManager:
    """Blocks are shared only when full; the block that a sequence still writes belongs to it alone."""

    def __init__(self, n_blocks: int, block: int) -> None:
        """n_blocks: size of the pool; block: tokens in each."""
        self.block = block
        self._blocks = [_Block() for _ in range(n_blocks)]
        self._empty = list(range(n_blocks - 1, -1, -1))
        self._kept: OrderedDict[int, None] = OrderedDict()
        self._by_key: dict[bytes, int] = {}
        self._followers: dict[bytes, set[int]] = {}

    @property
    def n_free(self) -> int:
        """Blocks that no sequence uses, those with kept content among them."""
        return len(self._empty) + len(self._kept)

    def n_needed(self, n_tokens: int) -> int:
        """Blocks that n_tokens positions take."""
        return -(-n_tokens // self.block)

    def open(self, tokens: Sequence[int]) -> BlockTable:
        """A table for a sequence that starts with `tokens`, holding the longest prefix that is still there.

        The last token is never reused: its logits are wanted, so it must be computed.
        """
        table = BlockTable()
        usable = len(tokens) - 1
        while table.n_tokens + self.block <= usable:
            key = chain(table.keys[-1] if table.keys else ROOT, tokens[table.n_tokens : table.n_tokens + self.block])
            found = self._by_key.get(key)
            if found is None:
                break
            self._use(found)
            table.blocks.append(found)
            table.keys.append(key)
            table.n_tokens += self.block
        self._reuse_partly(table, tokens[table.n_tokens : usable])
        return table

    def reserve(self, table: BlockTable, n_tokens: int) -> None:
        """Gives the table blocks for its first n_tokens positions.

        Raises:
            EngineBug: no block is left; callers admit a sequence only when the blocks it may need are free.
        """
        while len(table.blocks) < self.n_needed(n_tokens):
            table.blocks.append(self._allocate())

    def commit(self, table: BlockTable, tokens: Sequence[int]) -> None:
        """The positions of `tokens`, the next ones of the table, have been computed."""
        for token in tokens:
            index = table.n_tokens // self.block
            owned = self._blocks[table.blocks[index]]
            if not owned.tokens:
                self._follow(table.blocks[index], table.keys[-1] if table.keys else ROOT)
            owned.tokens.append(token)
            table.n_tokens += 1
            if len(owned.tokens) == self.block:
                owned.key = chain(owned.before, owned.tokens)
                table.keys.append(owned.key)
                self._by_key.setdefault(owned.key, table.blocks[index])

    def release(self, table: BlockTable) -> None:
        """Gives the blocks back and empties the table; their content stays until the space is needed."""
        # Back to front: the tail of a conversation is evicted before its head, which more prompts share.
        for index in reversed(table.blocks):
            owned = self._blocks[index]
            owned.users -= 1
            if owned.users:
                continue
            if owned.tokens and (owned.key is None or self._by_key.setdefault(owned.key, index) == index):
                self._kept[index] = None
            else:
                self._forget(index)
                self._empty.append(index)
        table.blocks.clear()
        table.keys.clear()
        table.n_tokens = 0

    def _reuse_partly(self, table: BlockTable, rest: Sequence[int]) -> None:
        """Takes over the unused block that shares the most tokens with `rest`; what follows them in it is overwritten."""
        before = table.keys[-1] if table.keys else ROOT
        best, length = -1, 0
        for index in self._followers.get(before, ()):
            shared = common_prefix(self._blocks[index].tokens, rest)
            if shared > length and index in self._kept:
                best, length = index, shared
        if length == 0:
            return
        owned = self._blocks[best]
        if owned.key is not None:
            del self._by_key[owned.key]
            owned.key = None
        del owned.tokens[length:]
        self._use(best)
        table.blocks.append(best)
        table.n_tokens += length

    def _use(self, index: int) -> None:
        self._kept.pop(index, None)
        self._blocks[index].users += 1

    def _allocate(self) -> int:
        if self._empty:
            index = self._empty.pop()
        elif self._kept:
            index, _ = self._kept.popitem(last=False)
            self._forget(index)
        else:
            raise EngineBug("a sequence was admitted without enough free KV blocks")
        self._blocks[index].users = 1
        return index

    def _follow(self, index: int, before: bytes) -> None:
        self._blocks[index].before = before
        self._followers.setdefault(before, set()).add(index)

    def _forget(self, index: int) -> None:
        owned = self._blocks[index]
        if owned.tokens:
            followers = self._followers[owned.before]
            followers.discard(index)
            if not followers:
                del self._followers[owned.before]
        if owned.key is not None and self._by_key.get(owned.key) == index:
            del self._by_key[owned.key]
        owned.tokens, owned.key, owned.before = [], None, ROOT


def chain(before: bytes, tokens: Sequence[int]) -> bytes:
    """The key of a full block: a hash of the key before it and of its own tokens. 128 bits, so equal keys mean equal prefixes."""
    return hashlib.blake2b(array("i", tokens).tobytes(), digest_size=16, key=before).digest()


def common_prefix(first: Sequence[int], second: Sequence[int]) -> int:
    """How many leading tokens two sequences share."""
    n = 0
    for a, b in zip(first, second, strict=False):
        if a != b:
            break
        n += 1
    return n
