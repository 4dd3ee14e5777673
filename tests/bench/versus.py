"""Us and other engines on one machine, with one model, in turns: `python -m tests.bench.versus MODEL --peer NAME=COMMAND`.

Every repetition runs each engine once, in a process of its own and after a read probe, so that a machine whose neighbours come
and go slows all alike. Only ratios within one run mean something. Writes every sample as JSON and prints a table.
"""

from __future__ import annotations

import argparse
import json
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import engine
from engine.cli.bench import numbers, read_limit_gbps
from engine.hardware.sampler import cpu_name

ROOT = Path(__file__).resolve().parents[2]
US = "layerdeck"
PEER_HELP = (
    "another engine: a command with {model} {threads} {depth} {prompt} {gen} {reps} to fill in, whose last line of output "
    "is a JSON object: pp_all (or pp<prompt>) and tg_all (or tg) in tokens a second, each a number or a list; maybe version, isa"
)


@dataclass(frozen=True, slots=True)
class Asked:
    """One process to run: at which depth, and whether a foreign process burns a core meanwhile."""

    name: str
    depth: int
    burn: bool


@dataclass(frozen=True, slots=True)
class Run:
    """What a process measured: rates in tokens a second by test (`pp512`, `tg64`). cost: (bytes read, operations) of a token."""

    name: str
    depth: int
    burn: bool
    repetition: int
    read_gbps: float
    seconds: float
    samples: dict[str, list[float]]
    cost: dict[str, tuple[float | None, float]] = field(default_factory=dict)
    slowest: float | None = None
    isa: str = ""
    version: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. ratio: against the better peer; read_gbps: the limit, the median of the probes before these runs."""

    test: str
    depth: int
    burn: bool
    name: str
    tok_s: float
    lowest: float
    highest: float
    n_samples: int
    ratio: float | None
    gbps: float | None
    read_gbps: float
    of_limit: float | None
    gops: float | None
    contended: bool
    slowest_token: float | None
    isa: str


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the comparison; 1 when an engine failed."""
    args = parser().parse_args(arguments)
    runs: list[Run] = []
    failed: set[str] = set()
    engines = {US: our_command(args)} | dict(args.peer)
    for repetition in range(args.r):
        for asked in turns(tuple(engines), args.d, args.burn):
            if asked.name in failed:
                continue
            run = measure(asked, engines[asked.name], args, repetition)
            runs.append(run)
            if run.error:
                failed.add(asked.name)
            say(f"{repetition + 1}/{args.r} {summary(run)}")
        write(args, runs)
    print(table(rows(runs, args.quiet_gbps)))
    return 1 if failed else 0


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="versus", description=__doc__.split("\n")[0] if __doc__ else None)
    made.add_argument("model", type=Path)
    made.add_argument("--peer", type=named_command, action="append", default=[], metavar="NAME=COMMAND", help=PEER_HELP)
    made.add_argument("-t", type=int, default=2, metavar="N", help="threads (default 2)")
    made.add_argument("-p", type=int, default=512, metavar="N", help="length of the prompt, 0: none (default 512)")
    made.add_argument("-n", type=int, default=64, metavar="N", help="tokens to generate (default 64)")
    made.add_argument("-d", type=numbers, default=(0,), metavar="N,...", help="tokens in the cache before (default 0)")
    made.add_argument("-r", type=int, default=5, metavar="N", help="repetitions (default 5)")
    made.add_argument("--burn", action="store_true", help="everything once more while a foreign process burns a core")
    made.add_argument(
        "--ours", type=shlex.split, default=[], metavar="OPTIONS", help="more options of our bench, e.g. '-ctk q8_0'"
    )
    made.add_argument(
        "--quiet-gbps", type=float, default=55.0, metavar="N", help="a read probe below says that neighbours use the memory (55)"
    )
    made.add_argument("--timeout", type=float, default=1800.0, metavar="S", help="seconds for one process (default 1800)")
    made.add_argument("--out", type=Path, default=Path("versus.json"), help="where all samples go (default versus.json)")
    return made


