"""A Placement of ours as flags of llama.cpp or ik_llama.cpp: the shortest that mean the same, with what they cannot say listed.

Layers in order over CPU and GPUs become `-ngl` and `-ts`; every unit that lies elsewhere than its layer becomes part of a rule.
Rules stand in an order in which the first match is right: experts, shared experts, feed-forward parts, then whole layers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine.arch.units import UnitId, UnitKind
from engine.placement.differences import layer_list
from engine.placement.flags import LlamaTool
from engine.placement.options import KvType
from engine.placement.placement import Device, Gpu, Numa
from engine.placement.resolution import name_of

_PARTS: tuple[tuple[UnitKind, str], ...] = (
    ("experts", r"\.ffn_(gate|up|down|gate_up)_exps\."),
    ("shared", r"\.ffn_.*_shexp\."),
    ("ffn", r"\.(ffn_|exp_probs|post_ffw|layer_output)"),
    ("mixer", r"\."),
)
"""What is searched for behind the number of a layer; kinds in the order of the rules."""


@dataclass(frozen=True, slots=True)
class Exported:
    """words: of a command line; notes: what they cannot say, one sentence each."""

    words: tuple[str, ...]
    notes: tuple[str, ...] = ()


def to_flags(
    units: Sequence[tuple[UnitId, Device]], k_type: KvType, v_type: KvType, n_extra: int = 0, tool: LlamaTool = "llama.cpp"
) -> Exported:
    """The flags for places of units. n_extra: layers of the file behind those that compute, which count for both tools."""
    places = dict(units)
    layers = [places[unit] for unit, _ in units if unit.kind == "mixer"]
    head = places.get(UnitId("head"), Numa(0))
    own, words = _layers(layers, head, n_extra, tool)
    rules, notes = _rules(places, own), _notes(places, own)
    if rules:
        words += ["-ot", ",".join(rules)]
    for flag, kind in (("-ctk", k_type), ("-ctv", v_type)):
        if kind == "int8":
            notes.append("llama.cpp has no cache of type int8: q8_0 is written")
        if kind != "f16":
            words += [flag, "q8_0" if kind == "int8" else kind]
    if tool == "ik" and "-ts" in words:
        notes.append("ik_llama.cpp of 2026 cuts layers over GPUs by their bytes: a boundary may lie a layer away from here")
    return Exported(tuple(words), tuple(dict.fromkeys(notes)))


def _layers(layers: list[Device], head: Device, n_extra: int, tool: LlamaTool) -> tuple[list[Device], list[str]]:
    """Where the tool will have each layer and the output behind them, and the flags for it."""
    order: list[Device] = [*layers, *[layers[-1] if layers else head] * n_extra, head]
    first = next((i for i, one in enumerate(order) if isinstance(one, Gpu)), len(order))
    if tool == "ik" and first > 0:
        order[-1] = Numa(0)  # there the output stays with the CPU until all layers are on GPUs
        first = min(first, len(order) - 1)
    on_gpus = order[first : len(order) - (tool == "ik" and first > 0)]
    # Cut as the first layer of each GPU says: what lies otherwise becomes a rule.
    ascending: list[Gpu] = []
    for one in on_gpus:
        last = ascending[-1] if ascending else None
        ascending.append(one if isinstance(one, Gpu) and (last is None or one.index >= last.index) else (last or Gpu(0)))
    if not ascending:
        return [*order[: len(layers)], Numa(0)], ["-ngl", "0"]
    here: list[Device] = [*[Numa(0)] * first, *ascending, *order[first + len(ascending) :]]
    number = "999" if first == 0 else str(len(ascending))
    return [*here[: len(layers)], here[-1]], ["-ngl", number, *_split(ascending)]


def _split(ascending: list[Gpu]) -> list[str]:
    """The flags that cut layers over GPUs as they are, whatever memory is free."""
    if len(set(ascending)) > 1:
        last = ascending[-1].index
        return ["-ts", ",".join(str(ascending.count(Gpu(i))) for i in range(last + 1))]
    only = ascending[0].index
    return ["-sm", "none", *(["-mg", str(only)] if only else [])]


def _rules(places: Mapping[UnitId, Device], own: list[Device]) -> list[str]:
    rules: list[str] = []
    for kind, pattern in _PARTS:
        there = {unit.layer: device for unit, device in places.items() if unit.kind == kind}
        for device in sorted({*there.values()}):
            layers = [layer for layer, one in there.items() if one == device]
            if any(own[layer] != device or _hidden(places, kind, layer, device) for layer in layers):
                rules.append(f"{_numbers(layers, len(own) - 1)}{pattern}={name_of(device)}")
    head, embed = places.get(UnitId("head"), Numa(0)), places.get(UnitId("embed"), Numa(0))
    if head != own[-1]:
        rules.append(f"^output={name_of(head)}")
    if embed != Numa(0):
        rules.append(f"^token_embd={name_of(embed)}")
    return rules


def _hidden(places: Mapping[UnitId, Device], kind: UnitKind, layer: int, device: Device) -> bool:
    """Whether a later rule, about the feed-forward part or the whole layer, would take the unit along."""
    wider = _PARTS[2:] if kind in ("experts", "shared") else _PARTS[3:] if kind == "ffn" else ()
    return any(places.get(UnitId(one, layer)) != device for one, _ in wider)


def _numbers(layers: Sequence[int], n_layers: int) -> str:
    """A pattern for the beginning of names of some layers."""
    return "blk" + (r"\.\d+" if len(layers) == n_layers else rf"\.({'|'.join(map(str, layers))})")


def _notes(places: Mapping[UnitId, Device], own: list[Device]) -> list[str]:
    apart = [unit.layer for unit, device in places.items() if unit.kind in ("kv", "state") and device != own[unit.layer]]
    where = "lies, with llama.cpp, where its layer is counted to and not with its attention"
    return [f"the cache of {layer_list(apart)} {where}"] if apart else []
