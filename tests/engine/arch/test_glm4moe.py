"""The glm4moe family: what it reads, what it leaves out, and the sentence for what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from engine.arch.registry import build_spec
from engine.arch.spec import DenseFfn, MoeFfn, Routing
from engine.errors import GgufError, UnsupportedModel
from tests.helpers.headers import File
from tests.helpers.moe_headers import DENSE, DIM, EXPERT_FF, EXPERTS, ROUTED, E, header, shared

NORM = {"post_attention_norm": (E,)}
HEAD_NORMS = {"attn_q_norm": (DIM,), "attn_k_norm": (DIM,)}
MOE = NORM | ROUTED | shared(EXPERT_FF) | {"exp_probs_b.bias": (EXPERTS,)}
KEYS = {
    "leading_dense_block_count": 1,
    "expert_shared_count": 1,
    "expert_gating_func": 2,
    "expert_weights_norm": True,
    "expert_weights_scale": 2.5,
    "rope__dimension_count": 4,
}


def glm(**changes: Any) -> File:
    return header("glm4moe", [NORM | DENSE, MOE], **{**KEYS, **changes})


def test_a_dense_block_then_experts() -> None:
    first, second = build_spec(glm()).blocks
    assert isinstance(first.ffn, DenseFfn) and isinstance(second.ffn, MoeFfn) and second.ffn.shared is not None
    assert second.ffn.routing == Routing("sigmoid", "blk.1.exp_probs_b.bias", norm_weights=True, scale=2.5)
    assert (second.ffn.shared.gate, second.ffn.shared.ffn.gate.n_out) == (None, EXPERT_FF)
    assert (first.ffn_norm.weight, first.mixer.rope.n_rot, first.mixer.q_norm) == ("blk.0.post_attention_norm.weight", 4, None)


def test_head_norms_where_the_file_has_them() -> None:
    file = header("glm4moe", [NORM | DENSE | HEAD_NORMS, MOE], **KEYS)
    first, second = build_spec(file).blocks
    assert first.mixer.q_norm is not None and second.mixer.q_norm is None


def test_blocks_for_further_tokens_are_left_out() -> None:
    spec = build_spec(glm(nextn_predict_layers=1, block_count=3, attention__head_count=[4, 4, 8]))
    assert spec.n_layers == 2


def test_numbers_of_each_layer() -> None:
    spec = build_spec(glm(expert_used_count=[0, 3], expert_feed_forward_length=[0, EXPERT_FF], feed_forward_length=[48, 0]))
    ffn = spec.blocks[1].ffn
    assert isinstance(ffn, MoeFfn) and ffn.n_used == 3
    with pytest.raises(GgufError, match="expert_used_count has 1 values, none for layer 1"):
        build_spec(glm(expert_used_count=[2]))


def test_groups() -> None:
    ffn = build_spec(glm(expert_group_count=3, expert_group_used_count=2)).blocks[1].ffn
    assert isinstance(ffn, MoeFfn) and (ffn.routing.n_groups, ffn.routing.n_groups_used) == (3, 2)


def test_experts_whose_gate_and_up_are_one_tensor() -> None:
    fused = {name: shape for name, shape in MOE.items() if name not in ("ffn_gate_exps", "ffn_up_exps")}
    file = header("glm4moe", [NORM | DENSE, fused | {"ffn_gate_up_exps": (E, 2 * EXPERT_FF, EXPERTS)}], **KEYS)
    ffn = build_spec(file).blocks[1].ffn
    assert isinstance(ffn, MoeFfn)
    assert ffn.gate == ffn.up and (ffn.gate.weight, ffn.gate.n_out) == ("blk.1.ffn_gate_up_exps.weight", EXPERT_FF)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rope__dimension_count": 10}, "rotates at most the 8 values of a head"),
        ({"rope__dimension_count": 3}, "glm4moe.rope.dimension_count is 3"),
        ({"nextn_predict_layers": 2}, "glm4moe.block_count leaves no block"),
        ({"expert_group_count": 4}, "glm4moe.expert_group_count 4 does not divide the 6 experts"),
        ({"expert_group_count": 6, "expert_group_used_count": 1}, "1 of 6 groups have fewer experts"),
        ({"expert_shared_count": 2}, "ffn_gate_shexp.weight has shape"),
    ],
)
def test_contradictions_name_the_key(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(GgufError, match=words):
        build_spec(glm(**changes))


def test_another_gating_is_refused() -> None:
    with pytest.raises(UnsupportedModel, match=r"glm4moe.expert_gating_func is 4; this version runs 1 \(softmax\)"):
        build_spec(glm(expert_gating_func=4))
