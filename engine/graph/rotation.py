"""The angles of rotary embeddings, and the factors of queries far beyond the context of training."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from engine.arch.spec import Rope, Temperature

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]


def temperatures(temperature: Temperature, positions: npt.NDArray[np.integer[Any]]) -> F32:
    """What queries at `positions` are multiplied with."""
    beyond = np.floor(positions / temperature.length)
    return np.asarray(1.0 + temperature.beta * np.log1p(beyond), np.float32)


def rope_frequencies(rope: Rope, factors: F32 | None) -> F64:
    """Radians per position of each rotated pair, [n_rot/2] f64: divided by factors, scaled or YaRN-interpolated."""
    pairs = np.arange(rope.n_rot // 2, dtype=np.float64)
    plain: F64 = rope.freq_base ** (-2.0 * pairs / rope.n_rot)
    if factors is not None:
        plain = plain / factors
    if rope.yarn is None:
        scaled: F64 = plain * rope.freq_scale
        return scaled
    yarn = rope.yarn

    def bound(rotations: float) -> float:
        return float(rope.n_rot * np.log(yarn.original_context / (2 * np.pi * rotations)) / (2 * np.log(rope.freq_base)))

    first, last = bound(yarn.beta_fast), bound(yarn.beta_slow)
    low = max(0.0, np.floor(first) if yarn.rounded else first)
    high = min(rope.n_rot - 1.0, np.ceil(last) if yarn.rounded else last)
    keep = 1.0 - np.clip((pairs - low) / max(0.001, high - low), 0.0, 1.0)
    mixed: F64 = plain / yarn.factor * (1.0 - keep) + plain * keep
    return mixed
