"""`layerdeck tune`: how many threads, and how long chunks of prompts, are fastest for a model on this machine; kept for its next
load."""

from __future__ import annotations

import argparse
from typing import Any

from engine.api.commands import TuneWorkers
from engine.api.events import TunedRate, TuneProgress, WorkersTuned
from engine.cli.client import Client, new_id
from engine.cli.options import add_json_option, add_load_options, load_options
from engine.cli.output import note, write_json, write_text
from engine.errors import EngineBug


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `tune`."""
    add_load_options(parser)
    parser.add_argument("--forget", action="store_true", help="drop what was found for this model")
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Loads the model, tries, writes the table."""
    with Client() as client:
        client.load(str(args.model), load_options(args))
        found = _tuned(client, forget=args.forget)
    if found.why_not:
        note(f"this cannot be kept: {found.why_not}")
    if args.json:
        write_json(as_json(found))
    elif args.forget:
        write_text("" if found.why_not else "Forgotten: the machine decides again at the next load.\n")
    else:
        write_text("".join(f"{line}\n" for line in lines(found)))
    return 1 if found.why_not else 0


def _tuned(client: Client, *, forget: bool) -> WorkersTuned:
    told = False
    for event in client.events(TuneWorkers(new_id(), forget)):
        if isinstance(event, TuneProgress) and event.what == "waiting" and not told:
            told = True
            note("waiting until the weights lie in memory")
        if isinstance(event, WorkersTuned):
            return event
    raise EngineBug("a sweep ended without a result")


def as_json(found: WorkersTuned) -> dict[str, Any]:
    """The result as one object."""

    def rows(rates: tuple[TunedRate, ...], name: str) -> list[dict[str, Any]]:
        return [
            {name: one.setting, "tok_s": round(one.tok_s, 2), "spread": round(one.spread, 4), "measurements": one.n}
            for one in rates
        ]

    return {
        "decode": rows(found.decode, "threads"),
        "prefill": rows(found.prefill, "chunk"),
        "threads": found.threads or None,
        "chunk": found.chunk or None,
        "seconds": round(found.seconds, 2),
        "kept": found.kept,
    }


def lines(found: WorkersTuned) -> list[str]:
    """The result for people."""
    rows = [
        *_rows(found.decode, found.threads, "threads", "decode"),
        *_rows(found.prefill, found.chunk, "tokens at once", "prefill"),
    ]
    kept = "; kept for the next load" if found.kept else ""
    return [*rows, f"tried in {found.seconds:.1f} s{kept}"]


def _rows(rates: tuple[TunedRate, ...], chosen: int, what: str, phase: str) -> list[str]:
    return [
        f"{phase:>8} {one.setting:>5} {what:<15}{one.tok_s:>9.1f} tok/s  ±{100 * one.spread:.1f} %"
        f"{'  <- used' if one.setting == chosen else ''}"
        for one in rates
    ]
