"""Latent rows as 16-bit integers on every instruction set, against float64 and against plain C."""

from __future__ import annotations

import numpy as np
import pytest

from kernels_pyx import pair_probe
from kernels_pyx.cpu_features import available_isas

ISAS = available_isas()
BLOCK = 32
KEY = 4095


def rows_of(n: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((2, n)) * np.array([[0.3], [20.0]])).astype(np.float32)


def zipped_of(y: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(y.T).reshape(-1)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("half", [False, True], ids=["f32", "f16"])
@pytest.mark.parametrize("n", [32, 64, 96, 512])
def test_keys_are_off_by_half_a_step(isa: str, half: bool, n: int) -> None:
    x = rows_of(n)
    x[1, 5] = 0.0
    halves = x.astype(np.float16)
    y, zipped, scale = np.full((2, n), -1, np.int16), np.empty(2 * n, np.int16), np.empty(2, np.float32)
    pair_probe.keys(isa, None if half else x, halves.view(np.uint16) if half else None, y, zipped, scale)
    values = halves.astype(np.float64) if half else x.astype(np.float64)
    np.testing.assert_allclose(scale, np.abs(values).max(1) / KEY, rtol=1e-6)
    assert np.abs(y).max() == KEY
    assert (np.abs(y * scale[:, None].astype(np.float64) - values) <= 0.501 * scale[:, None]).all()
    np.testing.assert_array_equal(zipped, zipped_of(y))
    alone = np.empty_like(y)
    pair_probe.keys(isa, None if half else x, halves.view(np.uint16) if half else None, alone, None, scale)
    np.testing.assert_array_equal(alone, y)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_row_that_is_not_finite_says_so_and_leaves_the_other_alone(isa: str, bad: float) -> None:
    x = rows_of(64)
    x[0, 33] = bad
    y, scale = np.empty((2, 64), np.int16), np.empty(2, np.float32)
    for rows in ({"x32": x, "x16": None}, {"x32": None, "x16": x.astype(np.float16).view(np.uint16)}):
        pair_probe.keys(isa, y=y, zipped=None, scale=scale, **rows)
        assert not np.isfinite(scale[0]) and np.isfinite(scale[1])
        assert np.abs(y[1]).max() == KEY


@pytest.mark.parametrize("isa", ISAS)
def test_rows_of_zeros_are_zeros(isa: str) -> None:
    y, zipped, scale = np.full((2, 32), 9, np.int16), np.full(64, 9, np.int16), np.full(2, 9, np.float32)
    pair_probe.keys(isa, np.zeros((2, 32), np.float32), None, y, zipped, scale)
    assert not y.any() and not zipped.any() and not scale.any()


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(("n", "group"), [(512, 32), (64, 32), (576, 576), (96, 96), (160, 64)])
@pytest.mark.parametrize("token", [0, 7, 30])
def test_cached_bytes_keep_their_scales(isa: str, n: int, group: int, token: int) -> None:
    rng = np.random.default_rng(n + token)
    x, groups = rng.integers(-127, 128, (2, n), np.int8), -(-n // group)
    scales = (rng.random((groups, BLOCK)) * 0.05).astype(np.float16)
    y, zipped, scale, factors = (
        np.empty((2, n), np.int16),
        np.empty(2 * n, np.int16),
        np.empty(BLOCK, np.float32),
        np.empty(groups * BLOCK, np.int16),
    )
    pair_probe.cached(isa, x, scales.view(np.uint16), group, token, factors, y, zipped, scale)
    by_value = np.repeat(scales[:, token : token + 2].astype(np.float64).T, group, 1)[:, :n]
    here = scale[token : token + 2, None].astype(np.float64)
    assert np.abs(y).max() <= KEY
    assert (np.abs(y * here - x * by_value) <= 0.6 * here).all()
    np.testing.assert_array_equal(zipped, zipped_of(y))
    plain = (np.empty_like(y), np.empty_like(zipped), np.empty_like(scale))
    pair_probe.cached("scalar", x, scales.view(np.uint16), group, token, factors, *plain)
    np.testing.assert_allclose(scale, plain[2], rtol=1e-6)
    assert np.abs(y.astype(int) - plain[0]).max() <= 1


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(("value", "finite"), [(0.0, True), (np.nan, False), (np.inf, False)])
def test_scales_that_are_nothing_or_no_number(isa: str, value: float, finite: bool) -> None:
    scales = np.zeros((2, BLOCK), np.float16)
    scales[:, 0] = value
    x, y, zipped = np.full((2, 64), 100, np.int8), np.empty((2, 64), np.int16), np.empty(128, np.int16)
    scale = np.empty(BLOCK, np.float32)
    pair_probe.cached(isa, x, scales.view(np.uint16), 32, 0, np.empty(64, np.int16), y, zipped, scale)
    assert np.isfinite(scale[0]) == finite and scale[1] == 0.0
    assert not y[1].any()


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(("rows", "columns"), [(16, 16), (32, 48), (16, 288), (512, 16)])
def test_words_change_places(isa: str, rows: int, columns: int) -> None:
    x = np.arange(rows * columns, dtype=np.int32).reshape(rows, columns)
    y = np.full((columns, rows), -1, np.int32)
    pair_probe.cross(isa, x, y)
    np.testing.assert_array_equal(y, x.T)


def queries_of(rng: np.random.Generator, m: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Queries as the kernels take them, [n / 2][m][2], and as [m][n]."""
    norm = 2147000000.0 / (KEY * np.sqrt(n))
    q = rng.standard_normal((m, n))
    q = np.floor(q * (norm / np.linalg.norm(q, axis=1, keepdims=True))).astype(np.int16)
    return np.ascontiguousarray(q.reshape(m, n // 2, 2).transpose(1, 0, 2)), q


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("n_keys", [1, 3, 4, 15, 16, 21, 128])
@pytest.mark.parametrize(("m", "n"), [(16, 512), (48, 64), (32, 32)])
def test_scores(isa: str, n_keys: int, m: int, n: int) -> None:
    rng = np.random.default_rng(n_keys)
    keys = rng.integers(-KEY, KEY + 1, (n_keys, n), np.int16)
    queries, plain = queries_of(rng, m, n)
    key_scale, query_scale = rng.random(n_keys, np.float32) * 1e-3, rng.random(m, np.float32) * 1e-4
    wanted = (keys.astype(np.float64) * key_scale[:, None]) @ (plain.astype(np.float64) * query_scale[:, None]).T
    out = np.full((n_keys, m), np.nan, np.float32)
    pair_probe.dot(isa, keys, key_scale, queries, query_scale, out, False)
    np.testing.assert_allclose(out, wanted, rtol=1e-5, atol=1e-5 * np.abs(wanted).max())
    pair_probe.dot(isa, keys, key_scale, queries, query_scale, out, True)
    np.testing.assert_allclose(out, 2 * wanted, rtol=1e-5, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(("m", "n"), [(16, 512), (48, 64), (16, 32)])
def test_rows_become_integers_beside_scores(isa: str, m: int, n: int) -> None:
    rng = np.random.default_rng(n)
    keys = rng.integers(-KEY, KEY + 1, (16, n), np.int16)
    queries, _ = queries_of(rng, m, n)
    key_scale, query_scale = rng.random(16, np.float32) * 1e-3, rng.random(m, np.float32) * 1e-4
    x = (rng.standard_normal((16, n + 32)) * 3).astype(np.float16)
    x[5, 7] = -40.0
    top, wanted, out = np.empty(16, np.float32), np.empty((16, m), np.float32), np.empty((16, m), np.float32)
    pair_probe.largest(isa, np.ascontiguousarray(x[:, :n]).view(np.uint16), top)
    np.testing.assert_array_equal(top, np.abs(x[:, :n]).max(1).astype(np.float32))
    y, zipped = np.full((16, n + 64), -9, np.int16), np.full((8, 2 * n + 32), -9, np.int16)
    pair_probe.dot_beside(isa, keys, key_scale, queries, query_scale, out, x.view(np.uint16), KEY / top, None, None, y, zipped)
    pair_probe.dot(isa, keys, key_scale, queries, query_scale, wanted, False)
    np.testing.assert_array_equal(out, wanted)
    assert (np.abs(y[:, :n] - x[:, :n].astype(np.float64) * (KEY / top)[:, None]) <= 0.501).all()
    for i in range(8):
        np.testing.assert_array_equal(zipped[i, : 2 * n], zipped_of(y[2 * i : 2 * i + 2, :n]))
    assert (y[:, n:] == -9).all() and (zipped[:, 2 * n :] == -9).all()


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("group", [32, 512])
def test_bytes_become_integers_beside_scores(isa: str, group: int) -> None:
    rng, n, m = np.random.default_rng(group), 512, 16
    keys = rng.integers(-KEY, KEY + 1, (16, n), np.int16)
    queries, _ = queries_of(rng, m, n)
    ones, out, scores = np.ones(16, np.float32), np.empty((16, m), np.float32), np.empty((16, m), np.float32)
    x, scales = rng.integers(-127, 128, (16, n), np.int8), (rng.random((n // group, BLOCK)) * 0.1).astype(np.float16)
    factors, scale = np.empty(n // group * BLOCK, np.int16), np.empty(BLOCK, np.float32)
    y, zipped = np.full((16, n + 64), -9, np.int16), np.full((8, 2 * n + 32), -9, np.int16)
    wanted, wanted_zipped = np.empty((2, n), np.int16), np.empty(2 * n, np.int16)
    pair_probe.cached(isa, x[:2].copy(), scales.view(np.uint16), group, 0, factors, wanted, wanted_zipped, scale)
    pair_probe.dot_beside(isa, keys, ones, queries, ones, out, None, None, x, factors.reshape(-1, BLOCK), y, zipped)
    pair_probe.dot(isa, keys, ones, queries, ones, scores, False)
    np.testing.assert_array_equal(out, scores)
    for i in range(8):
        pair_probe.cached(
            isa, x[2 * i : 2 * i + 2].copy(), scales.view(np.uint16), group, 2 * i, factors, wanted, wanted_zipped, scale
        )
        np.testing.assert_array_equal(y[2 * i : 2 * i + 2, :n], wanted)
        np.testing.assert_array_equal(zipped[i, : 2 * n], wanted_zipped)
    assert (y[:, n:] == -9).all() and (zipped[:, 2 * n :] == -9).all()


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_the_largest_of_a_row_that_is_not_finite_is_not(isa: str, bad: float) -> None:
    x = np.ones((16, 64), np.float16)
    x[3, 40] = bad
    top = np.empty(16, np.float32)
    pair_probe.largest(isa, x.view(np.uint16), top)
    np.testing.assert_array_equal(np.isfinite(top), np.arange(16) != 3)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("n_keys", [1, 2, 7, 64, 127])
@pytest.mark.parametrize("m", [16, 48])
def test_weights(isa: str, n_keys: int, m: int) -> None:
    rng = np.random.default_rng(n_keys)
    scores = (rng.standard_normal((n_keys, m)) * 6).astype(np.float32)
    valid = np.minimum(rng.integers(-2, n_keys + 1, m), n_keys).astype(np.int32)
    valid[0], valid[1] = n_keys, 0
    ratio = rng.random(n_keys, np.float32) * KEY
    weights = np.full(((n_keys + 1) // 2, m, 2), -1, np.int16)
    top, total = np.empty(m, np.float32), np.empty(m, np.float32)
    pair_probe.weigh(isa, scores, valid, ratio, weights, top, total)
    counts = np.arange(n_keys)[:, None] < valid[None]
    wanted_top = np.where(counts, scores, -np.inf).max(0)
    np.testing.assert_array_equal(top, wanted_top)
    likely = np.where(counts, np.exp(scores.astype(np.float64) - np.where(np.isfinite(wanted_top), wanted_top, 0)), 0.0)
    np.testing.assert_allclose(total, likely.sum(0), rtol=1e-5)
    flat = weights.transpose(0, 2, 1).reshape(-1, m)
    assert not flat[n_keys:].any()
    assert (np.abs(flat[:n_keys] - likely * ratio[:, None]) <= 0.51).all()


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("n_pairs", [1, 5, 64])
@pytest.mark.parametrize(("m", "n"), [(16, 512), (48, 48), (16, 16)])
def test_sums(isa: str, n_pairs: int, m: int, n: int) -> None:
    rng = np.random.default_rng(n_pairs)
    weights = rng.integers(0, KEY + 1, (n_pairs, m, 2), np.int16)
    rows = rng.integers(-KEY, KEY + 1, (n_pairs, 2 * n + 32), np.int16)
    sums, keep, gain = (rng.standard_normal(shape).astype(np.float32) for shape in ((n, m), m, m))
    wanted = sums.astype(np.float64) * keep
    pairs = rows[:, : 2 * n].reshape(n_pairs, n, 2).astype(np.float64)
    wanted += np.einsum("pik,pdk->di", weights.astype(np.float64), pairs) * gain
    pair_probe.add_sums(isa, weights, rows, keep, gain, sums)
    np.testing.assert_allclose(sums, wanted, rtol=1e-5, atol=1e-6 * np.abs(wanted).max())
