"""`layerdeck doctor`: checks of this machine, one row each, with what to do; reads only, changes nothing, and asks the network
with `--network` alone.

The exit code is the worst state: 0 all well (or not known), 3 a warning, 4 a problem; 1 and 2 are errors of the command itself.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import engine
from engine.advice.doctor.check import CheckResult, Status, worst
from engine.advice.doctor.context import LIVE
from engine.advice.doctor.facts import ModelFacts
from engine.advice.doctor.gather import gather
from engine.advice.doctor.network import download
from engine.advice.doctor.probes import Probes
from engine.advice.doctor.table import CHECKS, quick, run_checks
from engine.cli.options import add_json_option
from engine.cli.output import one_line, write_json, write_text
from engine.errors import InvalidRequest

EXIT: dict[Status, int] = {"n/a": 0, "pass": 0, "unknown": 0, "warn": 3, "fail": 4}
VERSION = 1
DOWNLOADS = "huggingface.co"
MARKS: dict[Status, str] = {"pass": "ok", "warn": "warning", "fail": "PROBLEM", "unknown": "unknown", "n/a": "n/a"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `doctor`."""
    parser.add_argument("--root", type=Path, default=LIVE, metavar="DIR", help="a folder with proc and sys of another machine")
    parser.add_argument("--all", action="store_true", help="also checks that take seconds, and every row that is well")
    parser.add_argument("--model", type=Path, metavar="GGUF", help="also check this model's file and disk")
    parser.add_argument(
        "--network",
        nargs="?",
        const="",
        metavar="HOST",
        help="also try whether HOST (huggingface.co) can be reached for downloads",
    )
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Runs the checks and writes what they say; the exit code is the worst state."""
    if not args.root.is_dir():
        raise InvalidRequest(f"{args.root}: this is no folder; give one that holds proc and sys")
    began = time.monotonic()
    probes = Probes() if args.all and args.root == LIVE else None
    try:
        context = gather(
            args.root,
            env=os.environ,
            model=None if args.model is None else ModelFacts(args.model.absolute()),
            host="" if args.network is None else args.network or _download_host(os.environ),
            thorough=args.all,
            probes=probes,
        )
        chosen = CHECKS if args.all else (*quick(), *(check for check in CHECKS if context.host and check is download))
        results = tuple(run_checks(context, chosen))
    finally:
        if probes is not None:
            probes.close()
    if args.json:
        write_json(as_json(results, time.monotonic() - began))
    else:
        write_text("".join(f"{line}\n" for line in lines(results, verbose=args.all)))
    return EXIT[worst(tuple(one.status for one in results))]


def _download_host(env: Mapping[str, str]) -> str:
    return urlsplit(env.get("HF_ENDPOINT", "")).hostname or DOWNLOADS


def as_json(results: Sequence[CheckResult], seconds: float) -> dict[str, Any]:
    """The report as one object."""
    states = Counter(one.status for one in results)
    return {
        "layerdeck": "doctor",
        "version": VERSION,
        "program": engine.VERSION,
        "worst": worst(tuple(one.status for one in results)),
        "seconds": round(seconds, 3),
        "counts": {status: states[status] for status in EXIT},
        "checks": [asdict(one) for one in results],
    }


def lines(results: Sequence[CheckResult], *, verbose: bool) -> list[str]:
    """The report for people: what needs them in full, the rest in one line each."""
    found: list[str] = []
    group = ""
    for one in results:
        if one.status == "n/a" and not verbose:
            continue
        if one.group != group:
            group = one.group
            found.append(group)
        found += _row(one, verbose=verbose)
    states = Counter(one.status for one in results)
    found.append(", ".join(f"{states[status]} {MARKS[status]}" for status in reversed(EXIT) if states[status]))
    return found


def _row(one: CheckResult, *, verbose: bool) -> list[str]:
    found = [f"  {MARKS[one.status]:<8} {one.id:<9} {one.title}: {one_line(one.observed)}"]
    if one.why and (verbose or one.status in ("warn", "fail", "unknown")):
        found.append(f"{'':21}{one_line(one.why)}")
    for fix in one.fixes:
        found.append(f"{'':21}> {fix.command or fix.changes}")
        if fix.command:
            found.append(f"{'':23}{fix.changes}")
        if fix.undo:
            found.append(f"{'':23}undo: {fix.undo}")
    return found
