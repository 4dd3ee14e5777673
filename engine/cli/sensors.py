"""`layerdeck sensors`: one reading of the machine: processors, memory, nodes, disk and cards; each value has its unit in its
name, each missing one its reason."""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from engine.cli.options import add_json_option
from engine.cli.output import write_json, write_text
from engine.cli.sensor_text import lines
from engine.errors import InvalidRequest
from engine.hardware.gpu_watch import GpuWatch
from engine.hardware.sampler import LIVE, Sampler
from engine.hardware.snapshot import HardwareSnapshot

APART_S = 0.5
"""Between two readings: rates and use are of this time."""
PATIENCE_S = 12.0
"""For cards whose driver has to start."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `sensors`."""
    parser.add_argument("--root", type=Path, default=LIVE, metavar="DIR", help="a folder with proc and sys of another machine")
    parser.add_argument(
        "--details", action="store_true", help="also which programs hold memory of cards, and their links' traffic"
    )
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Reads twice, and writes the second reading."""
    if not args.root.is_dir():
        raise InvalidRequest(f"{args.root}: this is no folder; give one that holds proc and sys")
    snapshot = read(args.root, details=args.details)
    if args.json:
        write_json(as_json(snapshot))
    else:
        write_text("".join(f"{line}\n" for line in lines(snapshot)))
    return 0


def read(root: Path, *, details: bool) -> HardwareSnapshot:
    """One reading, once every card has answered or has said why it does not."""
    gpus = GpuWatch(root)
    try:
        gpus.adjust(in_use=True, details=details)
        gpus.start(APART_S / 2)
        sampler = Sampler(root, gpus=gpus, slow_s=0.0)
        sampler.sample()
        began = time.monotonic()
        time.sleep(APART_S)
        while not _settled(gpus, details=details) and time.monotonic() < began + PATIENCE_S:
            time.sleep(0.05)
        return sampler.sample(time.monotonic() - began)
    finally:
        gpus.close()


def _settled(gpus: GpuWatch, *, details: bool) -> bool:
    if gpus.problem:
        return True
    if not gpus.begun:
        return False
    return all(one.state != "silent" and not (details and one.state == "ok" and one.processes is None) for one in gpus.samples())


def as_json(snapshot: HardwareSnapshot) -> dict[str, Any]:
    """The reading as one object; the reasons of what is missing by field."""
    found: dict[str, Any] = _with_reasons(asdict(snapshot))
    return found


def _with_reasons(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: dict(one) if key == "missing" else _with_reasons(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_with_reasons(one) for one in value]
    return value
