"""The format table against the numbers of the GGUF specification, and dequantisation bit for bit against recorded blocks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from engine.quants.formats import BY_NAME, FORMATS, QuantFormat
from kernels_pyx import probe
from kernels_pyx.cpu_features import available_isas
from tests.helpers.numerics import F32, U8, aligned, random_weights

BLOCKS = Path(__file__).parents[1] / "golden" / "quant_blocks.npz"


def golden(name: str) -> tuple[U8, F32]:
    with np.load(BLOCKS) as blocks:
        return blocks[f"{name}.raw"], blocks[f"{name}.f32"]


def bits(x: F32) -> np.ndarray:
    return np.ascontiguousarray(x).reshape(-1).view(np.uint32)


def test_names_and_ids_are_unique() -> None:
    assert len({fmt.name for fmt in FORMATS}) == len({fmt.ggml_id for fmt in FORMATS}) == len(FORMATS)


@pytest.mark.parametrize("fmt", [fmt for fmt in FORMATS if fmt.name != "F32"], ids=lambda fmt: fmt.name)
@pytest.mark.parametrize("isa", available_isas())
def test_to_f32_gives_the_recorded_bits(isa: str, fmt: QuantFormat) -> None:
    raw, want = golden(fmt.name)
    for offset in (0, 2):
        w = aligned(raw.size, offset=offset)
        w[:] = raw.reshape(-1)
        y = np.zeros(want.size, np.float32)
        probe.to_f32(isa, fmt.ggml_id, w, y, want.size)
        np.testing.assert_array_equal(bits(y), bits(want))


@pytest.mark.parametrize("name", BY_NAME)
@pytest.mark.parametrize("isa", available_isas())
def test_to_f32_equals_scalar_on_random_bits(isa: str, name: str) -> None:
    fmt = BY_NAME[name]
    rng = np.random.default_rng(1)
    for n_blocks in (1, 2, 3, 5, 31):
        k = n_blocks * fmt.block
        w = random_weights(name, 1, k, rng).reshape(-1)
        got, want = np.zeros(k + 1, np.float32), np.zeros(k + 1, np.float32)
        probe.to_f32(isa, fmt.ggml_id, w, got[:k], k)
        probe.to_f32("scalar", fmt.ggml_id, w, want[:k], k)
        np.testing.assert_array_equal(bits(got), bits(want))
