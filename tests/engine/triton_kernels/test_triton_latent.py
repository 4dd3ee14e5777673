"""Latent attention in Triton's interpreter against the torch forms, absorbed and with keys and values made on the way."""

from __future__ import annotations

import os

os.environ.setdefault("TRITON_INTERPRET", "1")

import numpy as np
import pytest
import torch

from engine.arch.spec import Mla
from engine.placement.options import KV_TYPES, KvType
from engine.triton_kernels.fitting import Fitting
from engine.triton_kernels.heads import heads
from engine.triton_kernels.latent_attend import LatentConfig, latent_attend
from engine.triton_kernels.latent_heads import latent_heads
from engine.triton_kernels.paged import Pages
from engine.triton_kernels.tensors import Cache, Matrix, NormWeight
from engine.triton_kernels.torch.attention_forms import AttentionForms
from engine.triton_kernels.workspace import Workspace
from tests.engine.triton_kernels.test_torch_attention import mla_of, table
from tests.helpers.gpu_steps import Steps, floats, latent_cache, rows_of
from tests.helpers.numerics import random_weights

TORCH = AttentionForms()
STEPS = Steps((100, 33, 5))
DECODE = [(0, 99), (2, 4), (1, 32)]
CHUNKS = [[(0, p) for p in range(93, 100)], [(1, p) for p in range(30, 33)] + [(0, p) for p in range(3)]]


def room() -> Workspace:
    return Workspace(lambda shape, dtype: torch.full(shape, 77, dtype=getattr(torch, dtype)))


def filled(mla: Mla, kind: KvType) -> Cache:
    """A cache with every token of STEPS."""
    cache, every = latent_cache(STEPS.n_blocks, mla, kind), STEPS.all_rows()
    q, row = floats(1, len(every), mla.n_heads * mla.head_dim), floats(2, len(every), mla.latent)
    norm = NormWeight(torch.ones(mla.rank), 1e-6)
    TORCH.latent_position(STEPS.rows(every), q, row, norm, table(mla.rope, 160), mla, cache)
    return cache


@pytest.mark.parametrize("kind", KV_TYPES)
@pytest.mark.parametrize("mla", [mla_of(), mla_of(rank=48, n_rot=16, n_heads=20)])
@pytest.mark.parametrize("rows", [DECODE, *CHUNKS])
def test_absorbed(kind: KvType, mla: Mla, rows: list[tuple[int, int]]) -> None:
    cache, step, n = filled(mla, kind), STEPS.rows(rows), len(rows)
    absorbed, q = rows_of(floats(3, n, mla.n_heads * mla.rank), 8), rows_of(floats(4, n, mla.n_heads * mla.head_dim), 4)
    out, wanted = (rows_of(torch.full((n, mla.n_heads * mla.rank), 77.0), 4) for _ in range(2))
    config = LatentConfig(keys=32, least=1, queries=32)
    latent_attend(room(), 6, config, Pages(cache, step), absorbed, q, mla, out, rows=rows is DECODE)
    TORCH.latent_attend(step, absorbed, q, mla, cache, wanted, rows=rows is DECODE)
    np.testing.assert_allclose(out, wanted, atol=2e-5 if kind == "f32" else 1e-2)


FORMATS = ["F32", "F16", "Q8_0", "Q5_0"]


def matrix_of(name: str, n: int, n_out: int, n_in: int, between: int = 3) -> Matrix:
    """Random matrices with `between` other rows behind each."""
    raw = random_weights(name, n * (n_out + between), n_in, np.random.default_rng(1))
    data = torch.from_numpy(np.concatenate([np.zeros(16, np.uint8), raw.reshape(-1), np.zeros(64, np.uint8)]))
    return Matrix(data, name, n_in, n_out, raw.shape[1], 16, n, (n_out + between) * raw.shape[1])


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("n_rows", [1, 3, 9])
def test_matrices_of_heads(name: str, n_rows: int) -> None:
    matrix, x = matrix_of(name, 3, 20, 64), rows_of(floats(1, n_rows, 3 * 72), 4)
    out, wanted = (rows_of(torch.full((n_rows, 3 * 24), 77.0), 4) for _ in range(2))
    heads(room(), x, matrix, 72, 24, out, asm=False)
    TORCH.heads(x, matrix, 72, 24, wanted)
    np.testing.assert_allclose(out, wanted, rtol=2e-3 if name == "Q5_0" else 1e-5, atol=1e-2 if name == "Q5_0" else 1e-4)


@pytest.mark.parametrize("kind", KV_TYPES)
@pytest.mark.parametrize(("rows", "piece_bytes"), [(CHUNKS[1], 1 << 20), (CHUNKS[0], 1)])
def test_keys_and_values_made_on_the_way(kind: KvType, rows: list[tuple[int, int]], piece_bytes: int) -> None:
    mla = mla_of(rank=64, n_rot=16, nope=20, v_dim=24)
    k, v = matrix_of("F32", 3, 20, 64), matrix_of("Q8_0", 3, 24, 64)
    cache, step, q = filled(mla, kind), STEPS.rows(rows), rows_of(floats(4, len(rows), 3 * 36), 4)
    out, wanted = (rows_of(torch.full((len(rows), 72), 77.0), 4) for _ in range(2))
    latent_heads(room(), Fitting(), Pages(cache, step), q, mla, k, v, out, asm=False, piece_bytes=piece_bytes)
    TORCH.latent_heads(step, q, mla, cache, k, v, wanted)
    size = float(wanted.abs().max())
    np.testing.assert_allclose(out, wanted, atol=(2e-5 if kind == "f32" else 1e-2) * size)
