"""What a decoded token reads from each device's memory under a placement: weights, and the cache of every token before it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engine.arch.spec import ModelSpec
from engine.estimate.work import ModelWork
from engine.gguf.info import TensorInfo
from engine.placement.options import LoadOptions
from engine.placement.placement import Gpu, Placement


@dataclass(frozen=True, slots=True)
class TokenReads:
    """Bytes a token: of weights; of a state, read whatever the length; of caches for each token before it, by the window in which
    those tokens must lie (None: any)."""

    weight_bytes: int
    state_bytes: int
    cache_bytes: tuple[tuple[int | None, int], ...]

    def at(self, n_before: float) -> float:
        """Bytes of a token behind n_before others."""
        cached = sum(nbytes * min(window or n_before, n_before) for window, nbytes in self.cache_bytes)
        return self.weight_bytes + self.state_bytes + cached


def token_reads(
    spec: ModelSpec, tensors: Mapping[str, TensorInfo], options: LoadOptions, placement: Placement
) -> dict[str, TokenReads]:
    """By device (`numa0`, `gpu0`), of one sequence; of experts those that a token passes."""
    work = ModelWork(spec, tensors, options, rows=1)
    weights: dict[str, float] = {}
    states: dict[str, float] = {}
    caches: dict[str, dict[int | None, float]] = {}
    for unit, device in placement.units:
        name = str(device)
        for op in work.of(unit, "decode", "gpu" if isinstance(device, Gpu) else "cpu"):
            weights[name] = weights.get(name, 0.0) + op.nbytes
            states[name] = states.get(name, 0.0) + op.state_bytes
            cached = caches.setdefault(name, {})
            cached[op.window] = cached.get(op.window, 0.0) + op.cache_bytes
    return {
        name: TokenReads(
            round(nbytes), round(states[name]), tuple((window, round(one)) for window, one in caches[name].items() if one)
        )
        for name, nbytes in weights.items()
    }
