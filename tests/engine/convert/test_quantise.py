"""Quantising: what comes back is near enough, and equal to other writers of the format where they exist."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
from gguf import quants

from engine.convert.quantise import quantise
from engine.errors import ConversionError
from engine.gguf.types import TENSOR_TYPES, TYPE_IDS
from engine.quants.reference import dequantise

RNG = np.random.default_rng(3)
DATA = {
    "normal": RNG.standard_normal((64, 512)),
    "heavy": RNG.standard_t(4, (64, 512)),
    "uniform": RNG.uniform(-1, 1, (64, 512)),
    "positive": RNG.uniform(0.5, 1, (64, 512)),
    "small": RNG.standard_normal((64, 512)) * 1e-3,
}
BOUNDS = {"Q8_0": (0.0054, 0.0077), "Q6_K": (0.0183, 0.0238), "Q4_K": (0.0725, 0.089), "F16": (3e-4, 3e-4), "BF16": (2e-3, 2e-3)}
"""Relative rms error of normal and of heavy-tailed weights: what the best known writers of each format reach, and 2 % more."""


def error(values: np.ndarray, type_name: str) -> float:
    back = dequantise(type_name, quantise(values.astype("f4"), type_name)).reshape(values.shape)
    return float(np.sqrt(((back - values) ** 2).mean() / (values**2).mean()))


@pytest.mark.parametrize("type_name", BOUNDS)
def test_round_trip_error_is_that_of_good_writers(type_name: str) -> None:
    assert error(DATA["normal"], type_name) < BOUNDS[type_name][0]
    assert error(DATA["heavy"], type_name) < BOUNDS[type_name][1]


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("type_name", ["Q8_0", "Q6_K", "Q4_K"])
def test_finer_formats_err_less_on_all_kinds_of_weights(type_name: str, data: str) -> None:
    coarser = {"Q8_0": "Q6_K", "Q6_K": "Q4_K", "Q4_K": None}[type_name]
    worst = 0.1 if coarser is None else error(DATA[data], coarser)
    assert error(DATA[data], type_name) < worst


@pytest.mark.parametrize("type_name", ["F32", "F16", "BF16", "Q8_0"])
def test_bytes_equal_those_of_the_format_library(type_name: str) -> None:
    values = DATA["heavy"].astype("f4")
    theirs = quants.quantize(values, gguf.GGMLQuantizationType[type_name])
    np.testing.assert_array_equal(quantise(values, type_name), theirs.reshape(-1).view("u1"))


@pytest.mark.parametrize("type_name", ["Q8_0", "Q6_K", "Q4_K"])
@pytest.mark.parametrize("value", [0.0, 1.0, -3.5, 1e-30, 1e4])
def test_constant_weights_come_back(type_name: str, value: float) -> None:
    back = dequantise(type_name, quantise(np.full((2, 256), value, "f4"), type_name))
    assert np.isfinite(back).all()
    np.testing.assert_allclose(back, value, rtol=0.02, atol=1e-6)


@pytest.mark.parametrize("type_name", ["F32", "F16", "BF16", "Q8_0", "Q6_K", "Q4_K"])
def test_size_is_that_of_the_format(type_name: str) -> None:
    row = TENSOR_TYPES[TYPE_IDS[type_name]]
    assert quantise(np.ones((3, 512), "f4"), type_name).nbytes == 3 * 512 // row.block * row.block_bytes


def test_bf16_rounds_to_even_and_keeps_what_is_no_number() -> None:
    values = np.array([1.0, 1 + 2.0**-8, 1 + 3 * 2.0**-8, np.inf, np.nan], "f4")
    back = (quantise(values, "BF16").view("u2").astype("u4") << 16).view("f4")
    np.testing.assert_array_equal(back[:4], [1, 1, 1 + 2.0**-6, np.inf])
    assert np.isnan(back[4])


def test_values_beyond_f16_are_refused() -> None:
    with pytest.raises(ConversionError, match="do not fit f16; convert with --outtype bf16"):
        quantise(np.full((1, 32), 1e5, "f4"), "F16")
