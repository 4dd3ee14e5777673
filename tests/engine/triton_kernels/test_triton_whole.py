"""Launches that do the work of several, in Triton's interpreter against the torch forms one after another."""

from __future__ import annotations

import os

os.environ.setdefault("TRITON_INTERPRET", "1")

import numpy as np
import pytest
import torch

from engine.arch.spec import Norm, Rope, Routing
from engine.program.lane_ops import Heads, Turn
from engine.triton_kernels.attention_decode import DecodeConfig
from engine.triton_kernels.attention_whole import attend_whole, fits
from engine.triton_kernels.paged import Pages
from engine.triton_kernels.route_prepared import fits as route_fits
from engine.triton_kernels.route_prepared import prepare_route
from engine.triton_kernels.tensors import Acts, Choice, NormWeight, Pooled, Tally
from engine.triton_kernels.torch.attention_forms import AttentionForms
from engine.triton_kernels.torch.kernels import TorchKernels
from engine.triton_kernels.workspace import Workspace
from tests.engine.triton_kernels.test_torch_attention import table
from tests.engine.triton_kernels.test_triton_linear import TRITON, close, empty, of_torch, random, stored
from tests.helpers.gpu_steps import Steps, cache_of, floats, rows_of

TORCH, PLAIN = AttentionForms(), Turn(None, None)
STEPS = Steps((96, 33, 5, 64))
DECODE = [(0, 95), (2, 4), (1, 32), (3, 63), (1, 31), (3, 0)]
NORM = Norm("norm", 1e-5)
NEOX, PAIRS = Rope("neox", 32, 1e4), Rope("norm", 64, 5e5)


def room() -> Workspace:
    return Workspace(lambda shape, dtype: torch.full(shape, 77, dtype=getattr(torch, dtype)))


CASES = [
    (Heads(4, 1, 64, 64, 0.125, 64), Turn(NORM, NEOX), False, False),
    (Heads(6, 2, 64, 32, 0.1, 128), Turn(NORM, PAIRS, norm_last=True), True, True),
    (Heads(3, 3, 128, 128, 0.09, 128), PLAIN, False, True),
    (Heads(4, 2, 64, 64, 0.125, 64, 40, "sinks"), Turn(None, NEOX), False, False),
    (Heads(4, 2, 64, 64, 0.125, 64, 40, None, 3.0), Turn(NORM, NEOX), True, False),
]


