"""A calibration as a file, one for each machine, and what a measured step teaches it.

    {"layerdeck": "calibration", "version": 1, "machine": "<fingerprint>", "isa": "avx512vnni", "nodes": [...], "gpus": [...]}

A file of another machine, of other kernels or that cannot be read is as good as none: rates are then assumed or measured anew.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from engine.errors import InvalidRequest
from engine.estimate.rates import Calibration, Corrections, FormatRates, GpuRates, NodeRates
from engine.estimate.speed import StepTime
from engine.hardware.machine import Machine, machine_fingerprint
from engine.placement.placement import Gpu
from engine.program.fuse import Phase
from kernels_pyx.cpu_features import active_isa

MARK, VERSION = "calibration", 1
_AGAIN = "measure again with: layerdeck estimate --calibrate"
LEARNING = 0.5
"""How far a correction goes towards what one measurement says: others are noise of a busy machine."""
MOST = 8.0
"""The largest correction, and the smallest is one by it: beyond that something else is wrong."""


def calibration_path(folder: Path, machine: Machine) -> Path:
    """The file of a machine in a folder."""
    return folder / f"calibration-{machine_fingerprint(machine)}.json"


def save_calibration(calibration: Calibration, folder: Path, machine: Machine) -> Path:
    """Writes the file, whole or not at all.

    Raises:
        OSError: it cannot be written.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = calibration_path(folder, machine)
    part = path.with_suffix(f".{os.getpid()}.part")
    part.write_text(to_json(calibration, machine))
    part.replace(path)
    return path


def load_calibration(folder: Path, machine: Machine) -> Calibration | None:
    """What was measured of this machine, None where nothing was or it does not count any more."""
    try:
        return from_json(calibration_path(folder, machine).read_text(), machine)
    except (OSError, UnicodeDecodeError, InvalidRequest):
        return None


def node_gbps(calibration: Calibration | None, machine: Machine) -> dict[int, float]:
    """What all cores of each node read together, by node; {} where it was not measured."""
    if calibration is None or not calibration.measured or len(calibration.nodes) != len(machine.nodes):
        return {}
    return {one.node: rates.read(one.n_cores) for one, rates in zip(machine.nodes, calibration.nodes, strict=True)}


def to_json(calibration: Calibration, machine: Machine) -> str:
    """The text of the file."""
    head = {"layerdeck": MARK, "version": VERSION, "machine": machine_fingerprint(machine), "isa": active_isa()}
    return json.dumps(head | asdict(calibration), indent=1) + "\n"


def from_json(text: str, machine: Machine) -> Calibration:
    """The calibration in a text.

    Raises:
        InvalidRequest: no calibration, one of another version, or of another machine; one sentence.
    """
    try:
        value = json.loads(text)
        if not isinstance(value, dict) or value.get("layerdeck") != MARK or value.get("version") != VERSION:
            raise InvalidRequest(f"this is no calibration that this version reads; {_AGAIN}")
        if value.get("machine") != machine_fingerprint(machine) or value.get("isa") != active_isa():
            raise InvalidRequest(f"this calibration is of another machine; {_AGAIN}")
        found = Calibration(
            nodes=tuple(_node(one) for one in value["nodes"]),
            gpus=tuple(GpuRates(**{key: float(one[key]) for key in GpuRates.__annotations__}) for one in value["gpus"]),
            exchange_us=float(value["exchange_us"]),
            step_us=float(value["step_us"]),
            file_gbps=float(value["file_gbps"]),
            corrections=Corrections(**{key: float(value["corrections"][key]) for key in Corrections.__annotations__}),
            measured=bool(value["measured"]),
        )
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InvalidRequest(f"this calibration cannot be read; {_AGAIN}") from error
    if len(found.nodes) != len(machine.nodes) or len(found.gpus) != len(machine.gpus):
        raise InvalidRequest(f"this calibration is of another machine; {_AGAIN}")
    return found


def _node(value: Mapping[str, Any]) -> NodeRates:
    return NodeRates(
        read_gbps=tuple((int(n), float(rate)) for n, rate in value["read_gbps"]),
        formats=tuple((str(name), FormatRates(**{key: float(v) for key, v in one.items()})) for name, one in value["formats"]),
        float_gops=float(value["float_gops"]),
        meet_us=float(value["meet_us"]),
        op_us=float(value["op_us"]),
        sold_gbps=float(value["sold_gbps"]),
    )


def learned(calibration: Calibration, phase: Phase, predicted: StepTime, seconds: float) -> Calibration:
    """The calibration after a step of this phase took so long.

    Whoever works longer is more likely to be what was misjudged: the CPU's and the GPUs' corrections move by their parts of it.
    """
    if seconds <= 0 or predicted.seconds <= 0:
        return calibration
    cpu = sum(part.seconds for device, part in predicted.parts.items() if not isinstance(device, Gpu))
    gpu = sum(part.seconds for device, part in predicted.parts.items() if isinstance(device, Gpu))
    ratio = seconds / predicted.seconds
    old, changed = calibration.corrections, {}
    for kind, part in (("cpu", cpu), ("gpu", gpu)):
        name = f"{phase}_{kind}"
        share = part / (cpu + gpu) if cpu + gpu else 0.0
        changed[name] = min(MOST, max(1 / MOST, getattr(old, name) * ratio ** (LEARNING * share)))
    return replace(calibration, corrections=replace(old, **changed))