def named_command(text: str) -> tuple[str, list[str]]:
    """NAME=COMMAND as name and words, for argparse."""
    name, found, command = text.partition("=")
    if not found or not name or not command or name == US:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=COMMAND")
    return name, shlex.split(command)


def our_command(args: argparse.Namespace) -> list[str]:
    """Our bench; of its two repetitions the first only warms up, as peers do for themselves."""
    words = [sys.executable, "-m", "app", "bench", "{model}", "-t", "{threads}", "-d", "{depth}", "-p", "{prompt}", "-n", "{gen}"]
    return [*words, "-r", "2", "--json", *args.ours]


def turns(names: Sequence[str], depths: Sequence[int], burn: bool) -> Iterator[Asked]:
    """The processes of one repetition, in order: engines alternate fastest."""
    for depth in depths:
        for state in (False, True) if burn else (False,):
            for name in names:
                yield Asked(name, depth, state)


def measure(asked: Asked, command: Sequence[str], args: argparse.Namespace, repetition: int) -> Run:
    """Probes the memory, then runs one engine once."""
    values = {"model": args.model, "threads": args.t, "depth": asked.depth, "prompt": args.p, "gen": args.n, "reps": 1}
    words = [word.format(**values) for word in command]
    limit = read_limit_gbps(args.t)
    started = time.perf_counter()
    try:
        with burning(asked.burn):
            done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True, timeout=args.timeout)
        found = ours(json.loads(done.stdout)) if asked.name == US else theirs(last_json(done.stdout), args.p, args.n)
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError) as error:
        told = (getattr(error, "stderr", None) or "").strip().splitlines()
        found = {"samples": {}, "error": told[-1] if told else str(error) or type(error).__name__}
    return Run(asked.name, asked.depth, asked.burn, repetition, limit, time.perf_counter() - started, **found)


@contextmanager
def burning(wanted: bool) -> Iterator[None]:
    """A process that does nothing useful as fast as it can, while inside."""
    if not wanted:
        yield
        return
    foreign = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        foreign.kill()
        foreign.wait()


def ours(result: dict[str, Any]) -> dict[str, Any]:
    """The fields of a `Run` from the JSON of our bench."""
    measured = {row["test"]: row for row in result["rows"]}
    cost = {}
    for test, row in measured.items():
        rate = median(row["samples_tok_s"])
        cost[test] = (None if row["gbps"] is None else row["gbps"] * 1e9 / rate, row["gops"] * 1e9 / rate)
    slowest = [one for row in measured.values() for one in (row["slowest_token"] or ())[1:]]
    return {
        "samples": {test: row["samples_tok_s"][1:] for test, row in measured.items()},
        "cost": cost,
        "slowest": max(slowest, default=None),
        "isa": next((row["isa"] for row in measured.values()), ""),
        "version": result["versions"]["layerdeck"],
    }


def theirs(answer: dict[str, Any], prompt: int, gen: int) -> dict[str, Any]:
    """The fields of a `Run` from the JSON of a peer."""
    samples = {}
    for test, keys in ((f"pp{prompt}", ("pp_all", f"pp{prompt}")), (f"tg{gen}", ("tg_all", "tg"))):
        value = next((answer[key] for key in keys if key in answer), None)
        if value is not None:
            samples[test] = [float(one) for one in (value if isinstance(value, list) else [value])]
    if not samples:
        raise ValueError("neither prefill nor decode rates are in its answer")
    return {"samples": samples, "isa": str(answer.get("isa", "")), "version": str(answer.get("version", ""))}


def last_json(text: str) -> dict[str, Any]:
    """The object on the last line that is not blank."""
    lines = [line for line in text.splitlines() if line.strip()]
    found = json.loads(lines[-1]) if lines else None
    if not isinstance(found, dict):
        raise ValueError("its last line is no JSON object")
    return found


