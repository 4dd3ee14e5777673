"""What rules of another tool, given as `--placement`, say beside places: it counts where the command line says nothing itself."""

from __future__ import annotations

import argparse
from dataclasses import replace

from engine.cli.output import note
from engine.placement.flags import to_text
from engine.placement.settings import Settings
from engine.placement.source import settings_in


def take_settings(args: argparse.Namespace) -> None:
    """Fills in what the arguments leave open, and tells what.

    Raises:
        PlacementError: the placement means nothing.
    """
    said = settings_in(args.placement)
    taken = Settings(overrides=_keys(args, said))
    args.override = [*args.override, *taken.overrides]
    if args.threads == (0, ()):
        # The processors of this machine, where another is meant, are not those that are named.
        cores = said.cores[: said.n_threads or None] if getattr(args, "machine", None) is None else ()
        taken = replace(taken, n_threads=said.n_threads or len(said.cores) or None, cores=cores)
        args.threads = (len(cores) or taken.n_threads or 0, cores)
    if not args.context and said.n_ctx:
        taken = replace(taken, n_ctx=said.n_ctx)
        args.context = said.n_ctx
    if args.batch is None and said.prefill_chunk:
        taken = replace(taken, prefill_chunk=said.prefill_chunk)
        args.batch = said.prefill_chunk
    words = taken.words()
    if words:
        note(f"taken from the rules, which say more than places: {to_text(words)}")


def _keys(args: argparse.Namespace, said: Settings) -> tuple[tuple[str, bool | int | float | str], ...]:
    """Overridden keys that the command line does not override itself."""
    mine = {key for key, _ in args.override}
    return tuple(one for one in said.overrides if one[0] not in mine)
