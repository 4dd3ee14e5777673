"""PlacementHeat: how often each expert of each layer was chosen, and how many of them shall be moved on their own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence


class PlacementHeat:
    """strips: by layer, 0..255 of the busiest expert, as `Card.heat`; splits: by layer, how many of the hottest are chosen."""

    def __init__(self) -> None:
        self.strips: dict[int, bytes] = {}
        self.splits: dict[int, int] = {}
        self.counts: dict[int, tuple[int, ...]] = {}

    def set_counts(self, counts: Mapping[int, Sequence[int]]) -> None:
        """Takes the counts of some layers; others keep theirs."""
        for layer, row in counts.items():
            values = tuple(int(n) for n in row)
            top = max(values, default=0)
            self.counts[layer] = values
            self.strips[layer] = bytes(round(255 * n / top) if top else 0 for n in values)

    def split(self, layers: Iterable[int], n_hot: int) -> None:
        """Chooses the hottest experts of layers; 0: none on their own."""
        for layer in layers:
            self.splits.pop(layer, None)
            if n_hot:
                self.splits[layer] = n_hot

    def hottest(self, layer: int, n: int) -> tuple[int, ...]:
        """The n experts of a layer that were chosen most, sorted by number; the first n where nothing is known."""
        row = self.counts.get(layer, ())
        if not row:
            return tuple(range(n))
        return tuple(sorted(sorted(range(len(row)), key=lambda i: (-row[i], i))[:n]))

    def share(self, layer: int, n: int) -> float | None:
        """Which part of the choices the hottest n serve, 0..1; None: nothing is known."""
        row = self.counts.get(layer, ())
        total = sum(row)
        return sum(sorted(row, reverse=True)[:n]) / total if total else None