def rows(runs: Sequence[Run], quiet_gbps: float) -> list[Row]:
    """The table, by test, depth and state. quiet_gbps: read probes below are those of a contended machine."""
    good = [run for run in runs if run.samples]
    groups = {(test, run.depth, run.burn): None for run in good for test in run.samples}
    made: list[Row] = []
    for test, depth, burn in sorted(groups, key=lambda group: (group[0], group[1], group[2])):
        here = [run for run in good if (run.depth, run.burn) == (depth, burn) and test in run.samples]
        costs = [run.cost[test] for run in here if test in run.cost]
        names = list(dict.fromkeys(run.name for run in here))
        rates = {name: [rate for run in here if run.name == name for rate in run.samples[test]] for name in names}
        best = max((median(found) for name, found in rates.items() if name != US), default=None)
        for name in names:
            mine = [run for run in here if run.name == name]
            rate, limit = median(rates[name]), median(run.read_gbps for run in mine)
            n_bytes, operations = costs[0] if costs else (None, None)
            gbps = None if n_bytes is None else rate * n_bytes / 1e9
            slowest = [run.slowest for run in mine if run.slowest is not None and test.startswith("tg")]
            made.append(
                Row(
                    test=test,
                    depth=depth,
                    burn=burn,
                    name=name,
                    tok_s=rate,
                    lowest=min(rates[name]),
                    highest=max(rates[name]),
                    n_samples=len(rates[name]),
                    ratio=None if best is None else rate / best,
                    gbps=gbps,
                    read_gbps=limit,
                    of_limit=None if gbps is None else gbps / limit,
                    gops=None if operations is None else rate * operations / 1e9,
                    contended=limit < quiet_gbps,
                    slowest_token=median(slowest) if slowest else None,
                    isa=mine[-1].isa,
                )
            )
    return made


def table(lines: Sequence[Row]) -> str:
    """The rows for people."""
    head = ("test", "depth", "engine", "tok/s", "range", "ratio", "GB/s", "of limit", "GOP/s", "ISA", "")
    body = [
        (
            row.test,
            str(row.depth),
            row.name,
            f"{row.tok_s:.1f}",
            f"{row.lowest:.1f}-{row.highest:.1f} ({row.n_samples})",
            "" if row.ratio is None else f"{row.ratio:.2f}",
            "" if row.gbps is None else f"{row.gbps:.1f}",
            "" if row.of_limit is None else f"{row.of_limit:.0%} of {row.read_gbps:.1f}",
            "" if row.gops is None else f"{row.gops:.0f}",
            row.isa,
            ", ".join(
                word
                for word, told in (
                    ("contended", row.contended),
                    ("core burnt", row.burn),
                    (f"slowest token {row.slowest_token or 0:.1f}x", row.slowest_token is not None),
                )
                if told
            ),
        )
        for row in lines
    ]
    widths = [max(len(line[i]) for line in (head, *body)) for i in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in (head, *body)
    )


def summary(run: Run) -> str:
    """One line about a process that ended."""
    where = f"{run.name} at {run.depth}{' beside a burnt core' if run.burn else ''}"
    if run.error:
        return f"{where}: failed: {run.error}"
    rates = ", ".join(f"{test} {median(found):.1f}" for test, found in run.samples.items() if found)
    return f"{where}: {rates} tok/s after a read probe of {run.read_gbps:.1f} GB/s ({run.seconds:.0f} s)"


def write(args: argparse.Namespace, runs: Sequence[Run]) -> None:
    """Everything known so far, so that an interrupted comparison leaves its samples."""
    versions = {run.name: run.version for run in runs if run.version}
    result = {
        "model": {"name": args.model.name, "bytes": args.model.stat().st_size},
        "machine": {"cpu": cpu_name(), "system": platform.platform(), "threads": args.t},
        "versions": {**versions, US: engine.VERSION, "python": platform.python_version(), "numpy": np.__version__},
        "commands": {US: shlex.join(our_command(args))} | {name: shlex.join(command) for name, command in args.peer},
        "rows": [asdict(row) for row in rows(runs, args.quiet_gbps)],
        "runs": [asdict(run) for run in runs],
    }
    args.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def say(text: str) -> None:
    """Progress, apart from the table."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
