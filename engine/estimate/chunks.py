"""How long chunks of prompts are where nobody said: longer than usual where experts come over a bus, which takes as long for any.

All experts cross for every chunk (`engine.placement.streaming`), so that a chunk of 2048 tokens takes hardly longer than one of
512. It needs more working memory, and is taken only where everything still fits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from engine.estimate.memory import Estimator
from engine.placement.options import LoadOptions
from engine.placement.placement import Gpu, Placement

LONGER = (2048, 1024)
"""Tokens, the longest first: an H200 computes 2048 in the time in which the experts of a 30b model cross, 1,500 tokens a second
with 512 at once, 5,700 with 2048."""


def with_longer_chunk(
    options: LoadOptions, placement: Placement, estimator_of: Callable[[LoadOptions], Estimator]
) -> LoadOptions:
    """The options with the chunk that this placement gets, which is no longer open in them.

    Raises: PlacementError, InvalidRequest, UnsupportedModel; see `Estimator`.
    """
    usual = replace(options, grow_chunk=False)
    for longer in longer_chunks(options, placement):
        estimator = estimator_of(longer)
        if longer.prefill_chunk > estimator.n_ctx:
            continue
        if estimator.streamed(placement) is None:
            return usual
        if estimator.fits_streaming(placement):
            return longer
    return usual


def longer_chunks(options: LoadOptions, placement: Placement) -> Iterator[LoadOptions]:
    """The options with each chunk that may be tried under this placement, the longest first."""
    if options.grow_chunk and any(isinstance(device, Gpu) for device in placement.devices):
        yield from (replace(options, grow_chunk=False, prefill_chunk=rows) for rows in LONGER if rows > options.prefill_chunk)