@pytest.mark.parametrize(("heads", "turn", "scaled", "longer"), CASES)
@pytest.mark.parametrize("least", [1, 2])
def test_attention_of_decode_in_one_launch(heads: Heads, turn: Turn, scaled: bool, longer: bool, least: int) -> None:
    """Rows at the first token of a block, at the very first of a sequence, and in the midst; with and without codes."""
    n, width = len(DECODE), heads.n_heads * heads.v_dim
    every, step = STEPS.all_rows(), STEPS.rows(DECODE, heads.window)
    q, k, v = (
        floats(i + 20, n, m)
        for i, m in enumerate((heads.n_heads * heads.q_step, heads.n_kv_heads * heads.head_dim, heads.n_kv_heads * heads.v_dim))
    )
    norms = (None, None) if turn.norm is None else tuple(NormWeight(1 + 0.1 * floats(i, heads.head_dim), 1e-5) for i in (1, 2))
    rope = None if turn.rope is None else table(turn.rope)
    scale = 1 + floats(3, 128).abs() if scaled else None
    sinks = None if heads.sinks is None else floats(9, heads.n_heads)
    found = []
    for whole in (False, True):
        cache = cache_of(STEPS.n_blocks, heads, "f16", "f16")
        old_k, old_v = (floats(i, len(every), heads.n_kv_heads * dim) for i, dim in enumerate((heads.head_dim, heads.v_dim)))
        TORCH.position(STEPS.rows(every), None, old_k, old_v, heads, PLAIN, PLAIN, None, None, None, None, cache)
        own = [rows_of(one, 8) for one in (q, k, v)]
        gate = own[0] if heads.q_step == 2 * heads.head_dim else None
        out = rows_of(torch.full((n, width), 77.0), 8)
        acts = Acts(None, empty((n, width), "int8"), empty((n, width // 32), "float32"), empty((n, width // 16), "float32"))
        if whole:
            pages = Pages(cache, step)
            assert fits(pages, heads, turn, turn)
            given = (heads, turn, turn, *norms, rope, scale, sinks, gate, out, acts if longer else None)
            config, workspace = DecodeConfig(keys=32, least=least), room()
            for _ in range(2):  # counters are left as they were found
                attend_whole(workspace, 3 * heads.n_kv_heads // 2, config, pages, *own, *given)
        else:
            TORCH.position(step, *own, heads, turn, turn, *norms, rope, scale, cache)
            TORCH.attend(step, own[0], cache, heads, sinks, gate, out, rows=True)
            TRITON.prepare(out, acts, rows=None, norm=None)
        found.append((out, cache.keys, cache.values, acts))
    (want, keys, values, _), (got, own_keys, own_values, codes) = found
    np.testing.assert_allclose(got, want, atol=4e-3)
    for ours, theirs in ((own_keys, keys), (own_values, values)):
        np.testing.assert_allclose(ours, theirs, rtol=2e-3, atol=1e-6)
    if longer:
        assert codes.codes is not None and codes.scales is not None and codes.sums is not None
        again = Acts(None, *(torch.empty_like(one) for one in (codes.codes, codes.scales, codes.sums)))
        TRITON.prepare(got, again, rows=None, norm=None)
        for ours, theirs in ((codes.codes, again.codes), (codes.scales, again.scales), (codes.sums, again.sums)):
            np.testing.assert_array_equal(ours, theirs)


def test_which_attention_is_one_launch() -> None:
    heads = Heads(4, 2, 64, 64, 0.125, 64)
    step = STEPS.rows(DECODE)
    half, eight, exact = (Pages(cache_of(STEPS.n_blocks, heads, one, one), step) for one in ("f16", "q8_0", "f32"))
    assert fits(half, heads, PLAIN, PLAIN)
    assert not fits(eight, heads, PLAIN, PLAIN) and not fits(exact, heads, PLAIN, PLAIN)
    assert not fits(half, heads, Turn(NORM, None, whole=True), PLAIN)
    assert not fits(half, Heads(4, 2, 80, 64, 0.125, 80), PLAIN, PLAIN)


ROUTINGS = [
    Routing("softmax", norm_weights=False),
    Routing("softmax"),
    Routing("sigmoid", norm_weights=True, scale=2.5),
    Routing("softmax_chosen", norm_weights=False),
]


@pytest.mark.parametrize("routing", ROUTINGS)
@pytest.mark.parametrize(("n_rows", "normed", "experts"), [(1, True, 1), (3, True, 8), (3, False, 1)])
def test_rows_and_choice_in_one_launch(routing: Routing, n_rows: int, normed: bool, experts: int) -> None:
    """Equal scores go to the lower id, and the count of arrivals is left at 0."""
    router, x, kernels = stored("F32", 1, 12, 96), random(n_rows, 96), TorchKernels()
    router.data[4:].view(torch.float32)[96 * 5 : 96 * 6] = router.data[4:].view(torch.float32)[96 * 2 : 96 * 3]
    norm = NormWeight(1 + 0.1 * random(96, seed=5), 1e-5) if normed else None
    assert route_fits(TRITON.acts(empty, n_rows, 96, frozenset({"Q4_K", "F32"}), f32=False), router, routing)
    arrivals = torch.zeros(1, dtype=torch.int32)
    for seed in (1, 2):
        pick = random(12, seed=seed).round() if seed == 2 else None
        bias = random(12, seed=3).round() if seed == 2 else None
        want_acts, acts = (TRITON.acts(empty, n_rows, 96, frozenset({"Q4_K", "F32"}), f32=False) for _ in range(2))
        TRITON.prepare(x, want_acts, rows=None, norm=norm)
        scores, want = ([empty((n_rows, 12), "float32"), *_choice(n_rows, 3)] for _ in range(2))
        assert want_acts.values is not None
        kernels.route(of_torch(want_acts.values), router, bias, pick, want[0], Choice(*want[1:]), routing)
        ids, counts = torch.full((n_rows, 3), -7, dtype=torch.int32), torch.zeros(12, dtype=torch.int32)
        slots = torch.tensor([-1, 3, 0, -1, 1, -1, 2, -1, -1, 4, -1, 5], dtype=torch.int32)
        pool = Pooled(slots, torch.empty_like(ids), torch.empty_like(ids))
        given = (x, norm, acts, router, bias, pick, scores[0], Choice(*scores[1:]), routing, arrivals)
        prepare_route(*given, Tally(ids, counts), pool, experts=experts)
        chosen = scores[1].long()
        np.testing.assert_array_equal(ids, scores[1])
        np.testing.assert_array_equal(counts, torch.bincount(chosen.flatten(), minlength=12))
        np.testing.assert_array_equal(pool.here, slots[chosen])
        np.testing.assert_array_equal(pool.there, torch.where(slots[chosen] < 0, scores[1], -1))
        close(scores[0], want[0], 1e-5)
        np.testing.assert_array_equal(scores[1], want[1])
        close(scores[2], want[2], 1e-5)
        assert not arrivals.any()
        for name in ("values", "codes", "scales", "sums"):
            np.testing.assert_allclose(getattr(acts, name), getattr(want_acts, name), rtol=1e-6)


def test_which_routers_choose_in_one_launch() -> None:
    router, (few, many) = stored("F32", 1, 12, 96), (TRITON.acts(empty, n, 96, frozenset({"F32"}), f32=False) for n in (8, 9))
    assert route_fits(few, router, Routing("softmax")) and not route_fits(many, router, Routing("softmax"))
    assert not route_fits(few, router, Routing("softmax", n_groups=4, n_groups_used=2))
    assert not route_fits(few, stored("Q8_0", 1, 12, 96), Routing("softmax"))
    assert not route_fits(few, stored("F32", 1, 300, 32), Routing("softmax"))


def _choice(n_rows: int, n_used: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.full((n_rows, n_used), -7, dtype=torch.int32), empty((n_rows, n_used), "float32")
