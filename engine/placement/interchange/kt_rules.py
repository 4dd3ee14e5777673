"""KTransformers' rule files: a YAML list of what replaces which modules of a model, on which device.

For each module, from the whole model down, the first rule that matches counts: `match.name` is found anywhere in its name,
`match.class` is its class or one that it inherits from. `recursive: False` keeps what lies below from being looked at. What the
keys mean is in KTransformers' injection tutorial and in its `optimize/optimize.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.errors import PlacementError
from engine.placement.patterns import compile_python

MAX_TEXT = 1 << 18
"""Characters of a rule file; the longest that is published has 30,000. Reading takes 2 s for as many as this."""
MAX_RULES = 2000


@dataclass(frozen=True, slots=True)
class KtRule:
    """One rule. name: a pattern or None; class_path: or "". replacement: the class that comes in place, or `default`.

    A device of None is not named. threshold: from how many tokens on a prompt is computed layer by layer on prefill_device, 0:
    never.
    """

    name: re.Pattern[str] | None
    class_path: str
    replacement: str = "default"
    generate_device: str | None = None
    prefill_device: str | None = None
    generate_op: str = ""
    recursive: bool = True
    transfers: tuple[tuple[int, str], ...] = ()
    threshold: int = 0

    @property
    def replaces(self) -> bool:
        """Whether another class comes in place."""
        return self.replacement != "default"


@dataclass(frozen=True, slots=True)
class KtRules:
    """The rules of a file, in order."""

    rules: tuple[KtRule, ...]


def parse_rules(text: str) -> KtRules:
    """The rules of a file; of several documents in one, one after another.

    Raises:
        PlacementError: not YAML, or no rules; one sentence.
    """
    if len(text) > MAX_TEXT:
        raise PlacementError(f"the rules have {len(text)} characters; a rule file has at most {MAX_TEXT}")
    found: list[Any] = []
    for document in _documents(text):
        if document is None:
            continue
        if not isinstance(document, list):
            raise PlacementError("the rules are no list of `- match: ... replace: ...`; give a rule file of KTransformers")
        found += document
    if not found:
        raise PlacementError("there is no rule in the file; give a rule file of KTransformers")
    if len(found) > MAX_RULES:
        raise PlacementError(f"there are {len(found)} rules; a rule file has at most {MAX_RULES}")
    return KtRules(tuple(_rule(one, f"rule {i}") for i, one in enumerate(found, 1)))


def _documents(text: str) -> list[Any]:
    # Not with the module: commands that read no YAML start without it.
    import yaml

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        """Without aliases: a few lines of them can stand for gigabytes."""

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.events.AliasEvent):
                raise yaml.YAMLError("aliases (*name) are not read here; write out what they stand for")
            return super().compose_node(parent, index)

    try:
        return list(yaml.load_all(text, Loader))  # the loader is a safe one
    except RecursionError as error:
        raise PlacementError("the rules are nested too deeply; give a rule file of KTransformers") from error
    except (yaml.YAMLError, ValueError) as error:
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None) or str(error)
        where = f" in line {mark.line + 1}" if mark is not None else ""
        raise PlacementError(f"the rules are not YAML{where} ({_first_line(str(problem))}); correct the file") from error


def _first_line(text: str) -> str:
    return " ".join(text.split())[:120]


def _rule(value: Any, where: str) -> KtRule:
    rule = _mapping(value, where, "match and replace")
    match = _mapping(rule.get("match"), f"{where}: match", "name or class")
    if "name" not in match and "class" not in match:
        raise PlacementError(f"{where}: match has neither name nor class; give one of them")
    replace = _mapping(rule.get("replace"), f"{where}: replace", "class and kwargs")
    kwargs = _mapping(replace.get("kwargs") or {}, f"{where}: kwargs", "generate_device and others")
    name = match.get("name")
    return KtRule(
        name=None if name is None else compile_python(_text(name, f"{where}: name")),
        class_path=_text(match.get("class", ""), f"{where}: class"),
        replacement=_text(replace.get("class", "default"), f"{where}: class"),
        generate_device=_device(kwargs.get("generate_device"), f"{where}: generate_device"),
        prefill_device=_device(kwargs.get("prefill_device"), f"{where}: prefill_device"),
        generate_op=_text(kwargs.get("generate_op") or "", f"{where}: generate_op"),
        recursive=bool(rule.get("recursive", True)),
        transfers=_transfers(kwargs.get("transfer_map") or {}, f"{where}: transfer_map"),
        threshold=_number(kwargs.get("per_layer_prefill_intput_threshold") or 0, f"{where}: per_layer_prefill_intput_threshold"),
    )


def _transfers(value: Any, where: str) -> tuple[tuple[int, str], ...]:
    found = _mapping(value, where, "layers and devices")
    pairs = [(_number(layer, where), _device(device, where) or "CUDA0") for layer, device in found.items()]
    return tuple(sorted(pairs))


def _mapping(value: Any, where: str, what: str) -> Mapping[Any, Any]:
    if not isinstance(value, dict):
        raise PlacementError(f"{where} is {_shown(value)}, not a mapping with {what}; correct the file")
    return value


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise PlacementError(f"{where} is {_shown(value)}, not a text; correct the file")
    return value


def _number(value: Any, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 31:
        raise PlacementError(f"{where} is {_shown(value)}, not a whole number; correct the file")
    return value


def _device(value: Any, where: str) -> str | None:
    """The name of a device in the manner of llama.cpp."""
    if value is None:
        return None
    match = re.fullmatch(r"cpu|(cuda|xpu|npu)(?::(\d{1,3}))?", _text(value, where).strip().lower())
    if match is None:
        raise PlacementError(f"{where} is {value[:40]!r}; devices here are cpu, cuda and cuda:0, cuda:1, ...")
    return "CPU" if match[1] is None else f"{match[1].upper()}{int(match[2] or 0)}"


def _shown(value: Any) -> str:
    return "missing" if value is None else repr(value)[:40]
