"""What people give to `--placement`: flags, rules or settings of another tool, a file of them, or a placement file of ours."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from engine.arch.spec import ModelSpec
from engine.errors import PlacementError
from engine.gguf.info import GgufFile
from engine.graph.ops import Graph
from engine.hardware.gpus import GpuInfo
from engine.hardware.machine import Machine
from engine.placement.file import Rules, from_json, has_units, rules_of
from engine.placement.flags import to_text
from engine.placement.interchange.parsed import TOOLS, Parsed, is_config, parse
from engine.placement.options import LoadOptions
from engine.placement.over_nodes import over_nodes
from engine.placement.placement import Numa
from engine.placement.resolution import Resolution, name_of
from engine.placement.settings import Settings
from engine.placement.tensors import tensor_uses

MAX_FILE_BYTES = 16 << 20


def read_source(source: str) -> tuple[str, str]:
    """(text, what to call it in messages) of flags, rules, a JSON text or the path of a file with any of them.

    Raises:
        PlacementError: neither flags nor a file that can be read.
    """
    if re.match(r"\s*(-|\{)", source) or re.search(r"\s-", source):
        return source, "the placement"
    if not source or "\0" in source or len(source) > 4096:
        raise PlacementError("the placement is neither flags nor the path of a file; give one of them")
    path = Path(source)
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise PlacementError(f"{path}: the file is too large for a placement; give another")
        return path.read_bytes().decode("utf-8-sig"), path.name
    except OSError as error:
        raise PlacementError(
            f"{path}: cannot be read ({error.strerror}); give a placement file or flags such as '-ngl 99'"
        ) from error
    except UnicodeDecodeError as error:
        raise PlacementError(f"{path}: byte {error.start} is not valid UTF-8; give a placement file or flags") from error


def is_placement_file(text: str) -> bool:
    """Whether a text is a placement of ours, or at least meant to be one."""
    return text.lstrip().startswith("{") and not is_config(text)


def parse_kept(rules: Rules, where: str) -> Parsed:
    """Rules that a placement file holds. Raises: PlacementError: of a tool that is not known here, or no rules."""
    tool = next((one for one in TOOLS if one == rules.tool), None)
    if tool is None:
        raise PlacementError(f"{where}: rules of {rules.tool[:40]!r} are not known here; this program reads {', '.join(TOOLS)}")
    return parse(rules.text or to_text(rules.words), where, tool)


def settings_in(source: str) -> Settings:
    """What a source says beside places; nothing of a placement of ours. Raises: PlacementError, one sentence."""
    text, where = read_source(source)
    if not is_placement_file(text):
        return parse(text, where).settings
    rules = None if has_units(text, where) else rules_of(text, where)
    return Settings() if rules is None else parse_kept(rules, where).settings


def resolve_source(
    source: str,
    spec: ModelSpec,
    graph: Graph,
    file: GgufFile,
    gpus: Sequence[GpuInfo],
    options: LoadOptions,
    nodes: Sequence[int] = (0,),
) -> Resolution:
    """The placement that a source means for this model on a machine with these GPUs and nodes of memory.

    Raises:
        PlacementError: it means none; one sentence. InvalidRequest: see `plan_workers`.
    """
    return _resolved(*read_source(source), spec, graph, file, gpus, options, nodes)


def resolve_here(
    source: str,
    spec: ModelSpec,
    graph: Graph,
    file: GgufFile,
    machine: Machine,
    options: LoadOptions,
    gbps: Mapping[int, float] | None = None,
    gpus: Sequence[GpuInfo] | None = None,
) -> Resolution:
    """The same as it is loaded on a machine: rules of others, which know one CPU, are about all its nodes of memory. gbps: by
    node, as measured; gpus: those that can be used, None: all of the machine.

    Raises: see `resolve_source`.
    """
    text, where = read_source(source)
    cards = machine.gpus if gpus is None else gpus
    found = _resolved(text, where, spec, graph, file, cards, options, machine.node_numbers)
    ours = is_placement_file(text) and has_units(text, where)
    return found if ours else on_machine(found, machine, gbps)


def on_machine(found: Resolution, machine: Machine, gbps: Mapping[int, float] | None = None) -> Resolution:
    """Rules of another tool on a machine that may have several nodes of memory: over all of them, or on the one they name."""
    node, placement = found.settings.node, found.placement
    if node is not None and node in machine.node_numbers:
        units = tuple((unit, Numa(node) if isinstance(one, Numa) else one) for unit, one in placement.units)
        return replace(found, placement=replace(placement, units=units, spreads=()))
    spread = replace(found, placement=over_nodes(placement, machine, gbps))
    if node is None:
        return spread
    there = ", ".join(f"numa{one}" for one in machine.node_numbers)
    return replace(spread, differences=(*found.differences, f"node {node} of memory is not in this machine: {there} is used"))


def _resolved(
    text: str,
    where: str,
    spec: ModelSpec,
    graph: Graph,
    file: GgufFile,
    gpus: Sequence[GpuInfo],
    options: LoadOptions,
    nodes: Sequence[int],
) -> Resolution:
    if not is_placement_file(text):
        return parse(text, where).resolve(spec, graph, file, gpus, options)
    rules = rules_of(text, where)
    if rules is not None and not has_units(text, where):
        return parse_kept(rules, where).resolve(spec, graph, file, gpus, options)
    placement = from_json(text, spec, gpus, options, where, nodes)
    places = dict(placement.units)
    tensors = {use.name: name_of(places[use.unit]) for use in reversed(tensor_uses(graph))}
    return Resolution(tensors, placement)
