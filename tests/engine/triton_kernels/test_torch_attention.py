"""Attention of GPU lanes in torch against the reference of the graph, and how it stores 8-bit values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from engine.arch.spec import HeadMatrices, Linear, Mla, Norm, Rope, Temperature
from engine.arch.units import UnitId
from engine.graph import ops
from engine.graph.ops import Buffer
from engine.graph.reference import _RUN
from engine.graph.rotation import temperatures
from engine.program.lane_ops import Heads, Turn
from engine.triton_kernels.tensors import Matrix, NormWeight
from engine.triton_kernels.torch.attention_forms import AttentionForms
from engine.triton_kernels.torch.cached import quantised
from tests.helpers.gpu_steps import Reference, Steps, cache_of, floats, latent_cache, rows_of

KERNELS, UNIT = AttentionForms(), UnitId("mixer", 0)
NORM = Norm("norm", 1e-5)
NEOX, PAIRS = Rope("neox", 16, 1e4), Rope("norm", 12, 5e5)
PLAIN = Heads(4, 2, 24, 16, 0.2, 24)
STEPS = Steps((70, 33, 5))
CHUNKS = [[(0, p) for p in range(70)], [(1, p) for p in range(20, 33)] + [(0, p) for p in range(60, 70)]]
DECODE = [[(0, 69), (2, 4), (1, 32)], [(1, 31)]]


def table(rope: Rope, n: int = 96) -> torch.Tensor:
    angles = np.arange(n)[:, None] * rope.freq_base ** (-2.0 * np.arange(rope.n_rot // 2) / rope.n_rot)
    return torch.tensor(np.concatenate([np.cos(angles), np.sin(angles)], 1), dtype=torch.float32)


def run(model: Reference, batch: Any, values: dict[str, Any], *steps: ops.Op) -> None:
    for op in steps:
        _RUN[type(op)](model, op, batch, values)


@pytest.mark.parametrize("rows", CHUNKS + DECODE)
@pytest.mark.parametrize("heads", [PLAIN, replace(PLAIN, window=9, softcap=2.0), replace(PLAIN, n_kv_heads=4, sinks="sinks")])
def test_attention(rows: list[tuple[int, int]], heads: Heads) -> None:
    sinks = None if heads.sinks is None else floats(9, heads.n_heads)
    model = Reference({} if sinks is None else {"sinks": sinks.numpy()}, heads.n_kv_heads)
    cache, every = cache_of(STEPS.n_blocks, heads, "f32", "f32"), STEPS.all_rows()
    k, v = floats(1, len(every), heads.n_kv_heads * 24), floats(2, len(every), heads.n_kv_heads * 16)
    q, out = rows_of(floats(3, len(rows), 4 * 24), 8), torch.full((len(rows), 4 * 16), 77.0)
    plain = Turn(None, None)
    KERNELS.position(STEPS.rows(every), None, k, v, heads, plain, plain, None, None, None, None, cache)
    KERNELS.attend(STEPS.rows(rows, heads.window), q, cache, heads, sinks, None, out, rows=False)
    buffers = {name: Buffer(name, 1) for name in "qkvo"}
    values = {"k": k.numpy(), "v": v.numpy(), "q": q.numpy()}
    run(model, STEPS.batch(every), values, ops.KvStore(UNIT, buffers["k"], buffers["v"], 0))
    sizes = (4, heads.n_kv_heads, 24, 16, 0.2, heads.window, heads.sinks, heads.softcap)
    run(model, STEPS.batch(rows), values, ops.Attention(UNIT, buffers["q"], buffers["o"], 0, *sizes))
    np.testing.assert_allclose(out.numpy(), values["o"], atol=2e-6)


def test_gates_multiply_the_result() -> None:
    heads = replace(PLAIN, n_heads=2, q_step=48, v_dim=24)
    cache, rows = cache_of(STEPS.n_blocks, heads, "f32", "f32"), [(1, 7), (1, 8)]
    both, out, gated = floats(1, 2, 96), torch.empty(2, 48), torch.empty(2, 48)
    plain, kv = Turn(None, None), floats(2, len(STEPS.all_rows()), 48)
    KERNELS.position(STEPS.rows(STEPS.all_rows()), None, kv, kv, heads, plain, plain, None, None, None, None, cache)
    KERNELS.attend(STEPS.rows(rows), both, cache, heads, None, None, out, rows=True)
    KERNELS.attend(STEPS.rows(rows), both, cache, heads, None, both, gated, rows=True)
    np.testing.assert_allclose(gated, out * both.view(2, 2, 48)[:, :, 24:].reshape(2, 48).sigmoid(), rtol=1e-6)


@pytest.mark.parametrize("rope", [NEOX, PAIRS])
@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("temperature", [None, Temperature(0.3, 20)])
def test_heads_are_normed_and_turned(rope: Rope, whole: bool, last: bool, temperature: Temperature | None) -> None:
    rows = [(0, p) for p in range(40, 60)]
    q, weight = floats(1, len(rows), 96), floats(2, 96 if whole else 24)
    model, values, b = Reference({"norm": weight.numpy()}, 4), {"q": q.numpy().copy()}, Buffer("q", 96)
    norm, turned = ops.Norm(UNIT, b, b, NORM, 1 if whole else 4), ops.Rope(UNIT, b, 4, 24, rope)
    run(model, STEPS.batch(rows), values, *((turned, norm) if last else (norm, turned)))
    positions = np.arange(40, 60)
    factors = 1.0 if temperature is None else temperatures(temperature, positions)[:, None]
    turn, scale = Turn(NORM, rope, whole, last, temperature), None
    if temperature is not None:
        scale = torch.tensor(temperatures(temperature, np.arange(96)))
    given, queries = NormWeight(weight, NORM.eps), rows_of(q, 4)
    KERNELS.position(STEPS.rows(rows), queries, None, None, PLAIN, turn, turn, given, None, table(rope), scale, None)
    np.testing.assert_allclose(queries, values["q"] * factors, atol=3e-6)
    keys = rows_of(q, 4)
    heads = replace(PLAIN, n_kv_heads=4)
    KERNELS.position(STEPS.rows(rows), None, keys, None, heads, turn, turn, None, given, table(rope), scale, None)
    np.testing.assert_allclose(keys, values["q"], atol=3e-6)


def test_codes_are_rounded_as_those_of_the_cpu() -> None:
    x = floats(1, 3, 2, 70)
    x[0, 0] *= 1e-9
    x[0, 1, 40] = torch.inf
    for n_groups, size in ((1, 70), (3, 32)):
        codes, scales = quantised(x, n_groups)
        assert codes.dtype == torch.int8 and scales.shape == (3, 2, n_groups)
        for at in np.ndindex(3, 2, n_groups):
            group = x[at[0], at[1], at[2] * size : (at[2] + 1) * size].numpy()
            stored = codes[at[0], at[1], at[2] * size : (at[2] + 1) * size].numpy()
            if not np.isfinite(group).all():
                assert scales[at].isnan() and not stored.any()
                continue
            scale = np.float16(np.abs(group).max() / np.float32(127))
            assert scales[at].numpy() == scale
            factor = np.float32(1) / np.float32(scale) if scale > 0 else np.float32(0)
            np.testing.assert_array_equal(stored, np.rint(np.clip(group * factor, -127, 127)))


def mla_of(rank: int = 20, n_rot: int = 8, nope: int = 12, v_dim: int = 10, n_heads: int = 3) -> Mla:
    def part(name: str, n_in: int, n_out: int) -> HeadMatrices:
        return HeadMatrices(name, n_in, n_out, n_heads, n_out)

    none = Linear("", 0, 0)
    matrices = (part("absorb", nope, rank), part("k", rank, nope), part("v", rank, v_dim))
    return Mla(none, none, NORM, *matrices, none, n_heads, rank, 0.25, Rope("norm", n_rot, 1e4))


def matrix_of(x: torch.Tensor) -> Matrix:
    n, n_out, n_in = x.shape
    data = torch.cat([torch.zeros(16, dtype=torch.uint8), x.contiguous().view(torch.uint8).flatten()])
    return Matrix(data, "F32", n_in, n_out, 4 * n_in, 16, n, 4 * n_in * n_out)


@pytest.mark.parametrize("rows", CHUNKS + DECODE)
def test_latent_attention_in_both_forms(rows: list[tuple[int, int]]) -> None:
    mla, every = mla_of(), STEPS.all_rows()
    k, v, weight = floats(1, 3, 12, 20), floats(2, 3, 10, 20), floats(3, 20)
    model = Reference({"norm": weight.numpy(), "k": k.view(-1, 20).numpy(), "v": v.view(-1, 20).numpy()}, 1)
    latent, q = floats(4, len(every), 28), floats(5, len(rows), 60)
    values = {"x": latent.numpy(), "q": q.numpy()}
    run(model, STEPS.batch(every), values, ops.LatentStore(UNIT, Buffer("x", 28), 0, 20, NORM, mla.rope))
    run(model, STEPS.batch(rows), values, ops.LatentAttention(UNIT, Buffer("q", 60), Buffer("o", 30), 0, mla))

    cache, ropes = latent_cache(STEPS.n_blocks, mla, "f32"), table(mla.rope)
    unused, norm = floats(6, len(every), 60), NormWeight(weight, NORM.eps)
    KERNELS.latent_position(STEPS.rows(every), unused, latent, norm, ropes, mla, cache)
    step, other, queries = STEPS.rows(rows), latent_cache(STEPS.n_blocks, mla, "f32"), rows_of(q, 4)
    KERNELS.latent_position(step, queries, floats(7, len(rows), 28), norm, ropes, mla, other)
    out = torch.empty(len(rows), 30)
    KERNELS.latent_heads(step, queries, mla, cache, matrix_of(k), matrix_of(v), out)
    np.testing.assert_allclose(out, values["o"], rtol=1e-5, atol=5e-6)

    absorbed, sums, absorbed_out = torch.empty(len(rows), 60), torch.empty(len(rows), 60), torch.empty(len(rows), 30)
    KERNELS.heads(queries, matrix_of(k.transpose(1, 2)), 20, 20, absorbed)
    KERNELS.latent_attend(step, absorbed, queries, mla, cache, sums, rows=True)
    KERNELS.heads(sums, matrix_of(v), 20, 10, absorbed_out)
    np.testing.assert_allclose(absorbed_out, values["o"], rtol=1e-5, atol=5e-6)
