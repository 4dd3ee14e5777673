"""Patterns of names from files and command lines: as llama.cpp understands them (ECMAScript, found anywhere in a name) for
Python's `re`, and Python's own. A pattern that a backtracking search could take hours for is refused."""

from __future__ import annotations

import re

from engine.errors import PlacementError

_CLASSES = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "digit": "0-9",
    "lower": "a-z",
    "punct": r"!-/:-@\[-`{-~",
    "space": r"\s",
    "upper": "A-Z",
    "xdigit": "0-9A-Fa-f",
}
_CLASS = re.compile(r"\[:(\w+):\]")
_COUNT = re.compile(r"\{\d+(,\d*)?\}")
_REPEAT = re.compile(r"[*+]|\{\d+,\d*\}|\{\d{2,}\}")
_PART = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\{\d*,?\d*\}|.", re.DOTALL)
_IN_SET = re.compile(r"\\.|[\[&~|]", re.DOTALL)
MAX_REPEATS = 4
"""Unlimited repeats in a pattern: with more, or one within another, a search may take hours. Published ones have three."""
MAX_OPTIONAL = 8
"""Parts that may be there or not: each may double the ways to match."""
MAX_CHOICES = 8
"""Groups of alternatives behind each other: names may be cut into them in as many ways as there are. Published ones have
three."""
MAX_LENGTH = 20_000
_SAME_ESCAPES = frozenset("bBdDsSwWnrtvf0123456789")


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """A pattern of llama.cpp to `search` names with.

    Raises:
        PlacementError: it is none, has what ECMAScript lacks (look-behind, inline flags, possessive repeats), or would take
            too long to search.
    """
    _check_length(pattern)
    return _compiled(pattern, _translated(pattern))


def compile_python(pattern: str) -> re.Pattern[str]:
    """A pattern of Python's to `search` names with. Raises: PlacementError, see `compile_pattern`."""
    _check_length(pattern)
    return _compiled(pattern, [_plain_set(part) if part.startswith("[") else part for part in _PART.findall(pattern)])


def _plain_set(part: str) -> str:
    """A set in square brackets in which nothing is what later versions of `re` may take for an operation of sets."""
    return part[0] + _IN_SET.sub(lambda found: found[0] if found[0].startswith("\\") else f"\\{found[0]}", part[1:])


def _compiled(pattern: str, parts: list[str]) -> re.Pattern[str]:
    _check_repeats(pattern, parts)
    if any(part.startswith("[") and "--" in re.sub(r"\\.", "x", part) for part in parts):
        raise _refused(pattern, "two dashes in square brackets mean other things in other places")
    try:
        return re.compile("".join(parts))
    except (re.error, RecursionError, OverflowError) as error:
        why = getattr(error, "msg", "too large")
        raise PlacementError(f"the pattern {pattern[:80]!r} is no regular expression ({why}); correct it") from error


def _check_length(pattern: str) -> None:
    if len(pattern) > MAX_LENGTH:
        raise _refused(pattern, f"it has {len(pattern)} characters, more than {MAX_LENGTH}")


def _translated(pattern: str) -> list[str]:
    parts: list[str] = []
    at = 0
    while at < len(pattern):
        size, text = _next(pattern, at)
        parts.append(text)
        at += size
    return parts


class _Group:
    """What an open group of a pattern holds. ways: whether it can match in several ways; split: whether it has alternatives;
    now, worst: of the alternative that is read and of the worst, how many repeats, optional parts and groups of alternatives
    follow each other."""

    def __init__(self) -> None:
        self.ways = self.split = False
        self.now, self.worst = [0, 0, 0], [0, 0, 0]

    def count(self, what: int, n: int = 1) -> None:
        """Adds to the alternative that is read."""
        self.now[what] += n

    def end(self) -> list[int]:
        """Ends an alternative; the worst so far."""
        self.worst = list(map(max, self.worst, self.now))
        self.now = [0, 0, 0]
        return self.worst


