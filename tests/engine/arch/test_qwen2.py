"""The qwen2 family, dense and with experts: what it reads and what it assumes."""

from __future__ import annotations

from typing import Any

import pytest

from engine.arch.registry import build_spec
from engine.arch.spec import DenseFfn, MoeFfn, Routing
from engine.errors import GgufError
from tests.helpers.headers import File
from tests.helpers.moe_headers import DENSE, DIM, HEADS, ROUTED, E, header, shared

BIASES = {"attn_q.bias": (HEADS * DIM,), "ffn_norm": (E,)}


def moe(gate: tuple[int, ...] = (E,), **changes: Any) -> File:
    block = BIASES | ROUTED | shared(40) | {"ffn_gate_inp_shexp": gate}
    return header("qwen2moe", [block, block], **{"expert_shared_feed_forward_length": 40, **changes})


def test_a_dense_file() -> None:
    spec = build_spec(header("qwen2", [BIASES | DENSE] * 2))
    mixer = spec.blocks[1].mixer
    assert (mixer.q.bias, mixer.k.bias, mixer.rope.kind) == ("blk.1.attn_q.bias", None, "neox")
    assert isinstance(spec.blocks[0].ffn, DenseFfn) and mixer.q_norm is None


@pytest.mark.parametrize("gate", [(E,), (E, 1)])
def test_a_file_with_experts(gate: tuple[int, ...]) -> None:
    ffn = build_spec(moe(gate)).blocks[1].ffn
    assert isinstance(ffn, MoeFfn) and ffn.shared is not None and ffn.shared.gate is not None
    assert ffn.routing == Routing("softmax", norm_weights=False)
    assert (ffn.gate.n_out, ffn.shared.ffn.gate.n_out, ffn.shared.gate.n_out) == (24, 40, 1)
    assert ffn.shared.gate.weight == "blk.1.ffn_gate_inp_shexp.weight"


def test_widths_come_from_the_tensors_where_no_key_gives_them() -> None:
    ffn = build_spec(moe(expert_feed_forward_length=None, expert_shared_feed_forward_length=None)).blocks[0].ffn
    assert isinstance(ffn, MoeFfn) and ffn.shared is not None
    assert (ffn.gate.n_out, ffn.shared.ffn.down.n_in) == (24, 40)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"expert_shared_feed_forward_length": 41}, "ffn_gate_shexp.weight has shape"),
        ({"expert_used_count": 7}, "qwen2moe.expert_used_count is 7"),
        ({"expert_weights_norm": 1}, "qwen2moe.expert_weights_norm is 1, true or false is expected"),
    ],
)
def test_contradictions_name_the_key(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(GgufError, match=words):
        build_spec(moe(**changes))


def test_a_gate_of_another_shape() -> None:
    with pytest.raises(GgufError, match=r"ffn_gate_inp_shexp.weight has shape \[32, 2\]"):
        build_spec(moe((E, 2)))
