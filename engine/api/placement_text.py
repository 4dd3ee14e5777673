"""A placement as the text of its file, and back: what an application keeps, exports and reads again. Pure."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from engine.api.interchange import equivalent_commands
from engine.api.pure import Machine, ModelOutline, Placement
from engine.api.values import LoadOptions
from engine.placement.file import to_json
from engine.placement.source import resolve_source

__all__ = ["EquivalentText", "ReadPlacement", "equivalents", "placement_text", "read_placement"]


@dataclass(frozen=True, slots=True)
class ReadPlacement:
    """A placement that was read. notes: what of the text could not be met or is different here, one sentence each."""

    placement: Placement
    notes: tuple[str, ...] = ()


def placement_text(placement: Placement, outline: ModelOutline) -> str:
    """The text of the file of a placement of this model."""
    return to_json(placement, outline.model.spec)


def read_placement(text: str, outline: ModelOutline, options: LoadOptions, machine: Machine) -> ReadPlacement:
    """What a text means for this model on this machine: a placement file, rules of another tool, or the path of either.

    Raises:
        PlacementError: it means none; one sentence. InvalidRequest: threads that no team can have.
    """
    model = outline.model
    found = resolve_source(text, model.spec, model.graph, model.file, machine.gpus, options)
    said = shlex.join(found.settings.words())
    settings = (f"beside places it says what is {said} on our command line",) if said else ()
    return ReadPlacement(found.placement, (*found.differences, *found.notes, *settings))


@dataclass(frozen=True, slots=True)
class EquivalentText:
    """A placement in the words of one tool. notes: what they cannot say, one sentence each."""

    tool: str
    text: str
    notes: tuple[str, ...] = ()


def equivalents(placement: Placement, outline: ModelOutline, options: LoadOptions) -> tuple[EquivalentText, ...]:
    """The placement in the words of every tool that it can be written for; ours, which says all of it, comes last."""
    found = equivalent_commands(placement, outline, options, outline.info.path)
    others = tuple(EquivalentText(one.label, one.text.rstrip("\n"), one.notes) for one in found)
    return (*others, EquivalentText("Layerdeck", placement_text(placement, outline)))
