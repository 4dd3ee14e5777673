"""A placement as the text of its file, and back: what an application keeps, exports and reads again. Pure."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from engine.api.pure import Machine, ModelOutline, Placement
from engine.api.values import LoadOptions
from engine.placement.export import to_flags
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
    """What a text means for this model on this machine: a placement file, the path of one, or flags of llama.cpp.

    Raises:
        PlacementError: it means none; one sentence. InvalidRequest: threads that no team can have.
    """
    model = outline.model
    found = resolve_source(text, model.spec, model.graph, model.file, machine.gpus, options)
    return ReadPlacement(found.placement, (*found.differences, *found.notes))


@dataclass(frozen=True, slots=True)
class EquivalentText:
    """A placement in the words of one tool. notes: what they cannot say, one sentence each."""

    tool: str
    text: str
    notes: tuple[str, ...] = ()


def equivalents(placement: Placement, outline: ModelOutline, options: LoadOptions) -> tuple[EquivalentText, ...]:
    """The placement in the words of every tool that it can be written for; ours, which says all of it, comes last."""
    flags = to_flags(placement.units, placement.k_type, placement.v_type)
    context = ["-c", str(options.n_ctx)] if options.n_ctx else []
    line = shlex.join(["llama-server", "-m", outline.info.path, *context, *flags.words])
    return (
        EquivalentText("llama.cpp", line, flags.notes),
        EquivalentText("Layerdeck", placement_text(placement, outline)),
    )
