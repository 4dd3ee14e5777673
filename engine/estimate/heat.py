"""Which part of all turns experts serve: by counts where somebody counted, else an equal part each.

Published routing is skewed, of most models on most text: how, only counts say, and pools that are made by chance hold no more
than their share. `Planner` and the solver ask.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine.placement.placement import Pool

Counts = Mapping[int, Sequence[int]]
"""By layer, how often each expert was passed; layers may be missing."""


class Heat:
    """What is known of one model."""

    def __init__(self, counts: Counts | None = None) -> None:
        """Layers that nothing passed yet are not known."""
        self.counts = {layer: tuple(row) for layer, row in (counts or {}).items() if any(row)}
        self._totals = {layer: sum(row) for layer, row in self.counts.items()}

    @property
    def known(self) -> bool:
        """Whether anything was counted."""
        return bool(self.counts)

    def hits(self, pool: Pool, n_experts: int) -> float:
        """The part of a layer's turns that the experts of its pool serve, 0 to 1."""
        row = self._row(pool.layer, n_experts)
        if row is None:
            return min(1.0, len(pool.experts) / n_experts)
        return sum(row[one] for one in pool.experts if one < n_experts) / self._totals[pool.layer]

    def ranked(self, layer: int, n_experts: int) -> tuple[tuple[int, float], ...]:
        """(expert, its part of the layer's turns), the hottest first; of equals the lower numbers."""
        row = self._row(layer, n_experts)
        if row is None:
            return tuple((one, 1.0 / n_experts) for one in range(n_experts))
        total = self._totals[layer]
        return tuple((one, row[one] / total) for one in sorted(range(n_experts), key=lambda one: (-row[one], one)))

    def _row(self, layer: int, n_experts: int) -> tuple[int, ...] | None:
        row = self.counts.get(layer)
        return row if row is not None and len(row) == n_experts else None
