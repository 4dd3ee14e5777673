"""Attention of a lane in Triton: which kernel takes which rows, and how they are cut."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from functools import cache as once
from functools import cached_property, partial

import torch
from torch import Tensor

from engine.arch.spec import Mla
from engine.program.lane_ops import Heads, Turn
from engine.triton_kernels import attention_whole, latent_attend, latent_heads, position
from engine.triton_kernels import heads as per_head
from engine.triton_kernels.attention_decode import DecodeConfig, attend_rows
from engine.triton_kernels.attention_prefill import attend_tiles, tile_config
from engine.triton_kernels.fitting import Fitting
from engine.triton_kernels.latent_attend import LatentConfig
from engine.triton_kernels.paged import Pages
from engine.triton_kernels.tensors import Acts, Cache, Matrix, NormWeight, StepInputs
from engine.triton_kernels.workspace import Workspace

FEW_ROWS = 128
"""Rows of a chunk up to which its past is split as in decode: a tile a head would leave most of the device idle."""
SHORT_QUERIES = 64
"""Of a tile of such a chunk: as many as a group of four warps multiplies at once."""


class AttentionKernels:
    """See `engine.triton_kernels.kernels.Kernels` for each method."""

    _workspace: Workspace
    _asm: bool
    _early: bool = False
    joins: frozenset[str] = frozenset()
    whole_config = DecodeConfig()
    _fitting = Fitting()  # of all devices: those of one machine that differ share the smaller launch

    @cached_property
    def _compiled(self) -> set[Hashable]:
        return set()

    def position(
        self,
        step: StepInputs,
        q: Tensor | None,
        k: Tensor | None,
        v: Tensor | None,
        heads: Heads,
        turn_q: Turn,
        turn_k: Turn,
        norm_q: NormWeight | None,
        norm_k: NormWeight | None,
        rope_table: Tensor | None,
        q_scale: Tensor | None,
        cache: Cache | None,
    ) -> None:
        """See LanePosition."""
        position.position(step, q, k, v, heads, turn_q, turn_k, norm_q, norm_k, rope_table, q_scale, cache, early=self._early)

    def attend(
        self,
        step: StepInputs,
        q: Tensor,
        cache: Cache,
        heads: Heads,
        sinks: Tensor | None,
        gate: Tensor | None,
        out: Tensor,
        *,
        rows: bool,
    ) -> None:
        """See LaneAttend."""
        pages, sizes = Pages(cache, step, self._asm), (heads, sinks is not None, gate is not None)
        given = (pages, q, heads, sinks, gate, out)
        if rows:
            self._attend_rows(1, *given)
            return
        few = len(q) <= FEW_ROWS
        if few or (sizes, pages.kinds) not in self._compiled:
            # The first long chunk, which warms up, has the kernels of short ones compiled too, and overwrites their rows.
            self._compiled.add((sizes, pages.kinds))
            part = slice(0, FEW_ROWS)
            self._attend_rows(SHORT_QUERIES, pages, q[part], heads, sinks, None if gate is None else gate[part], out[part])
        if not few:
            self._fitting.launch(lambda one: attend_tiles(one, *given), tile_config(heads, pages), heads, pages.kinds)

    def _attend_rows(
        self,
        queries: int,
        pages: Pages,
        q: Tensor,
        heads: Heads,
        sinks: Tensor | None,
        gate: Tensor | None,
        out: Tensor,
    ) -> None:
        """Attention split over the past; queries: see `attend_rows`."""
        run = partial(attend_rows, self._workspace, _multiprocessors(q.device))
        config = replace(decode_config(pages), early=self._early)
        self._fitting.launch(
            lambda one: run(one, pages, q, heads, sinks, gate, out, queries=queries), config, heads, pages.kinds, queries
        )

    def attend_whole(
        self,
        step: StepInputs,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        heads: Heads,
        turn_q: Turn,
        turn_k: Turn,
        norm_q: NormWeight | None,
        norm_k: NormWeight | None,
        rope_table: Tensor | None,
        q_scale: Tensor | None,
        cache: Cache,
        sinks: Tensor | None,
        gate: Tensor | None,
        out: Tensor,
        acts: Acts | None,
    ) -> bool:
        """All of it in one launch, for 16-bit caches and plain heads."""
        pages = Pages(cache, step, self._asm)
        coded = acts is None or (acts.codes is not None and acts.values is None and acts.halves is None)
        if "attention" not in self.joins or not coded or not attention_whole.fits(pages, heads, turn_q, turn_k):
            return False
        given = (q, k, v, heads, turn_q, turn_k, norm_q, norm_k, rope_table, q_scale, sinks, gate, out, acts)
        run = partial(attention_whole.attend_whole, self._workspace, _multiprocessors(q.device))
        early = int(self._early) * (2 if "chain" in self.joins else 1)
        self._fitting.launch(lambda one: run(one, pages, *given, early=early), self.whole_config, heads, pages.kinds, "whole")
        return True

    def heads(self, x: Tensor, matrix: Matrix, x_head: int, out_head: int, out: Tensor) -> None:
        """See LaneHeads."""
        per_head.heads(self._workspace, x, matrix, x_head, out_head, out, asm=self._asm)

    def latent_position(
        self, step: StepInputs, q: Tensor, row: Tensor, norm: NormWeight, rope_table: Tensor, mla: Mla, cache: Cache
    ) -> None:
        """See LaneLatentPosition."""
        position.latent_position(step, q, row, norm, rope_table, mla, cache, early=self._early)

    def latent_attend(
        self, step: StepInputs, absorbed: Tensor, q: Tensor, mla: Mla, cache: Cache, out: Tensor, *, rows: bool
    ) -> None:
        """See LaneLatentAttend."""
        pages = Pages(cache, step, self._asm)
        config, given = replace(latent_config(pages), early=self._early), (pages, absorbed, q, mla, out)
        run = partial(latent_attend.latent_attend, self._workspace, _multiprocessors(q.device))
        self._fitting.launch(lambda one: run(one, *given, rows=rows), config, mla, pages.kinds, rows)

    def latent_heads(self, step: StepInputs, q: Tensor, mla: Mla, cache: Cache, k: Matrix, v: Matrix, out: Tensor) -> None:
        """See LaneLatentHeads."""
        latent_heads.latent_heads(self._workspace, self._fitting, Pages(cache, step, self._asm), q, mla, k, v, out, asm=self._asm)


@once
def _multiprocessors(device: torch.device) -> int:
    """How many programs run at once; for Triton's interpreter few."""
    return int(torch.cuda.get_device_properties(device).multi_processor_count) if device.type == "cuda" else 4


def decode_config(pages: Pages) -> DecodeConfig:
    """What suits the cache: products of f32 keep to few registers."""
    return DecodeConfig(keys=16, stages=1) if pages.exact else DecodeConfig()


def latent_config(pages: Pages) -> LatentConfig:
    """What suits the cache: products of f32 keep to few registers."""
    return LatentConfig(keys=16, stages=1, queries=16) if pages.exact else LatentConfig()
