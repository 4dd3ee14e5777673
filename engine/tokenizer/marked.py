"""Strings that remember, character by character, whether people, tools or files brought them. They pass through a chat template
like any string; what comes out tells the template's own text from theirs. When in doubt a character counts as brought."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, SupportsIndex

OWN, BROUGHT = b"\0", b"\1"


def mask_of(text: str) -> bytes:
    """One byte per character of any string: `OWN` for plain ones, `BROUGHT` for what was marked."""
    if isinstance(text, Marked):
        return text._mask
    # Escaped markup has lost its history: it is not ours.
    return (OWN if type(text) is str else BROUGHT) * len(text)


def join(parts: Iterable[Any], separator: str = "") -> str:
    """The strings of the parts joined, with their marks."""
    strings = [part if isinstance(part, str) else written(part) for part in parts]
    text = str.join(separator, strings)  # the plain one: a marked separator would come back here
    if all(type(part) is str for part in strings) and type(separator) is str:
        return text
    return Marked(text, mask_of(separator).join(mask_of(part) for part in strings))


def written(value: Any) -> str:
    """What `str` makes of a value that is no string; all of it is marked when a marked string is anywhere in it."""
    return Marked(str(value)) if holds_marks(value) else str(value)


def runs(text: str) -> list[tuple[str, bool]]:
    """The text cut where the mark changes: (run, whether it is the template's own)."""
    mask = mask_of(text)
    plain = str.__str__(text)
    result: list[tuple[str, bool]] = []
    start = 0
    while start < len(mask):
        flag = mask[start : start + 1]
        other = mask.find(BROUGHT if flag == OWN else OWN, start)
        end = other if other >= 0 else len(mask)
        result.append((plain[start:end], flag == OWN))
        start = end
    return result


class Marked(str):
    """A string with a mask. Every method that gives text back keeps the marks of the characters it keeps."""

    _mask: bytes

    def __new__(cls, text: object = "", mask: bytes | None = None) -> Marked:
        """A marked copy of `text`; without a fitting mask all of it counts as brought."""
        self = super().__new__(cls, text)
        self._mask = mask if mask is not None and len(mask) == len(self) else BROUGHT * len(self)
        return self

    def __str__(self) -> str:
        """Itself: a template's output step must not strip the marks."""
        return self

    def __add__(self, other: str) -> Marked:
        return Marked(super().__add__(other), self._mask + mask_of(other)) if isinstance(other, str) else NotImplemented

    def __radd__(self, other: str) -> Marked:
        return Marked(str.__add__(other, self), mask_of(other) + self._mask) if isinstance(other, str) else NotImplemented

    def __mul__(self, n: SupportsIndex) -> Marked:
        return Marked(super().__mul__(n), self._mask * n)

    __rmul__ = __mul__

    def __mod__(self, values: Any) -> Marked:
        return Marked(super().__mod__(values))

    def __getitem__(self, key: Any) -> Marked:
        return Marked(super().__getitem__(key), self._mask[key] if isinstance(key, slice) else self._mask[key : key + 1 or None])

    def __iter__(self) -> Iterator[Marked]:
        return (Marked(c, self._mask[i : i + 1]) for i, c in enumerate(super().__iter__()))

    def strip(self, chars: str | None = None, /) -> Marked:
        """As `str.strip`."""
        return self.lstrip(chars).rstrip(chars)

    def lstrip(self, chars: str | None = None, /) -> Marked:
        """As `str.lstrip`."""
        text = super().lstrip(chars)
        return Marked(text, self._mask[len(self) - len(text) :])

    def rstrip(self, chars: str | None = None, /) -> Marked:
        """As `str.rstrip`."""
        text = super().rstrip(chars)
        return Marked(text, self._mask[: len(text)])

    def removeprefix(self, prefix: str, /) -> Marked:
        """As `str.removeprefix`."""
        return self[len(prefix) :] if self.startswith(prefix) else self

    def removesuffix(self, suffix: str, /) -> Marked:
        """As `str.removesuffix`."""
        return self[: len(self) - len(suffix)] if suffix and self.endswith(suffix) else self

    def _located(self, pieces: Iterable[str]) -> list[Marked]:
        """Pieces of this string, in order, with the marks of where they stand."""
        result, at = [], 0
        for piece in pieces:
            start = self.find(piece, at)
            at = start + len(piece)
            result.append(Marked(piece, self._mask[start:at] if start >= 0 else None))
        return result

    def split(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[Any]:
        """As `str.split`."""
        pieces = super().split(sep, maxsplit)
        return self._located(pieces) if sep is None else self._spaced(pieces, len(sep))

    def rsplit(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[Any]:
        """As `str.rsplit`."""
        pieces = super().rsplit(sep, maxsplit)
        return self._located(pieces) if sep is None else self._spaced(pieces, len(sep))

    def _spaced(self, pieces: Iterable[str], gap: int) -> list[Marked]:
        result, at = [], 0
        for piece in pieces:
            result.append(Marked(piece, self._mask[at : at + len(piece)]))
            at += len(piece) + gap
        return result

    def splitlines(self, keepends: bool = False) -> list[Any]:
        """As `str.splitlines`."""
        return self._located(super().splitlines(keepends))

    def partition(self, sep: str, /) -> tuple[Any, Any, Any]:
        """As `str.partition`."""
        first, middle, last = self._spaced(super().partition(sep), 0)
        return first, middle, last

    def rpartition(self, sep: str, /) -> tuple[Any, Any, Any]:
        """As `str.rpartition`."""
        first, middle, last = self._spaced(super().rpartition(sep), 0)
        return first, middle, last

    def replace(self, old: str, new: str, count: SupportsIndex = -1, /) -> Marked:
        """As `str.replace`."""
        text = super().replace(old, new, count)
        if not old:
            return Marked(text)
        pieces = self._spaced(super().split(old, count), len(old))
        return Marked(text, mask_of(new).join(piece._mask for piece in pieces))

    def join(self, parts: Iterable[str], /) -> str:
        """As `str.join`."""
        return join(parts, self)

    def _recased(self, text: str) -> Marked:
        return Marked(text, self._mask)

    def lower(self) -> Marked:
        """As `str.lower`."""
        return self._recased(super().lower())

    def upper(self) -> Marked:
        """As `str.upper`."""
        return self._recased(super().upper())

    def title(self) -> Marked:
        """As `str.title`."""
        return self._recased(super().title())

    def capitalize(self) -> Marked:
        """As `str.capitalize`."""
        return self._recased(super().capitalize())

    def swapcase(self) -> Marked:
        """As `str.swapcase`."""
        return self._recased(super().swapcase())

    def casefold(self) -> Marked:
        """As `str.casefold`."""
        return self._recased(super().casefold())

    def center(self, width: SupportsIndex, fill: str = " ", /) -> Marked:
        """As `str.center`."""
        return Marked(super().center(width, fill))

    def ljust(self, width: SupportsIndex, fill: str = " ", /) -> Marked:
        """As `str.ljust`."""
        return Marked(super().ljust(width, fill))

    def rjust(self, width: SupportsIndex, fill: str = " ", /) -> Marked:
        """As `str.rjust`."""
        return Marked(super().rjust(width, fill))

    def zfill(self, width: SupportsIndex, /) -> Marked:
        """As `str.zfill`."""
        return Marked(super().zfill(width))

    def expandtabs(self, tabsize: SupportsIndex = 8) -> Marked:
        """As `str.expandtabs`."""
        return Marked(super().expandtabs(tabsize))

    def translate(self, table: Any, /) -> Marked:
        """As `str.translate`."""
        return Marked(super().translate(table))

    def format(self, *args: Any, **kwargs: Any) -> Marked:
        """As `str.format`."""
        return Marked(super().format(*args, **kwargs))


def mark(value: Any) -> Any:
    """A copy of plain data in which every string, keys among them, is marked as brought."""
    if isinstance(value, str):
        return Marked(value)
    if isinstance(value, dict):
        return {mark(key): mark(item) for key, item in value.items()}
    if isinstance(value, list):
        return [mark(item) for item in value]
    return value


def holds_marks(value: Any) -> bool:
    """Whether a marked string is anywhere in the value."""
    if isinstance(value, dict):
        return any(holds_marks(key) or holds_marks(item) for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return any(map(holds_marks, value))
    return isinstance(value, str) and type(value) is not str
