"""Attention kernels in Triton's interpreter against the torch forms: every cache type, odd sizes, past and window."""

from __future__ import annotations

import os
from dataclasses import replace

os.environ.setdefault("TRITON_INTERPRET", "1")

import numpy as np
import pytest
import torch

from engine.placement.options import KV_TYPES, KvType
from engine.program.lane_ops import Heads, Turn
from engine.triton_kernels import attention_kernels
from engine.triton_kernels.attention_decode import DecodeConfig, attend_rows
from engine.triton_kernels.attention_kernels import AttentionKernels
from engine.triton_kernels.attention_prefill import TileConfig, attend_tiles
from engine.triton_kernels.paged import Pages
from engine.triton_kernels.tensors import Cache
from engine.triton_kernels.torch.attention_forms import AttentionForms
from engine.triton_kernels.workspace import Workspace
from tests.helpers.gpu_steps import Steps, cache_of, floats, rows_of

TORCH, PLAIN = AttentionForms(), Turn(None, None)
STEPS = Steps((100, 33, 5, 64))


def room() -> Workspace:
    return Workspace(lambda shape, dtype: torch.full(shape, 77, dtype=getattr(torch, dtype)))


def filled(heads: Heads, k_type: KvType, v_type: KvType) -> Cache:
    """A cache with every token of STEPS."""
    cache, every = cache_of(STEPS.n_blocks, heads, k_type, v_type), STEPS.all_rows()
    k, v = (floats(i, len(every), heads.n_kv_heads * dim) for i, dim in enumerate((heads.head_dim, heads.v_dim)))
    TORCH.position(STEPS.rows(every), None, k, v, heads, PLAIN, PLAIN, None, None, None, None, cache)
    return cache


def close(out: torch.Tensor, wanted: torch.Tensor, *types: KvType) -> None:
    """Equal within what f16 products lose, in exact caches within f32."""
    np.testing.assert_allclose(out, wanted, atol=5e-6 if set(types) == {"f32"} else 4e-3)


DECODE = [(0, 99), (2, 4), (1, 32), (3, 63), (1, 31)]
TYPES: list[tuple[KvType, KvType]] = [*zip(KV_TYPES, KV_TYPES, strict=True), ("f16", "q8_0"), ("int8", "f32")]
SHAPES = [
    Heads(4, 4, 64, 64, 0.125, 64),
    Heads(4, 2, 80, 80, 0.1, 80),
    Heads(4, 1, 96, 48, 0.1, 96),
    Heads(8, 1, 128, 128, 0.09, 128),
    Heads(2, 2, 256, 256, 0.06, 512),
    Heads(3, 1, 16, 16, 0.25, 32),
]


CASES = [(heads, *types) for i, heads in enumerate(SHAPES) for j, types in enumerate(TYPES) if (i + j) % 3 == 0]


