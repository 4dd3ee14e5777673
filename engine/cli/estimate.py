"""`layerdeck estimate` and `layerdeck fit`: what a model takes on each device of this or another machine and how fast it will be,
from its header alone; under a placement that is given, that loading would choose, or that is best."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from engine.api.pure import Machine, ModelOutline, Placement, Planner, Prediction, load_rates, measure, outline_of, save_rates
from engine.cli.counts import read_counts
from engine.cli.model import read_model
from engine.cli.options import add_json_option, add_load_options, load_options
from engine.cli.output import note, write_json, write_text
from engine.errors import InvalidRequest
from engine.estimate.calibration import node_gbps
from engine.estimate.chunks import with_longer_chunk
from engine.hardware.machine import this_machine
from engine.hardware.machine_file import read_machine
from engine.placement.file import to_json
from engine.placement.pools import pools_to_json
from engine.placement.source import resolve_here

OWNERS = ("weights", "derived", "kv", "kept_windows", "state", "workspace", "other")


def add_estimate_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the model, how it would be loaded, and on which machine."""
    add_load_options(parser)
    parser.add_argument("--machine", type=Path, metavar="M.json", help="a machine described in a file, in place of this one")
    parser.add_argument("--calibrate", action="store_true", help="measure this machine first, and keep what was found")
    add_json_option(parser)


def add_fit_arguments(parser: argparse.ArgumentParser) -> None:
    """The same, and where the placement goes."""
    add_estimate_arguments(parser)
    parser.add_argument("-o", "--out", type=Path, metavar="P.json", help="write the placement to a file")
    parser.add_argument(
        "--counts",
        type=Path,
        metavar="F.json",
        help="how often experts are passed, from `generate --counts`: the hottest go to GPUs",
    )


def run_estimate(args: argparse.Namespace) -> int:
    """Prints bytes by device and owner, and rates; tells what of the placement cannot be done here on standard error."""
    outline, planner = _planner(args)
    model = outline.model
    if not args.placement:
        placement = planner.default()
    else:
        rates = node_gbps(planner.calibration, planner.machine)
        found = resolve_here(args.placement, model.spec, model.graph, model.file, planner.machine, planner.options, rates)
        placement = found.placement
        for sentence in (*found.differences, *found.notes):
            note(sentence)
    options = with_longer_chunk(planner.options, placement, planner.estimator_with)
    if options.prefill_chunk != planner.options.prefill_chunk:
        planner = Planner(outline, options, planner.machine, planner.calibration)
    _show(args, planner, outline, placement)
    return 0


def run_fit(args: argparse.Namespace) -> int:
    """Prints the same of the best placement that is found, and it."""
    if args.placement:
        raise InvalidRequest("fit finds a placement; use estimate for one that you give with --placement")
    outline, planner = _planner(args)
    if args.counts is not None:
        planner.set_counts(read_counts(args.counts, outline))
    placement = planner.fit()
    if args.out is not None:
        args.out.write_text(to_json(placement, outline.model.spec), encoding="utf-8")
    _show(args, planner, outline, placement)
    return 0


def _planner(args: argparse.Namespace) -> tuple[ModelOutline, Planner]:
    if args.calibrate and args.machine is not None:
        raise InvalidRequest("--calibrate measures this machine; it cannot measure one that a file describes")
    outline = outline_of(read_model(args), str(args.model))
    machine = this_machine() if args.machine is None else read_machine(args.machine)
    if machine.gpus and machine.problem:
        note(machine.problem)
    rates = None
    if args.calibrate:
        rates = measure(machine)
        save_rates(rates, machine)
    elif args.machine is None:
        rates = load_rates(machine)
    return outline, Planner(outline, load_options(args), machine, rates)


def _show(args: argparse.Namespace, planner: Planner, outline: ModelOutline, placement: Placement) -> None:
    prediction = planner.refine(placement)
    if args.machine is None and not prediction.calibrated:
        note("this machine was not measured yet, its rates are assumed; measure it with --calibrate")
    if args.json:
        write_json(summarise(prediction, placement, outline))
    else:
        write_text(_table(prediction, planner.machine) + _pools(placement))


def summarise(prediction: Prediction, placement: Placement, outline: ModelOutline) -> dict[str, Any]:
    """The JSON object of both. limit: the device that holds everything up, limit_by: what of it; where something does not fit,
    the device with the least room. Rates in tokens a second; bound_tok_s: what the busiest memory alone would allow."""
    return {
        "devices": [_device(one) for one in prediction.devices],
        "decode_tok_s": round(prediction.decode_tok_s, 2),
        "prefill_tok_s": round(prediction.prefill_tok_s, 1),
        "bound_tok_s": round(prediction.bound_tok_s, 2),
        "load_s": round(prediction.load_s, 1),
        "limit": str(prediction.limit_device),
        "limit_by": prediction.limit,
        "fits": prediction.fits,
        "calibrated": prediction.calibrated,
        "n_ctx": prediction.n_ctx,
        "architecture": outline.info.architecture,
        "placement": {str(unit): str(where) for unit, where in placement.units},
        "pools": pools_to_json(placement.pools),
    }


def _device(one: Any) -> dict[str, Any]:
    owners = {owner: getattr(one.owners, owner) for owner in OWNERS}
    sums = {"used": one.used, "capacity": one.capacity, "over": one.over}
    return {"id": str(one.device), **owners, **sums, "decode_ms": round(one.decode_ms, 3), "name": one.name}


def _table(prediction: Prediction, machine: Machine) -> str:
    heads = ("", *(owner.replace("_", " ") for owner in OWNERS), "used", "of", "ms/token")
    lines = [f"{heads[0]:24}" + "".join(f"{head:>14}" for head in heads[1:])]
    for one in prediction.devices:
        amounts = [getattr(one.owners, owner) for owner in OWNERS] + [one.used, one.capacity]
        label = f"{one.device} {one.name or ('memory' if len(machine.nodes) == 1 else '')}"[:23]
        lines.append(f"{label:24}" + "".join(f"{_gib(amount):>14}" for amount in amounts) + f"{one.decode_ms:>14.2f}")
    tightest = prediction.tightest
    if prediction.fits:
        lines.append(f"It fits with a context of {prediction.n_ctx} tokens; {tightest.device} has the least room.")
    else:
        lines.append(
            f"It does not fit with a context of {prediction.n_ctx} tokens: {tightest.device} lacks {_gib(tightest.over)} GiB."
        )
    decode, bound = prediction.decode_tok_s, prediction.bound_tok_s
    lines.append(
        f"Decode {decode:.1f} tok/s, {decode / bound:.0%} of the {bound:.1f} tok/s that its busiest memory allows; prefill "
        f"{prediction.prefill_tok_s:.0f} tok/s; {prediction.limit_device} is the limit ({prediction.limit})."
    )
    return "\n".join(lines) + "\n"


def _pools(placement: Placement) -> str:
    """A line for each GPU with pools."""
    lines = []
    for gpu in sorted({pool.gpu for pool in placement.pools}):
        sizes = [len(pool.experts) for pool in placement.pools if pool.gpu == gpu]
        lines.append(f"{gpu} has copies of {sum(sizes)} experts of {len(sizes)} layer{'' if len(sizes) == 1 else 's'}.\n")
    return "".join(lines)


def _gib(nbytes: int) -> str:
    return f"{nbytes / (1 << 30):.2f}"
