"""Which blocks of a hybrid model are recurrent, what its mixers are made of, and what is said of broken files."""

from __future__ import annotations

from typing import Any

import pytest

from engine.arch.registry import build_spec
from engine.arch.spec import Attention, DeltaNet, MoeFfn
from engine.errors import GgufError, UnsupportedModel
from engine.gguf.reader import read_gguf
from tests.helpers.golden_models import golden
from tests.helpers.headers import File, Tensor
from tests.helpers.hybrid import Hybrid, hybrid_metadata, hybrid_tensors


def hybrid(*, shape: Hybrid | None = None, drop: str = "", **changes: Any) -> File:
    """A qwen35 file with `changes` by key (dots as __; None removes a key) and without the tensor `drop`."""
    shape = shape or Hybrid()
    metadata = {key: getattr(value, "value", value) for key, value in hybrid_metadata(shape).items()}
    metadata |= {f"qwen35.{key.replace('__', '.')}": value for key, value in changes.items()}
    tensors = {name: Tensor(tuple(dims)) for name, dims, _, _ in hybrid_tensors(shape) if name != drop}
    return File({key: value for key, value in metadata.items() if value is not None}, tensors)


def kinds(file: File) -> str:
    """One letter a block: d for DeltaNet, a for attention."""
    return "".join("d" if isinstance(block.mixer, DeltaNet) else "a" for block in build_spec(file).blocks)


def test_a_file_says_which_blocks_are_recurrent() -> None:
    assert kinds(hybrid(shape=Hybrid(recurrent=(False, True, True)))) == "add"


def test_without_a_list_every_fourth_block_is_attention() -> None:
    regular = Hybrid(recurrent=(True, True, True, False) * 2)
    assert kinds(hybrid(shape=regular, attention__recurrent_layers=None)) == "ddda" * 2
    every_second = Hybrid(recurrent=(True, False) * 2)
    assert kinds(hybrid(shape=every_second, attention__recurrent_layers=None, full_attention_interval=2)) == "dada"


def test_blocks_without_heads_of_keys_are_recurrent() -> None:
    listed = {"attention__recurrent_layers": None, "full_attention_interval": None}
    assert kinds(hybrid(**listed, attention__head_count_kv=[0, 0, 2])) == "dda"
    with pytest.raises(GgufError, match=r"qwen35.attention.head_count_kv is 0 for layer 2, which has attention"):
        build_spec(hybrid(attention__head_count_kv=[0, 0, 0]))


def test_what_a_recurrent_block_is_made_of() -> None:
    mixer = build_spec(hybrid()).blocks[0].mixer
    assert isinstance(mixer, DeltaNet)
    shape = mixer.shape
    assert (shape.n_k_heads, shape.n_v_heads, shape.dim, shape.n_taps, shape.tiled) == (2, 4, 16, 4, True)
    assert (shape.n_channels, shape.n_inner) == (128, 64)
    assert (mixer.qkv.weight, mixer.conv, mixer.a) == ("blk.0.attn_qkv.weight", "blk.0.ssm_conv1d.weight", "blk.0.ssm_a")
    assert mixer.z is not None
    assert mixer.alpha is not None


def test_attention_turns_a_part_of_each_head_and_is_gated() -> None:
    block = build_spec(hybrid()).blocks[2]
    assert isinstance(block.mixer, Attention)
    assert block.mixer.gated
    assert block.mixer.q.n_out == 2 * 4 * 32
    assert (block.mixer.rope.kind, block.mixer.rope.n_rot) == ("neox", 16)
    assert block.mixer.q_norm is not None
    assert block.ffn_norm.weight == "blk.2.post_attention_norm.weight"


def test_older_projections_are_joined() -> None:
    spec = build_spec(read_gguf(golden("qwen3next-legacy-ssm_in").path))
    mixer = spec.blocks[0].mixer
    assert isinstance(mixer, DeltaNet)
    assert mixer.shape.joined
    assert mixer.shape.paired
    assert not mixer.shape.tiled
    assert (mixer.z, mixer.alpha) == (None, None)
    ffn = spec.blocks[0].ffn
    assert isinstance(ffn, MoeFfn)
    assert ffn.shared is not None
    assert ffn.shared.gate is not None


def test_blocks_that_guess_further_tokens_are_left_out() -> None:
    assert build_spec(read_gguf(golden("qwen35").path)).n_layers == 4


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"attention__recurrent_layers": [True]}, "qwen35.attention.recurrent_layers is no list"),
        ({"attention__recurrent_layers": [2, 0, 1]}, "qwen35.attention.recurrent_layers is no list"),
        ({"ssm__group_count": 3}, r"4 value heads .* of 16 .* over 3 key heads"),
        ({"ssm__inner_size": 80}, "inner_size of 80"),
        ({"ssm__state_size": None}, "qwen35.ssm.state_size is missing"),
        ({"ssm__conv_kernel": 3}, "ssm_conv1d.weight has shape"),
        ({"ssm__conv_kernel": 99}, "qwen35.ssm.conv_kernel is 99"),
        ({"rope__dimension_count": 7}, "qwen35.rope.dimension_count is 7"),
        ({"attention__value_length": 16}, "gates come in heads of 32"),
        ({"drop": "blk.0.ssm_a"}, "blk.0.ssm_a is missing"),
        ({"drop": "blk.1.attn_gate.weight"}, "blk.1.attn_gate.weight is missing"),
        ({"drop": "blk.1.ssm_beta.weight"}, "blk.1.ssm_beta.weight is missing"),
        ({"drop": "blk.2.attn_q_norm.weight"}, "blk.2.attn_q_norm.weight is missing"),
    ],
)
def test_contradictions_name_what_is_wrong(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(GgufError, match=words):
        build_spec(hybrid(**changes))


def test_heads_that_kernels_do_not_take_are_refused() -> None:
    with pytest.raises(UnsupportedModel, match=r"ssm\.state_size is 24"):
        build_spec(hybrid(shape=Hybrid(dim=24)))


def test_a_model_without_any_attention_is_refused() -> None:
    with pytest.raises(UnsupportedModel, match="no block with attention"):
        build_spec(hybrid(shape=Hybrid(recurrent=(True, True))))
