"""Any text of another tool as rules: whose it is, what it says, and what it means for a model on a machine."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from textwrap import dedent
from typing import Literal, get_args

from engine.arch.spec import ModelSpec
from engine.errors import PlacementError
from engine.gguf.info import GgufFile
from engine.graph.ops import Graph
from engine.hardware.gpus import GpuInfo
from engine.placement.flags import LlamaFlags, n_gpus_meant, parse_flags
from engine.placement.interchange.config import is_config, parse_config
from engine.placement.interchange.kt_options import KtOptions, resolve_options
from engine.placement.interchange.kt_resolve import resolve_kt
from engine.placement.interchange.kt_rules import KtRules, parse_rules
from engine.placement.interchange.script import parse_launch
from engine.placement.options import LoadOptions
from engine.placement.placement import Gpu
from engine.placement.resolution import Resolution
from engine.placement.rules import resolve
from engine.placement.settings import Settings

Tool = Literal["llama.cpp", "ik", "ktransformers", "config", "script"]
TOOLS: tuple[Tool, ...] = get_args(Tool)
"""In this order they are offered. `ktransformers` has rule files and command lines; `script` starts any of the first three."""

_YAML = re.compile(r"^[ \t]*(?:-[ \t]+)?(?:match|replace)[ \t]*:", re.MULTILINE)
_KT = re.compile(r"\s*--(?:kt-|gguf[_-]path|cpu[_-]infer|cache[_-]lens|optimize[_-]config)")
_SECRET_FLAG = re.compile(r"(--api[-_]key|--hf[-_]token|-hft|--api[-_]keys)([=\s]+)(\"[^\"\n$]*\"|'[^'\n]*'|[^\s\"'$\\]+)")
_SECRET_NAME = re.compile(r"\b(\w*(?:TOKEN|API_KEY|SECRET|PASSWORD))(=)(\"[^\"\n$]*\"|'[^'\n]*'|[^\s\"'$;\\]+)")
REMOVED = "REMOVED"
MAX_TEXT = 1 << 20
"""Characters of any text; each kind has a limit of its own below this."""


@dataclass(frozen=True, slots=True)
class Parsed:
    """text: as it was given, without secrets. differences, notes: what is so on any machine, beside what the rules say
    themselves.

    visible: the GPUs that the tool would see, by their numbers here; None: all of them.
    """

    tool: Tool
    text: str
    rules: LlamaFlags | KtRules | KtOptions
    visible: tuple[int, ...] | None = None
    differences: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def unsupported(self) -> tuple[str, ...]:
        """What means nothing here on any machine, one sentence each."""
        own = () if isinstance(self.rules, KtRules) else self.rules.unsupported
        return (*own, *self.differences)

    @property
    def remarks(self) -> tuple[str, ...]:
        """What need not be said, or is not quite the same here, one sentence each."""
        return (*(() if isinstance(self.rules, KtRules) else self.rules.moot), *self.notes)

    @property
    def ignored(self) -> tuple[str, ...]:
        """Words about other things."""
        return () if isinstance(self.rules, KtRules) else self.rules.ignored

    @property
    def settings(self) -> Settings:
        """What is said beside places."""
        return Settings() if isinstance(self.rules, KtRules) else self.rules.settings

    @property
    def n_gpus(self) -> int:
        """How many GPUs a machine has for which it was written, at least."""
        if self.visible is not None:
            return max(self.visible, default=-1) + 1
        if isinstance(self.rules, LlamaFlags):
            return n_gpus_meant(self.rules)
        if isinstance(self.rules, KtOptions):
            return self.rules.n_gpus
        named = [one.generate_device or "CUDA0" for one in self.rules.rules]
        return max([1, *(int(name.lstrip("CUDAXPN")) + 1 for name in named if name != "CPU")])

    def resolve(self, spec: ModelSpec, graph: Graph, file: GgufFile, gpus: Sequence[GpuInfo], options: LoadOptions) -> Resolution:
        """What it means for this model on a machine with these GPUs.

        Raises:
            PlacementError: a device that is not there. InvalidRequest: see `plan_workers`.
        """
        seen = self._seen(gpus)
        match self.rules:
            case LlamaFlags():
                found = resolve(self.rules, spec, graph, file, seen, options)
            case KtRules():
                found = resolve_kt(self.rules, spec, graph, file, seen, options)
            case KtOptions():
                found = resolve_options(self.rules, spec, graph, file, seen, options)
        placement = found.placement
        if self.visible is not None:
            units = tuple((unit, self._ours(where) if isinstance(where, Gpu) else where) for unit, where in placement.units)
            pools = tuple(replace(one, gpu=self._ours(one.gpu)) for one in placement.pools)
            placement = replace(placement, units=units, pools=pools)
        differences = (*found.differences, *self.differences)
        return replace(found, placement=placement, differences=differences, notes=(*found.notes, *self.notes))

    def _seen(self, gpus: Sequence[GpuInfo]) -> Sequence[GpuInfo]:
        """The GPUs as the tool numbers them."""
        if self.visible is None:
            return gpus
        there = {one.index: one for one in gpus}
        missing = next((one for one in self.visible if one not in there), None)
        if missing is not None:
            raise PlacementError(f"CUDA_VISIBLE_DEVICES names GPU {missing}, which is not there; this machine has {len(there)}")
        return [replace(there[one], index=i) for i, one in enumerate(self.visible)]

    def _ours(self, gpu: Gpu) -> Gpu:
        return Gpu((self.visible or ())[gpu.index])


def parse(text: str, where: str = "the text", tool: Tool | None = None) -> Parsed:
    """The rules of a text. tool: whose they are, None: told by the text.

    Raises:
        PlacementError: it means nothing; one sentence.
    """
    if len(text) > MAX_TEXT:
        raise PlacementError(f"{where}: it has {len(text)} characters; rules of other tools have at most {MAX_TEXT}")
    if "\0" in text:
        raise PlacementError(f"{where}: this is no text; give flags, rules or a placement file")
    kept = without_secrets(text)
    chosen = tool or recognise(text)
    match chosen:
        case "config":
            return Parsed(chosen, kept, parse_config(text, where))
        case "ktransformers" if _is_rules(text):
            return Parsed(chosen, kept, parse_rules(dedent(text)))
        case "llama.cpp" | "ik" if text.lstrip().startswith("-"):
            flags = parse_flags(text, tool if tool in ("llama.cpp", "ik") else None)
            return Parsed(flags.tool, kept, flags)
    launch = parse_launch(f"{_program(text)} {text.strip()}" if text.lstrip().startswith("-") else text)
    rules = launch.rules
    rules = replace(rules, settings=replace(rules.settings, cores=launch.cores, node=launch.node))
    if isinstance(rules, LlamaFlags) and tool in ("llama.cpp", "ik"):
        rules = replace(rules, tool=tool)
    of = "ktransformers" if isinstance(rules, KtOptions) else rules.tool
    _check_tool(tool, of, where)
    return Parsed(
        of if launch.whole and tool != "script" else "script", kept, rules, launch.visible, launch.differences, launch.notes
    )


def _program(text: str) -> str:
    """What options without a program are for."""
    return "kt" if re.search(r"\s*--kt-", text) else "ktransformers" if _KT.match(text) else "llama-server"


def _check_tool(asked: Tool | None, found: Tool, where: str) -> None:
    if asked in (None, "script", found) or {asked, found} == {"llama.cpp", "ik"}:
        return
    raise PlacementError(f"{where}: these are rules of {found}, not of {asked}; leave the tool out or name that one")


def recognise(text: str) -> Tool:
    """Whose rules a text holds, by its looks."""
    if text.lstrip().startswith("{"):
        return "config"
    if _is_rules(text) or _KT.match(text):
        return "ktransformers"
    return "llama.cpp" if text.lstrip().startswith("-") else "script"


def _is_rules(text: str) -> bool:
    """Whether a text is a list in YAML of what replaces what. A script may hold one among its lines."""
    first = next((line for line in map(str.strip, text.splitlines()) if line and not line.startswith(("#", "---", "%"))), "")
    return (
        not text.startswith("#!") and re.match(r"-(?:[ \t]|$)|match[ \t]*:", first) is not None and _YAML.search(text) is not None
    )


def without_secrets(text: str) -> str:
    """The text with passwords and keys taken out: a file of a placement is passed on."""
    text = _SECRET_FLAG.sub(rf"\1\2{REMOVED}", text)
    return _SECRET_NAME.sub(rf"\1\2{REMOVED}", text)


__all__ = ["REMOVED", "TOOLS", "Parsed", "Tool", "is_config", "parse", "recognise", "without_secrets"]
