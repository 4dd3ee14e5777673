"""KTransformers' rules to its own map of tensors, and to the nearest Placement of ours.

Modules that no rule matches lie on cuda:0, as do those below a module whose rule is not recursive, but for experts, which lie
with the module that takes them. The cache of a layer lies with its attention (`operators/base_operator.py`, `util/utils.py`
there).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from engine.arch.spec import DeltaNet, ModelSpec
from engine.gguf.info import GgufFile
from engine.graph.ops import Graph
from engine.hardware.gpus import GpuInfo
from engine.placement.differences import Difference, sentences
from engine.placement.interchange.kt_modules import ModuleMap, class_matches
from engine.placement.interchange.kt_rules import KtRule, KtRules
from engine.placement.options import LoadOptions
from engine.placement.placement import Placement, plan_workers
from engine.placement.resolution import Layout, Resolution, check_device, nearest_units
from engine.placement.settings import Settings

DEFAULT = "CUDA0"
"""Where KTransformers puts what no rule is about."""


class KtMap:
    """Where rules put the modules and tensors of one model."""

    def __init__(self, rules: KtRules, architecture: str, names: Iterable[str]) -> None:
        self.used: set[int] = set()
        self._rules, self._modules = rules.rules, ModuleMap(architecture, names)
        self._found: dict[str, KtRule | None] = {}
        self._devices: dict[str, str] = {}

    def tensor(self, name: str) -> str:
        """The device of a tensor."""
        return self.module(self._modules.module_of(name))

    def module(self, module: str) -> str:
        """The device of the weights of a module."""
        if module not in self._devices:
            self._devices[module] = self._place(module)
        return self._devices[module]

    def _place(self, module: str) -> str:
        for above in _chain(module):
            rule = self._match(above)
            experts = above.endswith(".experts")
            if experts and rule is not None and rule.replaces:
                # What takes the place of the experts also loads their weights; on the CPU where nothing is said.
                return rule.generate_device or "CPU"
            if rule is not None and not rule.recursive and above != module:
                return DEFAULT
        rule = self._match(module)
        return DEFAULT if rule is None or rule.generate_device is None else rule.generate_device

    def _match(self, module: str) -> KtRule | None:
        """The first rule that matches a module."""
        if module not in self._found:
            kind, architecture = self._modules.kind_of(module), self._modules.architecture
            self._found[module] = None
            for i, rule in enumerate(self._rules):
                of_class = not rule.class_path or class_matches(rule.class_path, kind, architecture)
                if of_class and (rule.name is None or rule.name.search(module)):
                    self._found[module] = rule
                    self.used.add(i)
                    break
        return self._found[module]


def _chain(module: str) -> list[str]:
    """The modules from the whole model down to one."""
    parts = module.split(".")
    return ["", *(".".join(parts[: i + 1]) for i in range(len(parts)))] if module else [""]


def resolve_kt(
    rules: KtRules, spec: ModelSpec, graph: Graph, file: GgufFile, gpus: Sequence[GpuInfo], options: LoadOptions
) -> Resolution:
    """What the rules mean for this model on a machine with these GPUs.

    Raises:
        PlacementError: a device that is not there. InvalidRequest: see `plan_workers`.
    """
    known = ("CPU", *(f"CUDA{one.index}" for one in gpus))
    for i, rule in enumerate(rules.rules, 1):
        for device in (rule.generate_device, *(where for _, where in rule.transfers)):
            if device is not None:
                check_device(device, known, f"rule {i}")
    placed = KtMap(rules, file.architecture, file.tensors)
    tensors = {name: placed.tensor(name) for name in file.tensors}
    mixers = [placed.module(f"model.layers.{one.index}.{_mixer(one.mixer)}") for one in spec.blocks]
    layers = (*mixers, placed.module("lm_head"))
    for name in tensors.values():
        check_device(name, known, "a module that no rule is about")
    found: list[Difference] = []
    layout = Layout(tensors, layers, layers, lambda name: name != spec.embed and not name.startswith("rope_"))
    units = nearest_units(layout, spec, graph, file, found)
    placement = Placement(units, options.k_type, options.v_type, plan_workers(options.n_threads, options.cores))
    differences = (*sentences(found), *_other_makes(rules))
    return Resolution(tensors, placement, differences, _notes(rules, placed, mixers), _settings(rules))


def _other_makes(rules: KtRules) -> tuple[str, ...]:
    """Devices that are no GPUs of ours."""
    makes = {str(rule.generate_device).rstrip("0123456789") for rule in rules.rules} & {"XPU", "NPU"}
    return tuple(f"{one.lower()} devices are not known here: a GPU of the same number is taken" for one in sorted(makes))


def _mixer(mixer: object) -> str:
    return "linear_attn" if isinstance(mixer, DeltaNet) else "self_attn"


def _notes(rules: KtRules, placed: KtMap, mixers: Sequence[str]) -> tuple[str, ...]:
    """What is probably not meant."""
    notes = []
    for i, rule in enumerate(rules.rules, 1):
        if rule.replacement.endswith("Experts") and "CPU" in rule.generate_op and rule.generate_device not in (None, "CPU"):
            notes.append(f"rule {i}: {rule.generate_op} computes on the CPU alone, and its generate_device is another device")
        if rule.transfers:
            notes += _wrong_transfers(i, rule, mixers)
    idle = [i for i, rule in enumerate(rules.rules, 1) if i - 1 not in placed.used and rule.name is not None]
    weighty = [i for i in idle if "Rotary" not in rules.rules[i - 1].class_path]
    if weighty:
        listed = ", ".join(map(str, weighty[:8])) + (", ..." if len(weighty) > 8 else "")
        notes.append(f"{'rule' if len(weighty) == 1 else 'rules'} {listed}: no part of this model is placed by it")
    return tuple(notes)


def _wrong_transfers(i: int, rule: KtRule, mixers: Sequence[str]) -> list[str]:
    """Layers that rows are not brought to the device of."""
    there, moves = mixers[0] if mixers else DEFAULT, dict(rule.transfers)
    for layer, device in enumerate(mixers):
        there = moves.get(layer, there)
        if there != device:
            return [f"rule {i}: transfer_map brings rows to {there} at layer {layer}, whose attention is on {device}"]
    return []


def _settings(rules: KtRules) -> Settings:
    """Prompts that are computed layer by layer on a GPU bring the experts there, as ours do where it is faster."""
    streams = any(rule.threshold and rule.prefill_device != "CPU" for rule in rules.rules)
    return Settings(stream_experts="auto") if streams else Settings()
