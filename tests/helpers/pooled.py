"""Placements with pools of experts: some copies on the GPU of the router, the whole set on the CPU."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

from engine.arch.registry import build_spec
from engine.arch.spec import ModelSpec, MoeFfn
from engine.arch.units import UnitId
from engine.gguf.reader import read_gguf
from engine.placement.file import from_json, to_json
from engine.placement.options import LoadOptions
from engine.placement.placement import Gpu, Numa, Placement, Pool
from engine.runtime.loader import LoadedModel
from tests.helpers.placed import EXACT, Where, hybrid, placed
from tests.helpers.runs import Change, open_model, same


def with_pools(placement: Placement, spec: ModelSpec, seed: int, most: int | None = None) -> Placement:
    """The placement with random pools in every layer that can have one; most: slots of each at most."""
    rng = random.Random(seed)
    places, pools = dict(placement.units), []
    for block in spec.blocks:
        gpu, home = places[UnitId("ffn", block.index)], places.get(UnitId("experts", block.index))
        if isinstance(block.ffn, MoeFfn) and isinstance(gpu, Gpu) and isinstance(home, Numa):
            n = block.ffn.n_experts
            pools.append(Pool(block.index, gpu, tuple(rng.sample(range(n), min(rng.randint(1, n), most or n)))))
    return replace(placement, pools=tuple(pools))


def pooled(
    path: Path, seed: int, where: Where = hybrid, options: LoadOptions = EXACT, change: Change = same, most: int | None = None
) -> LoadOptions:
    """Options that place the model so, with random pools."""
    from engine.hardware.gpus import find_gpus

    spec = change(build_spec(read_gguf(path)))
    usual = placed(path, where, options, change)
    placement = from_json(usual.placement, spec, find_gpus().usable, options, "it")
    return replace(options, placement=to_json(with_pools(placement, spec, seed, most), spec))


def open_pooled(
    path: Path, seed: int, where: Where = hybrid, options: LoadOptions = EXACT, change: Change = same, most: int | None = None
) -> LoadedModel:
    """The model, placed so."""
    return open_model(path, pooled(path, seed, where, options, change, most), change)
