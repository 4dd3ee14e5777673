"""Gated DeltaNet of GPU lanes in torch against the reference of the graph."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from engine.arch.spec import DeltaShape
from engine.graph.reference_delta import DeltaState as Kept
from engine.graph.reference_delta import convolve, delta_rule, gated_norm, gates, split_inputs
from engine.triton_kernels.torch.delta_forms import DeltaForms
from tests.helpers.gpu_deltas import SHAPES, DeltaCase


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("rows", "states"),
    [
        ([(0, 5), (1, 0), (2, 9)], [(0, 1, -1, 0), (2, 3, -1, 0), (4, 5, 6, 1)]),
        ([(0, p) for p in range(3, 40)], [(0, 1, 2, 7)]),
        ([(1, p) for p in range(2)] + [(0, p) for p in range(8, 13)], [(0, 1, 4, 5), (2, 3, -1, 0)]),
        ([(0, 0)], [(0, 1, 2, 1)]),
    ],
)
def test_delta(shape: DeltaShape, rows: list[tuple[int, int]], states: list[tuple[int, int, int, int]]) -> None:
    case = DeltaCase.make(shape, rows, states)
    before = replace(case.state, inputs=case.state.inputs.clone(), matrices=case.state.matrices.clone())
    out = case.run(DeltaForms())
    written = set()
    for seq, (read, write, mark, n_marked) in enumerate(states):
        chosen = [i for i, (other, _) in enumerate(rows) if other == seq]
        past = Kept(before.inputs[read].numpy(), before.matrices[read].numpy())
        if rows[chosen[0]][1] == 0:
            past = Kept.empty(shape)
        inputs = split_inputs(shape, *(part[chosen].numpy() for part in (case.x, case.z, case.beta, case.alpha)))
        taps = case.conv.T.numpy()
        y, after = convolve(inputs.u, past.past, taps)
        decay, rate = gates(inputs, case.dt.numpy(), case.a.numpy())
        o, matrices = delta_rule(shape, y, decay, rate, past.matrices, case.norm.eps, (n_marked,) if mark >= 0 else ())
        expected = gated_norm(o, inputs.z, case.norm.weight.numpy(), case.norm.eps).reshape(len(chosen), -1)
        np.testing.assert_allclose(out[chosen], expected, atol=1e-5)
        np.testing.assert_allclose(case.state.inputs[write], after)
        np.testing.assert_allclose(case.state.matrices[write], matrices[-1], atol=1e-5)
        written.add(write)
        if mark >= 0:
            np.testing.assert_allclose(case.state.inputs[mark], convolve(inputs.u[:n_marked], past.past, taps)[1])
            np.testing.assert_allclose(case.state.matrices[mark], matrices[0], atol=1e-5)
            written.add(mark)
    for slot in set(range(len(before.inputs))) - written:
        assert torch.equal(before.matrices[slot], case.state.matrices[slot])
        assert torch.equal(before.inputs[slot], case.state.inputs[slot])
