"""The blocks of one cache group: who uses them, what they hold, and which of the unused ones to give up first.

What a block holds is known by the tokens in it and by the chained hash of everything before them; blocks that nobody uses keep
their content until the space is needed.
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
class _Block:
    users: int = 0
    before: bytes = ROOT
    tokens: list[int] = field(default_factory=list)
    key: bytes | None = None
    dear: bool = False  # somebody will likely go back to it


class BlockPool:
    """Blocks are shared only when full; the block that a sequence still writes belongs to it alone."""

    def __init__(self, n_blocks: int) -> None:
        self.n_blocks = n_blocks
        self._blocks = [_Block() for _ in range(n_blocks)]
        self._empty = list(range(n_blocks - 1, -1, -1))
        # Unused blocks with content, oldest first; the dear ones are given up last.
        self._cheap: OrderedDict[int, None] = OrderedDict()
        self._dear: OrderedDict[int, None] = OrderedDict()
        self._by_key: dict[bytes, int] = {}
        self._followers: dict[bytes, set[int]] = {}

    @property
    def n_free(self) -> int:
        """Blocks that no sequence uses, those with kept content among them."""
        return len(self._empty) + len(self._cheap) + len(self._dear)

    @property
    def live(self) -> list[int]:
        """Blocks that somebody uses, or that hold something to go back to."""
        return [index for index, one in enumerate(self._blocks) if one.users or one.tokens]

    def find(self, key: bytes) -> int | None:
        """The full block with this chain key."""
        return self._by_key.get(key)

    def use(self, index: int) -> None:
        """One more user of a full block."""
        self._cheap.pop(index, None)
        self._dear.pop(index, None)
        self._blocks[index].users += 1

    def partly(self, before: bytes, tokens: Sequence[int]) -> tuple[int, int]:
        """The unused block after `before` that shares the most leading tokens, and how many; (-1, 0): none shares any."""
        best, length = -1, 0
        for index in self._followers.get(before, ()):
            shared = common_prefix(self._blocks[index].tokens, tokens)
            if shared > length and (index in self._dear or index in self._cheap):
                best, length = index, shared
        return best, length

    def take_over(self, index: int, length: int) -> None:
        """An unused block becomes that of one sequence, with its first `length` tokens; what follows them is overwritten."""
        owned = self._blocks[index]
        if owned.key is not None:
            del self._by_key[owned.key]
            owned.key = None
        del owned.tokens[length:]
        owned.dear = False
        self.use(index)

    def allocate(self) -> int:
        """A block without content, for one sequence.

        Raises:
            EngineBug: all are in use; callers look for room before.
        """
        if self._empty:
            index = self._empty.pop()
        elif self._cheap or self._dear:
            index, _ = (self._cheap or self._dear).popitem(last=False)
            self._forget(index)
        else:
            raise EngineBug("a step was begun without enough free KV blocks")
        self._blocks[index].users = 1
        return index

    def write(self, index: int, before: bytes, tokens: Sequence[int], key: bytes | None) -> None:
        """The next tokens of a block were computed; key: its chain key, once it is full."""
        owned = self._blocks[index]
        if not owned.tokens:
            owned.before = before
            self._followers.setdefault(before, set()).add(index)
        owned.tokens.extend(tokens)
        if key is not None:
            owned.key = key
            self._by_key.setdefault(key, index)

    def tokens(self, index: int) -> list[int]:
        """What the block holds."""
        return self._blocks[index].tokens

    def cherish(self, index: int) -> None:
        """Somebody will likely go back to this block: once unused, it is given up after those that nobody asked to keep."""
        self._blocks[index].dear = True

    def release(self, index: int) -> None:
        """One user less; without users, the block keeps its content until the space is needed."""
        owned = self._blocks[index]
        owned.users -= 1
        if owned.users:
            return
        if owned.tokens and (owned.key is None or self._by_key.setdefault(owned.key, index) == index):
            (self._dear if owned.dear else self._cheap)[index] = None
        else:
            self._forget(index)
            self._empty.append(index)

    def _forget(self, index: int) -> None:
        owned = self._blocks[index]
        if owned.tokens:
            followers = self._followers[owned.before]
            followers.discard(index)
            if not followers:
                del self._followers[owned.before]
        if owned.key is not None and self._by_key.get(owned.key) == index:
            del self._by_key[owned.key]
        owned.tokens, owned.key, owned.before, owned.dear = [], None, ROOT, False


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
