"""What a model's bytes are spent on, and what its tensors give reason to say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.gguf.advice import warnings_of
from engine.gguf.groups import format_totals, group_totals, grouped, layer_counts
from engine.gguf.info import GgufFile
from engine.gguf.reader import read_gguf
from engine.gguf.types import TENSOR_TYPES, TYPE_IDS, few_bits
from tests.helpers.gguf_builder import CHATML_TEMPLATE, build_gguf
from tests.helpers.models import GOLDEN, need_goldens


def file_of(path: Path, tensors: dict[str, str], architecture: str = "someday", **extra: Any) -> GgufFile:
    """A file with one row of 256 weights for each name, of the given type. extra: keys (dots as __); None: without it."""
    metadata = {
        "general.architecture": architecture,
        f"{architecture}.block_count": 3,
        f"{architecture}.rope.freq_base": 1e6,
        "tokenizer.chat_template": CHATML_TEMPLATE,
    }
    metadata |= {f"{architecture}.{key.replace('__', '.')}": value for key, value in extra.items()}
    rows = []
    for name, kind in tensors.items():
        row = TENSOR_TYPES[TYPE_IDS[kind]]
        rows.append((name, (256, 1), row.id, bytes(256 // row.block * row.block_bytes)))
    path.write_bytes(build_gguf({key: value for key, value in metadata.items() if value is not None}, rows))
    return read_gguf(path)


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("token_embd.weight", "embeddings"),
        ("output.weight", "output"),
        ("output_norm.weight", "output"),
        ("blk.0.attn_q.weight", "attention"),
        ("blk.0.attn_kv_a_mqa.weight", "attention"),
        ("blk.0.attn_sinks.weight", "attention"),
        ("blk.1.ssm_out.weight", "DeltaNet"),
        ("blk.1.attn_qkv.weight", "DeltaNet"),
        ("blk.0.ffn_down.weight", "feed-forward"),
        ("blk.0.ffn_gate_inp.weight", "routers"),
        ("blk.0.exp_probs_b.bias", "routers"),
        ("blk.0.ffn_gate_inp_shexp.weight", "shared experts"),
        ("blk.0.ffn_up_shexp.weight", "shared experts"),
        ("blk.0.ffn_gate_up_exps.weight", "experts"),
        ("blk.0.ffn_down_exps.bias", "experts"),
        ("blk.0.ffn_down.7.weight", "experts"),
        ("blk.2.attn_q.weight", "extra layers"),
        ("blk.2.nextn.eh_proj.weight", "extra layers"),
        ("v.blk.0.attn_q.weight", "vision"),
        ("mm.0.weight", "vision"),
        ("strange.weight", "other"),
    ],
)
def test_every_tensor_has_its_group(tmp_path: Path, name: str, group: str) -> None:
    file = file_of(tmp_path / "m.gguf", {name: "F16", "blk.1.ssm_a": "F32"}, nextn_predict_layers=1)
    assert dict((info.name, found) for info, found in grouped(file))[name] == group
    assert layer_counts(file) == (2, 1)


def test_totals_add_up_to_the_file(tmp_path: Path) -> None:
    kinds = {"token_embd.weight": "Q8_0", "blk.0.attn_q.weight": "IQ2_XS", "blk.0.attn_k.weight": "Q4_K", "output.weight": "I32"}
    file = file_of(tmp_path / "m.gguf", kinds)
    groups, formats = group_totals(file), format_totals(file)
    assert [one.name for one in groups] == ["embeddings", "attention", "output"]
    assert groups[1].types == (("Q4_K", 144), ("IQ2_XS", 74)) and groups[1].n_params == 512
    whole = sum(info.nbytes for info in file.tensors.values())
    assert sum(one.nbytes for one in groups) == sum(one.nbytes for one in formats) == whole
    assert {one.name: one.path for one in formats} == {"I32": "none", "Q8_0": "fast", "Q4_K": "fast", "IQ2_XS": "exact"}
    assert {one.name: one.bits_per_weight for one in formats}["IQ2_XS"] == 74 * 8 / 256


def test_types_of_few_bits() -> None:
    four = {"Q4_0", "Q4_1", "Q4_K", "IQ4_NL", "IQ4_XS", "MXFP4", "NVFP4"}
    assert {name for name in TYPE_IDS if few_bits(name) == 4} == four
    assert {name for name in TYPE_IDS if few_bits(name) > 8} == {"F32", "F16", "BF16", "F64", "I8", "I16", "I32", "I64"}


def test_coarse_attention_and_deltanet_are_pointed_out(tmp_path: Path) -> None:
    kinds = {"blk.0.attn_q.weight": "Q4_K", "blk.0.attn_k.weight": "Q3_K", "blk.0.attn_norm.weight": "F32"}
    kinds |= {"blk.1.ssm_out.weight": "Q2_K", "blk.1.attn_qkv.weight": "IQ2_XXS", "blk.1.ffn_up_exps.weight": "Q2_K"}
    first, *others = warnings_of(file_of(tmp_path / "m.gguf", kinds))
    assert first == "exact but slow formats, multiplied as f32: IQ2_XXS"
    assert [one.partition(", where")[0] for one in others] == [
        "attention weights have 4 bits or less in 1 layers (Q3_K, Q4_K)",
        "DeltaNet weights have 4 bits or less in 1 layers (IQ2_XXS, Q2_K)",
    ]


def test_fine_attention_and_coarse_experts_are_no_reason_to_warn(tmp_path: Path) -> None:
    kinds = {"blk.0.attn_q.weight": "Q6_K", "blk.0.attn_v.weight": "Q8_0", "blk.0.ffn_up_exps.weight": "Q2_K"}
    assert warnings_of(file_of(tmp_path / "m.gguf", kinds)) == ()


def test_a_base_of_rope_is_not_guessed_in_silence(tmp_path: Path) -> None:
    kinds = {"blk.0.attn_q.weight": "Q6_K"}
    (told,) = warnings_of(file_of(tmp_path / "m.gguf", kinds, rope__freq_base=None))
    assert told.startswith("the file does not say someday.rope.freq_base: 10,000 is used")


def test_what_is_not_used_is_said(tmp_path: Path) -> None:
    kinds = {"blk.2.nextn.eh_proj.weight": "F16", "v.patch_embd.weight": "F16"}
    assert warnings_of(file_of(tmp_path / "m.gguf", kinds, nextn_predict_layers=1)) == (
        "1 block at the end of the file, for guessing several tokens at once (MTP), will not be used; answers are the same",
        "tensors for pictures or sound are not used: this version reads text only",
    )


@pytest.mark.parametrize("path", sorted((GOLDEN / "models").glob("*.gguf")), ids=lambda path: path.name)
def test_golden_models_have_no_strange_tensors(path: Path) -> None:
    assert "other" not in {group for _, group in grouped(read_gguf(path))}


def test_models_of_all_families_have_no_strange_tensors() -> None:
    for path in need_goldens("models").glob("*.gguf"):
        assert "other" not in {group for _, group in grouped(read_gguf(path))}, path.name
