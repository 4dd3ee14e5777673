"""Linears, experts and norms in Triton's interpreter against the torch kernels: each op and format once, at odd sizes."""

from __future__ import annotations

import os

os.environ.setdefault("TRITON_INTERPRET", "1")

import numpy as np
import pytest
import torch
from torch import Tensor

from engine.arch.spec import Act, ClampedSwiglu, Routing
from engine.triton_kernels.formats import BLOCKS
from engine.triton_kernels.linear_kernels import LinearKernels
from engine.triton_kernels.tensors import Acts, Choice, Matrix, NormWeight, Pooled, StepInputs, Tally
from engine.triton_kernels.torch.kernels import TorchKernels
from tests.helpers.numerics import as_stored, file_format, random_weights

TORCH = TorchKernels()
QUANTISED = [name for name, blocks in BLOCKS.items() if not blocks.is_float]


def empty(shape: tuple[int, ...], dtype: str) -> Tensor:
    made = torch.empty(shape, dtype=getattr(torch, dtype))
    return made.fill_(float("nan") if made.is_floating_point() else 77)


TRITON = LinearKernels(empty, asm=False)


def random(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def codes(*shape: int, seed: int = 1) -> Tensor:
    """Rows that 8-bit codes hold exactly: multiples of a scale of each 32 values, of which one is 127."""
    q = torch.randint(-127, 128, shape, generator=torch.Generator().manual_seed(seed)).float().view(-1, 32)
    q[:, 7] = 127
    scales = torch.rand(len(q), 1, generator=torch.Generator().manual_seed(seed + 1)) + 0.1
    return (q * scales).view(shape)


def stored(name: str, n_matrices: int, n_out: int, n_in: int, seed: int = 0) -> Matrix:
    """Random matrices behind 4 other bytes, 16 where blocks are padded."""
    raw = as_stored(name, random_weights(file_format(name), n_matrices * n_out, n_in, np.random.default_rng(seed)))
    first = 4 if name == file_format(name) else 16
    data = torch.from_numpy(np.concatenate([np.full(first, 255, np.uint8), raw.reshape(-1), np.zeros(4, np.uint8)]))
    return Matrix(data, name, n_in, n_out, raw.shape[1], first, n_matrices, n_out * raw.shape[1])


def prepared(kernels: LinearKernels, x: Tensor, *formats: str, f32: bool = False) -> Acts:
    acts = kernels.acts(empty, *x.shape, frozenset(formats), f32=f32)
    kernels.prepare(x, acts, rows=None, norm=None)
    return acts


def of_torch(x: Tensor) -> Acts:
    return Acts(x, None, None, None)


def close(got: Tensor, want: Tensor, bound: float = 2e-6) -> None:
    assert torch.isfinite(got).all()
    assert (got - want).abs().max() <= bound * want.abs().max() + 1e-6


@pytest.mark.parametrize("name", BLOCKS)
def test_few_rows(name: str) -> None:
    """Three rows times seven: tiles that are not whole, in the matrix and in the activations, in 8 bits and in f32."""
    matrix, x = stored(name, 1, 7, 768), codes(3, 768)
    want = torch.empty(3, 7)
    TORCH.linear(of_torch(x), [matrix], [None], [want], "store", 0.0)
    for f32 in (False, True):
        got = empty((3, 7), "float32")
        TRITON.linear(prepared(TRITON, x, name, f32=f32), [matrix], [None], [got], "store", 0.0)
        close(got, want)


def test_few_rows_of_one_input_in_one_launch() -> None:
    x = codes(1, 256)
    matrices = [stored("Q4_K", 1, 6, 256), stored("Q6_K", 1, 4, 256), stored("F16", 1, 1, 256), stored("Q8_0", 1, 2, 256)]
    biases = [random(6), None, random(1, seed=3), None]
    wants, gots = ([empty((1, n), "float32") for n in (6, 4, 1, 2)] for _ in range(2))
    TORCH.linear(of_torch(x), matrices, biases, wants, "store", 3.0)
    TRITON.linear(prepared(TRITON, x, "Q4_K", "F16"), matrices, biases, gots, "store", 3.0)
    for got, want in zip(gots, wants, strict=True):
        close(got, want, 1e-5)


@pytest.mark.parametrize("act", ["silu", "gelu_tanh", ClampedSwiglu()])
@pytest.mark.parametrize("n_rows", [2, 9])
def test_gated_linear(act: Act, n_rows: int) -> None:
    gate, up, x = stored("Q4_K", 1, 5, 256), stored("Q5_0", 1, 5, 256, seed=2), codes(n_rows, 256) / 50
    biases = [random(5), random(5, seed=2)]
    want, got = empty((n_rows, 5), "float32"), empty((n_rows, 5), "float32")
    TORCH.linear(of_torch(x), [gate, up], biases, [want], act, 0.0)
    TRITON.linear(prepared(TRITON, x, "Q4_K", "Q5_0", f32=n_rows > 8), [gate, up], biases, [got], act, 0.0)
    close(got, want, 1e-5)


@pytest.mark.parametrize("name", ["Q4_K", "Q6_K_PADDED", "F32", "BF16", "F16", "MXFP4"])
@pytest.mark.parametrize("f32", [False, True])
def test_many_rows(name: str, f32: bool) -> None:
    matrix, x, bias = stored(name, 1, 70, 256), codes(11, 256), random(70)
    want = random(11, 70, seed=4)
    got = want.clone()
    TORCH.linear(of_torch(x), [matrix], [bias], [want], "add", 0.0)
    TRITON.linear(prepared(TRITON, x, name, f32=f32), [matrix], [bias], [got], "add", 0.0)
    close(got, want, 1e-5 if f32 else 2e-3)
    x *= 30 / want.abs().max()
    TORCH.linear(of_torch(x), [matrix], [None], [want], "store", 30.0)
    TRITON.linear(prepared(TRITON, x, name, f32=f32), [matrix], [None], [got], "store", 30.0)
    close(got, want, 1e-5 if f32 else 2e-3)


def test_few_rows_are_added() -> None:
    matrix, x, want = stored("Q6_K_PADDED", 1, 4, 512), codes(2, 512), random(2, 4)
    got = want.clone()
    TORCH.linear(of_torch(x), [matrix], [None], [want], "add", 0.0)
    TRITON.linear(prepared(TRITON, x, "Q6_K"), [matrix], [None], [got], "add", 0.0)
    close(got, want)


def test_rows_as_they_lie_are_multiplied_exactly() -> None:
    matrix, x, want = stored("Q4_0", 1, 4, 64), random(2, 64), torch.empty(2, 4)
    got = torch.empty(2, 4)
    TORCH.linear(of_torch(x), [matrix], [None], [want], "store", 0.0)
    TRITON.linear(of_torch(x), [matrix], [None], [got], "store", 0.0)
    close(got, want)


@pytest.mark.parametrize("name", BLOCKS)
def test_embeddings(name: str) -> None:
    matrix = stored(name, 1, 5, 512)
    ids = torch.tensor([4, 0, 4], dtype=torch.int32)
    step = StepInputs(ids, ids, ids, ids, ids)
    want, got = torch.empty(3, 512), empty((3, 512), "float32")
    TORCH.embed(step, matrix, 1.5, want)
    TRITON.embed(step, matrix, 1.5, got)
    close(got, want)


@pytest.mark.parametrize("with_norm", [False, True])
def test_prepare(with_norm: bool) -> None:
    """f32 and f16 rows, and codes that are off by half a scale at most, with scales and sums that belong to them."""
    x, rows = random(7, 96), torch.tensor([6, 0, 3] * 4, dtype=torch.int32)
    norm = NormWeight(random(96, seed=5), 1e-5) if with_norm else None
    want = TORCH.acts(empty, 12, 96, frozenset({"F32"}), f32=True)
    TORCH.prepare(x, want, rows=rows, norm=norm)
    acts = TRITON.acts(empty, 12, 96, frozenset({"F32", "Q8_0"}), f32=False)
    TRITON.prepare(x, acts, rows=rows, norm=norm)
    assert want.values is not None and acts.values is not None and acts.halves is not None
    assert acts.codes is not None and acts.scales is not None and acts.sums is not None
    close(acts.values, want.values)
    close(16 * acts.halves.float(), want.values, 1e-3)
    held = acts.codes.view(12, 3, 32) * acts.scales[:, :, None]
    assert ((held.reshape(12, 96) - want.values).abs() <= 0.5001 * acts.scales.repeat_interleave(32, dim=1)).all()
    close(acts.sums, held.view(12, 6, 16).sum(dim=2), 1e-5)
    assert (acts.codes.view(12, 3, 32).abs().amax(dim=2) == 127).all()


def test_a_row_of_zeros_has_codes() -> None:
    acts = prepared(TRITON, torch.zeros(1, 64), "Q8_0")
    assert acts.codes is not None and acts.scales is not None and acts.sums is not None
    assert not acts.codes.any() and not acts.scales.any() and not acts.sums.any()


@pytest.mark.parametrize("add", [False, True])
@pytest.mark.parametrize("n_heads", [1, 5])
def test_norm(n_heads: int, add: bool) -> None:
    x, norm = random(3, 120), NormWeight(random(120 // n_heads, seed=3), 1e-6)
    want = random(3, 120, seed=4)
    got = want.clone()
    TORCH.norm(x, norm, n_heads, want, add=add)
    TRITON.norm(x, norm, n_heads, got, add=add)
    close(got, want)


ROUTINGS = [
    Routing(),
    Routing(gating="sigmoid", scale=2.5, n_groups=4, n_groups_used=2),
    Routing(gating="softmax_chosen", norm_weights=False),
    Routing(norm_weights=False, n_groups=3, n_groups_used=1),
]


@pytest.mark.parametrize("routing", ROUTINGS)
@pytest.mark.parametrize("n_rows", [1, 3, 9])
def test_route(routing: Routing, n_rows: int) -> None:
    """Scores with ties, which go to the lower id; the count of arrivals is left at 0, or the second call would choose nothing."""
    router, x = stored("F32", 1, 12, 64), random(n_rows, 64)
    router.data[4:].view(torch.float32)[64 * 5 : 64 * 6] = router.data[4:].view(torch.float32)[64 * 2 : 64 * 3]
    for seed in (1, 2):
        pick = random(12, seed=seed).round() if seed == 2 else None
        bias = random(12, seed=3).round() if seed == 2 else None
        scores, want = ([empty((n_rows, 12), "float32"), *_choice(n_rows, 3)] for _ in range(2))
        TORCH.route(of_torch(x), router, bias, pick, want[0], Choice(*want[1:]), routing)
        TRITON.route(prepared(TRITON, x, "F32"), router, bias, pick, scores[0], Choice(*scores[1:]), routing)
        close(scores[0], want[0], 1e-5)
        np.testing.assert_array_equal(scores[1], want[1])
        close(scores[2], want[2], 1e-5)


@pytest.mark.parametrize("n_rows", [3, 9])
def test_what_a_router_chose_is_noted(n_rows: int) -> None:
    """As ids of few rows, or added to counts; rows of a tile that do not exist are not counted."""
    router, x = stored("F32", 1, 12, 64), random(n_rows, 64)
    acts = prepared(TRITON, x, "F32")
    for kernels, rows in ((TRITON, acts), (TORCH, of_torch(x))):
        scores, choice = empty((n_rows, 12), "float32"), Choice(*_choice(n_rows, 3))
        ids, counts = empty((n_rows, 3), "int32"), torch.full((12,), 5, dtype=torch.int32)
        tally = Tally(ids, None) if n_rows == 3 else Tally(None, counts)
        kernels.route(rows, router, None, None, scores, choice, Routing(), tally)
        if n_rows == 3:
            np.testing.assert_array_equal(ids, choice.chosen)
        else:
            np.testing.assert_array_equal(counts - 5, np.bincount(choice.chosen.reshape(-1), minlength=12))


@pytest.mark.parametrize("n_rows", [3, 9])
def test_a_choice_is_told_apart_by_who_computes_it(n_rows: int) -> None:
    """Slots of the pool and experts without one; both sides together are the choice."""
    router, x = stored("F32", 1, 12, 64), random(n_rows, 64)
    slot_of = torch.full((12,), -1, dtype=torch.int32)
    slot_of[[7, 2, 11, 4]] = torch.arange(4, dtype=torch.int32)
    for kernels, rows in ((TRITON, prepared(TRITON, x, "F32")), (TORCH, of_torch(x))):
        choice, pool = Choice(*_choice(n_rows, 5)), Pooled(slot_of, *(empty((n_rows, 5), "int32") for _ in range(2)))
        kernels.route(rows, router, None, None, empty((n_rows, 12), "float32"), choice, Routing(), None, pool)
        chosen = choice.chosen.numpy()
        np.testing.assert_array_equal(pool.here, slot_of.numpy()[chosen])
        np.testing.assert_array_equal(pool.there, np.where(pool.here.numpy() < 0, chosen, -1))
        assert (pool.here >= 0).any() and (pool.there >= 0).any()


@pytest.mark.parametrize(("name", "n_rows"), [("Q8_0", 2), ("Q8_0", 9)])
def test_experts_of_a_pool_and_the_others_add_up_to_all(name: str, n_rows: int) -> None:
    """Matrices of four slots with ids of slots, -1 for what lies elsewhere; then the others by the whole set."""
    gate, up, down = (stored(name, 12, n, 256, i) for i, n in enumerate((3, 3, 2)))
    x, held = codes(n_rows, 256), [7, 2, 11, 4]
    generator = torch.Generator().manual_seed(5)
    chosen = torch.stack([torch.randperm(12, generator=generator)[:3] for _ in range(n_rows)]).int()
    weights = torch.rand(n_rows, 3, generator=generator)
    slot_of = torch.full((12,), -1, dtype=torch.int32)
    slot_of[held] = torch.arange(4, dtype=torch.int32)
    here = slot_of[chosen.long()]
    there = torch.where(here < 0, chosen, -1)

    def copies(matrix: Matrix) -> Matrix:
        whole = matrix.data[matrix.first : matrix.first + 12 * matrix.step].view(12, matrix.step)
        return Matrix(whole[held].reshape(-1).contiguous(), name, matrix.n_in, matrix.n_out, matrix.row_bytes, 0, 4, matrix.step)

    def run(matrices: tuple[Matrix, Matrix], ids: Tensor) -> Tensor:
        out = empty((n_rows * 3, 3), "float32")
        TRITON.experts_up(prepared(TRITON, x, name), *matrices, None, None, Choice(ids, weights), "silu", out)
        return out

    def run_down(matrix: Matrix, ids: Tensor, out: Tensor, add: bool) -> None:
        rows = codes(n_rows * 3, 256, seed=9) * (ids.view(-1, 1) >= 0)
        acts = prepared(TRITON, rows, name)
        TRITON.experts_down(acts, matrix, None, Choice(ids, weights), out, add=add, beside=None, share=None)

    whole = run((gate, up), chosen)
    close(run((copies(gate), copies(up)), here) + run((gate, up), there), whole)
    total, parts = empty((n_rows, 2), "float32"), empty((n_rows, 2), "float32")
    run_down(down, chosen, total, add=False)
    run_down(copies(down), here, parts, add=False)
    run_down(down, there, parts, add=True)
    close(parts, total, 1e-5)


def test_counts_of_many_rows_beside_a_head_of_few() -> None:
    """In a step of more rows the last layer may have few: it counts, as the others do."""
    router, x = stored("F32", 1, 12, 64), random(3, 64)
    for kernels, rows in ((TRITON, prepared(TRITON, x, "F32")), (TORCH, of_torch(x))):
        choice, counts = Choice(*_choice(3, 4)), torch.zeros(12, dtype=torch.int32)
        kernels.route(rows, router, None, None, empty((3, 12), "float32"), choice, Routing(), Tally(None, counts))
        np.testing.assert_array_equal(counts, np.bincount(choice.chosen.reshape(-1), minlength=12))


def _choice(n_rows: int, n_used: int) -> tuple[Tensor, Tensor]:
    return torch.full((n_rows, n_used), -7, dtype=torch.int32), empty((n_rows, n_used), "float32")


@pytest.mark.parametrize(
    ("up", "down", "act", "n_rows"),
    [
        ("Q4_K", "Q6_K", "silu", 2),
        ("Q6_K_PADDED", "Q6_K_PADDED", "silu", 2),
        ("Q8_0", "Q4_K", "silu", 1),
        ("MXFP4", "MXFP4", ClampedSwiglu(), 2),
        ("F16", "F16", "silu", 1),
        ("Q4_K", "Q6_K", "silu", 11),
        ("Q4_K", "Q6_K_PADDED", "silu", 11),
        ("MXFP4", "MXFP4", ClampedSwiglu(), 9),
        ("BF16", "F16", "silu", 9),
    ],
)
def test_experts(up: str, down: str, act: Act, n_rows: int) -> None:
    """Slots that are computed elsewhere, biases, and what stands beside; more than 8 rows go in the order of their experts."""
    n, n_ff, n_in, n_out = 5, 5, 256, 3
    chosen = torch.tensor([[4, -1, 1], [0, 4, 2]] * 6, dtype=torch.int32)[:n_rows]
    choice = Choice(chosen, random(n_rows, 3, seed=4))
    gate_up = stored(up, n, 2 * n_ff, n_in)
    half = n_ff * gate_up.row_bytes
    gate = Matrix(gate_up.data, up, n_in, n_ff, gate_up.row_bytes, gate_up.first, n, gate_up.step)
    upper = Matrix(gate_up.data, up, n_in, n_ff, gate_up.row_bytes, gate_up.first + half, n, gate_up.step)
    down_of = stored(down, n, n_out, n_in, seed=3)
    x, bias, down_bias = codes(n_rows, n_in) / 100, random(n, n_ff, seed=6), random(n, n_out, seed=7)
    want, got = empty((n_rows * 3, n_ff), "float32"), empty((n_rows * 3, n_ff), "float32")
    TORCH.experts_up(of_torch(x), gate, upper, bias, None, choice, act, want)
    f32 = n_rows > 8
    TRITON.experts_up(prepared(TRITON, x, up, f32=f32), gate, upper, bias, None, choice, act, got)
    close(got, want, 1e-5)
    mid = torch.where((chosen < 0).view(-1, 1), torch.zeros(()), codes(n_rows * 3, n_in, seed=9))
    want_out = random(n_rows, n_out, seed=5)
    got_out = want_out.clone()
    beside, share = random(n_rows, n_out, seed=8), random(n_rows, 1)
    TORCH.experts_down(of_torch(mid), down_of, down_bias, choice, want_out, add=True, beside=beside, share=share)
    TRITON.experts_down(
        prepared(TRITON, mid, down, f32=f32), down_of, down_bias, choice, got_out, add=True, beside=beside, share=share
    )
    close(got_out, want_out, 1e-5)
    TORCH.experts_down(of_torch(mid), down_of, None, choice, want_out, add=False, beside=None, share=None)
    TRITON.experts_down(prepared(TRITON, mid, down, f32=f32), down_of, None, choice, got_out, add=False, beside=None, share=None)
    close(got_out, want_out, 1e-5)


def test_sums_activations_and_rows() -> None:
    x, y, share = random(3, 70), random(3, 70, seed=2), random(3, 1, seed=3)
    for given in (None, share):
        want, got = x.clone(), x.clone()
        TORCH.add(want, y, given)
        TRITON.add(got, y, given)
        close(got, want)
    want, got = torch.empty(3, 70), empty((3, 70), "float32")
    TORCH.gated_act(x, y, "gelu_tanh", want)
    TRITON.gated_act(x, y, "gelu_tanh", got)
    close(got, want)
    got = empty((2, 70), "float32")
    TRITON.rows(x, torch.tensor([2, 1], dtype=torch.int32), got)
    assert torch.equal(got, x[[2, 1]])
