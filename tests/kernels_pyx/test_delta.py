"""The inner kernels of gated DeltaNet against numpy in f64: every instruction set, every width, in place and not."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from kernels_pyx import probe
from kernels_pyx.cpu_features import available_isas
from tests.helpers.numerics import aligned

F32 = npt.NDArray[np.float32]
ISAS = available_isas()
DIMS = [16, 32, 48, 64, 80, 128, 256]


def floats(n: int, offset: int = 0) -> F32:
    return aligned(4 * n, offset=offset).view(np.float32)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("taps", [1, 2, 4, 7])
def test_convolution(isa: str, taps: int) -> None:
    rng = np.random.default_rng(taps)
    for n in DIMS:
        x, w = (rng.normal(0, 2, taps * n).astype(np.float32) for _ in range(2))
        y = np.empty(n + 16, np.float32)
        y[n:] = 77
        probe.delta_conv(isa, x, w, y[:n], taps)
        total = (x.astype(np.float64) * w).reshape(taps, n).sum(axis=0)
        np.testing.assert_allclose(y[:n], total / (1 + np.exp(-total)), rtol=2e-5, atol=2e-6)
        assert (y[n:] == 77).all()


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("form", ["other slot", "in place", "from zeros"])
def test_step(isa: str, dim: int, form: str) -> None:
    rng = np.random.default_rng(dim)
    before, after, out = floats(dim * dim), floats(dim * dim + 16), np.empty(dim + 1, np.float32)[1:]
    before[:] = rng.normal(0, 1, dim * dim)
    after[:] = 77
    k, q, v = (rng.normal(0, dim**-0.5, dim + 1).astype(np.float32)[1:] for _ in range(3))
    old = np.zeros((dim, dim)) if form == "from zeros" else 0.9 * before.astype(np.float64).reshape(dim, dim)
    new = old + np.outer(k, 0.3 * (v - old.T @ k))
    target = before if form == "in place" else after[: dim * dim]
    probe.delta_step(
        isa, None if form == "from zeros" else before, None if form == "in place" else target, k, q, v, 0.9, 0.3, out
    )
    np.testing.assert_allclose(target.reshape(dim, dim), new, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(out, new.T @ q, rtol=1e-4, atol=2e-5)
    assert (after[dim * dim :] == 77).all()


@pytest.mark.parametrize("isa", ISAS)
def test_sigmoid_product(isa: str) -> None:
    rng = np.random.default_rng(1)
    for n in range(1, 70):
        x, gate = rng.normal(0, 1, n).astype(np.float32), rng.normal(0, 8, n).astype(np.float32)
        y = np.concatenate((x, [77])).astype(np.float32)
        probe.sigmoid_mul(isa, y[:n], gate)
        np.testing.assert_allclose(y[:n], x / (1 + np.exp(-gate.astype(np.float64))), rtol=4e-6, atol=1e-30)
        assert y[n] == 77


@pytest.mark.parametrize("isa", ISAS)
def test_extreme_gates_stay_finite(isa: str) -> None:
    y = np.ones(4, np.float32)
    probe.sigmoid_mul(isa, y, np.array([-1e30, 1e30, -200, 200], np.float32))
    np.testing.assert_allclose(y, [0, 1, 0, 1], atol=1e-30)


def test_matrices_that_are_not_aligned_are_refused() -> None:
    row = np.zeros(16, np.float32)
    with pytest.raises(ValueError, match="aligned"):
        probe.delta_step(ISAS[0], None, floats(257, offset=4)[:256], row, row, row, 1.0, 1.0, row.copy())
