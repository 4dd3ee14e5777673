"""A placement as the text of its file, and back from whatever people have: a file of ours, another tool's command or rules."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.api.interchange import Settings
from engine.api.pure import Machine, ModelOutline, Placement
from engine.api.values import LoadOptions
from engine.estimate.calibration import load_calibration, node_gbps
from engine.hardware.user_data import user_data_dir
from engine.placement.file import has_units, rules_of, to_json
from engine.placement.interchange.parsed import parse
from engine.placement.source import is_placement_file, on_machine, parse_kept, read_source, resolve_source

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
    where, model = "the placement", outline.model
    if "\n" not in text and not text.lstrip().startswith("{"):
        text, where = read_source(text)
    parsed = None if is_placement_file(text) else parse(text, where)
    if parsed is None and not has_units(text, where) and (rules := rules_of(text, where)) is not None:
        parsed = parse_kept(rules, where)
    if parsed is None:
        found = resolve_source(text, model.spec, model.graph, model.file, machine.gpus, options, machine.node_numbers)
        return ReadPlacement(found.placement, (*found.differences, *found.notes))
    found = parsed.resolve(model.spec, model.graph, model.file, machine.gpus, options)
    found = on_machine(found, machine, node_gbps(load_calibration(user_data_dir(), machine), machine))
    notes = (*found.differences, *found.notes, *parsed.remarks)
    return ReadPlacement(found.placement, tuple(dict.fromkeys(notes)), found.settings)
