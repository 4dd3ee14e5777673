"""Vector operations of every instruction set against f64 numpy, at every length around the register sizes."""

from __future__ import annotations

import numpy as np
import pytest

from kernels_pyx import probe
from kernels_pyx.cpu_features import available_isas
from tests.helpers.numerics import F32

LENGTHS = (*range(1, 40), 63, 64, 65, 97, 576, 1001)
ISAS = available_isas()


def values(n: int, scale: float = 1.0, seed: int = 0) -> F32:
    """Random values that begin at an odd float, to be unaligned."""
    return (np.random.default_rng([n, seed]).normal(0, scale, n + 1).astype(np.float32))[1:]


def guarded(n: int) -> tuple[F32, F32]:
    whole = np.full(n + 16, np.float32(7.25))
    return whole[:n], whole[n:]


@pytest.mark.parametrize("isa", ISAS)
def test_sum_squares(isa: str) -> None:
    for n in LENGTHS:
        x = values(n)
        assert probe.sum_squares(isa, x) == pytest.approx(np.square(x.astype(np.float64)).sum(), rel=1e-5)


@pytest.mark.parametrize("isa", ISAS)
def test_norm_with_and_without_weights(isa: str) -> None:
    for n in LENGTHS:
        x, w = values(n), values(n, seed=1)
        y, guard = guarded(n)
        probe.norm(isa, x, w, 0.75, y)
        np.testing.assert_allclose(y, x.astype(np.float64) * 0.75 * w, rtol=3e-7)
        probe.norm(isa, x, None, 0.75, y)
        np.testing.assert_allclose(y, x * np.float32(0.75), rtol=1e-7)
        assert (guard == 7.25).all()


@pytest.mark.parametrize("isa", ISAS)
def test_silu_mul(isa: str) -> None:
    for n in LENGTHS:
        gate, up = values(n, 5), values(n, seed=1)
        y, guard = guarded(n)
        probe.gated(isa, "silu", gate, up, y)
        exact = gate.astype(np.float64) / (1 + np.exp(-gate.astype(np.float64))) * up
        np.testing.assert_allclose(y, exact, rtol=2e-6, atol=1e-30)
        assert (guard == 7.25).all()


@pytest.mark.parametrize("isa", ISAS)
def test_gelu_tanh_mul(isa: str) -> None:
    for n in LENGTHS:
        gate, up = values(n, 3), values(n, seed=1)
        y, guard = guarded(n)
        probe.gated(isa, "gelu_tanh", gate, up, y)
        g = gate.astype(np.float64)
        exact = 0.5 * g * (1 + np.tanh(np.sqrt(2 / np.pi) * (g + 0.044715 * g**3))) * up
        np.testing.assert_allclose(y, exact, rtol=3e-6, atol=1e-6)
        assert (guard == 7.25).all()


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(("alpha", "limit"), [(1.702, 7.0), (1.0, 0.5)])
def test_swiglu_clamped(isa: str, alpha: float, limit: float) -> None:
    for n in LENGTHS:
        gate, up = values(n, 9), values(n, 9, seed=1)
        y, guard = guarded(n)
        probe.swiglu_clamped(isa, gate, up, y, alpha, limit)
        g, u = np.minimum(gate.astype(np.float64), limit), np.clip(up.astype(np.float64), -limit, limit)
        np.testing.assert_allclose(y, g / (1 + np.exp(-alpha * g)) * (u + 1), rtol=3e-6, atol=1e-6)
        assert (guard == 7.25).all()
    gate[:], up[-1] = -1e30, np.nan
    probe.swiglu_clamped(isa, gate, up, y, alpha, limit)
    assert (y[:-1] == 0).all() and np.isnan(y[-1])


@pytest.mark.parametrize("isa", ISAS)
def test_gates_at_the_ends_of_the_range(isa: str) -> None:
    gate = np.array([-1e30, -200, -100, -88, 88, 100, 200, 1e30] * 3, np.float32)
    y = np.empty_like(gate)
    for op in ("silu", "gelu_tanh"):
        probe.gated(isa, op, gate, np.ones_like(gate), y)
        np.testing.assert_allclose(y, np.where(gate > 0, gate, 0), atol=1e-30)


@pytest.mark.parametrize("isa", ISAS)
def test_add(isa: str) -> None:
    for n in LENGTHS:
        x, y = values(n).copy(), values(n, seed=1)
        want = x + y
        probe.add(isa, x, y)
        np.testing.assert_array_equal(x, want)