_REPEATS, _OPTIONAL, _CHOICES = range(3)


def _check_repeats(pattern: str, parts: list[str]) -> None:
    """Refuses what a backtracking search cannot do in time. parts: each one character, escape, set or count."""
    closed, groups = False, [_Group()]
    for part, before in zip(parts, ["", *parts], strict=False):
        top = groups[-1]
        if part == "(":
            groups.append(_Group())
        elif part == ")" and len(groups) > 1:
            inner = groups.pop()
            closed = inner.ways
            for what, n in enumerate(inner.end()):
                groups[-1].count(what, n)
            groups[-1].count(_CHOICES, int(inner.split))
            groups[-1].ways |= closed
        elif part == "|":
            top.end()
            top.ways = top.split = True
        elif _REPEAT.fullmatch(part):
            if before == ")" and closed:
                raise _refused(pattern, "a repeat of what repeats or has alternatives takes too long to search")
            top.count(_REPEATS)
            top.ways = True
        elif part == "?" and before not in ("", "(", "*", "+", "?", "}") and not _COUNT.fullmatch(before):
            top.count(_OPTIONAL)
            top.ways = True
    worst = groups[0].end()
    limits = ((MAX_REPEATS, "repeats"), (MAX_OPTIONAL, "optional parts"), (MAX_CHOICES, "groups of alternatives"))
    for n, (most, name) in zip(worst, limits, strict=True):
        if n > most:
            raise _refused(pattern, f"more than {most} {name} take too long to search")


def _next(pattern: str, at: int) -> tuple[int, str]:
    """How many characters the part of a pattern at `at` has, and what it is for `re`."""
    char = pattern[at]
    if char == "\\":
        return 2, _escape(pattern, at)
    if char == "[":
        return _set(pattern, at)
    if char == "(" and pattern[at + 1 : at + 2] == "?" and pattern[at + 2 : at + 3] not in (":", "=", "!"):
        raise _refused(pattern, f"{pattern[at : at + 4]!r} is not part of ECMAScript expressions")
    if char in "*+?}" and pattern[at + 1 : at + 2] == "+" and at:
        raise _refused(pattern, "possessive repeats are not part of ECMAScript expressions")
    if char == "{":
        count = _COUNT.match(pattern, at)
        if count is None:
            raise _refused(pattern, "a brace that is no count must be written as \\{")
        if pattern[count.end() : count.end() + 1] == "+":
            raise _refused(pattern, "possessive repeats are not part of ECMAScript expressions")
        return len(count[0]), count[0]
    return 1, char


def _escape(pattern: str, at: int) -> str:
    char = pattern[at + 1 : at + 2]
    if not char:
        raise _refused(pattern, "a backslash stands at its end")
    return f"\\{char}" if char in _SAME_ESCAPES else re.escape(char)


def _set(pattern: str, at: int) -> tuple[int, str]:
    """A set in square brackets, with the classes of POSIX spelled out."""
    end, out = at + 1, "["
    if pattern[end : end + 1] == "^":
        end, out = end + 1, "[^"
    while end < len(pattern) and pattern[end] != "]":
        named = _CLASS.match(pattern, end)
        if named is not None:
            if named[1] not in _CLASSES:
                raise _refused(pattern, f"the class {named[0]} is unknown")
            end, out = named.end(), out + _CLASSES[named[1]]
        elif pattern[end] == "\\":
            end, out = end + 2, out + _escape(pattern, end)
        else:
            # What would start a set in a set, or an operation of sets, in later versions of `re`.
            end, out = end + 1, out + (f"\\{pattern[end]}" if pattern[end] in "[&~|" else pattern[end])
    if end >= len(pattern):
        raise _refused(pattern, "a square bracket is not closed")
    return end + 1 - at, f"{out}]"


def _refused(pattern: str, why: str) -> PlacementError:
    return PlacementError(f"the pattern {pattern[:80]!r} is not understood: {why}; correct it")
