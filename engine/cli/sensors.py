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
from engine.errors import InvalidRequest
from engine.hardware.gpu_watch import GpuWatch
from engine.hardware.sampler import LIVE, Sampler
from engine.hardware.snapshot import GpuSample, HardwareSnapshot

APART_S = 0.5
"""Between two readings: rates and use are of this time."""
PATIENCE_S = 12.0
"""For cards whose driver has to start."""
GIB = 1 << 30


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


def lines(snapshot: HardwareSnapshot) -> list[str]:
    """The reading for people."""
    cpu, use = snapshot.cpu, snapshot.cpu.use_percent
    found = [f"{cpu.name}: {_of(sum(use) / len(use) if use else None, '%')} busy, {_of(cpu.temperature_c, '°C')}"]
    found.append(f"  memory: {snapshot.ram_used_bytes / GIB:.1f} of {snapshot.ram_total_bytes / GIB:.1f} GiB used")
    for node in snapshot.nodes if len(snapshot.nodes) > 1 else ():
        free = "n/a" if node.free_bytes is None else f"{node.free_bytes / GIB:.1f} GiB"
        found.append(f"  node {node.node}: {free} free")
    found += [_card(gpu) for gpu in snapshot.gpus]
    if snapshot.gpu_problem:
        found.append(f"  no cards: {snapshot.gpu_problem}")
    return found


def _card(gpu: GpuSample) -> str:
    if gpu.state != "ok":
        return f"{gpu.name} ({gpu.pci or gpu.key}): {gpu.problem}"
    used, total = gpu.memory_used_bytes, gpu.memory_total_bytes
    memory = "memory n/a" if used is None or total is None else f"{used / GIB:.1f} of {total / GIB:.1f} GiB"
    heat, power = _of(gpu.temperature_c, "°C"), _of(gpu.power_w, "W")
    return f"{gpu.name} ({gpu.pci}): {_of(gpu.busy_percent, '%')} busy, {memory}, {heat}, {power}"


def _of(value: float | None, unit: str) -> str:
    return "n/a" if value is None else f"{value:.0f} {unit}"
