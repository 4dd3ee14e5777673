"""What a bench teaches about this machine: predictions of later placements move towards the rates that were measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from engine.api.pure import Planner, load_rates, outline_of, save_rates
from engine.cli.direct import Direct
from engine.cli.output import note
from engine.hardware.machine import this_machine
from engine.placement.options import LoadOptions

Test = tuple[str, int, int]
"""`pp` or `tg`, tokens, tokens in the cache before."""


def teach(direct: Direct, options: LoadOptions, samples: Mapping[Test, Sequence[float]]) -> None:
    """Corrects what was measured of this machine, if it was, by tests of decoding and of prompts of whole chunks."""
    machine = this_machine()
    rates, placement = load_rates(machine), direct.model.placement
    if rates is None or placement is None:
        return
    outline = outline_of(direct.file, str(direct.file.path))
    for (kind, n, depth), found in samples.items():
        planner = Planner(outline, options, machine, rates)
        if kind == "tg":
            rates = planner.learned(placement, decode_tok_s=median(found), depth=depth + n // 2)
        elif not depth and n >= options.prefill_chunk:
            rates = planner.learned(placement, prefill_tok_s=median(found))
    try:
        save_rates(rates, machine)
    except OSError as error:
        note(f"what the bench taught cannot be kept ({error.strerror})")
