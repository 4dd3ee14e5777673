"""Descriptions of deepseek2 files: both layouts of kv_b, the rules of YaRN, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import pytest

from engine.arch.registry import build_spec
from engine.arch.spec import Mla, ModelSpec, MoeFfn
from engine.errors import GgufError, UnsupportedModel
from engine.gguf.reader import read_gguf
from tests.helpers.golden_models import golden
from tests.helpers.latent_models import Shape, latent_header


def mla(spec: ModelSpec) -> Mla:
    mixer = spec.blocks[0].mixer
    assert isinstance(mixer, Mla)
    return mixer


def test_both_layouts_describe_the_same_heads() -> None:
    split, legacy = mla(build_spec(latent_header())), mla(build_spec(latent_header(split=False)))
    for found in (split, legacy):
        assert (found.n_heads, found.rank, found.head_dim, found.latent, found.v.n_out) == (4, 32, 24, 40, 16)
        assert found.scale == 24**-0.5
    assert [one.weight for one in split.derived] == ["blk.0.attn_k_b.weight"] and split.derived == (split.k,)
    assert [one.weight for one in legacy.derived] == ["blk.0.attn_kv_b.weight"] and legacy.derived == (legacy.absorb,)
    assert (legacy.k.step, legacy.k.first, legacy.v.first) == (32, 0, 16)


def test_queries_of_low_rank_pass_a_norm() -> None:
    found = mla(build_spec(latent_header(Shape(q_rank=20))))
    assert found.q_a is not None and found.q_norm is not None
    assert (found.q_a.n_out, found.q.n_in, found.q_norm.weight) == (20, 20, "blk.0.attn_q_a_norm.weight")
    assert mla(build_spec(latent_header())).q_a is None


@pytest.mark.parametrize("multiplier", [0.1, 0.0707, None])
def test_yarn_sharpens_scores_and_old_files_turn_larger_too(multiplier: float | None) -> None:
    yarn = {"rope__scaling__type": "yarn", "rope__scaling__factor": 40.0, "rope__scaling__original_context_length": 128}
    found = mla(build_spec(latent_header(**yarn, rope__scaling__yarn_log_multiplier=multiplier)))
    grown = 0.1 * (1.0 if multiplier is None else multiplier / 0.1) * math.log(40.0) + 1.0
    assert found.scale == pytest.approx(24**-0.5 * grown**2)
    assert found.rope.attn_factor == pytest.approx(grown if multiplier is None else 1.0)


def test_dense_blocks_come_first_and_mixtures_have_a_shared_expert() -> None:
    spec = build_spec(read_gguf(golden("deepseek2-v3").path))
    first, second, _ = (block.ffn for block in spec.blocks)
    assert not isinstance(first, MoeFfn) and isinstance(second, MoeFfn)
    assert second.shared is not None and second.routing.gating == "sigmoid" and second.routing.n_groups == 4
    lite = build_spec(read_gguf(golden("deepseek2-lite").path)).blocks[1].ffn
    assert isinstance(lite, MoeFfn) and lite.routing.gating == "softmax" and not lite.routing.norm_weights


def test_blocks_for_guessing_further_tokens_are_left_out() -> None:
    assert build_spec(latent_header(Shape(n_nextn=1))).n_layers == 2


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"attention__kv_lora_rank": None}, "kv_lora_rank is missing"),
        ({"attention__kv_lora_rank": 0}, "must lie between 1"),
        ({"rope__dimension_count": 24}, "must be less than the 24 values of a query head"),
        ({"rope__dimension_count": 6}, "attn_k_b.weight has shape"),
        ({"attention__value_length_mla": 15}, "attn_v_b.weight has shape"),
        ({"leading_dense_block_count": 3}, "must lie between 0 and 2"),
    ],
)
def test_what_contradicts_itself_is_said(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(GgufError, match=words):
        build_spec(latent_header(**changes))


def test_sharpening_by_position_is_refused() -> None:
    with pytest.raises(UnsupportedModel, match="temperature_scale"):
        build_spec(latent_header(attention__temperature_scale=0.1))


def test_no_layout_at_all_names_the_tensor() -> None:
    file = latent_header(split=False)
    del file.tensors["blk.1.attn_kv_b.weight"]
    with pytest.raises(GgufError, match=r"blk\.1\.attn_kv_b\.weight is missing"):
        build_spec(file)
