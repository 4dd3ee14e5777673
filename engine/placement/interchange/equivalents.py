"""A placement as the commands and files of other tools, and their texts as placements: what the editor shows and takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from engine.arch.spec import ModelSpec, MoeFfn
from engine.errors import InvalidRequest
from engine.gguf.info import GgufFile
from engine.gguf.overrides import whole_key
from engine.graph.ops import Graph
from engine.hardware.gpus import GpuInfo
from engine.placement.interchange.parsed import Tool, parse
from engine.placement.interchange.write_files import write_config, write_flags
from engine.placement.interchange.write_kt import write_options, write_rules
from engine.placement.interchange.write_script import write_script
from engine.placement.interchange.written import Text, Written
from engine.placement.options import LoadOptions
from engine.placement.placement import Placement
from engine.placement.resolution import Resolution
from engine.placement.rules import n_layers_of

WRITERS: dict[Tool, Callable[[Written], Text]] = {
    "llama.cpp": lambda written: write_flags(written, "llama.cpp"),
    "ik": lambda written: write_flags(written, "ik"),
    "ktransformers": write_rules,
    "config": write_config,
    "script": write_script,
}
"""How each tool is written."""
LABELS: dict[str, str] = {
    "llama.cpp": "llama.cpp",
    "ik": "ik_llama.cpp",
    "ktransformers": "KTransformers rules",
    "sglang": "KTransformers options",
    "config": "config.json",
    "script": "Launch script",
}
"""What the tools are called in front of people; `sglang` is the second form of `ktransformers`."""


class Model(Protocol):
    """Whatever holds a model as its header describes it."""

    @property
    def file(self) -> GgufFile: ...
    @property
    def spec(self) -> ModelSpec: ...
    @property
    def graph(self) -> Graph: ...


class Machine(Protocol):
    """Whatever knows the GPUs of a machine."""

    @property
    def gpus(self) -> tuple[GpuInfo, ...]: ...


class Equivalent(NamedTuple):
    """The same placement for another tool. notes: what it cannot say, one sentence each."""

    tool: str
    text: str
    notes: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The name of the tool as people know it."""
        return LABELS.get(self.tool, self.tool)


def written_of(placement: Placement, model: Model, options: LoadOptions | None, model_path: str = "") -> Written:
    """A placement with all that is written with it."""
    spec, file = model.spec, model.file
    experts = [block.ffn for block in spec.blocks if isinstance(block.ffn, MoeFfn)]
    return Written(
        units=placement.units,
        k_type=placement.k_type,
        v_type=placement.v_type,
        pools=placement.pools,
        architecture=spec.architecture,
        n_extra=max(0, n_layers_of(file) - spec.n_layers),
        n_experts=max((ffn.n_experts for ffn in experts), default=0),
        sigmoid=any(ffn.routing.gating == "sigmoid" for ffn in experts),
        model_path=model_path or str(file.path),
        n_workers=placement.workers.n_workers,
        options=options,
        keys=() if options is None else tuple((_whole(file, name), value) for name, value in options.overrides),
        n_spread=sum(placement.spread_of(unit) is not None for unit, _ in placement.units),
    )


def _whole(file: GgufFile, name: str) -> str:
    """A key as other tools want it; one that the file does not have as it is."""
    try:
        return whole_key(file, name)
    except InvalidRequest:
        return name


def equivalent_commands(placement: Placement, model: Model, options: LoadOptions, model_path: str = "") -> tuple[Equivalent, ...]:
    """The placement for every tool, in the order in which they are offered. Takes milliseconds.

    model_path: as it is to be written; empty: that of the model's file.
    """
    written = written_of(placement, model, options, model_path)
    found = {name: writer(written) for name, writer in WRITERS.items()} | {"sglang": write_options(written)}
    return tuple(Equivalent(tool, found[tool].text, found[tool].notes) for tool in LABELS)


def import_rules(
    text: str, model: Model, machine: Machine, options: LoadOptions | None = None, tool: Tool | None = None
) -> Resolution:
    """What a text of another tool means for a model on a machine. tool: whose it is, None: told by the text.

    Raises:
        PlacementError: it means nothing there; one sentence.
    """
    parsed = parse(text, tool=tool)
    return parsed.resolve(model.spec, model.graph, model.file, machine.gpus, options or LoadOptions())
