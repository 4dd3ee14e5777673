"""Attention of a lane in Triton: which kernel takes which rows, and how they are cut."""

from __future__ import annotations

from functools import cache as once

import torch
from torch import Tensor

from engine.arch.spec import Mla
from engine.program.lane_ops import Heads, Turn
from engine.triton_kernels import heads as per_head
from engine.triton_kernels import latent_attend, latent_heads, position
from engine.triton_kernels.attention_decode import DecodeConfig, attend_rows
from engine.triton_kernels.attention_prefill import attend_tiles, tile_config
from engine.triton_kernels.latent_attend import LatentConfig
from engine.triton_kernels.paged import Pages
from engine.triton_kernels.tensors import Cache, Matrix, NormWeight, StepInputs
from engine.triton_kernels.workspace import Workspace


class AttentionKernels:
    """See `engine.triton_kernels.kernels.Kernels` for each method."""

    _workspace: Workspace
    _asm: bool

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
        position.position(step, q, k, v, heads, turn_q, turn_k, norm_q, norm_k, rope_table, q_scale, cache)

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
        pages = Pages(cache, step)
        if rows:
            attend_rows(self._workspace, _multiprocessors(q.device), decode_config(pages), pages, q, heads, sinks, gate, out)
        else:
            attend_tiles(tile_config(heads, len(q), pages), pages, q, heads, sinks, gate, out)

    def heads(self, x: Tensor, matrix: Matrix, x_head: int, out_head: int, out: Tensor) -> None:
        """See LaneHeads."""
        per_head.heads(self._workspace, x, matrix, x_head, out_head, out, asm=self._asm)

    def latent_position(
        self, step: StepInputs, q: Tensor, row: Tensor, norm: NormWeight, rope_table: Tensor, mla: Mla, cache: Cache
    ) -> None:
        """See LaneLatentPosition."""
        position.latent_position(step, q, row, norm, rope_table, mla, cache)

    def latent_attend(
        self, step: StepInputs, absorbed: Tensor, q: Tensor, mla: Mla, cache: Cache, out: Tensor, *, rows: bool
    ) -> None:
        """See LaneLatentAttend."""
        pages = Pages(cache, step)
        config, multiprocessors = latent_config(pages, mla.n_heads, rows=rows), _multiprocessors(q.device)
        latent_attend.latent_attend(self._workspace, multiprocessors, config, pages, absorbed, q, mla, out, rows=rows)

    def latent_heads(self, step: StepInputs, q: Tensor, mla: Mla, cache: Cache, k: Matrix, v: Matrix, out: Tensor) -> None:
        """See LaneLatentHeads."""
        latent_heads.latent_heads(self._workspace, Pages(cache, step), q, mla, k, v, out, asm=self._asm)


@once
def _multiprocessors(device: torch.device) -> int:
    """How many programs run at once; for Triton's interpreter few."""
    return int(torch.cuda.get_device_properties(device).multi_processor_count) if device.type == "cuda" else 4


def decode_config(pages: Pages) -> DecodeConfig:
    """What suits the cache: products of f32 keep to few registers."""
    return DecodeConfig(keys=16, stages=1) if pages.exact else DecodeConfig(stages=4)


def latent_config(pages: Pages, n_heads: int, *, rows: bool) -> LatentConfig:
    """What suits the cache and the queries: sums of 512 values for each of them must fit registers."""
    if pages.exact:
        return LatentConfig(keys=16, warps=8, stages=1, queries=16)
    if pages.cache.k_scales is not None or not rows or n_heads > 16:
        return LatentConfig(keys=32, warps=8)
    return LatentConfig()
