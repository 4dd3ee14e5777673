"""Cosines and sines of every position, made once per kind of rotation."""

from __future__ import annotations

import threading

import numpy as np
import numpy.typing as npt

from engine.arch.spec import Rope, Temperature
from engine.graph.rotation import rope_frequencies, temperatures
from engine.runtime.weights import Weights


class RopeTables:
    """Tables [n_positions, n_rot] f32: n_rot/2 cosines, then n_rot/2 sines, times the rotation's own factor. For any thread."""

    def __init__(self, weights: Weights, n_positions: int) -> None:
        self._weights = weights
        self._n_positions = n_positions
        self._tables: dict[Rope, npt.NDArray[np.float32]] = {}
        self._factors: dict[Temperature, npt.NDArray[np.float32]] = {}
        self._lock = threading.Lock()

    def of(self, rope: Rope) -> npt.NDArray[np.float32]:
        """The table of `rope`; lives as long as this object."""
        with self._lock:
            if rope not in self._tables:
                self._tables[rope] = self._made(rope)
            return self._tables[rope]

    def _made(self, rope: Rope) -> npt.NDArray[np.float32]:
        factors = None if rope.factors is None else self._weights.vector(rope.factors)
        angles = np.arange(self._n_positions, dtype=np.float64)[:, None] * rope_frequencies(rope, factors)
        table = np.concatenate((np.cos(angles), np.sin(angles)), axis=1) * rope.attn_factor
        return table.astype(np.float32)

    def factors(self, temperature: Temperature) -> npt.NDArray[np.float32]:
        """What queries of each position are multiplied with, [n_positions] f32; lives as long as this object."""
        with self._lock:
            if temperature not in self._factors:
                self._factors[temperature] = temperatures(temperature, np.arange(self._n_positions))
            return self._factors[temperature]

    @property
    def nbytes(self) -> int:
        """Bytes of all tables."""
        return sum(table.nbytes for table in (*self._tables.values(), *self._factors.values()))
