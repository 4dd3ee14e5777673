"""Placements for other tools and their texts for us, as the application asks for them: plain functions that start nothing."""

from __future__ import annotations

from typing import Protocol

from engine.api.values import LoadOptions
from engine.placement.interchange.equivalents import Equivalent, Machine, Model
from engine.placement.interchange.equivalents import equivalent_commands as _equivalents
from engine.placement.interchange.equivalents import import_rules as _import
from engine.placement.interchange.parsed import TOOLS, Tool
from engine.placement.placement import Placement
from engine.placement.resolution import Resolution
from engine.placement.settings import Settings

__all__ = ["TOOLS", "Equivalent", "Resolution", "Settings", "Tool", "equivalent_commands", "import_rules"]


class Outline(Protocol):
    """A model as its header describes it."""

    @property
    def model(self) -> Model:
        """File, spec and graph."""
        ...


def equivalent_commands(
    placement: Placement, outline: Outline, options: LoadOptions, model_path: str = ""
) -> tuple[Equivalent, ...]:
    """The placement for every tool, in the order in which they are offered; each is (tool, text, notes). Takes milliseconds.

    model_path: as it is to be written; empty: that of the model's file.
    """
    return _equivalents(placement, outline.model, options, model_path)


def import_rules(
    text: str, outline: Outline, machine: Machine, options: LoadOptions | None = None, tool: Tool | None = None
) -> Resolution:
    """What a text of another tool means for a model on a machine. tool: whose it is, None: told by the text.

    Raises:
        PlacementError: it means nothing there; one sentence.
    """
    return _import(text, outline.model, machine, options, tool)
