"""HeightIndex: heights of all messages with their running sums in logarithmic time (a Fenwick tree)."""

from __future__ import annotations

from collections.abc import Iterable

from app.store.rows import MessageRow


class HeightIndex:
    """Offsets and hit tests for a column of thousands of items whose heights change one at a time."""

    def __init__(self, heights: Iterable[int] = ()) -> None:
        self._heights = list(heights)
        self._tree = [0] * (len(self._heights) + 1)
        for i, height in enumerate(self._heights, 1):
            self._tree[i] += height
            parent = i + (i & -i)
            if parent < len(self._tree):
                self._tree[parent] += self._tree[i]

    def __len__(self) -> int:
        return len(self._heights)

    def __getitem__(self, i: int) -> int:
        return self._heights[i]

    def set(self, i: int, height: int) -> int:
        """Change one height; returns the difference."""
        delta = height - self._heights[i]
        if delta:
            self._heights[i] = height
            k = i + 1
            while k < len(self._tree):
                self._tree[k] += delta
                k += k & -k
        return delta

    def append(self, height: int) -> None:
        """Add an item at the end."""
        k = len(self._tree)
        total = height
        step = 1
        while step < (k & -k):
            total += self._tree[k - step]
            step <<= 1
        self._heights.append(height)
        self._tree.append(total)

    def offset(self, i: int) -> int:
        """Sum of the heights before item i."""
        total = 0
        while i > 0:
            total += self._tree[i]
            i -= i & -i
        return total

    def total(self) -> int:
        """Sum of all heights."""
        return self.offset(len(self._heights))

    def index_at(self, y: int) -> int:
        """The item that covers y, clipped to the first and last one."""
        position, rest = 0, max(0, y)
        bit = 1 << max(0, len(self._heights).bit_length())
        while bit:
            following = position + bit
            if following < len(self._tree) and self._tree[following] <= rest:
                position = following
                rest -= self._tree[following]
            bit >>= 1
        return min(position, max(0, len(self._heights) - 1))


def estimate(row: MessageRow, column: int) -> int:
    """A height for a message that was never laid out: lines of the text at 22 px."""
    per_line = max(20, column // 8)
    lines = row.text.count("\n", 0, 20_000) + len(row.text) // per_line + 1
    return (min(lines, 2000) * 22 + 42) if row.role == "user" else lines * 22 + 70
