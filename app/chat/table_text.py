"""A markdown table's source to cells: splitting at unescaped bars, alignment from the delimiter row."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Align = Literal["left", "center", "right"]
_BAR = re.compile(r"(?<!\\)\|")


@dataclass(frozen=True, slots=True)
class TableText:
    """header and rows have as many cells as aligns."""

    header: tuple[str, ...]
    aligns: tuple[Align, ...]
    rows: tuple[tuple[str, ...], ...]


def parse_table(source: str) -> TableText:
    """Rows that are too short are filled up, rows that are too long are cut, as GitHub does it."""
    lines = [line for line in source.split("\n") if line.strip()]
    header = _cells(lines[0]) if lines else ()
    n = max(len(header), 1)
    given = [_align(cell) for cell in _cells(lines[1])] if len(lines) > 1 else []
    aligns: list[Align] = [*given, *(["left"] * n)]  # type: ignore[list-item]
    return TableText(_fit(header, n), tuple(aligns[:n]), tuple(_fit(_cells(line), n) for line in lines[2:]))


def _cells(line: str) -> tuple[str, ...]:
    text = line.strip()
    text = text.removeprefix("|")
    if text.endswith("|") and not text.endswith("\\|"):
        text = text[:-1]
    return tuple(cell.strip().replace("\\|", "|") for cell in _BAR.split(text))


def _align(cell: str) -> Align:
    left, right = cell.startswith(":"), cell.endswith(":")
    return "center" if left and right else ("right" if right else "left")


def _fit(cells: tuple[str, ...], n: int) -> tuple[str, ...]:
    return (*cells, *("",) * n)[:n]
