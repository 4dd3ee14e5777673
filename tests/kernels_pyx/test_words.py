"""Words times cached bytes on every instruction set, against float64."""

from __future__ import annotations

import numpy as np
import pytest

from kernels_pyx import probe
from kernels_pyx.cpu_features import available_isas

ISAS = available_isas()
BLOCK = 32


def paired(rows: np.ndarray) -> np.ndarray:
    """[2 n][columns] int8 -> the bytes of [n][columns][2]."""
    return np.ascontiguousarray(rows.reshape(-1, 2, rows.shape[1]).transpose(0, 2, 1)).reshape(-1)


def some_bytes(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.integers(-127, 128, shape, np.int8)


def some_scales(rng: np.random.Generator, groups: int) -> np.ndarray:
    return (rng.random((groups, BLOCK)) * 0.1).astype(np.float16)


def worded(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    words = np.empty(x.shape, np.int16)
    return words, np.array([probe.to_words("scalar", row, out) for row, out in zip(x, words, strict=True)], np.float32)


def test_words_are_queries_to_the_last_of_15_bits() -> None:
    x = np.random.default_rng(0).standard_normal((1, 129)).astype(np.float32)
    words, unit = worded(x)
    assert np.abs(words).max() == 32767
    assert np.abs(words * unit - x).max() <= 0.51 * np.abs(x).max() / 32767


@pytest.mark.parametrize(("bad", "unit"), [(np.nan, np.nan), (np.inf, np.nan), (0.0, 0.0)])
def test_words_of_nothing_and_of_what_is_no_number(bad: float, unit: float) -> None:
    words, got = worded(np.array([[bad, 0.0]], np.float32))
    assert not words.any()
    np.testing.assert_array_equal(got, [unit])


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(("dim", "group"), [(128, 32), (128, 128), (80, 32), (80, 80), (16, 32), (2, 2), (576, 576), (576, 32)])
@pytest.mark.parametrize("m", [1, 2, 5, 6, 7, 12, 13, 48])
def test_scores(isa: str, dim: int, group: int, m: int) -> None:
    rng = np.random.default_rng(dim + m)
    keys, scales = some_bytes(rng, dim, BLOCK), some_scales(rng, -(-dim // group))
    q = rng.standard_normal((m, dim + 2)).astype(np.float32)
    words, unit = worded(q)
    got = np.full((m, BLOCK + 8), np.nan, np.float32)
    probe.words_scores(isa, words, unit, paired(keys), scales.view(np.uint16).reshape(-1), got, dim, group)
    by_dim = np.repeat(scales.astype(np.float64), group, 0)[:dim]
    wanted = q[:, :dim].astype(np.float64) @ (keys * by_dim)
    np.testing.assert_allclose(got[:, :BLOCK], wanted, atol=2e-4 * np.linalg.norm(keys * by_dim, axis=0).max())
    assert np.isnan(got[:, BLOCK:]).all()


@pytest.mark.parametrize("isa", ISAS)
def test_the_largest_sums_fit_into_32_bits(isa: str) -> None:
    dim = 576
    words, keys = np.full((1, dim), 32767, np.int16), np.full((dim, BLOCK), -127, np.int8)
    got, scales = np.zeros((1, BLOCK), np.float32), np.ones(BLOCK, np.float16).view(np.uint16)
    probe.words_scores(isa, words, np.ones(1, np.float32), paired(keys), scales, got, dim, dim)
    np.testing.assert_allclose(got, -127.0 * 32767 * dim, rtol=1e-6)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(("v_pad", "group"), [(128, 32), (128, 128), (80, 32), (48, 48), (16, 32)])
@pytest.mark.parametrize("m", [1, 2, 6, 7, 12, 13, 48])
@pytest.mark.parametrize("n", [1, 2, 31, 32])
def test_values(isa: str, v_pad: int, group: int, m: int, n: int) -> None:
    rng = np.random.default_rng(v_pad + m + n)
    values, scales = some_bytes(rng, BLOCK, v_pad), some_scales(rng, -(-v_pad // group))
    w = np.exp(rng.standard_normal((m, BLOCK + 5)) * 3).astype(np.float32)
    w[:, n:] = np.nan  # what lies behind the last token counts nothing
    scales[:, n:] = np.nan
    factor, before = rng.random(m).astype(np.float32), rng.standard_normal((m, v_pad)).astype(np.float32)
    got = before.copy()
    probe.words_values(isa, w, paired(values), scales.view(np.uint16).reshape(-1), got, factor, n, group)
    by_token = np.repeat(scales.astype(np.float64), group, 0)[:v_pad, :n].T
    wanted = before * factor[:, None].astype(np.float64) + w[:, :n].astype(np.float64) @ (values[:n] * by_token)
    largest = (w[:, :n, None] * by_token[None]).max()
    np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=largest / 32767 * 127 * np.sqrt(n))


@pytest.mark.parametrize("isa", ISAS)
def test_weights_of_nothing_leave_the_sums(isa: str) -> None:
    rng = np.random.default_rng(1)
    before = rng.standard_normal((2, 32)).astype(np.float32)
    got, w = before.copy(), np.zeros((2, BLOCK), np.float32)
    w[1] = 1e-38
    scales = some_scales(rng, 1).view(np.uint16).reshape(-1)
    probe.words_values(isa, w, some_bytes(rng, BLOCK * 32), scales, got, np.ones(2, np.float32), BLOCK, 32)
    np.testing.assert_allclose(got, before, atol=1e-30)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("token", [0, 13, 31])
def test_a_scale_that_is_no_number_shows_in_its_group(isa: str, token: int) -> None:
    rng = np.random.default_rng(2)
    scales = some_scales(rng, 2)
    scales[1, token] = np.nan
    stored, values = scales.view(np.uint16).reshape(-1), some_bytes(rng, BLOCK * 64)
    got = np.zeros((2, 64), np.float32)
    w = rng.random((2, BLOCK)).astype(np.float32)
    probe.words_values(isa, w, values, stored, got, np.ones(2, np.float32), BLOCK, 32)
    assert np.isfinite(got[:, :32]).all() and np.isnan(got[:, 32:]).all()
    scores, words = np.zeros((1, BLOCK), np.float32), np.ones((1, 64), np.int16)
    probe.words_scores(isa, words, np.ones(1, np.float32), values, stored, scores, 64, 32)
    assert np.flatnonzero(np.isnan(scores[0])).tolist() == [token]
