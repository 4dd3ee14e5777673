"""A placement as the text of its file, and back from whatever people have: a file of ours, another tool's command or rules."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.api.interchange import Settings, import_rules
from engine.api.pure import Machine, ModelOutline, Placement
from engine.api.values import LoadOptions
from engine.placement.file import MARK, to_json
from engine.placement.over_nodes import over_nodes
from engine.placement.source import read_source, resolve_source

__all__ = ["ReadPlacement", "placement_text", "read_placement"]


@dataclass(frozen=True, slots=True)
class ReadPlacement:
    """A placement that was read. notes: what of the text could not be met or is different here, one sentence each; settings: what
    else the text says."""

    placement: Placement
    notes: tuple[str, ...] = ()
    settings: Settings = field(default_factory=Settings)


def placement_text(placement: Placement, outline: ModelOutline) -> str:
    """The text of the file of a placement of this model."""
    return to_json(placement, outline.model.spec)


def read_placement(text: str, outline: ModelOutline, options: LoadOptions, machine: Machine) -> ReadPlacement:
    """What a text means for this model on this machine: a placement file, the command line or the rules of another tool, or the
    path of a file with one of them.

    Raises:
        PlacementError: it means none; one sentence. InvalidRequest: threads that no team can have.
    """
    if "\n" not in text and not text.lstrip().startswith("{"):
        text, _ = read_source(text)
    if f'"{MARK}"' in text and '"layerdeck"' in text:
        model = outline.model
        found = resolve_source(text, model.spec, model.graph, model.file, machine.gpus, options, machine.node_numbers)
        return ReadPlacement(found.placement, (*found.differences, *found.notes), found.settings)
    found = import_rules(text, outline, machine, options)
    return ReadPlacement(over_nodes(found.placement, machine), (*found.differences, *found.notes), found.settings)
