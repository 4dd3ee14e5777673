"""The llama family: what it reads, what it assumes, and the sentence for each file that it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from engine.arch.registry import build_spec
from engine.arch.spec import MoeFfn
from engine.errors import GgufError, UnsupportedModel
from tests.helpers.headers import File, Tensor


def llama(**changes: Any) -> File:
    """A model of 2 layers, 4 heads over 2 KV heads of 8; `changes` by key (dots as __); None removes a key."""
    metadata: dict[str, Any] = {
        "general.architecture": "llama",
        "llama.block_count": 2,
        "llama.context_length": 128,
        "llama.embedding_length": 32,
        "llama.feed_forward_length": 48,
        "llama.attention.head_count": 4,
        "llama.attention.head_count_kv": 2,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.vocab_size": 10,
    }
    for key, value in changes.items():
        metadata["llama." + key.replace("__", ".")] = value
    tensors = {"token_embd.weight": Tensor((32, 10)), "output_norm.weight": Tensor((32,)), "output.weight": Tensor((32, 10))}
    for i in range(2):
        shapes = {"attn_norm": (32,), "attn_q": (32, 32), "attn_k": (32, 16), "attn_v": (32, 16), "attn_output": (32, 32)}
        shapes |= {"ffn_norm": (32,), "ffn_gate": (32, 48), "ffn_up": (32, 48), "ffn_down": (48, 32)}
        tensors |= {f"blk.{i}.{name}.weight": Tensor(shape) for name, shape in shapes.items()}
    return File({k: v for k, v in metadata.items() if v is not None}, tensors)


def test_a_plain_file() -> None:
    spec = build_spec(llama())
    assert (spec.n_layers, spec.n_embd, spec.n_vocab, spec.context_length) == (2, 32, 10, 128)
    mixer = spec.blocks[1].mixer
    assert (mixer.n_heads, mixer.n_kv_heads, mixer.head_dim, mixer.v_dim) == (4, 2, 8, 8)
    assert mixer.scale == pytest.approx(8**-0.5)
    assert (mixer.rope.kind, mixer.rope.n_rot, mixer.rope.freq_base, mixer.rope.freq_scale) == ("norm", 8, 10000.0, 1.0)
    assert mixer.q.bias is None
    assert spec.head.weight == "output.weight"


def test_a_tied_head_and_optional_tensors() -> None:
    file = llama()
    del file.tensors["output.weight"]
    file.tensors["blk.0.attn_q.bias"] = Tensor((32,))
    file.tensors["rope_freqs.weight"] = Tensor((4,))
    spec = build_spec(file)
    assert spec.head.weight == "token_embd.weight"
    assert spec.blocks[0].mixer.q.bias == "blk.0.attn_q.bias"
    assert spec.blocks[0].mixer.rope.factors == "rope_freqs.weight"


@pytest.mark.parametrize(
    ("changes", "freq_scale"),
    [
        ({"rope__scaling__type": "linear", "rope__scaling__factor": 4.0}, 0.25),
        ({"rope__scaling__factor": 4.0}, 0.25),
        ({"rope__scale_linear": 2.0}, 0.5),
        ({"rope__scaling__type": "none", "rope__scaling__factor": 4.0}, 1.0),
        ({"rope__scaling__factor": 0.0}, 1.0),
    ],
)
def test_linear_scaling(changes: dict[str, Any], freq_scale: float) -> None:
    assert build_spec(llama(**changes)).blocks[0].mixer.rope.freq_scale == freq_scale


def test_an_explicit_attention_scale() -> None:
    assert build_spec(llama(attention__scale=0.5)).blocks[0].mixer.scale == 0.5


def test_one_value_a_layer() -> None:
    spec = build_spec(llama(feed_forward_length=(48, 48)))
    assert [block.ffn.gate.n_out for block in spec.blocks] == [48, 48]


def test_a_mixture_of_experts() -> None:
    file = llama(expert_count=8, expert_used_count=2)
    for i in range(2):
        file.tensors |= {f"blk.{i}.ffn_gate_inp.weight": Tensor((32, 8)), f"blk.{i}.ffn_down_exps.weight": Tensor((48, 32, 8))}
        file.tensors |= {f"blk.{i}.ffn_{part}_exps.weight": Tensor((32, 48, 8)) for part in ("gate", "up")}
    ffn = build_spec(file).blocks[1].ffn
    assert isinstance(ffn, MoeFfn)
    assert (ffn.n_experts, ffn.n_used, ffn.gate.n_out, ffn.routing.norm_weights) == (8, 2, 48, True)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"block_count": None}, "llama.block_count is missing"),
        ({"block_count": 10**9}, "llama.block_count is 1000000000, it must lie between 1 and"),
        ({"block_count": 3}, "tensor blk.2.attn_q.weight is missing|tensor blk.2.attn_norm.weight is missing"),
        ({"attention__head_count": 0}, "llama.attention.head_count is 0"),
        ({"attention__head_count_kv": 3}, "does not divide the 4 heads"),
        ({"attention__head_count": "four"}, "llama.attention.head_count is 'four', a whole number is expected"),
        ({"attention__head_count": True}, "a whole number is expected"),
        ({"attention__head_count": 5, "attention__head_count_kv": 5}, "no multiple"),
        ({"attention__layer_norm_rms_epsilon": "x"}, "a number is expected"),
        ({"attention__layer_norm_rms_epsilon": float("nan")}, "must lie between 0 and 1"),
        ({"embedding_length": 64}, r"tensor blk.0.attn_norm.weight has shape \[32\]"),
        ({"feed_forward_length": (48, 48, 48)}, "has 3 values for 2 layers"),
        ({"rope__dimension_count": 4}, "llama.rope.dimension_count is 4"),
        ({"context_length": 0}, "llama.context_length is 0"),
        ({"vocab_size": 11}, "token_embd.weight"),
        ({"rope__scaling__type": "magic"}, "llama.rope.scaling.type is 'magic'"),
    ],
)
def test_contradictions_name_the_key(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(GgufError, match=words):
        build_spec(llama(**changes))


@pytest.mark.parametrize(("changes", "words"), [({"rope__scaling__type": "longrope"}, "longrope")])
def test_what_is_not_run_is_said(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UnsupportedModel, match=words):
        build_spec(llama(**changes))


def test_an_unknown_architecture_lists_what_is_supported() -> None:
    file = llama()
    file.metadata["general.architecture"] = "lama"
    with pytest.raises(UnsupportedModel, match=r"'lama' is not supported \(did you mean llama\?\); this version runs .*llama, "):
        build_spec(file)


def test_a_file_without_architecture() -> None:
    with pytest.raises(GgufError, match=r"general\.architecture is missing"):
        build_spec(File({}, {}))