@pytest.mark.parametrize("isa", ISAS)
def test_every_half_converts_to_f32_and_back(isa: str) -> None:
    half = np.arange(65536, dtype=np.uint16)
    y = np.empty(65536, np.float32)
    probe.f16_to_f32(isa, half, y)
    np.testing.assert_array_equal(y, half.view(np.float16).astype(np.float32))
    back = np.empty(65536, np.uint16)
    probe.f32_to_f16(isa, y, back)
    is_nan = np.isnan(y)
    np.testing.assert_array_equal(back[~is_nan], half[~is_nan])
    np.testing.assert_array_equal(back[is_nan], half[is_nan] | 0x200)


@pytest.mark.parametrize("isa", ISAS)
def test_f32_to_f16_rounds_as_scalar_does_bit_for_bit(isa: str) -> None:
    rng = np.random.default_rng(5)
    x = rng.integers(0, 2**32, 100_000, dtype=np.uint32).view(np.float32)
    near = (
        (
            rng.integers(0, 65536, 100_000, dtype=np.uint16).view(np.float16).astype(np.float32).view(np.uint32)
            + rng.integers(-2, 3, 100_000).astype(np.int64) * 0x800
        )
        .astype(np.uint32)
        .view(np.float32)
    )
    for source in (x, near):
        got, want = np.empty(len(source), np.uint16), np.empty(len(source), np.uint16)
        probe.f32_to_f16(isa, source, got)
        probe.f32_to_f16("scalar", source, want)
        np.testing.assert_array_equal(got, want)
        is_number = ~np.isnan(source)
        with np.errstate(over="ignore"):
            np.testing.assert_array_equal(want[is_number], source[is_number].astype(np.float16).view(np.uint16))


@pytest.mark.parametrize("isa", ISAS)
def test_maximum(isa: str) -> None:
    for n in LENGTHS:
        x = values(n) - np.float32(10)
        assert probe.maximum(isa, x) == x.max()


@pytest.mark.parametrize("isa", ISAS)
def test_exp_sum_is_accurate_to_a_millionth(isa: str) -> None:
    x = np.linspace(-87, 0, 100_003, dtype=np.float32)
    exact = np.exp(x.astype(np.float64))
    total = probe.exp_sum(isa, x, 0.0)
    np.testing.assert_allclose(x, exact, rtol=1e-6)
    assert total == pytest.approx(exact.sum(), rel=2e-4)


@pytest.mark.parametrize("isa", ISAS)
def test_exp_sum_at_every_length_and_of_minus_infinity(isa: str) -> None:
    for n in LENGTHS:
        x = values(n, 3).copy()
        x[n // 2] = -np.inf
        top = np.float32(x.max()) if n > 1 else np.float32(0)
        exact = np.exp((x - top).astype(np.float64))
        y, guard = guarded(n)
        y[:] = x
        total = probe.exp_sum(isa, y, float(top))
        np.testing.assert_allclose(y, exact, rtol=1e-6, atol=1e-37)
        assert total == pytest.approx(exact.sum(), rel=1e-5)
        assert (guard == 7.25).all()


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_all_finite_sees_one_bad_value_anywhere(isa: str, bad: float) -> None:
    for n in (1, 7, 8, 9, 16, 17, 33, 97):
        x = values(n).copy()
        assert probe.all_finite(isa, x)
        for i in range(n):
            x[i], kept = bad, x[i]
            assert not probe.all_finite(isa, x), (n, i)
            x[i] = kept


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("op", ["silu", "gelu_tanh"])
def test_gates_keep_nan(isa: str, op: str) -> None:
    gate = np.ones(37, np.float32)
    gate[[3, 20, 36]] = np.nan
    y = np.empty_like(gate)
    probe.gated(isa, op, gate, np.ones_like(gate), y)
    np.testing.assert_array_equal(np.isnan(y), np.isnan(gate))


@pytest.mark.parametrize("isa", ISAS)
def test_exp_sum_keeps_nan(isa: str) -> None:
    x = np.zeros(19, np.float32)
    x[17] = np.nan
    assert np.isnan(probe.exp_sum(isa, x, 0.0))
    np.testing.assert_array_equal(np.isnan(x), np.arange(19) == 17)
