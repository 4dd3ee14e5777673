"""What can be asked without a loaded model and without the engine: what a model holds, what a placement of it takes, which one is
best. Plain values and functions that start nothing; each may be called from any thread."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from engine.api.interchange import Equivalent, Resolution, Tool, equivalent_commands, import_rules
from engine.api.model_info import model_info
from engine.api.values import LoadOptions, ModelInfo
from engine.arch.registry import build_spec
from engine.arch.units import UnitId, UnitKind
from engine.estimate.calibration import load_calibration, save_calibration
from engine.estimate.described import Described
from engine.estimate.planner import Planner
from engine.estimate.prediction import ContextPlan, DevicePrediction, Limit, Prediction
from engine.estimate.rates import Calibration
from engine.estimate.work import ModelWork, experts_of
from engine.gguf.info import GgufFile
from engine.gguf.overrides import Override, override
from engine.gguf.reader import read_gguf
from engine.graph.build import build_graph
from engine.hardware.gpus import GpuInfo
from engine.hardware.machine import Machine, NodeInfo, machine_fingerprint, this_machine
from engine.hardware.machine_file import read_machine
from engine.hardware.user_data import user_data_dir
from engine.placement.file import fingerprint
from engine.placement.placement import Device, Gpu, Numa, Placement, Pool, units_of
from engine.placement.tensors import tensor_uses
from engine.quants.formats import BY_NAME

__all__ = [
    "Calibration",
    "ContextPlan",
    "Device",
    "DevicePrediction",
    "Equivalent",
    "Gpu",
    "GpuInfo",
    "Limit",
    "Machine",
    "ModelOutline",
    "NodeInfo",
    "Numa",
    "Placement",
    "Planner",
    "Pool",
    "Prediction",
    "Resolution",
    "Tool",
    "UnitFacts",
    "UnitId",
    "UnitKind",
    "equivalent_commands",
    "import_rules",
    "load_rates",
    "machine_fingerprint",
    "machine_of",
    "measure",
    "outline_of",
    "planner_of",
    "read_outline",
    "save_rates",
    "this_machine",
]


@dataclass(frozen=True, slots=True)
class UnitFacts:
    """One unit of a model. nbytes: of its tensors (of a cache or state 0: they depend on the context); formats: "Q4_K, 4.5 bits";
    read_per_token: bytes that a decoded token reads of it; n_experts, n_used: of experts, else 0."""

    unit: UnitId
    nbytes: int
    formats: str
    read_per_token: int
    n_experts: int
    n_used: int


@dataclass(frozen=True, slots=True, eq=False)
class ModelOutline:
    """A model as its header describes it. units: in order of execution; fingerprint: tells models apart whose placements differ.

    layer_kinds: of each layer, `attention`, `latent` or `delta`. model: for `Planner`.
    """

    info: ModelInfo
    units: tuple[UnitFacts, ...]
    fingerprint: str
    n_layers: int
    n_experts: int
    n_used: int
    layer_kinds: tuple[str, ...]
    model: Described

    def of(self, unit: UnitId) -> UnitFacts:
        """The facts of a unit. Raises: KeyError."""
        found = next((one for one in self.units if one.unit == unit), None)
        if found is None:
            raise KeyError(str(unit))
        return found


_KINDS = {"Attention": "attention", "Mla": "latent", "DeltaNet": "delta"}


def read_outline(path: str, overrides: tuple[Override, ...] = ()) -> ModelOutline:
    """The model at a path, from its header alone: also one whose weights are missing behind it.

    Raises:
        GgufError: damaged or missing. UnsupportedModel: nothing that this version runs. InvalidRequest: overrides.
    """
    file, _ = override(read_gguf(Path(path)), overrides)
    return outline_of(file, path)


def outline_of(file: GgufFile, path: str) -> ModelOutline:
    """The model of a header that was read already. Raises: UnsupportedModel, GgufError."""
    spec = build_spec(file)
    model = Described(file, spec, build_graph(spec))
    counts = [experts_of(spec, block.index) for block in spec.blocks]
    n_experts, n_used = max(counts, default=(0, 0))
    return ModelOutline(
        info=model_info(file, spec, path),
        units=unit_facts(model),
        fingerprint=fingerprint(spec),
        n_layers=spec.n_layers,
        n_experts=n_experts,
        n_used=n_used,
        layer_kinds=tuple(_KINDS[type(block.mixer).__name__] for block in spec.blocks),
        model=model,
    )


def unit_facts(model: Described) -> tuple[UnitFacts, ...]:
    """The facts of every unit, in order of execution."""
    tensors, work = model.file.tensors, ModelWork(model.spec, model.file.tensors, LoadOptions(), 1)
    names: dict[UnitId, list[str]] = {unit: [] for unit in units_of(model.spec)}
    for use in tensor_uses(model.graph):
        names[use.unit].append(use.name)
    found = []
    for unit, mine in names.items():
        by_type: Counter[str] = Counter()
        for name in dict.fromkeys(mine):
            by_type[tensors[name].type_name] += tensors[name].nbytes
        n_experts, n_used = experts_of(model.spec, unit.layer) if unit.kind == "experts" else (0, 0)
        read = round(sum(op.nbytes for op in work.of(unit, "decode", "cpu")))
        found.append(UnitFacts(unit, sum(by_type.values()), _formats(by_type), read, n_experts, n_used))
    return tuple(found)


def _formats(by_type: Counter[str]) -> str:
    """The formats with most bytes, largest first, and the bits of a weight of the first."""
    names = [name for name, nbytes in by_type.most_common(2) if nbytes * 20 >= by_type.total()]
    if not names:
        return ""
    bits = f"{BY_NAME[names[0]].bits_per_weight:.2f}".rstrip("0").rstrip(".") if names[0] in BY_NAME else ""
    return f"{' + '.join(names)}{f', {bits} bits' if bits else ''}"


def measure(machine: Machine) -> Calibration:
    """Measures this machine, which takes seconds and wants it idle: for a thread that nobody waits for."""
    # Not with the module: who only plans needs no runtime.
    from engine.runtime.calibrate import calibrate

    return calibrate(machine)


def load_rates(machine: Machine, folder: Path | None = None) -> Calibration | None:
    """What was measured of this machine before, None: nothing that counts. folder: None: the user's."""
    return load_calibration(folder or user_data_dir(), machine)


def save_rates(calibration: Calibration, machine: Machine, folder: Path | None = None) -> None:
    """Keeps what was measured. Raises: OSError."""
    save_calibration(calibration, folder or user_data_dir(), machine)


def planner_of(outline: ModelOutline, options: LoadOptions, machine: Machine) -> Planner:
    """A planner with what was measured of the machine, if it was. Raises: see `Planner`."""
    return Planner(outline, options, machine, load_rates(machine))


def machine_of(path: str) -> Machine:
    """The machine that a file describes. Raises: InvalidRequest, one sentence."""
    return read_machine(Path(path))
