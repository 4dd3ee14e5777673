"""Steps of a few sequences over a small paged cache, as kernels of GPU lanes get them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from engine.arch.spec import Mla
from engine.graph.reference import ReferenceModel
from engine.placement.options import KvType
from engine.program.lane_ops import Heads
from engine.runtime.step import StepBatch
from engine.triton_kernels.tensors import Cache, StepInputs

BLOCK = 32
GROUP = 1
"""The cache group of every cache here: the first group's tables lead nowhere."""
UNMAPPED = 1 << 28
"""What stands in a table where nobody may look."""


@dataclass(frozen=True)
class Steps:
    """Sequences of `tokens` tokens each with blocks in no order. Pools have `n_blocks` blocks, the last of them scratch."""

    tokens: tuple[int, ...]
    seed: int = 0

    @property
    def width(self) -> int:
        """Entries of a table: one more than the longest sequence needs."""
        return max(-(-n // BLOCK) for n in self.tokens) + 1

    @property
    def n_blocks(self) -> int:
        """Blocks of a pool."""
        return sum(-(-n // BLOCK) for n in self.tokens) + 1

    @property
    def tables(self) -> npt.NDArray[np.int32]:
        """[n_seqs, width]."""
        free = iter(np.random.default_rng(self.seed).permutation(self.n_blocks - 1).tolist())
        found = np.full((len(self.tokens), self.width), UNMAPPED, np.int32)
        for seq, n in enumerate(self.tokens):
            found[seq, : -(-n // BLOCK)] = [next(free) for _ in range(-(-n // BLOCK))]
        return found

    def rows(self, rows: Sequence[tuple[int, int]], window: int | None = None, states: object = None) -> StepInputs:
        """A step with a row for each (sequence, position). window: tables end where the rows' windows do."""
        tables = self.tables
        for seq in {seq for seq, _ in rows}:
            first = min(position for other, position in rows if other == seq)
            tables[seq, : max(0, first - (window or 1 << 30) + 1) // BLOCK] = UNMAPPED
        ints = lambda values: torch.tensor(np.asarray(values), dtype=torch.int32)  # noqa: E731
        return StepInputs(
            token_ids=ints(np.zeros(len(rows))),
            positions=ints([position for _, position in rows]),
            seq_of_row=ints([seq for seq, _ in rows]),
            block_tables=ints(np.stack([np.full_like(tables, UNMAPPED), tables])),
            out_rows=ints([0]),
            states=None if states is None else ints(states),
        )

    def batch(self, rows: Sequence[tuple[int, int]], states: object = None) -> StepBatch:
        """The same step for the reference."""
        ints = lambda values: np.asarray(values, np.int32)  # noqa: E731
        seqs, positions = ints([seq for seq, _ in rows]), ints([position for _, position in rows])
        tables = tuple(np.where(table == UNMAPPED, 0, table).astype(np.int32) for table in self.tables)
        return StepBatch(
            "prefill", np.zeros_like(seqs), positions, seqs, tables, ints([0]), None if states is None else ints(states)
        )

    def all_rows(self) -> list[tuple[int, int]]:
        """Every token of every sequence, as a step that fills the cache has them."""
        return [(seq, position) for seq, n in enumerate(self.tokens) for position in range(n)]


def floats(seed: int, *shape: int) -> Tensor:
    """Normal values."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def rows_of(x: Tensor, pad: int = 0) -> Tensor:
    """x [n_rows, width] as rows that lie `pad` values apart, which are not to be touched."""
    wide = torch.full((x.shape[0], x.shape[1] + pad), 77.0)
    wide[:, : x.shape[1]] = x
    return wide[:, : x.shape[1]]


def pool(kind: KvType, n_blocks: int, n_heads: int, dim: int) -> tuple[Tensor, Tensor | None]:
    """A pool of keys or values with its scales. What was never written is not a number, where the type has that."""
    shape = (n_blocks, n_heads, BLOCK, dim)
    if kind in ("f32", "f16"):
        return torch.full(shape, torch.nan, dtype=torch.float32 if kind == "f32" else torch.float16), None
    n_groups = 1 if kind == "int8" else -(-dim // 32)
    return torch.full(shape, 77, dtype=torch.int8), torch.full((*shape[:3], n_groups), torch.nan, dtype=torch.float16)


def cache_of(n_blocks: int, heads: Heads, k_type: KvType, v_type: KvType) -> Cache:
    """An empty cache of one layer."""
    keys, k_scales = pool(k_type, n_blocks, heads.n_kv_heads, heads.head_dim)
    values, v_scales = pool(v_type, n_blocks, heads.n_kv_heads, heads.v_dim)
    return Cache(keys, values, k_scales, v_scales, GROUP)


def latent_cache(n_blocks: int, mla: Mla, k_type: KvType) -> Cache:
    """An empty cache of latent rows."""
    keys, k_scales = pool(k_type, n_blocks, 1, mla.latent)
    return Cache(keys, None, k_scales, None, GROUP)


class Reference(ReferenceModel):
    """The reference's ops with weights that are given, for models of one layer that are no files."""

    def __init__(self, weights: dict[str, npt.NDArray[np.float32]], n_kv_heads: int) -> None:
        self._weights = weights
        self._block = BLOCK
        self._cache = {}
        self._groups = {0: 0}
        self._n_kv_heads = n_kv_heads

    def kv_heads(self, layer: int) -> int:
        return self._n_kv_heads
