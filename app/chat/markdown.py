"""Text to blocks, incrementally: closed blocks are frozen for good, only the open tail is looked at again.

The splitter reads line by line and never looks back past an open block, so feeding a text in pieces gives exactly the
blocks of the whole, and the sources of all blocks joined are the text. What a block's own markup means is decided later,
by the block widgets.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

Kind = Literal["prose", "heading", "list", "quote", "code", "table", "math", "think", "rule", "blank"]
CHUNK = 4096
"""Longest prose block in characters: markup of a block is parsed at once, and some of it costs more than linear time."""
LIST_ITEMS = 12
"""Top-level items in one block."""

_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})([^`\n]*)$")
_HEADING = re.compile(r"^ {0,3}#{1,6}(?:[ \t]|$)")
_RULE = re.compile(r"^ {0,3}(?:(?:-[ \t]*){3,}|(?:\*[ \t]*){3,}|(?:_[ \t]*){3,})$")
_ITEM = re.compile(r"^( {0,3})([-*+]|(\d{1,9})[.)])(?:[ \t]+|$)")
_DELIMITER = re.compile(r"^ {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$")
_MATH_OPEN = {"$$": "$$", "\\[": "\\]"}
_THINK_OPEN, _THINK_CLOSE = "<think>", "</think>"


@dataclass(frozen=True, slots=True)
class Block:
    """One block. source: its exact slice of the text, markers and blank lines included.

    info: language of a code block; number of the first item of a list ("" for bullets).
    """

    kind: Kind
    source: str
    info: str = ""
    closed: bool = False


class Splitter:
    """Feed it text; `closed` grows and never changes, `tail()` is what is still open (zero, one or two blocks)."""

    def __init__(self) -> None:
        self.closed: list[Block] = []
        self._state = _State()
        self._line = ""

    def push(self, text: str) -> None:
        """Append text."""
        pieces = (self._line + text).split("\n")
        for piece in pieces[:-1]:
            self._state.line(self._shorten(piece) + "\n", self.closed)
        self._line = self._shorten(pieces[-1])

    def _shorten(self, line: str) -> str:
        """Hand over the head of an endless line in chunks; what is left is at most CHUNK long."""
        while len(line) > CHUNK:
            cut = _cut(line)
            self._state.line(line[:cut], self.closed)
            line = line[cut:]
        return line

    def tail(self) -> tuple[Block, ...]:
        """The open blocks, as they would be if the text ended here."""
        probe = self._state.copy()
        found: list[Block] = []
        if self._line and probe.kind == "blank" and _THINK_OPEN.startswith(self._line.strip()):
            return (Block("blank", "".join(probe.lines) + self._line),)
        if self._line:
            probe.line(self._line, found)
        rest = probe.open_block()
        if rest is not None:
            found.append(rest)
        return tuple(replace(block, closed=False) for block in found)

    def finish(self) -> None:
        """The text is complete: close what is open."""
        if self._line:
            self._state.line(self._line, self.closed)
            self._line = ""
        self._state.close(self.closed)


def split(text: str) -> tuple[Block, ...]:
    """All blocks of a complete text, closed."""
    splitter = Splitter()
    splitter.push(text)
    splitter.finish()
    return tuple(splitter.closed)


def _cut(line: str) -> int:
    space = line.rfind(" ", CHUNK // 2, CHUNK)
    return space + 1 if space > 0 else CHUNK


class _State:
    """The open block: its kind, its lines, and what would close it."""

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self.kind: Kind = "blank"
        self.lines: list[str] = []
        self.size = 0
        self.info = ""
        self.closer = ""
        self.blanks = 0
        self.indent = 0
        self.ordinal: int | None = None
        self.in_fence = ""
        self.items = 0

    def copy(self) -> _State:
        other = _State()
        other.kind, other.lines, other.size, other.info = self.kind, list(self.lines), self.size, self.info
        other.closer, other.blanks, other.indent = self.closer, self.blanks, self.indent
        other.ordinal, other.in_fence, other.items = self.ordinal, self.in_fence, self.items
        return other

    def open_block(self) -> Block | None:
        return Block(self.kind, "".join(self.lines), self.info) if self.lines else None

    def close(self, out: list[Block]) -> None:
        if self.lines:
            out.append(Block(self.kind, "".join(self.lines), self.info, True))
        ordinal = self.ordinal
        self._reset()
        self.ordinal = ordinal

    def _add(self, line: str) -> None:
        self.lines.append(line)
        self.size += len(line)

    def line(self, line: str, out: list[Block]) -> None:
        """Take one line (with its newline, if it has one)."""
        handler = {
            "blank": self._start,
            "prose": self._in_prose,
            "quote": self._in_quote,
            "list": self._in_list,
            "code": self._in_code,
            "table": self._in_table,
            "math": self._in_math,
            "think": self._in_think,
        }[self.kind]
        handler(line, out)

    def _start(self, line: str, out: list[Block]) -> None:
        """A line where no block is open: leading blank lines belong to the block that follows."""
        body = line.rstrip("\n")
        stripped = body.strip()
        if not stripped:
            self._add(line)
            return
        item = _ITEM.match(body)
        if item is None:
            self.ordinal = None
        if stripped.startswith(_THINK_OPEN):
            self.kind = "think"
            self._in_think(line, out)
            return
        fence = _FENCE.match(body)
        if fence:
            self._add(line)
            self.kind, self.closer, self.info = "code", fence.group(1), fence.group(2).strip().split(" ")[0]
            return
        math = _MATH_OPEN.get(stripped[:2])
        if math and not (stripped[:2] == "$$" and stripped[2:3] == "$"):
            self._start_math(line, stripped, math, out)
        elif _HEADING.match(body):
            self._single("heading", line, out)
        elif _RULE.match(body):
            self._single("rule", line, out)
        elif body.lstrip(" ").startswith(">") and len(body) - len(body.lstrip(" ")) < 4:
            self.kind = "quote"
            self._in_quote(line, out)
        elif item is not None:
            self._start_item(line, item)
        else:
            self.kind = "prose"
            self._in_prose(line, out)

    def _single(self, kind: Kind, line: str, out: list[Block]) -> None:
        self._add(line)
        self.kind = kind
        self.close(out)

    def _start_math(self, line: str, stripped: str, closer: str, out: list[Block]) -> None:
        self._add(line)
        self.kind, self.closer = "math", closer
        if closer in stripped[2:] and line.endswith("\n"):
            self._end_math(stripped[2:], closer, out)

    def _end_math(self, rest: str, closer: str, out: list[Block]) -> None:
        if not rest.rstrip().endswith(closer):
            self.kind = "prose"
            return
        self.close(out)

    def _in_math(self, line: str, out: list[Block]) -> None:
        if not line.strip():
            self.kind = "prose"
            self._in_prose(line, out)
            return
        self._add(line)
        if self.closer in line and line.endswith("\n"):
            self._end_math(line, self.closer, out)

    def _in_think(self, line: str, out: list[Block]) -> None:
        end = line.find(_THINK_CLOSE)
        if end < 0:
            self._add(line)
            return
        end += len(_THINK_CLOSE)
        rest = line[end:]
        if not rest.strip():
            self._add(line)
            self.close(out)
            return
        self._add(line[:end])
        self.close(out)
        self.line(rest, out)

    def _in_code(self, line: str, out: list[Block]) -> None:
        self._add(line)
        body = line.strip()
        marker = self.closer[0]
        if line.endswith("\n") and len(body) >= len(self.closer) and body == marker * len(body) and line[:4].strip():
            self.close(out)

    def _interrupts(self, body: str) -> bool:
        stripped = body.strip()
        return bool(
            _FENCE.match(body)
            or _HEADING.match(body)
            or stripped.startswith(_THINK_OPEN)
            or stripped[:2] in _MATH_OPEN
            or (stripped.startswith(">") and len(body) - len(body.lstrip(" ")) < 4)
        )

    def _in_prose(self, line: str, out: list[Block]) -> None:
        body = line.rstrip("\n")
        if not body.strip():
            self._add(line)
            if line.endswith("\n"):
                self.close(out)
            return
        if self.has_text() and self._breaks_prose(body):
            self.close(out)
            self.line(line, out)
            return
        if self.has_text() and _DELIMITER.match(body) and "|" in body and "|" in self.lines[-1] and line.endswith("\n"):
            self._to_table(line, out)
            return
        self._add(line)
        if self.size > CHUNK:
            self.close(out)

    def has_text(self) -> bool:
        return any(line.strip() for line in self.lines)

    def _breaks_prose(self, body: str) -> bool:
        item = _ITEM.match(body)
        starts_list = item is not None and (item.group(3) is None or item.group(3) == "1") and bool(body[item.end() :].strip())
        rule = _RULE.match(body) and not body.strip().startswith("-")
        return self._interrupts(body) or starts_list or bool(rule)

    def _to_table(self, line: str, out: list[Block]) -> None:
        """A delimiter row makes the line above it a table header; earlier lines stay prose."""
        header = self.lines.pop()
        if self.has_text():
            self.close(out)
        self._add(header)
        self._add(line)
        self.kind = "table"

    def _in_table(self, line: str, out: list[Block]) -> None:
        body = line.rstrip("\n")
        if not body.strip():
            self._add(line)
            if line.endswith("\n"):
                self.close(out)
            return
        if "|" not in body or self._interrupts(body):
            self.close(out)
            self.line(line, out)
            return
        self._add(line)

    def _in_quote(self, line: str, out: list[Block]) -> None:
        body = line.rstrip("\n")
        if not body.strip():
            self._add(line)
            if line.endswith("\n"):
                self.close(out)
            return
        if self.has_text() and not body.lstrip().startswith(">") and (self._interrupts(body) or _ITEM.match(body)):
            self.close(out)
            self.line(line, out)
            return
        self._add(line)
        if self.size > CHUNK:
            self.close(out)

    def _start_item(self, line: str, match: re.Match[str]) -> None:
        number = match.group(3)
        if number is None:
            self.ordinal, self.info = None, ""
        else:
            self.ordinal = int(number) if self.ordinal is None else self.ordinal + 1
            self.info = str(self.ordinal)
        self.kind = "list"
        self.indent = len(match.group(1)) + len(match.group(2)) + 1
        self.items = 1
        self.closer = match.group(2)[-1]
        self.blanks = 0
        self._add(line)

    def _in_list(self, line: str, out: list[Block]) -> None:
        body = line.rstrip("\n")
        stripped = body.strip()
        if self.in_fence:
            self._add(line)
            if stripped.startswith(self.in_fence) and not stripped.strip(self.in_fence[0]):
                self.in_fence = ""
            return
        if not stripped:
            self._add(line)
            self.blanks += 1
            return
        depth = len(body) - len(body.lstrip(" "))
        item = _ITEM.match(body)
        if item is not None and depth < self.indent and self._takes(item) and not _RULE.match(body):
            self.items += 1
            if self.ordinal is not None:
                self.ordinal += 1
            self._add(line)
            self.blanks = 0
            return
        if depth < self.indent and (item is not None or self.blanks or self._interrupts(body) or _RULE.match(body)):
            self.close(out)
            self.line(line, out)
            return
        self._add(line)
        self.blanks = 0
        fence = _FENCE.match(body.lstrip(" "))
        if fence:
            self.in_fence = fence.group(1)
        elif self.size > 2 * CHUNK:
            self.close(out)

    def _takes(self, item: re.Match[str]) -> bool:
        """Whether another item of the top level still goes into this block: some do, so that lists cost few widgets."""
        return self.items < LIST_ITEMS and self.size < CHUNK // 2 and item.group(2)[-1] == self.closer
