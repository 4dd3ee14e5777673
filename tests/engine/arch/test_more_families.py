"""ERNIE 4.5, Hunyuan, MiniMax M2 and Mistral 3: what sets each apart, as it is read."""

from __future__ import annotations

from typing import Any

import pytest

from engine.arch.registry import build_spec
from engine.arch.spec import DenseFfn, MoeFfn, Routing, Temperature
from engine.errors import GgufError
from tests.helpers.headers import File
from tests.helpers.moe_headers import DENSE, DIM, EXPERTS, HEADS, KV, ROUTED, E, header, shared

NORM = {"ffn_norm": (E,)}
BIAS = {"exp_probs_b.bias": (EXPERTS,)}


def ernie(**changes: Any) -> File:
    blocks = [NORM | DENSE, NORM | ROUTED | BIAS | shared(16), NORM | DENSE, NORM | ROUTED]
    keys = {"block_count": 4, "leading_dense_block_count": 1, "interleave_moe_layer_step": 2}
    return header("ernie4_5-moe", blocks, **(keys | changes))


def test_ernie_has_experts_in_every_other_block_after_the_first() -> None:
    ffns = [block.ffn for block in build_spec(ernie()).blocks]
    assert [type(ffn) for ffn in ffns] == [DenseFfn, MoeFfn, DenseFfn, MoeFfn]
    first, second = ffns[1], ffns[3]
    assert isinstance(first, MoeFfn) and isinstance(second, MoeFfn) and first.shared is not None
    assert first.routing == Routing("softmax", "blk.1.exp_probs_b.bias") and second.routing.bias is None
    assert (first.shared.ffn.gate.n_out, second.shared) == (16, None)


def test_ernie_rotates_pairs_that_lie_side_by_side() -> None:
    assert build_spec(ernie()).blocks[0].mixer.rope.kind == "norm"


def test_hunyuan_norms_heads_after_they_turned() -> None:
    block = NORM | ROUTED | shared(40) | {"attn_q_norm": (DIM,), "attn_k_norm": (DIM,)}
    spec = build_spec(header("hunyuan-moe", [block, block]))
    mixer, ffn = spec.blocks[0].mixer, spec.blocks[0].ffn
    assert mixer.norm_last and mixer.q_norm is not None and mixer.rope.kind == "neox"
    assert isinstance(ffn, MoeFfn) and ffn.shared is not None and ffn.shared.ffn.gate.n_out == 40
    assert ffn.routing == Routing("softmax", norm_weights=True)
    with pytest.raises(GgufError, match="ffn_gate_shexp"):
        build_spec(header("hunyuan-moe", [block, block], expert_shared_feed_forward_length=41))


def test_minimax_norms_all_heads_at_once_and_turns_half_of_each() -> None:
    block = NORM | ROUTED | BIAS | {"attn_q_norm": (HEADS * DIM,), "attn_k_norm": (KV * DIM,)}
    spec = build_spec(header("minimax-m2", [block, block], rope__dimension_count=4, expert_gating_func=2))
    mixer, ffn = spec.blocks[1].mixer, spec.blocks[1].ffn
    assert mixer.whole_norm and (mixer.rope.n_rot, mixer.head_dim) == (4, DIM)
    assert isinstance(ffn, MoeFfn) and ffn.routing == Routing("sigmoid", "blk.1.exp_probs_b.bias")
    narrow = block | {"attn_q_norm": (DIM,)}
    with pytest.raises(GgufError, match="attn_q_norm"):
        build_spec(header("minimax-m2", [narrow, block]))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, None),
        ({"attention__temperature_scale": 0.1}, Temperature(0.1, 128)),
        ({"attention__temperature_scale": 0.1, "rope__scaling__original_context_length": 32}, Temperature(0.1, 32)),
    ],
)
def test_mistral3_is_a_llama_with_a_temperature(changes: dict[str, Any], expected: Temperature | None) -> None:
    file = header("mistral3", [NORM | DENSE] * 2, **({"expert_count": None} | changes))
    spec = build_spec(file)
    assert spec.architecture == "mistral3" and spec.blocks[1].mixer.temperature == expected
    assert spec.blocks[1].mixer.rope.kind == "norm" and isinstance(spec.blocks[1].ffn, DenseFfn)
