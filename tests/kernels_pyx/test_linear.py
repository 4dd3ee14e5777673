"""Every kernel of every instruction set against f64 numpy on the same quantised values.

Varied: length, number of activations and rows; rows are unaligned and spaced, results and scratch have guards.
"""

from __future__ import annotations

import numpy as np
import pytest

from engine.quants.formats import BY_NAME, FORMATS, QuantFormat
from engine.quants.reference import dequantise
from kernels_pyx import probe
from kernels_pyx.cpu_features import available_isas
from tests.helpers.numerics import F32, F64, HALVES, U8, aligned, dot_bound, quantise_activation, random_weights

GUARD = 64
NAMES = tuple(fmt.name for fmt in FORMATS)


class Case:
    """One product with its buffers: unaligned weights, strided activations, guards around results and scratch."""

    def __init__(self, fmt: QuantFormat, isa: str, n: int, k: int, n_act: int, *, f32: bool, is_many: bool) -> None:
        rng = np.random.default_rng([n, k, n_act])
        act = "f32" if f32 else fmt.act
        weights = random_weights(fmt.name, n, k, rng)
        x = rng.normal(0, 1, (n_act, k)).astype(np.float32)
        self.want, self.bound = self._exact(fmt, act, weights, x)
        w, w_stride = self._place_weights(weights)
        acts, act_stride = self._place_activations(isa, act, x)
        self.n, self.n_act, self.y_stride = n, n_act, n + 3
        self._y = np.full(GUARD + n_act * self.y_stride + GUARD, np.float32(1234.5))
        y = self._y[GUARD : GUARD + (n_act - 1) * self.y_stride + n]
        scratch_bytes = probe.many_scratch_bytes(k)
        self._scratch = aligned(scratch_bytes + GUARD)
        self._scratch[scratch_bytes:] = 0xA5
        self._scratch_bytes = scratch_bytes
        scratch = self._scratch[:scratch_bytes] if is_many else None
        probe.linear(isa, fmt.ggml_id, w, w_stride, acts, act_stride, n_act, y, self.y_stride, k, n, scratch, f32)

    @staticmethod
    def _exact(fmt: QuantFormat, act: str, weights: U8, x: F32) -> tuple[F64, F64]:
        exact_w = dequantise(fmt.name, weights).astype(np.float64)
        block = {"f32": 0, "q8_32": 32, "q8_256": 256}[act]
        exact_x = np.stack([quantise_activation(row, block).values() for row in x]) if block else x.astype(np.float64)
        return exact_x @ exact_w.T, np.stack([dot_bound(exact_w, row) for row in exact_x])

    @staticmethod
    def _place_weights(weights: U8) -> tuple[U8, int]:
        """Rows a byte apart, the first at an odd address."""
        stride = weights.shape[1] + 1
        placed = aligned(len(weights) * stride, offset=1)
        for i, row in enumerate(weights):
            placed[i * stride : i * stride + len(row)] = row
        last = (len(weights) - 1) * stride + weights.shape[1]
        return placed[:last], stride

    @staticmethod
    def _place_activations(isa: str, act: str, x: F32) -> tuple[U8, int]:
        n_bytes = probe.act_row_bytes(act, x.shape[1])
        stride = n_bytes + 64
        rows = aligned(len(x) * stride)
        for i, row in enumerate(x):
            probe.quantize(isa, act, row, rows[i * stride : i * stride + n_bytes], len(row))
        return rows, stride

    def check(self) -> None:
        """Values within the bound; nothing written outside y and scratch."""
        body = self._y[GUARD : GUARD + self.n_act * self.y_stride].reshape(self.n_act, self.y_stride)
        error = np.abs(body[:, : self.n] - self.want)
        assert (error <= self.bound).all(), f"error {np.max(error / self.bound):.3g} of the bound"
        assert (self._y[:GUARD] == 1234.5).all() and (self._y[-GUARD:] == 1234.5).all()
        assert (body[:, self.n :] == 1234.5).all()
        assert (self._scratch[self._scratch_bytes :] == 0xA5).all()


def lengths(fmt: QuantFormat) -> tuple[int, ...]:
    """Values in a row: odd numbers of blocks, and beyond one slice of a panel."""
    if fmt.is_float:
        return (1, 7, 32, 97, 576, 1100)
    if fmt.block == 32:
        return (32, 64, 96, 160, 224, 576, 1120)
    return (256, 512, 768, 1280) if fmt.block == 256 else (fmt.block, 3 * fmt.block, 640)


