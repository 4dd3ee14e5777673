"""What config.json decides about the families that have few rows of their own in the oracle test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.convert.config import Config
from engine.convert.convert import convert, describe
from engine.convert.families import hunyuan
from engine.errors import ConversionError
from engine.gguf.reader import read_gguf
from tests.helpers.checkpoints import write_llama, write_safetensors


def with_pictures(folder: Path, **text: Any) -> Path:
    """A llama checkpoint saved by the class of Mistral's models that see."""
    tensors = write_llama(folder, architectures=["Mistral3ForConditionalGeneration"], text_config=text)
    seen = {f"language_model.{name}": values for name, values in tensors.items()}
    seen["vision_tower.patch_conv.weight"] = seen["multi_modal_projector.linear_1.weight"] = np.zeros((4, 4), np.float32)
    write_safetensors(folder / "model.safetensors", seen)
    return folder


def test_older_mistral_models_that_see_are_llama_files(tmp_path: Path) -> None:
    folder = with_pictures(tmp_path / "hf", model_type="mistral")
    converted = convert(folder, tmp_path / "m.gguf", "f16", lambda *_: None)
    assert converted.notes == ("2 vision tensors are left out",)
    assert read_gguf(tmp_path / "m.gguf").metadata["general.architecture"] == "llama"


def test_ministral_3_keeps_its_temperature_and_magnitude(tmp_path: Path) -> None:
    rotation = {
        "rope_type": "yarn",
        "factor": 16.0,
        "original_max_position_embeddings": 128,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
    }
    folder = with_pictures(tmp_path / "hf", model_type="ministral3", rope_parameters=rotation | {"llama_4_scaling_beta": 0.1})
    model = describe(folder)
    assert model.architecture == "mistral3"
    assert model.metadata["mistral3.attention.temperature_scale"] == 0.1
    assert model.metadata["mistral3.rope.scaling.yarn_log_multiplier"] == 1.0
    assert "mistral3.rope.scaling.attn_factor" not in model.metadata


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("Ernie4_5_MoeForCausalLM", {"moe_layer_end_index": 0, "moe_num_experts": 4, "moe_k": 2}, "moe_layer_end_index is 0"),
        ("HunYuanMoEV1ForCausalLM", {"num_experts": [4, 8], "moe_topk": 2}, "layers that differ"),
        ("HunYuanMoEV1ForCausalLM", {"use_qk_norm": False}, "use_qk_norm is False"),
        ("MiniMaxM2ForCausalLM", {"scoring_func": "softmax"}, "scoring_func is softmax"),
        ("MiniMaxM2ForCausalLM", {"shared_intermediate_size": 64}, "shared_intermediate_size is 64"),
    ],
)
def test_what_files_cannot_say_is_refused(tmp_path: Path, name: str, changes: dict[str, Any], words: str) -> None:
    write_llama(tmp_path, architectures=[name], moe_intermediate_size=32, **changes)
    with pytest.raises(ConversionError, match=words):
        describe(tmp_path)


def test_numbers_that_are_written_for_each_layer() -> None:
    config = Config({"one": 3, "each": [8, 8]}, "m", "HunYuanMoEV1ForCausalLM")
    assert [hunyuan.of_all_layers(config, name, 1) for name in ("one", "each", "none")] == [3, 8, 1]


def test_the_layers_that_look_ahead_in_ernie_are_left_out(tmp_path: Path) -> None:
    tensors = write_llama(tmp_path)
    tensors["model.mtp_block.0.mlp.down_proj.weight"] = tensors["model.mtp_emb_norm.0.weight"] = np.zeros((4, 4), np.float32)
    write_safetensors(tmp_path / "model.safetensors", tensors)
    assert describe(tmp_path).notes == ["2 tensors that predict several tokens are left out"]
