"""Random tiny models of every family, made and computed by transformers: converted, our logits are theirs."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.arch.registry import build_spec, supported
from engine.convert.convert import FAMILIES, convert
from engine.gguf.reader import read_gguf
from engine.graph.build import build_graph
from engine.runtime.loader import load
from kernels_pyx.executor import AbortFlag
from tests.helpers.checkpoints import N_VOCAB, write_tokenizer
from tests.helpers.golden_models import batch
from tests.helpers.runs import EXACT

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

COMMON = {
    "vocab_size": N_VOCAB,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1024,
    "rms_norm_eps": 1e-5,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "tie_word_embeddings": False,
}
MOE = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
ROUTED = {"n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "first_k_dense_replace": 1}
LATENT = {"kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16, "num_key_value_heads": 4}
DELTA = {
    "head_dim": 32,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 5e5,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 256,
}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 1e4,
    "factor": 4.0,
    "original_max_position_embeddings": 256,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
}
MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "llama": ("LlamaForCausalLM", "LlamaConfig", {"rope_parameters": LLAMA3}),
    "mixtral": (
        "MixtralForCausalLM",
        "MixtralConfig",
        {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": None},
    ),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", {"tie_word_embeddings": True}),
    "qwen2moe": (
        "Qwen2MoeForCausalLM",
        "Qwen2MoeConfig",
        MOE | {"shared_expert_intermediate_size": 48, "norm_topk_prob": False},
    ),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Config", {"head_dim": 32, "rope_parameters": YARN}),
    "qwen3moe": ("Qwen3MoeForCausalLM", "Qwen3MoeConfig", MOE | {"head_dim": 32, "norm_topk_prob": True}),
    "qwen3next": (
        "Qwen3NextForCausalLM",
        "Qwen3NextConfig",
        DELTA | MOE | {"shared_expert_intermediate_size": 48, "norm_topk_prob": True},
    ),
    "qwen35": ("Qwen3_5ForCausalLM", "Qwen3_5TextConfig", DELTA),
    "qwen35moe": ("Qwen3_5MoeForCausalLM", "Qwen3_5MoeTextConfig", DELTA | MOE | {"shared_expert_intermediate_size": 48}),
    "deepseek-v2": (
        "DeepseekV2ForCausalLM",
        "DeepseekV2Config",
        LATENT | ROUTED | {"q_lora_rank": None, "n_shared_experts": 2, "topk_method": "greedy", "norm_topk_prob": False},
    ),
    "deepseek-v3": (
        "DeepseekV3ForCausalLM",
        "DeepseekV3Config",
        LATENT
        | ROUTED
        | {
            "q_lora_rank": 24,
            "n_shared_experts": 1,
            "n_group": 4,
            "topk_group": 2,
            "rope_parameters": YARN | {"mscale": 1.0, "mscale_all_dim": 1.0},
        },
    ),
    "glm4moe": ("Glm4MoeForCausalLM", "Glm4MoeConfig", ROUTED | {"head_dim": 32, "n_shared_experts": 1, "use_qk_norm": True}),
    "gpt-oss": (
        "GptOssForCausalLM",
        "GptOssConfig",
        {
            "head_dim": 32,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "sliding_window": 32,
            "rope_parameters": YARN | {"truncate": True},
        },
    ),
    "gpt-oss-unrounded": (
        "GptOssForCausalLM",
        "GptOssConfig",
        {
            "head_dim": 32,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "sliding_window": 32,
            "rope_parameters": YARN | {"truncate": False},
        },
    ),
    "gemma3": (
        "Gemma3ForCausalLM",
        "Gemma3TextConfig",
        {
            "head_dim": 32,
            "sliding_window": 32,
            "num_hidden_layers": 7,
            "query_pre_attn_scalar": 32,
            "tie_word_embeddings": True,
        },
    ),
    "minimax-m2": (
        "MiniMaxM2ForCausalLM",
        "MiniMaxM2Config",
        {
            "head_dim": 32,
            "intermediate_size": 32,
            "num_local_experts": 8,
            "num_experts_per_tok": 2,
            "rope_parameters": {"rope_type": "default", "rope_theta": 5e6, "partial_rotary_factor": 0.5},
        },
    ),
    "ernie4_5-moe": (
        "Ernie4_5_MoeForCausalLM",
        "Ernie4_5_MoeConfig",
        {
            "moe_intermediate_size": 32,
            "moe_num_experts": 8,
            "moe_k": 2,
            "moe_num_shared_experts": 2,
            "moe_layer_start_index": 1,
            "moe_layer_end_index": 3,
            "tie_word_embeddings": True,
        },
    ),
    "hunyuan-moe": (
        "HunYuanMoEV1ForCausalLM",
        "HunYuanMoEV1Config",
        {
            "head_dim": 32,
            "num_experts": 8,
            "moe_topk": [2, 2, 2, 2],
            "rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "alpha": 100.0, "factor": 1.0},
        },
    ),
    "mistral3": (
        "Ministral3ForCausalLM",
        "Ministral3Config",
        {
            "rope_parameters": YARN
            | {"mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.3, "original_max_position_embeddings": 32}
        },
    ),
    "mistral3-mscale": (
        "Ministral3ForCausalLM",
        "Ministral3Config",
        {"rope_parameters": YARN | {"mscale": 0.7, "mscale_all_dim": 1.3, "llama_4_scaling_beta": 0.1}},
    ),
}


def transformers() -> Any:
    """The library; skips the test where it or torch is absent."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    pytest.importorskip("torch", reason="torch is not installed")
    found = pytest.importorskip("transformers", reason="transformers is not installed")
    # It warns of kernels that are not installed and computes the same without them.
    found.logging.set_verbosity_error()
    found.logging.disable_progress_bar()
    return found


