"""`layerdeck estimate`: what a model will take on each device of this or another machine, from its header alone."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from engine.arch.registry import build_spec
from engine.arch.spec import ModelSpec
from engine.cli.model import read_model
from engine.cli.options import add_json_option, add_load_options, load_options
from engine.cli.output import note, write_json, write_text
from engine.estimate.automatic import automatic_placement
from engine.estimate.memory import DeviceBytes, Estimate, Estimator
from engine.graph.build import build_graph
from engine.hardware.machine import Machine, this_machine
from engine.hardware.machine_file import read_machine
from engine.placement.placement import Placement
from engine.placement.source import resolve_source

OWNERS = ("weights", "derived", "kv", "kept_windows", "state", "workspace", "other")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the model, how it would be loaded, and on which machine."""
    add_load_options(parser)
    parser.add_argument("--machine", type=Path, metavar="M.json", help="a machine described in a file, in place of this one")
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Prints bytes by device and owner; tells what of the placement cannot be done here on standard error."""
    file = read_model(args)
    spec = build_spec(file)
    graph, options = build_graph(spec), load_options(args)
    machine = this_machine() if args.machine is None else read_machine(args.machine)
    if machine.gpus and machine.problem:
        note(machine.problem)
    estimator = Estimator(spec, graph, file.tensors, options, machine)
    if options.placement:
        found = resolve_source(options.placement, spec, graph, file, machine.gpus, options)
        placement = found.placement
        for sentence in (*found.differences, *found.notes):
            note(sentence)
    else:
        placement = automatic_placement(spec, estimator, options)
    estimate = estimator.estimate(placement)
    if args.json:
        write_json(summarise(estimate, placement, spec))
    else:
        write_text(_table(estimate, machine))
    return 0


def summarise(estimate: Estimate, placement: Placement, spec: ModelSpec) -> dict[str, Any]:
    """The JSON object of `estimate`. limit: the device with the least room."""
    return {
        "devices": [_device(one) for one in estimate.devices],
        "limit": str(estimate.limit.device),
        "fits": estimate.fits,
        "n_ctx": estimate.n_ctx,
        "architecture": spec.architecture,
        "placement": {str(unit): str(where) for unit, where in placement.units},
    }


def _device(one: DeviceBytes) -> dict[str, Any]:
    owners = {owner: getattr(one, owner) for owner in OWNERS}
    return {"id": str(one.device), **owners, "used": one.used, "capacity": one.capacity, "over": one.over}


def _table(estimate: Estimate, machine: Machine) -> str:
    names = {f"gpu{one.index}": one.name for one in machine.gpus} | {"numa0": "memory"}
    heads = ("", *(owner.replace("_", " ") for owner in OWNERS), "used", "of")
    lines = [f"{heads[0]:24}" + "".join(f"{head:>14}" for head in heads[1:])]
    for one in estimate.devices:
        amounts = [getattr(one, owner) for owner in OWNERS] + [one.used, one.capacity]
        label = f"{one.device} {names.get(str(one.device), '')}"[:23]
        lines.append(f"{label:24}" + "".join(f"{_gib(amount):>14}" for amount in amounts))
    limit = estimate.limit
    if estimate.fits:
        lines.append(f"It fits with a context of {estimate.n_ctx} tokens; {limit.device} has the least room.")
    else:
        lines.append(f"It does not fit with a context of {estimate.n_ctx} tokens: {limit.device} lacks {_gib(limit.over)} GiB.")
    return "\n".join(lines) + "\n"


def _gib(nbytes: int) -> str:
    return f"{nbytes / (1 << 30):.2f}"
