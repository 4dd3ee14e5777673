"""Descriptors of latent attention that would go astray are refused, each with the op's number."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from engine.runtime import cpu_programs
from engine.runtime.cpu_lane import Kind
from kernels_pyx.executor import CpuProgram
from kernels_pyx.pool import Pool
from tests.helpers.latent_models import Shape, write_latent_model
from tests.helpers.runs import open_model

Recorded = tuple[Any, Any, dict[str, Any]]
"""Descriptors, arena and further arguments of a program."""


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Recorded]]:
    """Every program of an open model."""
    found: list[Recorded] = []

    def recorded(ops: Any, arena: Any, pool: Any, **further: Any) -> CpuProgram:
        alone = {name: value for name, value in further.items() if name not in ("teams", "order")}  # they belong to their pool
        found.append((ops.copy(), arena, alone))
        return CpuProgram(ops, arena, pool, **further)

    path = write_latent_model(tmp_path_factory.mktemp("model") / "m.gguf", Shape(n_layers=1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cpu_programs, "CpuProgram", recorded)
        model = open_model(path)
    yield found
    model.close()


@pytest.mark.parametrize(
    ("kind", "field", "value", "words"),
    [
        (Kind.HEADS, "n_heads", 0, "bad heads"),
        (Kind.HEADS, "w_step", 64, "matrices of heads overlap"),
        (Kind.HEADS, "w_data", 0, "a weight is missing"),
        (Kind.HEADS, "w_format", 9999, "without kernels"),
        (Kind.HEADS, "y_head", 1, "output outside the arena"),
        (Kind.HEADS, "y_head", 1 << 40, "output outside the arena"),
        (Kind.HEADS, "x_head", -8, "input outside the arena"),
        (Kind.HEADS, "x_offset", 1 << 40, "outside the arena"),
        (Kind.LATENT_POSITION, "n_rot", 3, "bad rotation"),
        (Kind.LATENT_POSITION, "n_rot", 24, "bad rotation"),
        (Kind.LATENT_POSITION, "rope_table", 0, "bad rotation"),
        (Kind.LATENT_POSITION, "k_cache", 0, "no cache"),
        (Kind.LATENT_POSITION, "k_type", 7, "no cache"),
        (Kind.LATENT_POSITION, "k_offset", -64, "latent rows outside the arena"),
        (Kind.LATENT_POSITION, "cache_group", 5, "cache group"),
        (Kind.LATENT_TILES, "q_stride", 1 << 50, "queries outside the arena"),
        (Kind.LATENT_ROWS, "v_dim", 31, "absorbed queries outside the arena"),
        (Kind.LATENT_ROWS, "x_offset", 32, "absorbed queries outside the arena"),
        (Kind.LATENT_ROWS, "y_offset", 1 << 40, "output outside the arena"),
        (Kind.LATENT_TILES, "width", 1 << 20, "bad heads"),
        (Kind.LATENT_HEADS, "w_rows", 15, "wrong weights"),
        (Kind.LATENT_HEADS, "w_step", 4, "matrices of heads overlap"),
        (Kind.LATENT_HEADS, "n_weights", 1, "wrong weights"),
    ],
)
def test_what_would_go_astray_is_refused(programs: list[Recorded], kind: Kind, field: str, value: int, words: str) -> None:
    ops, arena, further = next(one for one in programs if kind in one[0]["kind"])
    at = int(np.flatnonzero(ops["kind"] == kind)[0])
    changed = ops.copy()
    if changed.dtype[field].shape:
        changed[field][at, 0] = value
    else:
        changed[field][at] = value
    with pytest.raises(ValueError, match=rf"op {at} \(kind {int(kind)}\): .*{words}"):
        CpuProgram(changed, arena, Pool([-1]), **further)