def random_weights(model: Any, around_zero: Callable[[str], bool]) -> None:
    """Weights of a size that keeps logits apart, the same in f16; norms near one, or near zero where they are stored so."""
    import torch

    generator = torch.Generator().manual_seed(3)
    biases = [(name, buffer) for name, buffer in model.named_buffers() if "bias" in name]
    with torch.no_grad():
        for name, values in [*model.named_parameters(), *biases]:
            noise = torch.randn(values.shape, generator=generator)
            if values.ndim > 1:
                values.copy_(noise * 1.5 * values.shape[-1] ** -0.5)
            elif "norm" in name:
                values.copy_(noise * 0.3 + (0.0 if around_zero(name) else 1.0))
            else:
                values.copy_(noise * 0.3)
            values.copy_(values.half().float())


def make(name: str, folder: Path) -> tuple[list[int], np.ndarray]:
    """Saves the model; gives 60 token ids and their logits."""
    library = transformers()
    import torch

    model_class, config_class, changes = MODELS[name]
    torch.manual_seed(0)
    model = getattr(library, model_class)(getattr(library, config_class)(**(COMMON | changes))).float().eval()
    zero_centred = name in ("gemma3", "qwen3next", "qwen35", "qwen35moe")
    random_weights(model, lambda parameter: zero_centred and "linear_attn.norm" not in parameter)
    model.save_pretrained(folder)
    write_tokenizer(folder)
    ids = torch.randint(2, N_VOCAB, (1, 60), generator=torch.Generator().manual_seed(4))
    with torch.no_grad():
        return [int(i) for i in ids[0]], model(ids).logits[0].numpy()


@pytest.mark.parametrize("name", MODELS)
def test_logits_of_a_converted_model_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    architecture = FAMILIES[MODELS[name][0]][0]
    if architecture not in supported():
        pytest.skip(f"the architecture {architecture} is not run")
    ids, expected = make(name, tmp_path / "hf")
    convert(tmp_path / "hf", tmp_path / "m.gguf", "f16", lambda *_: None)
    file = read_gguf(tmp_path / "m.gguf")
    spec = build_spec(file)
    model = load(file, spec, build_graph(spec), EXACT, lambda *_: None, AbortFlag())
    try:
        logits = model.step(batch(ids))
    finally:
        model.close()
    assert expected.std() > 1
    np.testing.assert_allclose(logits, expected, atol=2e-3, rtol=0)
