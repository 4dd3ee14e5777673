"""Positioning in Triton's interpreter against the torch forms: norms, rotations, and what lands in the cache."""

from __future__ import annotations

import os

os.environ.setdefault("TRITON_INTERPRET", "1")

import numpy as np
import pytest
import torch

from engine.arch.spec import Norm, Rope
from engine.placement.options import KV_TYPES, KvType
from engine.program.lane_ops import Heads, Turn
from engine.triton_kernels.position import latent_position, position
from engine.triton_kernels.tensors import Cache, NormWeight
from engine.triton_kernels.torch.attention_forms import AttentionForms
from tests.engine.triton_kernels.test_torch_attention import mla_of, table
from tests.helpers.gpu_steps import Steps, cache_of, floats, latent_cache, rows_of

TORCH = AttentionForms()
STEPS = Steps((70, 33))
ROWS = [(0, 69), (1, 4), (1, 32)]
NORM = Norm("norm", 1e-5)


def same_cache(ours: Cache, theirs: Cache) -> None:
    """Equal; a code may lie on the other side of a half."""
    for name in ("keys", "values", "k_scales", "v_scales"):
        one, other = getattr(ours, name), getattr(theirs, name)
        if one is None:
            assert other is None
        elif one.dtype == torch.int8:
            assert (one.int() - other.int()).abs().max() <= 1 and (one == other).float().mean() > 0.99
        else:
            np.testing.assert_allclose(one, other, rtol=2e-3 if one.dtype == torch.float16 else 1e-5, atol=1e-6)


ROPES = [Rope("neox", 16, 1e4), Rope("norm", 40, 5e5), Rope("neox", 40, 1e4)]


@pytest.mark.parametrize(("k_type", "v_type"), [*zip(KV_TYPES, KV_TYPES, strict=True), ("q8_0", "f32")])
@pytest.mark.parametrize(
    ("rope", "whole", "last"),
    [(ROPES[0], False, False), (ROPES[1], True, False), (ROPES[2], False, True), (ROPES[0], True, True)],
)
def test_heads_are_turned_and_stored(k_type: KvType, v_type: KvType, rope: Rope, whole: bool, last: bool) -> None:
    heads = Heads(5, 3, 40, 24, 1.0, 80)
    turn = Turn(NORM, rope, whole, last)
    norms = [NormWeight(1 + 0.1 * floats(i, 40 * n if whole else 40), 1e-5) for i, n in enumerate((5, 3))]
    scale, step, given = 1 + floats(3, 96).abs(), STEPS.rows(ROWS), (floats(4, 3, 400), floats(5, 3, 120), floats(6, 3, 72))
    found = []
    for run in (position, TORCH.position):
        cache, (q, k, v) = cache_of(STEPS.n_blocks, heads, k_type, v_type), (rows_of(x, 8) for x in given)
        run(step, q, k, v, heads, turn, turn, *norms, table(rope), scale, cache)
        found.append((cache, q, k, v))
    same_cache(found[0][0], found[1][0])
    for ours, theirs in zip(found[0][1:], found[1][1:], strict=True):
        np.testing.assert_allclose(ours, theirs, atol=3e-6)


def test_parts_that_are_not_there_are_left_out() -> None:
    heads, rope, plain = Heads(4, 2, 32, 32, 1.0, 32), Rope("neox", 32, 1e4), Turn(None, None)
    step, turn = STEPS.rows(ROWS), Turn(None, rope)
    for run in (position, TORCH.position):
        cache = cache_of(STEPS.n_blocks, heads, "f32", "f32")
        q, k, v = floats(1, 3, 128), floats(2, 3, 64), floats(3, 3, 64)
        run(step, q, None, None, heads, turn, plain, None, None, table(rope), None, None)
        run(step, None, k, None, heads, plain, turn, None, None, table(rope), None, None)
        run(step, None, k, v, heads, plain, plain, None, None, None, None, cache)
        if run is position:
            ours = cache, q, k
    same_cache(ours[0], cache)
    for one, other in zip(ours[1:], (q, k), strict=True):
        np.testing.assert_allclose(one, other, atol=3e-6)


def test_a_value_that_is_not_finite_makes_its_group_none() -> None:
    heads, plain = Heads(1, 1, 64, 64, 1.0, 64), Turn(None, None)
    step, k = STEPS.rows([(0, 3)]), floats(1, 1, 64)
    k[0, 40] = torch.inf
    for kind in ("q8_0", "int8"):
        found = []
        for run in (position, TORCH.position):
            found.append(cache_of(STEPS.n_blocks, heads, kind, kind))
            run(step, None, k, torch.zeros(1, 64), heads, plain, plain, None, None, None, None, found[-1])
        same_cache(*found)


def test_many_rows_share_programs() -> None:
    """Then a program has several heads."""
    heads, rope = Heads(64, 64, 16, 16, 1.0, 16), Rope("neox", 16, 1e4)
    steps, turn = Steps((40,)), Turn(None, rope)
    given, found = [floats(i, 40, 1024) for i in range(3)], []
    for run in (position, TORCH.position):
        q, k, v = (x.clone() for x in given)
        cache = cache_of(steps.n_blocks, heads, "f16", "int8")
        run(steps.rows(steps.all_rows()), q, k, v, heads, turn, turn, None, None, table(rope), None, cache)
        found.append((cache, q, k))
    same_cache(found[0][0], found[1][0])
    np.testing.assert_allclose(found[0][1], found[1][1], atol=3e-6)
    np.testing.assert_allclose(found[0][2], found[1][2], atol=3e-6)


@pytest.mark.parametrize("kind", KV_TYPES)
@pytest.mark.parametrize(("rank", "n_rot"), [(20, 8), (64, 16)])
def test_latent_rows(kind: KvType, rank: int, n_rot: int) -> None:
    mla = mla_of(rank=rank, n_rot=n_rot)
    norm, given = NormWeight(1 + 0.1 * floats(1, rank), 1e-5), (floats(2, 3, 3 * mla.head_dim), floats(3, 3, mla.latent))
    found = []
    for run in (latent_position, TORCH.latent_position):
        cache, (q, row) = latent_cache(STEPS.n_blocks, mla, kind), (rows_of(x, 4) for x in given)
        run(STEPS.rows(ROWS), q, row, norm, table(mla.rope), mla, cache)
        found.append((cache, q, row))
    same_cache(found[0][0], found[1][0])
    np.testing.assert_allclose(found[0][1], found[1][1], atol=3e-6)
    np.testing.assert_array_equal(found[0][2], given[1])
