"""Which tokens may be drawn: top-k, top-p and min-p as pure functions on candidates.

Candidates are (ids, logits), sorted by falling logit; a filter keeps a prefix of them and never keeps none.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

F32 = npt.NDArray[np.float32]

_GROUP = 64


@dataclass(frozen=True, slots=True)
class Candidates:
    """ids: [n] int64, logits: [n] f32, falling; equal logits stand in order of id."""

    ids: npt.NDArray[np.int64]
    logits: F32

    def first(self, n: int) -> Candidates:
        """The n likeliest, at least one."""
        n = max(n, 1)
        return self if n >= len(self.ids) else Candidates(self.ids[:n], self.logits[:n])


def everything(logits: F32) -> Candidates:
    """All tokens of logits [n_vocab], in order of id: for a draw without any filter, which needs no order."""
    return Candidates(np.arange(len(logits)), logits)


def top_k(logits: F32, k: int) -> Candidates:
    """The k likeliest tokens of logits [n_vocab], sorted.

    The k-th largest of the maxima of small groups bounds the k-th largest logit from below; what lies under the bound is
    never sorted (a full sort of 152k logits takes 20 ms, this 0.05 ms).
    """
    n_groups = len(logits) // _GROUP
    if k < n_groups:
        # Groups are columns: a maximum along rows of 64 would take twenty times as long.
        maxima = logits[: n_groups * _GROUP].reshape(_GROUP, n_groups).max(axis=0)
        ids = np.flatnonzero(logits >= np.partition(maxima, n_groups - k)[n_groups - k])
    else:
        ids = np.arange(len(logits))
    ids = ids[np.argsort(-logits[ids], kind="stable")[:k]]
    return Candidates(ids, logits[ids])


def nucleus(logits: F32, p: float) -> Candidates:
    """Top-p over the whole vocabulary [n_vocab]: sorts a growing head until it holds the probability p."""
    weights = np.exp(logits - logits.max())
    wanted = p * float(weights.sum(dtype=np.float64))
    for k in (256, 4096, len(logits)):
        head = top_k(logits, k)
        cumulated = np.cumsum(weights[head.ids], dtype=np.float64)
        if cumulated[-1] >= wanted:
            break
    return head.first(int(np.searchsorted(cumulated, wanted, side="left")) + 1)


def above(logits: F32, p: float) -> Candidates:
    """Min-p over the whole vocabulary [n_vocab], sorted."""
    ids = np.flatnonzero(logits >= logits.max() + np.float32(np.log(p)))
    ids = ids[np.argsort(-logits[ids], kind="stable")]
    return Candidates(ids, logits[ids])


def top_p(candidates: Candidates, p: float) -> Candidates:
    """The shortest prefix whose probabilities (among the candidates) sum to at least p (https://arxiv.org/abs/1904.09751)."""
    if p >= 1.0:
        return candidates
    cumulated = np.cumsum(probabilities(candidates.logits))
    return candidates.first(int(np.searchsorted(cumulated, p, side="left")) + 1)


def min_p(candidates: Candidates, p: float) -> Candidates:
    """The candidates at least `p` times as likely as the likeliest (https://arxiv.org/abs/2407.01082)."""
    if p <= 0.0:
        return candidates
    return candidates.first(int(np.count_nonzero(candidates.logits >= candidates.logits[0] + np.float32(np.log(p)))))


def probabilities(logits: F32) -> npt.NDArray[np.float64]:
    """Softmax in f64: [n]."""
    e = np.exp(logits.astype(np.float64) - float(logits.max()))
    normalised: npt.NDArray[np.float64] = e / e.sum()
    return normalised
