"""The numpy reference against recorded blocks, bit for bit; against the whole recorded set where it is at hand."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from engine.quants.formats import FORMATS
from engine.quants.reference import dequantise

BLOCKS = Path(__file__).parents[2] / "golden" / "quant_blocks.npz"
NAMES = tuple(fmt.name for fmt in FORMATS if fmt.name != "F32")


def check(path: Path, name: str) -> None:
    with np.load(path) as blocks:
        raw, want = blocks[f"{name}.raw"], blocks[f"{name}.f32"]
    np.testing.assert_array_equal(dequantise(name, raw).view(np.uint32), want.view(np.uint32))


@pytest.mark.parametrize("name", NAMES)
def test_gives_the_recorded_bits(name: str) -> None:
    check(BLOCKS, name)


@pytest.mark.parametrize("name", NAMES)
def test_gives_the_bits_of_the_golden_set(name: str) -> None:
    goldens = os.environ.get("LAYERDECK_GOLDENS")
    if not goldens:
        pytest.skip("LAYERDECK_GOLDENS is not set")
    check(Path(goldens) / "quant" / "quant_blocks.npz", name)


def test_shape_of_the_leading_axes_is_kept() -> None:
    assert dequantise("Q8_0", np.zeros((2, 3, 68), np.uint8)).shape == (2, 3, 64)


def test_partial_blocks_are_refused() -> None:
    with pytest.raises(ValueError, match="not whole Q8_0 blocks of 34"):
        dequantise("Q8_0", np.zeros(35, np.uint8))
