"""What an editor makes of counts of experts: the hottest of a layer, pools of them, and a map to paint. Pure; imports numpy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from engine.errors import PlacementError
from engine.placement.placement import Placement
from engine.placement.pools import with_pool

Counts = npt.NDArray[np.integer]
LEVELS = 255


def hottest(counts: Counts | Sequence[int], n: int) -> tuple[tuple[int, ...], float]:
    """The n experts of one layer that were passed most often, by id, and their share of all passes, 0 to 1.

    counts: [n_experts]. Of equals, the lower ids. Without any counts: the first n, and n / n_experts, which is what chance gives.
    """
    values = np.asarray(counts)
    n = min(max(n, 0), len(values))
    best = np.sort(np.argsort(-values.astype(np.int64), kind="stable")[:n])
    total = int(values.sum())
    share = float(values[best].sum()) / total if total else n / max(1, len(values))
    return tuple(best.tolist()), share


def with_hottest(placement: Placement, layers: Sequence[int], counts: Counts, n: int) -> Placement:
    """The placement with pools of the n hottest experts in every layer that can have one; n 0: without pools.

    layers, counts: see `engine.api.events.ExpertCounts`. A layer can have one where its experts lie on the CPU and its router on
    a GPU.
    """
    for layer, row in zip(layers, counts, strict=True):
        try:
            placement = with_pool(placement, layer, hottest(row, n)[0])
        except PlacementError:
            continue
    return placement


def heat_map(counts: Counts) -> npt.NDArray[np.uint8]:
    """Levels 0 to LEVELS of each expert, [n_layers, n_experts]; 0: never passed.

    By layer, on the scale of a logarithm: 1 is one pass, LEVELS the hottest expert of the layer. 94 x 128 take well below a
    millisecond.
    """
    logs = np.log1p(counts.astype(np.float32))
    top = logs.max(axis=1, keepdims=True, initial=0.0)
    return np.ceil(LEVELS * logs / np.where(top > 0, top, 1)).astype(np.uint8)