@pytest.mark.parametrize("f32", [False, True], ids=["own", "f32"])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("isa", available_isas())
class TestLinear:
    def test_few_equals_numpy_for_each_number_of_activations(self, isa: str, name: str, f32: bool) -> None:
        fmt = BY_NAME[name]
        for k in lengths(fmt):
            for n_act in range(1, 9):
                Case(fmt, isa, 9, k, n_act, f32=f32, is_many=False).check()

    def test_few_equals_numpy_for_each_number_of_rows(self, isa: str, name: str, f32: bool) -> None:
        fmt = BY_NAME[name]
        for n in (*range(1, 18), 31, 32, 33, 97):
            for n_act in (1, 2, 3, 5, 8):
                Case(fmt, isa, n, 3 * max(fmt.block, 32), n_act, f32=f32, is_many=False).check()

    def test_many_equals_numpy_for_each_number_of_activations(self, isa: str, name: str, f32: bool) -> None:
        fmt = BY_NAME[name]
        for k in lengths(fmt):
            for n_act in (1, 2, 5, 9, 12, 13, 31):
                Case(fmt, isa, 35, k, n_act, f32=f32, is_many=True).check()

    def test_many_equals_numpy_for_each_number_of_rows(self, isa: str, name: str, f32: bool) -> None:
        fmt = BY_NAME[name]
        for n in (*range(1, 18), 31, 32, 33, 63, 64, 65, 97):
            Case(fmt, isa, n, 3 * max(fmt.block, 32), 14, f32=f32, is_many=True).check()


@pytest.mark.parametrize("value", [1.0, -1.0])
@pytest.mark.parametrize("name", [fmt.name for fmt in FORMATS if fmt.act != "f32"])
@pytest.mark.parametrize("isa", available_isas())
def test_extreme_weights_and_activations_do_not_overflow(isa: str, name: str, value: float) -> None:
    fmt, k, n, n_act = BY_NAME[name], 1024, 33, 14
    w = extreme_weights(fmt, n, k)
    x = np.full(k, value, np.float32)
    want = np.tile(dequantise(name, w).astype(np.float64) @ x, (n_act, 1))
    stride = probe.act_row_bytes(fmt.act, k)
    acts = aligned(n_act * stride)
    for i in range(n_act):
        probe.quantize(isa, fmt.act, x, acts[i * stride : (i + 1) * stride], k)
    y = np.zeros((n_act, n), np.float32)
    scratch = aligned(probe.many_scratch_bytes(k))
    probe.linear(isa, fmt.ggml_id, w.reshape(-1), w.shape[1], acts, stride, n_act, y.reshape(-1), n, k, n, scratch)
    np.testing.assert_allclose(y, want, rtol=1e-5)
    y[:] = 0
    probe.linear(isa, fmt.ggml_id, w.reshape(-1), w.shape[1], acts, stride, 8, y.reshape(-1), n, k, n)
    np.testing.assert_allclose(y[:8], want[:8], rtol=1e-5)


def extreme_weights(fmt: QuantFormat, n: int, k: int) -> U8:
    """Every integer at its largest magnitude, -128 where a byte is signed (one more than a quantiser writes); scales 1."""
    w = np.full((n, fmt.row_bytes(k)), 0xFF, np.uint8)
    blocks = w.reshape(n, -1, fmt.type_size)
    if fmt.name == "Q8_0":
        blocks[:, :, 2:] = 0x80
    if fmt.name == "Q6_K":
        blocks[:, :, 192:208] = 0x80
    if fmt.name in ("IQ4_NL", "IQ4_XS"):
        blocks[:, :, 2:] = 0  # -127, and scale -32
    if fmt.name == "MXFP4":
        blocks[:, :, 0] = 128  # 1
    for at in HALVES[fmt.name]:
        blocks[:, :, at : at + 2] = np.array([1.0], np.float16).view(np.uint8)
    return w


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("isa", available_isas())
def test_an_activation_that_is_not_finite_shows_in_all_its_results_and_in_no_other(isa: str, name: str) -> None:
    fmt, k, n, n_act = BY_NAME[name], 768, 40, 13
    w = random_weights(name, n, k, np.random.default_rng(1))
    stride = probe.act_row_bytes(fmt.act, k)
    acts = aligned(n_act * stride)
    for i in range(n_act):
        x = np.ones(k, np.float32)
        x[300] = np.nan if i in (1, 7) else 1
        probe.quantize(isa, fmt.act, x, acts[i * stride : (i + 1) * stride], k)
    is_bad = np.isin(np.arange(n_act), (1, 7))
    for scratch, count in ((aligned(probe.many_scratch_bytes(k)), n_act), (None, 8), (None, 2)):
        y = np.zeros((n_act, n), np.float32)
        probe.linear(isa, fmt.ggml_id, w.reshape(-1), w.shape[1], acts, stride, count, y.reshape(-1), n, k, n, scratch)
        np.testing.assert_array_equal(np.isnan(y[:count]).all(axis=1), is_bad[:count])
        assert np.isfinite(y[:count][~is_bad[:count]]).all()
