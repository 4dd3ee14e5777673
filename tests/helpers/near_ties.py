"""How clear the choice of experts is, row by row: where it hangs on a thousandth, a last bit elsewhere chooses otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from engine.arch.registry import build_spec
from engine.arch.spec import Routing
from engine.gguf.reader import read_gguf
from engine.graph.build import build_graph
from engine.graph.ops import Graph, Route
from engine.graph.reference import ReferenceModel
from engine.graph.reference_experts import sigmoid, softmax
from tests.helpers.golden_models import batch

F32 = npt.NDArray[np.float32]

CLEAR = 1e-3
"""Rows whose choice hangs on less are left out of comparisons of kernels that round differently."""


def clear_rows(path: Path, ids: Sequence[int], least: float = CLEAR) -> npt.NDArray[np.bool_]:
    """[n_rows]: whether every router of the model chooses by `least` or more for a row of a prompt, as the numpy run sees it."""
    file = read_gguf(path)
    spec = build_spec(file)
    graph = build_graph(spec)
    clear = np.ones(len(ids), bool)
    for i, op in enumerate(graph.ops):
        if isinstance(op, Route):
            model = ReferenceModel(file, spec, Graph(graph.ops[:i], op.x))
            bias = None if op.routing.bias is None else model.weight(op.routing.bias)
            clear &= margins(model.step(batch(ids)), op.routing, bias, op.chosen.width) >= least
    return clear


def margins(logits: F32, routing: Routing, bias: F32 | None, n_used: int) -> F32:
    """[n_rows]: by how much the last chosen group and the last chosen expert were ahead of the next ones."""
    likely = {"softmax": softmax, "sigmoid": sigmoid}.get(routing.gating, lambda x: x)(logits)
    score = likely if bias is None else likely + bias
    least = np.full(len(score), np.inf, np.float32)
    if routing.n_groups > 1:
        groups = score.reshape(len(score), routing.n_groups, -1)
        of_group = np.sort(groups, axis=-1)[..., -2:].sum(axis=-1)
        least = _gap(of_group, routing.n_groups_used)
        kept = of_group >= np.sort(of_group, axis=-1)[:, -routing.n_groups_used, None]
        score = np.where(kept[..., None], groups, np.float32(-np.inf)).reshape(score.shape)
    return np.minimum(least, _gap(score, n_used))


def _gap(values: F32, n: int) -> F32:
    if n >= values.shape[-1]:
        return np.full(len(values), np.inf, np.float32)
    ordered = np.sort(values, axis=-1)
    gap: F32 = ordered[:, -n] - ordered[:, -n - 1]
    return gap
