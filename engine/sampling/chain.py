"""SamplingParams to the next token: ordered steps, compiled once for a request.

The one canonical order: penalties, temperature, top-k, top-p, min-p, draw. The temperature comes first so that top-p and
min-p see the distribution that is drawn from.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from engine.sampling import filters
from engine.sampling.filters import Candidates
from engine.sampling.params import SamplingParams
from engine.sampling.penalties import penalise

F32 = npt.NDArray[np.float32]


class Sampler:
    """Draws the tokens of one request; two samplers of equal params and seed draw the same from the same logits."""

    def __init__(self, params: SamplingParams) -> None:
        """A missing seed is drawn from the system."""
        self.params = params
        self.seed = secrets.randbits(32) if params.seed is None else params.seed
        self._random = np.random.Generator(np.random.PCG64(self.seed & 0xFFFF_FFFF_FFFF_FFFF))

    def sample(self, logits: F32, history: Sequence[int]) -> int:
        """The next token id.

        logits: [n_vocab] f32, unchanged. history: the tokens before it, prompt and answer; the penalties look at the end of it.
        """
        logits = self._penalised(logits, history)
        if self.params.temperature == 0.0:
            return int(logits.argmax())
        kept = self.candidates(logits)
        if len(kept.ids) == 1:
            return int(kept.ids[0])
        cumulated = np.cumsum(filters.probabilities(kept.logits))
        place = int(np.searchsorted(cumulated, self._random.random() * cumulated[-1], side="right"))
        return int(kept.ids[min(place, len(kept.ids) - 1)])

    def candidates(self, logits: F32) -> Candidates:
        """What may be drawn from logits [n_vocab]: after temperature, top-k, top-p and min-p; its logits are the scaled ones."""
        params = self.params
        scaled = logits / np.float32(params.temperature)
        if params.top_k > 0:
            kept = filters.top_p(filters.top_k(scaled, params.top_k), params.top_p)
        elif params.top_p < 1.0:
            kept = filters.nucleus(scaled, params.top_p)
        elif params.min_p > 0.0:
            return filters.above(scaled, params.min_p)
        else:
            return filters.everything(scaled)
        return filters.min_p(kept, params.min_p)

    def _penalised(self, logits: F32, history: Sequence[int]) -> F32:
        params = self.params
        window = params.penalty_window
        if window == 0 or (params.repetition_penalty, params.presence_penalty, params.frequency_penalty) == (1.0, 0.0, 0.0):
            return logits
        recent = history if window < 0 else history[-window:]
        return penalise(logits, recent, params.repetition_penalty, params.presence_penalty, params.frequency_penalty)
