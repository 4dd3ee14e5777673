"""What one GPU has run of a model by now, whichever placement it was for: of that, nothing is compiled any more."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from engine.program.plan import Lane
from engine.runtime.gpu_bind import form_of

Kind = tuple[int, str, str, Hashable]


@dataclass(slots=True)
class Seen:
    """kinds: of ops, with the rows of their plan; workspace: working memory when prompts had run."""

    kinds: set[Kind] = field(default_factory=set)
    workspace: int = 0


def kinds_of(lane: Lane, max_rows: int, format_of: Callable[[str], str]) -> frozenset[Kind]:
    """The kinds of ops of a lane. format_of: of a tensor of the file."""
    return frozenset((max_rows, type(op).__name__, op.unit.kind, form_of(op, format_of)) for op in lane.ops)
