"""Converting whole folders: the file holds what the checkpoint held, in the formats that were asked for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.arch.registry import build_spec
from engine.cli.main import main
from engine.convert.build import Model
from engine.convert.config import Config
from engine.convert.convert import FAMILIES, convert
from engine.convert.families import gemma, gpt_oss
from engine.convert.families.llama import interleaved
from engine.convert.recipe import OUT_TYPES, type_of
from engine.convert.safetensors import Checkpoint
from engine.errors import ConversionError
from engine.gguf.info import GgufFile
from engine.gguf.reader import read_gguf
from engine.quants.reference import dequantise
from tests.helpers.checkpoints import write_llama, write_safetensors


def quiet(*_: object) -> None:
    pass


def values(file: GgufFile, name: str) -> np.ndarray:
    info = file.tensors[name]
    raw = np.fromfile(file.path, "u1", info.nbytes, offset=info.offset)
    return dequantise(info.type_name, raw).reshape(info.shape[::-1])


@pytest.mark.parametrize("parts", [1, 3])
def test_llama_is_renamed_and_reordered(tmp_path: Path, parts: int) -> None:
    tensors = write_llama(tmp_path / "hf", parts=parts, dtype="f2")
    told: list[tuple[int, int]] = []
    done = convert(tmp_path / "hf", tmp_path / "m.gguf", "f16", lambda _, n, total: told.append((n, total)))
    file = read_gguf(tmp_path / "m.gguf")
    build_spec(file)
    assert (file.architecture, file.name, done.n_tensors, done.notes) == ("llama", "hf", 21, ())
    assert done.nbytes == file.file_bytes and told[-1][0] == told[-1][1]
    np.testing.assert_array_equal(values(file, "token_embd.weight"), tensors["model.embed_tokens.weight"].astype("f4"))
    np.testing.assert_array_equal(
        values(file, "blk.1.ffn_down.weight"), tensors["model.layers.1.mlp.down_proj.weight"].astype("f4")
    )
    query = tensors["model.layers.0.self_attn.q_proj.weight"].astype("f4")
    np.testing.assert_array_equal(values(file, "blk.0.attn_q.weight"), interleaved(query, 4))
    assert file.tensors["blk.0.attn_norm.weight"].type_name == "F32"
    assert not (tmp_path / "m.gguf.part").exists()


def test_neighbours_turn_instead_of_halves() -> None:
    rows = np.arange(16, dtype="f4").reshape(16, 1)
    assert interleaved(rows, 2).reshape(-1).tolist() == [0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15]


@pytest.mark.parametrize(
    ("out_type", "expected"),
    [("f16", {"F16", "F32"}), ("bf16", {"BF16", "F32"}), ("q8_0", {"Q8_0", "F32"}), ("q4_k_m", {"Q4_K", "Q6_K", "F32"})],
)
def test_formats_are_those_asked_for(tmp_path: Path, out_type: Any, expected: set[str]) -> None:
    tensors = write_llama(tmp_path / "hf", hidden_size=256, intermediate_size=512)
    convert(tmp_path / "hf", tmp_path / "m.gguf", out_type, quiet)
    file = read_gguf(tmp_path / "m.gguf")
    assert {info.type_name for info in file.tensors.values()} == expected
    source = tensors["model.layers.0.mlp.up_proj.weight"]
    off = values(file, "blk.0.ffn_up.weight") - source
    assert np.sqrt((off**2).mean() / (source**2).mean()) < {"f16": 3e-4, "bf16": 2e-3, "q8_0": 6e-3, "q4_k_m": 0.075}[out_type]


def test_rows_that_are_no_whole_blocks_take_the_next_finer_format() -> None:
    for shape, expected in (((8, 512), "Q4_K"), ((8, 96), "Q8_0"), ((8, 100), "F16")):
        assert type_of("blk.3.ffn_up.weight", shape, "q4_k_m", 32, tied=False) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("blk.3.attn_q.weight", "Q6_K"),
        ("blk.3.ssm_out.weight", "Q6_K"),
        ("blk.3.ssm_alpha.weight", "Q8_0"),
        ("blk.3.ffn_up_exps.weight", "Q4_K"),
        ("blk.0.ffn_down_exps.weight", "Q6_K"),
        ("blk.4.ffn_down_exps.weight", "Q4_K"),
        ("output.weight", "Q6_K"),
        ("token_embd.weight", "Q4_K"),
        ("blk.3.ffn_gate_inp.weight", "F32"),
        ("blk.3.ssm_conv1d.weight", "F32"),
        ("blk.3.ffn_gate_exps.bias", "F32"),
    ],
)
def test_mixture_keeps_attention_and_the_ends_finer(name: str, expected: str) -> None:
    assert type_of(name, (4, 512), "q4_k_m", 32, tied=False) == expected
    assert type_of("token_embd.weight", (4, 512), "q4_k_m", 32, tied=True) == "Q6_K"
    assert type_of("blk.3.attn_q.bias", (512,), "f16", 32, tied=False) == "F32"


def test_tied_output_is_not_written_twice(tmp_path: Path) -> None:
    write_llama(tmp_path / "hf", tie_word_embeddings=True)
    convert(tmp_path / "hf", tmp_path / "m.gguf", "f16", quiet)
    file = read_gguf(tmp_path / "m.gguf")
    assert "output.weight" not in file.tensors
    build_spec(file)


def test_what_text_does_not_pass_is_left_out_and_said(tmp_path: Path) -> None:
    write_llama(tmp_path / "hf", sliding_window=64)
    (tmp_path / "hf/model.safetensors").rename(tmp_path / "hf/a.safetensors")
    extra = {"model.visual.patch.weight": np.zeros((2, 2), "f4"), "model.layers.2.embed_tokens.weight": np.zeros((2, 2), "f4")}
    write_safetensors(
        tmp_path / "hf/extra.safetensors", extra | {"model.layers.0.self_attn.rotary_emb.inv_freq": np.zeros(2, "f4")}
    )
    notes = convert(tmp_path / "hf", tmp_path / "m.gguf", "f16", quiet).notes
    assert set(notes) == {
        "the sliding window of attention is left out: files of this architecture have none",
        "1 vision tensors are left out",
        "1 tensors of layers that predict several tokens are left out",
    }


def test_unknown_tensors_are_refused(tmp_path: Path) -> None:
    write_llama(tmp_path / "hf")
    (tmp_path / "hf/model.safetensors").rename(tmp_path / "hf/a.safetensors")
    write_safetensors(tmp_path / "hf/extra.safetensors", {"model.layers.0.strange.weight": np.zeros((2, 2), "f4")})
    with pytest.raises(ConversionError, match=r"1 tensors are not known to the family llama \(model.layers.0.strange.weight\)"):
        convert(tmp_path / "hf", tmp_path / "m.gguf", "f16", quiet)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"architectures": ["BertModel"]}, "models of class BertModel are not converted; converted are LlamaForCausalLM"),
        ({"architectures": None}, "`architectures` is missing"),
        ({"hidden_size": "64"}, "hidden_size is 64; a whole number is expected"),
        ({"rope_scaling": {"type": "longrope"}}, "RoPE of type longrope is not converted"),
        ({"num_hidden_layers": 3}, "is missing"),
    ],
)
def test_what_cannot_be_converted_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any], sentence: str
) -> None:
    write_llama(tmp_path / "hf")
    config = json.loads((tmp_path / "hf/config.json").read_text()) | changes
    (tmp_path / "hf/config.json").write_text(json.dumps(config))
    if sentence == "is missing":
        # A checkpoint that lacks a layer is found when the file is checked.
        assert main(["convert", str(tmp_path / "hf"), str(tmp_path / "m.gguf")]) == 1
        assert "tensor blk.2.attn_norm.weight is missing" in capsys.readouterr().err
        assert not list(tmp_path.glob("m.gguf*"))
        return
    with pytest.raises(ConversionError, match=sentence.replace("(", r"\(")):
        convert(tmp_path / "hf", tmp_path / "m.gguf", "f16", quiet)
    assert not list(tmp_path.glob("m.gguf*"))


def test_a_file_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    write_llama(tmp_path / "hf")
    with pytest.raises(ConversionError, match="the file cannot be written"):
        convert(tmp_path / "hf", tmp_path / "no/such/folder/m.gguf", "f16", quiet)


@pytest.mark.parametrize("out_type", OUT_TYPES)
def test_command_tells_how_far_it_is_and_what_it_wrote(tmp_path: Path, capsys: pytest.CaptureFixture[str], out_type: str) -> None:
    write_llama(tmp_path / "hf")
    command = ["convert", str(tmp_path / "hf"), str(tmp_path / "m.gguf"), "--outtype", out_type, "--json"]
    assert main(command) == 0
    shown = capsys.readouterr()
    result = json.loads(shown.out)
    assert (result["architecture"], result["tensors"]) == ("llama", 21)
    assert result["file_bytes"] == (tmp_path / "m.gguf").stat().st_size
    assert "% " in shown.err and "token_embd.weight" in shown.err


def test_all_families_are_named() -> None:
    assert {architecture for architecture, _ in FAMILIES.values()} == {
        *("llama", "qwen2", "qwen2moe", "qwen3", "qwen3moe", "qwen3next", "qwen35", "qwen35moe"),
        *("deepseek2", "glm4moe", "gpt-oss", "gemma3", "minimax-m2", "mistral3", "ernie4_5-moe", "hunyuan-moe"),
    }


@pytest.mark.parametrize("parts", [1, 2])
def test_the_same_model_in_another_form_is_passed_over(tmp_path: Path, parts: int) -> None:
    write_llama(tmp_path / "hf", parts=parts)
    write_safetensors(tmp_path / "hf/consolidated.safetensors", {"layers.0.attention.wk.weight": np.zeros((2, 2), "f4")})
    assert convert(tmp_path / "hf", tmp_path / "m.gguf", "f16", quiet).n_tensors == 21


def test_experts_in_mxfp4_keep_their_values(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    n_experts, n_ff, hidden = 2, 64, 32
    table = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
    at = "model.layers.0.mlp.experts."
    blocks = {
        f"{at}gate_up_proj_blocks": rng.integers(0, 256, (n_experts, 2 * n_ff, hidden // 32, 16), "u1"),
        f"{at}down_proj_blocks": rng.integers(0, 256, (n_experts, hidden, n_ff // 32, 16), "u1"),
    }
    scales = {
        name.replace("blocks", "scales"): rng.integers(120, 132, values.shape[:-1], "u1") for name, values in blocks.items()
    }
    biases = {
        f"{at}gate_up_proj_bias": np.zeros((n_experts, 2 * n_ff), "f4"),
        f"{at}down_proj_bias": np.zeros((n_experts, hidden), "f4"),
    }
    write_safetensors(
        tmp_path / "model.safetensors", {"model.embed_tokens.weight": np.zeros((8, hidden), "f4")} | blocks | scales | biases
    )
    config = Config({"hidden_size": hidden, "intermediate_size": n_ff, "num_local_experts": n_experts}, "m", "GptOssForCausalLM")
    model = Model("gpt-oss", config, Checkpoint(tmp_path))
    gpt_oss._experts(model, 0)
    made = {one.name: one for one in model.tensors}

    def expected(part: str) -> np.ndarray:
        packed, scale = blocks[f"{at}{part}_blocks"], scales[f"{at}{part}_scales"]
        values = table[np.stack([packed & 15, packed >> 4], -1)].reshape(*packed.shape[:-1], 32)
        return (values * 2.0 ** (scale.astype(int) - 127)[..., None]).reshape(*packed.shape[:2], -1)

    for name, wanted in (
        ("gate", expected("gate_up_proj")[:, ::2]),
        ("up", expected("gate_up_proj")[:, 1::2]),
        ("down", expected("down_proj")),
    ):
        tensor = made[f"blk.0.ffn_{name}_exps.weight"]
        raw = np.concatenate([part.reshape(-1) for part in tensor.parts()])
        assert tensor.type_name == "MXFP4" and tensor.shape == wanted.shape
        np.testing.assert_array_equal(dequantise("MXFP4", raw).reshape(wanted.shape), wanted)


def test_gemma_knows_what_its_configuration_leaves_out() -> None:
    config = Config({"num_attention_heads": 4, "head_dim": None}, "m", "Gemma3ForCausalLM").with_defaults(gemma._DEFAULTS)
    assert (config.n_heads, config.head_dim, config.number("rms_norm_eps")) == (4, 256, 1e-6)
