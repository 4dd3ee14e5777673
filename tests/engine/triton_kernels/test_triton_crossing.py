"""Rows that a kernel fetches, in Triton's interpreter: with gaps on either side, of one block and of several."""

from __future__ import annotations

import os

os.environ.setdefault("TRITON_INTERPRET", "1")

import pytest
import torch

from engine.triton_kernels.crossing import copy_rows


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32])
@pytest.mark.parametrize(("n_rows", "width", "gap"), [(1, 1, 0), (3, 100, 16), (2, 2049, 7)])
def test_rows_are_copied_and_gaps_are_not(dtype: torch.dtype, n_rows: int, width: int, gap: int) -> None:
    source = torch.arange(n_rows * (width + gap)).view(n_rows, -1).to(dtype)
    wide = torch.full((n_rows, width + 3), 77, dtype=dtype)
    copy_rows(source, wide[:, :width])
    assert torch.equal(wide[:, :width], source[:, :width])
    assert (wide[:, width:] == 77).all()