@pytest.mark.parametrize(("heads", "k_type", "v_type"), CASES)
@pytest.mark.parametrize("fused", [False, True])
def test_decode(heads: Heads, k_type: KvType, v_type: KvType, fused: bool) -> None:
    cache, step = filled(heads, k_type, v_type), STEPS.rows(DECODE)
    q = rows_of(floats(5, len(DECODE), heads.n_heads * heads.q_step), 16)
    gate = q if heads.q_step == 2 * heads.head_dim else None
    out, wanted = (rows_of(torch.full((len(DECODE), heads.n_heads * heads.v_dim), 77.0), 16) for _ in range(2))
    config = DecodeConfig(keys=64, least=1, fused=fused)
    attend_rows(room(), 3 * heads.n_kv_heads // 2, config, Pages(cache, step), q, heads, None, gate, out)
    TORCH.attend(step, q, cache, heads, None, gate, wanted, rows=True)
    close(out, wanted, k_type, v_type)


CHUNKS = [
    [(0, p) for p in range(58, 100)],
    [(3, p) for p in range(20)] + [(0, p) for p in range(90, 100)],
    [(1, 32)],
]


@pytest.mark.parametrize(("heads", "k_type", "v_type"), CASES)
@pytest.mark.parametrize("rows", CHUNKS)
def test_tiles(heads: Heads, k_type: KvType, v_type: KvType, rows: list[tuple[int, int]]) -> None:
    cache, step = filled(heads, k_type, v_type), STEPS.rows(rows)
    q = rows_of(floats(5, len(rows), heads.n_heads * heads.q_step), 16)
    gate = q if heads.q_step == 2 * heads.head_dim else None
    out, wanted = (rows_of(torch.full((len(rows), heads.n_heads * heads.v_dim), 77.0), 16) for _ in range(2))
    attend_tiles(TileConfig(32, 32), Pages(cache, step), q, heads, None, gate, out)
    TORCH.attend(step, q, cache, heads, None, gate, wanted, rows=False)
    close(out, wanted, k_type, v_type)


@pytest.mark.parametrize(
    ("window", "softcap", "sinks"),
    [(None, 3.0, floats(9, 4)), (1, 0.0, floats(9, 4)), (31, 3.0, None), (40, 0.0, floats(9, 4)), (200, 0.0, None)],
)
def test_windows_sinks_and_caps(window: int | None, softcap: float, sinks: torch.Tensor | None) -> None:
    heads = Heads(4, 2, 32, 32, 0.3, 32, window, None if sinks is None else "sinks", softcap)
    cache = filled(replace(heads, window=None), "f32", "f32")
    for rows in (DECODE, *CHUNKS):
        step, q = STEPS.rows(rows, window), floats(5, len(rows), 4 * 32)
        out, wanted = (torch.full((len(rows), 4 * 32), 77.0) for _ in range(2))
        TORCH.attend(step, q, cache, heads, sinks, None, wanted, rows=False)
        given = (Pages(cache, step), q, heads, sinks, None, out)
        config = DecodeConfig(keys=32, least=1)
        if rows is DECODE:
            attend_rows(room(), 3, config, *given)
        else:
            attend_tiles(TileConfig(16, 32), *given)
            close(out, wanted, "f32")
            attend_rows(room(), 3, config, *given, queries=32)
        close(out, wanted, "f32")


@pytest.mark.parametrize("heads", [SHAPES[1], SHAPES[4], SHAPES[5]])
@pytest.mark.parametrize("rows", CHUNKS)
def test_short_chunks_are_split(heads: Heads, rows: list[tuple[int, int]]) -> None:
    cache, step = filled(heads, "f16", "f16"), STEPS.rows(rows)
    q = rows_of(floats(5, len(rows), heads.n_heads * heads.q_step), 16)
    gate = q if heads.q_step == 2 * heads.head_dim else None
    out, wanted = (rows_of(torch.full((len(rows), heads.n_heads * heads.v_dim), 77.0), 16) for _ in range(2))
    attend_rows(room(), 9, DecodeConfig(least=1), Pages(cache, step), q, heads, None, gate, out, queries=16)
    TORCH.attend(step, q, cache, heads, None, gate, wanted, rows=False)
    close(out, wanted, "f16")


class Kernels(AttentionKernels):
    """Of a lane."""

    def __init__(self) -> None:
        self._workspace, self._asm = room(), False


@pytest.mark.parametrize("kind", ["f32", "q8_0"])
def test_a_lane_takes_rows_and_chunks_of_any_size(kind: KvType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_kernels, "FEW_ROWS", 16)
    heads, kernels = SHAPES[1], Kernels()
    cache = filled(heads, kind, kind)
    for rows in (DECODE, CHUNKS[0], CHUNKS[0][:9]):
        step, q = STEPS.rows(rows), floats(5, len(rows), heads.n_heads * heads.q_step)
        out, wanted = (torch.full((len(rows), heads.n_heads * heads.v_dim), 77.0) for _ in range(2))
        kernels.attend(step, q, cache, heads, None, None, out, rows=rows is DECODE)
        TORCH.attend(step, q, cache, heads, None, None, wanted, rows=rows is DECODE)
        close(out, wanted, kind)
