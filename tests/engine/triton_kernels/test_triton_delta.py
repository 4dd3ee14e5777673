"""Gated DeltaNet in Triton's interpreter against the torch form, step by step and in chunks."""

from __future__ import annotations

import os

os.environ.setdefault("TRITON_INTERPRET", "1")

import numpy as np
import pytest
import torch

from engine.arch.spec import DeltaShape
from engine.triton_kernels.delta_kernels import DeltaKernels
from engine.triton_kernels.torch.delta_forms import DeltaForms
from engine.triton_kernels.workspace import Workspace
from tests.helpers.gpu_deltas import SHAPES, DeltaCase

Rows, States = list[tuple[int, int]], list[tuple[int, int, int, int]]


class Kernels(DeltaKernels):
    """With a workspace full of what no kernel left there."""

    def __init__(self) -> None:
        self._workspace = Workspace(lambda shape, dtype: torch.full(shape, 77, dtype=getattr(torch, dtype)))


def check(shape: DeltaShape, rows: Rows, states: States, *, decode: bool) -> None:
    ours, theirs = (DeltaCase.make(shape, rows, states) for _ in range(2))
    out, wanted = ours.run(Kernels(), rows=decode), theirs.run(DeltaForms())
    np.testing.assert_allclose(out, wanted, atol=2e-5)
    np.testing.assert_allclose(ours.state.inputs, theirs.state.inputs)
    np.testing.assert_allclose(ours.state.matrices, theirs.state.matrices, atol=1e-5)


@pytest.mark.parametrize("shape", SHAPES)
def test_step(shape: DeltaShape) -> None:
    check(shape, [(0, 5), (1, 0), (2, 9)], [(0, 1, -1, 0), (2, 3, -1, 0), (4, 5, 6, 1)], decode=True)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("rows", "states"),
    [
        ([(0, p) for p in range(3, 140)], [(0, 1, -1, 0)]),
        ([(0, p) for p in range(3, 90)], [(0, 1, 2, 70)]),
        ([(0, p) for p in range(2)], [(5, 1, 2, 1)]),
        ([(1, p) for p in range(2)] + [(0, p) for p in range(8, 77)], [(0, 1, 4, 64), (2, 3, -1, 0)]),
    ],
)
def test_chunks(shape: DeltaShape, rows: Rows, states: States) -> None:
    check(shape, rows, states, decode=False)


def test_equal_keys_without_fading_do_not_overflow() -> None:
    """The triangle is all ones then: powers of it are huge, its inverse is not."""
    shape, rows = DeltaShape(1, 1, 16, 2, tiled=False), [(0, p) for p in range(128)]
    cases = []
    for _ in range(2):
        case = DeltaCase.make(shape, rows, [(0, 1, -1, 0)])
        case.x[:, :32] = case.x[0, :32]
        case.beta.fill_(20.0)
        case.a.fill_(0.0)
        cases.append(case)
    out, wanted = cases[0].run(Kernels()), cases[1].run(DeltaForms())
    np.testing.assert_allclose(out, wanted, atol=1e-4)
