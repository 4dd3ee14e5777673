"""The torch kernels against the numpy reference: dequantisation bit for bit, the rest within f32."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from engine.arch.spec import Act, ClampedSwiglu, Routing
from engine.graph import reference_experts
from engine.quants.formats import BY_NAME
from engine.quants.padding import PADDED, padded_bytes
from engine.quants.reference import dequantise as want_values
from engine.triton_kernels.formats import BLOCKS, padded
from engine.triton_kernels.tensors import Choice, Matrix, NormWeight
from engine.triton_kernels.torch.activations import choose, gated
from engine.triton_kernels.torch.dequantise import dequantise
from engine.triton_kernels.torch.kernels import TorchKernels
from tests.helpers.numerics import as_stored, file_format, random_weights

GOLDEN = Path(__file__).parents[2] / "golden" / "quant_blocks.npz"
KERNELS = TorchKernels()


def stored(name: str, n_matrices: int, n_out: int, n_in: int, seed: int = 0) -> tuple[Matrix, np.ndarray]:
    """Random matrices behind 32 other bytes, and their values [n_matrices, n_out, n_in]."""
    raw = random_weights(file_format(name), n_matrices * n_out, n_in, np.random.default_rng(seed))
    values = want_values(file_format(name), raw).reshape(n_matrices, n_out, n_in)
    raw = as_stored(name, raw)
    data = torch.from_numpy(np.concatenate([np.full(32, 255, np.uint8), raw.reshape(-1)]))
    step = n_out * raw.shape[1]
    matrix = Matrix(data, name, n_in, n_out, raw.shape[1], 32, n_matrices, step)
    return matrix, values


def random(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def empty(shape: tuple[int, ...], dtype: str) -> torch.Tensor:
    return torch.empty(shape, dtype=getattr(torch, dtype))


def acts(x: torch.Tensor, *formats: str):
    made = KERNELS.acts(empty, *x.shape, frozenset(formats), f32=True)
    KERNELS.prepare(x, made, rows=None, norm=None)
    return made


def close(got: torch.Tensor, want: np.ndarray, bound: float = 1e-5) -> None:
    assert np.abs(got.numpy() - want).max() <= bound * max(1.0, np.abs(want).max())


def test_sizes_are_those_of_the_formats() -> None:
    of_files = [name for name in BLOCKS if name == file_format(name)]
    assert {name: (BLOCKS[name].block, BLOCKS[name].type_size) for name in of_files} == {
        name: (BY_NAME[name].block, BY_NAME[name].type_size) for name in of_files
    }


def test_padded_blocks_lie_aligned_and_hold_those_of_the_file() -> None:
    assert {padded(name) for name in BLOCKS if padded(name) != name} == {name for name in BLOCKS if name != file_format(name)}
    for name, (stored_size, padded_size) in PADDED.items():
        assert BY_NAME[name].type_size == stored_size and BLOCKS[padded(name)].type_size == padded_size
        assert stored_size <= padded_size and padded_size % 16 == 0
        assert padded_bytes(name, 3 * stored_size) == 3 * padded_size


@pytest.mark.parametrize("name", [name for name in BLOCKS if name != "F32"])
def test_recorded_blocks_bit_for_bit(name: str) -> None:
    with np.load(GOLDEN) as blocks:
        raw, want = blocks[f"{file_format(name)}.raw"], blocks[f"{file_format(name)}.f32"].reshape(-1)
    raw = as_stored(name, raw).reshape(-1)
    got = dequantise(Matrix(torch.from_numpy(raw), name, want.size, 1, raw.size))
    np.testing.assert_array_equal(got.numpy().reshape(-1).view(np.uint32), want.view(np.uint32))


@pytest.mark.parametrize("name", BLOCKS)
def test_rows_of_a_matrix_bit_for_bit(name: str) -> None:
    matrix, want = stored(name, 3, 7, 512)
    got = dequantise(matrix, torch.tensor([6, 0, 6]), index=2)
    np.testing.assert_array_equal(got.numpy().view(np.uint32), want[2, [6, 0, 6]].view(np.uint32))


def test_every_e8m0_scale() -> None:
    raw = np.full((256, 17), 0x21, np.uint8)
    raw[:, 0] = np.arange(256)
    with np.errstate(over="ignore"):
        want = want_values("MXFP4", raw.reshape(-1))
    np.testing.assert_array_equal(dequantise(Matrix(torch.from_numpy(raw.reshape(-1)), "MXFP4", 8192, 1, 17 * 256))[0], want)


def test_other_formats_are_refused_with_a_reason() -> None:
    assert KERNELS.supports("linear", "Q4_K") is None
    assert "IQ2_XXS" in str(KERNELS.supports("linear", "IQ2_XXS"))


@pytest.mark.parametrize("act", ["silu", "gelu_tanh", ClampedSwiglu()])
def test_gated_activations(act: Act) -> None:
    gate, up = 10 * random(3, 64), 10 * random(3, 64, seed=2)
    close(gated(act, gate, up), reference_experts.gated(act, gate.numpy(), up.numpy()))


@pytest.mark.parametrize(
    "routing",
    [
        Routing(),
        Routing(gating="sigmoid", scale=2.5, n_groups=4, n_groups_used=2),
        Routing(gating="softmax_chosen", norm_weights=False),
        Routing(norm_weights=False, n_groups=8, n_groups_used=3),
    ],
)
@pytest.mark.parametrize("with_bias", [False, True])
def test_choice_of_experts(routing: Routing, with_bias: bool) -> None:
    logits = (4 * random(9, 32)).round() / 4  # with ties
    bias = random(32, seed=5) if with_bias else None
    chosen, weights = choose(logits, routing, bias, 6)
    want, want_weights = reference_experts.route(logits.numpy(), routing, None if bias is None else bias.numpy(), 6)
    np.testing.assert_array_equal(chosen.numpy(), want)
    close(weights, want_weights)


def test_prepare_gathers_and_norms() -> None:
    x, weight = random(5, 96), random(96, seed=3)
    made = KERNELS.acts(empty, 2, 96, frozenset({"F32"}), f32=True)
    KERNELS.prepare(x, made, rows=torch.tensor([4, 1], dtype=torch.int32), norm=NormWeight(weight, 1e-5))
    chosen = x.numpy()[[4, 1]]
    assert made.values is not None
    close(made.values, chosen / np.sqrt((chosen**2).mean(-1, keepdims=True) + np.float32(1e-5)) * weight.numpy())


@pytest.mark.parametrize("add", [False, True])
def test_norm_of_heads(add: bool) -> None:
    x, weight = random(5, 96), random(32, seed=3)
    out = random(5, 96, seed=4)
    parts = x.numpy().reshape(5, 3, 32)
    want = (parts / np.sqrt((parts**2).mean(-1, keepdims=True) + np.float32(1e-5)) * weight.numpy()).reshape(5, 96)
    want = want + out.numpy() if add else want
    KERNELS.norm(x, NormWeight(weight, 1e-5), 3, out, add=add)
    close(out, want)


def test_linears_share_an_input() -> None:
    x, bias = random(3, 256), random(5, seed=8)
    (a, want_a), (b, want_b) = stored("Q4_K", 1, 5, 256), stored("F16", 1, 3, 256, seed=2)
    outs = [torch.empty(3, 5), torch.empty(3, 3)]
    KERNELS.linear(acts(x, "Q4_K", "F16"), [a, b], [bias, None], outs, "store", 2.0)
    close(outs[0], 2 * np.tanh((x.numpy() @ want_a[0].T + bias.numpy()) / 2))
    close(outs[1], 2 * np.tanh(x.numpy() @ want_b[0].T / 2))


def test_linear_adds_and_gates() -> None:
    x = random(3, 64)
    (gate, want_gate), (up, want_up) = stored("Q8_0", 1, 5, 64), stored("Q8_0", 1, 5, 64, seed=2)
    out = random(3, 5, seed=9)
    want = out.numpy() + x.numpy() @ want_gate[0].T
    KERNELS.linear(acts(x, "Q8_0"), [gate], [None], [out], "add", 0.0)
    close(out, want)
    KERNELS.linear(acts(x, "Q8_0"), [gate, up], [None, None], [out], "silu", 0.0)
    close(out, reference_experts.gated("silu", x.numpy() @ want_gate[0].T, x.numpy() @ want_up[0].T))


def test_route_picks_from_its_scores() -> None:
    x, bias, pick = random(4, 64), random(8, seed=2), random(8, seed=3)
    router, want = stored("F32", 1, 8, 64)
    choice = Choice(torch.empty((4, 2), dtype=torch.int32), torch.empty(4, 2))
    scores = torch.empty(4, 8)
    KERNELS.route(acts(x, "F32"), router, bias, pick, scores, choice, Routing(gating="sigmoid"))
    logits = x.numpy() @ want[0].T + bias.numpy()
    close(scores, logits)
    chosen, weights = reference_experts.route(logits, Routing(gating="sigmoid"), pick.numpy(), 2)
    np.testing.assert_array_equal(choice.chosen.numpy(), chosen)
    close(choice.weights, weights)


def test_experts_pass_their_rows() -> None:
    n_rows, n_used, n_ff, width, n = 3, 2, 64, 96, 5
    x, weights = random(n_rows, width), random(n_rows, n_used, seed=4)
    chosen = torch.tensor([[4, 0], [-1, 4], [2, -1]], dtype=torch.int32)
    choice = Choice(chosen, weights)
    (gate, want_gate), (up, want_up) = stored("Q8_0", n, n_ff, width), stored("Q5_0", n, n_ff, width, seed=2)
    down, want_down = stored("Q4_0", n, width, n_ff, seed=3)
    gate_bias, down_bias = random(n, n_ff, seed=6), random(n, width, seed=7)
    mid, out, beside, share = (
        torch.empty(6, n_ff),
        random(n_rows, width, seed=5),
        random(n_rows, width, seed=9),
        random(n_rows, 1),
    )
    want = out.numpy() + beside.numpy() / (1 + np.exp(-share.numpy()))
    KERNELS.experts_up(acts(x, "Q8_0"), gate, up, gate_bias, None, choice, "silu", mid)
    KERNELS.experts_down(acts(mid, "Q4_0"), down, down_bias, choice, out, add=True, beside=beside, share=share)
    for r, row in enumerate(chosen.tolist()):
        for j, e in enumerate(row):
            if e < 0:
                continue
            g, u = x[r].numpy() @ want_gate[e].T + gate_bias[e].numpy(), x[r].numpy() @ want_up[e].T
            act = reference_experts.gated("silu", g[None], u[None])[0]
            want[r] += weights[r, j].item() * (act @ want_down[e].T + down_bias[e].numpy())
    close(out, want)


def test_sums_and_rows() -> None:
    x, y, share = random(3, 8), random(3, 8, seed=2), random(3, 1, seed=3)
    want = x.numpy() + y.numpy() / (1 + np.exp(-share.numpy()))
    KERNELS.add(x, y, share)
    close(x, want)
    KERNELS.rows(x, torch.tensor([2, 2], dtype=torch.int32), y[:2])
    close(y[:2], want[[2, 2]])
