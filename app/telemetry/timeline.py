"""Timeline: the last half hour of every gauge, on one clock. Written once a reading, read by whoever paints. No Qt.

Its memory is bounded by its span and MAX_KEYS, however long the program runs. Names of gauges: `app.telemetry.keys`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from app.telemetry.keys import first_token, prefill
from app.telemetry.readings import readings
from engine.api.values import EngineSample, HardwareSnapshot

F64 = npt.NDArray[np.float64]
MAX_KEYS = 2048
"""16 cards, 16 nodes and all else are some 500. More is a card whose name changes with each reading, and is not remembered."""
GAP_PERIODS = 2.5
"""A reading that comes later than so many of its periods behind the one before has a gap in front of it."""
HELD = (prefill(), first_token())
"""Gauges of answers: they hold until the next answer tells another value."""


class Timeline:
    """A ring of readings. Times are monotonic seconds, those of HardwareSnapshot.time_s; None and NaN: not known."""

    def __init__(self, span_s: float = 1800.0, period_s: float = 1.0, node_of_core: Mapping[int, int] | None = None) -> None:
        """period_s: readings that follow sooner than nine tenths of this change the last row instead of adding one.

        node_of_core: the NUMA node of each core by its index, for what is summed up by node.
        """
        self.span_s, self.period_s = span_s, period_s
        self.node_of_core = dict(node_of_core or {})
        self._length = max(2, math.ceil(span_s / period_s) + 1)
        self._times = np.full(self._length, np.nan)
        self._gaps = np.zeros(self._length, bool)
        self._places: dict[str, int] = {}
        self._data = np.empty((0, self._length), np.float32)
        self._latest: dict[str, float] = {}
        self._held: dict[str, float] = {}
        self._n = 0
        self._cut: tuple[tuple[int, float], npt.NDArray[np.intp]] | None = None
        """Rows of the span that was asked for last: all gauges are asked for the same one, after each reading."""

    def push(self, snapshot: HardwareSnapshot, sample: EngineSample | None) -> None:
        """Adds one reading. sample: what the engine did meanwhile, None without a model."""
        period_s = self.period_s if snapshot.cost is None else max(self.period_s, snapshot.cost.period_s)
        self.push_values(snapshot.time_s, readings(snapshot, sample, self.node_of_core), period_s)
        if sample is not None and sample.prefill_tok_s is not None:
            self.note(prefill(), sample.prefill_tok_s)

    def push_values(self, time_s: float, values: Mapping[str, float], period_s: float | None = None) -> None:
        """Adds one reading by names of gauges; one that is older than the last is left out. period_s: between readings now."""
        newest = self.newest_s
        if newest is not None and time_s < newest:
            return
        if newest is None or time_s - newest >= 0.9 * self.period_s:
            self._begin_row(time_s, newest, self.period_s if period_s is None else period_s)
        row = (self._n - 1) % self._length
        self._latest = {**values, **self._held}
        places = [(self._place(key), value) for key, value in self._latest.items()]
        kept = [(place, value) for place, value in places if place is not None]
        self._data[[place for place, _ in kept], row] = [value for _, value in kept]

    def note(self, key: str, value: float) -> None:
        """A value of an answer, from now until the next one."""
        self._held[key] = self._latest[key] = value
        place = self._place(key)
        if place is not None and self._n:
            self._data[place, (self._n - 1) % self._length] = value

    def _begin_row(self, time_s: float, newest: float | None, period_s: float) -> None:
        row = self._n % self._length
        self._times[row] = time_s
        self._gaps[row] = newest is not None and time_s - newest > GAP_PERIODS * period_s
        self._data[:, row] = np.nan
        self._n += 1

    def _place(self, key: str) -> int | None:
        """The row of the table that is this gauge's; None: there are too many."""
        place = self._places.get(key)
        if place is None and len(self._places) < MAX_KEYS:
            place = self._places[key] = len(self._places)
            if place == len(self._data):
                more = np.full((min(max(64, place), MAX_KEYS - place), self._length), np.nan, np.float32)
                self._data = np.concatenate((self._data, more))
        return place

    @property
    def newest_s(self) -> float | None:
        """When the last row began; None while there is none."""
        return float(self._times[(self._n - 1) % self._length]) if self._n else None

    @property
    def keys(self) -> tuple[str, ...]:
        """Gauges that have ever told a value."""
        return tuple(self._places)

    @property
    def nbytes(self) -> int:
        """Memory of all rows."""
        return self._times.nbytes + self._gaps.nbytes + self._data.nbytes

    @property
    def newest(self) -> Mapping[str, float]:
        """All values of the last reading, by key."""
        return self._latest

    def latest(self, key: str) -> float | None:
        """The value of the last reading; None where it told none."""
        return self._latest.get(key)

    def peak(self, key: str, span_s: float) -> float | None:
        """The largest value of the last span_s."""
        _, values = self._raw(key, span_s)
        return float(np.nanmax(values)) if np.isfinite(values).any() else None

    def mean(self, key: str, span_s: float) -> float | None:
        """The mean of the values of the last span_s."""
        _, values = self._raw(key, span_s)
        return float(np.nanmean(values)) if np.isfinite(values).any() else None

    def series(self, key: str, span_s: float, n_points: int) -> tuple[F64, F64]:
        """(times, values) of the last span_s, oldest first, at most n_points of each (at least 4).

        NaN: a gap, also between readings that are far apart. Where there are more rows than points, each stretch of time gives
        its lowest and its highest value in their order, so that peaks stay.
        """
        times, values = self._with_gaps(key, span_s)
        n_points = max(4, n_points)
        if len(times) <= n_points:
            return times, values
        return _decimated(times, values, span_s, n_points)

    def copy(self) -> Timeline:
        """As it is now; neither changes with the other."""
        other = Timeline(self.span_s, self.period_s, self.node_of_core)
        other._times, other._gaps, other._n = self._times.copy(), self._gaps.copy(), self._n
        other._places, other._data = dict(self._places), self._data.copy()
        other._latest, other._held = dict(self._latest), dict(self._held)
        return other

    def _rows(self, span_s: float) -> npt.NDArray[np.intp]:
        """Places of the rows of the last span_s, oldest first."""
        asked = (self._n, span_s)
        if self._cut is None or self._cut[0] != asked:
            self._cut = (asked, self._find_rows(span_s))
        return self._cut[1]

    def _find_rows(self, span_s: float) -> npt.NDArray[np.intp]:
        count = min(self._n, self._length)
        order = np.arange(self._n - count, self._n) % self._length
        times = self._times[order]
        return order[np.searchsorted(times, times[-1] - span_s) :] if count else order

    def _raw(self, key: str, span_s: float) -> tuple[F64, F64]:
        rows, place = self._rows(span_s), self._places.get(key)
        values = np.full(len(rows), np.nan) if place is None else self._data[place][rows].astype(np.float64)
        return self._times[rows], values

    def _with_gaps(self, key: str, span_s: float) -> tuple[F64, F64]:
        rows = self._rows(span_s)
        times, values = self._raw(key, span_s)
        gaps = np.flatnonzero(self._gaps[rows])
        gaps = gaps[gaps > 0]
        if not len(gaps):
            return times, values
        return np.insert(times, gaps, (times[gaps - 1] + times[gaps]) / 2), np.insert(values, gaps, np.nan)


