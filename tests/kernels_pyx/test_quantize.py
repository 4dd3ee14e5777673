"""Activation quantisation: the same bits on every instruction set, and what they stand for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from kernels_pyx import probe
from kernels_pyx.cpu_features import available_isas
from tests.helpers.numerics import F32, U8, aligned, quantise_activation

BLOCK = {"q8_32": 32, "q8_256": 256}
ACTS = tuple(BLOCK)


def quantised(isa: str, act: str, x: F32) -> U8:
    out = aligned(probe.act_row_bytes(act, len(x)))
    probe.quantize(isa, act, x, out, len(x))
    return out


def parts(act: str, row: U8, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    scales_at, sums_at = probe.act_parts(act, k)
    n_sums, sums_type = (k // 32, np.float32) if act == "q8_32" else (k // 16, np.int16)
    d = row[scales_at:].view(np.float32)[: k // BLOCK[act]]
    return row[:k].view(np.int8), d, row[sums_at:].view(sums_type)[:n_sums]


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("isa", available_isas())
def test_equals_numpy(isa: str, act: str) -> None:
    rng = np.random.default_rng(3)
    for n_blocks in (1, 2, 3, 7, 18):
        k = n_blocks * BLOCK[act]
        x = (rng.normal(0, 1, k) * 10.0 ** rng.uniform(-30, 30)).astype(np.float32)
        q, d, sums = parts(act, quantised(isa, act, x), k)
        want = quantise_activation(x, BLOCK[act])
        np.testing.assert_array_equal(q, want.q)
        np.testing.assert_array_equal(d, want.d)
        if act == "q8_32":
            np.testing.assert_array_equal(sums, d * q.reshape(-1, 32).sum(axis=1).astype(np.float32))
        else:
            np.testing.assert_array_equal(sums, q.reshape(-1, 16).sum(axis=1))


@pytest.mark.parametrize("act", ACTS)
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_all_isas_give_the_same_bits(act: str, data: st.DataObject) -> None:
    k = 2 * BLOCK[act]
    x = data.draw(hnp.arrays(np.float32, k, elements=st.floats(width=32)))
    want = quantised("scalar", act, x)
    for isa in available_isas():
        np.testing.assert_array_equal(quantised(isa, act, x), want, err_msg=isa)


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("isa", available_isas())
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_makes_its_block_nan_and_no_other(isa: str, act: str, bad: float) -> None:
    k = 3 * BLOCK[act]
    x = np.ones(k, np.float32)
    x[BLOCK[act] + 5] = bad
    q, d, _ = parts(act, quantised(isa, act, x), k)
    np.testing.assert_array_equal(np.isnan(d), [False, True, False])
    assert not q.reshape(3, -1)[1].any() and (q.reshape(3, -1)[::2] == 127).all()


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("isa", available_isas())
def test_zeros_and_denormals_are_zero(isa: str, act: str) -> None:
    x = np.zeros(2 * BLOCK[act], np.float32)
    x[3] = 1e-40
    assert not quantised(isa, act, x).any()
