"""The bytes of the cache are those of the formulas: of every key in layers that see all, of a window and a chunk in others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.arch.cache_groups import groups_of, windows
from engine.arch.registry import build_spec
from engine.arch.spec import ModelSpec
from engine.estimate.cache import BLOCK, KEPT_WINDOWS, plan_groups, window_blocks
from engine.runtime.cache_groups import ring_tables
from engine.runtime.kv_cache import KvCache, token_bytes
from tests.engine.arch.test_gpt_oss import gpt_oss

VALUE_BYTES = {"f32": 4.0, "f16": 2.0, "q8_0": 34 / 32}
shapes = st.fixed_dictionaries(
    {
        "n_layers": st.integers(1, 7),
        "n_kv_heads": st.integers(1, 3),
        "head_dim": st.sampled_from([32, 64, 96]),
        "width": st.integers(1, 300),
        "period": st.integers(1, 7),
        "n_ctx": st.integers(1, 3000),
        "chunk": st.integers(1, 20).map(lambda n: 32 * n),
    }
)


def spec_of(shape: dict[str, int]) -> ModelSpec:
    """A gpt-oss model of that shape whose every `period`-th layer sees all keys."""
    spec = build_spec(gpt_oss())
    mixer = replace(spec.blocks[0].mixer, n_kv_heads=shape["n_kv_heads"], head_dim=shape["head_dim"], v_dim=shape["head_dim"])
    blocks = (
        replace(spec.blocks[0], index=i, mixer=replace(mixer, window=None if (i + 1) % shape["period"] == 0 else shape["width"]))
        for i in range(shape["n_layers"])
    )
    return replace(spec, blocks=tuple(blocks))


@given(shapes, st.sampled_from(sorted(VALUE_BYTES)), st.sampled_from(sorted(VALUE_BYTES)))
@settings(max_examples=150, deadline=None)
def test_bytes_are_those_of_the_formula(shape: dict[str, int], k_type: Any, v_type: Any) -> None:
    spec = spec_of(shape)
    n_full = shape["n_layers"] // shape["period"]
    per_layer = shape["n_kv_heads"] * shape["head_dim"] * (VALUE_BYTES[k_type] + VALUE_BYTES[v_type])
    expected = {None: n_full * per_layer, shape["width"]: (shape["n_layers"] - n_full) * per_layer}
    per_token = dict(zip(windows(spec), token_bytes(spec, k_type, v_type), strict=True))
    assert per_token == {window: nbytes for window, nbytes in expected.items() if nbytes}

    cache = KvCache(spec, shape["n_ctx"], k_type, v_type, shape["chunk"])
    for group in cache.groups:
        n_tokens = shape["n_ctx"] if group.window is None else min(shape["n_ctx"], shape["width"] + shape["chunk"])
        assert group.n_needed == -(-n_tokens // BLOCK)  # whole blocks
        assert group.n_needed * group.block_bytes == group.n_needed * BLOCK * expected[group.window]
    assert cache.nbytes == sum(group.n_blocks * group.block_bytes for group in cache.groups)
    assert {layer: place.group for layer, place in cache.layers.items()} == groups_of(spec)
    cache.close()


@given(shapes, st.integers(1, 600))
@example({"n_layers": 1, "n_kv_heads": 1, "head_dim": 32, "width": 2, "period": 2, "n_ctx": 673, "chunk": 32}, 512)
@settings(max_examples=150, deadline=None)
def test_pools_are_bounded_by_windows_and_hold_what_any_step_reads(shape: dict[str, int], chunk: int) -> None:
    spec = spec_of(shape)
    for group in plan_groups(spec, shape["n_ctx"], chunk, (1,) * len(windows(spec))):
        all_blocks = -(-shape["n_ctx"] // BLOCK)
        assert group.n_decoding <= group.n_needed <= group.n_blocks <= all_blocks
        if group.window is None:
            continue
        assert group.n_blocks - group.n_needed <= KEPT_WINDOWS * window_blocks(group.window)
        for start in range(0, min(shape["n_ctx"], 4 * chunk + 70), 1 if chunk < BLOCK else 7):
            end = min(start + chunk, shape["n_ctx"])
            if chunk % BLOCK == 0 and (end < shape["n_ctx"] or start % BLOCK + end - start > chunk):
                end = (start + chunk) // BLOCK * BLOCK  # as `BlockManager.cut` does
            if start < end:
                touched = (end - 1) // BLOCK - max(0, start - group.window) // BLOCK + 1
                assert touched <= group.n_needed
            assert start // BLOCK - max(0, start - group.window) // BLOCK + 1 <= max(group.n_decoding, 1)


def test_a_ring_goes_through_its_pool_again_and_again() -> None:
    groups = plan_groups(spec_of({"n_layers": 2, "n_kv_heads": 1, "head_dim": 32, "width": 64, "period": 2}), 3000, 32, (1, 1))
    tables = ring_tables(groups, 3000)
    assert tables.shape == (2, 94) and tables.dtype == np.int32
    assert tables[0].tolist() == list(range(94))
    n = groups[1].n_blocks
    assert n == 3 + 8 * 3
    assert tables[1].tolist() == [i % n for i in range(94)]