def _decimated(times: F64, values: F64, span_s: float, n_points: int) -> tuple[F64, F64]:
    """Two points for each of n_points / 2 stretches of equal length: its lowest and highest value where they lie."""
    # Stretches lie on a grid of absolute time: as the window moves on, the same rows stay together and the line does not tremble.
    width = span_s / (n_points // 2 - 1)
    stretch = (np.floor(times / width) - np.floor(times[0] / width)).astype(np.intp)
    starts = np.flatnonzero(np.diff(stretch, prepend=-1))
    known = np.isfinite(values)
    lowest = np.minimum.reduceat(np.where(known, values, np.inf), starts)
    highest = np.maximum.reduceat(np.where(known, values, -np.inf), starts)
    which = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(times)))
    low, high = _first(values == lowest[which], which, starts), _first(values == highest[which], which, starts)
    empty = lowest > highest
    at = np.sort(np.concatenate((np.where(empty, starts, low), high[(low != high) & ~empty])))
    return times[at], np.where(known[at], values[at], np.nan)


def _first(where: npt.NDArray[np.bool_], which: npt.NDArray[np.intp], starts: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    """The first place in each stretch that is marked, its start where none is."""
    marked = np.flatnonzero(where)
    found = starts.copy()
    found[which[marked[::-1]]] = marked[::-1]
    return found
