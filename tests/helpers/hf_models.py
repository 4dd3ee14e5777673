"""Tiny random models of the transformers library as GGUF files, with their logits: an oracle that shares no code with ours.

`python -m tests.helpers.hf_models FOLDER` records the golden files of the architectures below; the tests record them again where
transformers is installed. Matrices are rounded to f16 first, so that the file holds exactly what the logits were computed with.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

from tests.helpers.models import GOLDEN

F32 = npt.NDArray[np.float32]
Named = Iterator[tuple[str, F32]]

N_VOCAB, N_EMBD, N_LAYERS, N_HEADS, N_KV, HEAD, EPS, N_CTX = 512, 64, 2, 4, 2, 32, 1e-6, 4096
N_EXPERTS, N_USED = 8, 2
TOKENS_FROM = "qwen3"
"""The golden model whose tokenizer and prompts are used."""


@dataclass(frozen=True)
class Tiny:
    """One architecture. config: name of the class and its settings; keys: of the file, beside the common ones; ffn: tensors of a
    block's feed-forward part by our names; turns: the rows of queries and keys are permuted for interleaved rotation;
    seed: one whose greedy answers are no close calls."""

    architecture: str
    model: str
    config: str
    settings: dict[str, Any]
    keys: dict[str, Any]
    ffn: Callable[[dict[str, F32], int], Named]
    turns: bool = False
    seed: int = 2


def _dense(weights: dict[str, F32], prefix: str, suffix: str = "") -> Named:
    for name in ("gate", "up", "down"):
        yield f"ffn_{name}{suffix}.weight", weights[f"{prefix}{name}_proj.weight"]


def _experts(weights: dict[str, F32], prefix: str) -> Named:
    both = weights[f"{prefix}experts.gate_up_proj"]
    n_ff = both.shape[1] // 2
    yield "ffn_gate_exps.weight", both[:, :n_ff]
    yield "ffn_up_exps.weight", both[:, n_ff:]
    yield "ffn_down_exps.weight", weights[f"{prefix}experts.down_proj"]


def _ernie(weights: dict[str, F32], index: int) -> Named:
    mlp = f"model.layers.{index}.mlp."
    if index == 0:
        yield from _dense(weights, mlp)
        return
    yield "ffn_gate_inp.weight", weights[f"{mlp}gate.weight"]
    yield "exp_probs_b.bias", weights[f"{mlp}gate.moe_statics.e_score_correction_bias"].reshape(-1)
    yield from _experts(weights, mlp)
    yield from _dense(weights, f"{mlp}shared_experts.", "_shexp")


def _hunyuan(weights: dict[str, F32], index: int) -> Named:
    mlp = f"model.layers.{index}.mlp."
    yield "ffn_gate_inp.weight", weights[f"{mlp}gate.wg.weight"]
    yield from _experts(weights, mlp)
    yield from _dense(weights, f"{mlp}shared_mlp.", "_shexp")
    for ours, theirs in (("attn_q_norm", "query_layernorm"), ("attn_k_norm", "key_layernorm")):
        yield f"{ours}.weight", weights[f"model.layers.{index}.self_attn.{theirs}.weight"]


def _minimax(weights: dict[str, F32], index: int) -> Named:
    mlp = f"model.layers.{index}.mlp."
    yield "ffn_gate_inp.weight", weights[f"{mlp}gate.weight"]
    yield "exp_probs_b.bias", weights[f"{mlp}e_score_correction_bias"]
    yield from _experts(weights, mlp)
    for which in "qk":
        yield f"attn_{which}_norm.weight", weights[f"model.layers.{index}.self_attn.{which}_norm.weight"]


def _mistral(weights: dict[str, F32], index: int) -> Named:
    yield from _dense(weights, f"model.layers.{index}.mlp.")


YARN = {
    "rope_type": "yarn",
    "rope_theta": 1e6,
    "factor": 4.0,
    "original_max_position_embeddings": 128,
    "max_position_embeddings": 512,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "llama_4_scaling_beta": 0.3,
}
EXPERTS = {"expert_count": N_EXPERTS, "expert_used_count": N_USED}
MODELS = (
    Tiny(
        "ernie4_5-moe",
        "Ernie4_5_MoeForCausalLM",
        "Ernie4_5_MoeConfig",
        {
            "intermediate_size": 96,
            "moe_intermediate_size": 32,
            "moe_num_experts": N_EXPERTS,
            "moe_k": N_USED,
            "moe_num_shared_experts": 2,
            "moe_layer_start_index": 1,
            "moe_layer_end_index": 1,
            "rope_parameters": {"rope_type": "default", "rope_theta": 5e5},
        },
        EXPERTS
        | {
            "feed_forward_length": 96,
            "expert_feed_forward_length": 32,
            "expert_shared_count": 2,
            "expert_shared_feed_forward_length": 64,
            "interleave_moe_layer_step": 1,
            "leading_dense_block_count": 1,
            "rope.freq_base": 5e5,
        },
        _ernie,
    ),
    Tiny(
        "hunyuan-moe",
        "HunYuanMoEV1ForCausalLM",
        "HunYuanMoEV1Config",
        {
            "intermediate_size": 48,
            "num_experts": N_EXPERTS,
            "moe_topk": N_USED,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
        },
        EXPERTS
        | {
            "feed_forward_length": 48,
            "expert_feed_forward_length": 48,
            "expert_shared_feed_forward_length": 48,
            "expert_shared_count": 1,
            "rope.freq_base": 1e4,
        },
        _hunyuan,
    ),
    Tiny(
        "minimax-m2",
        "MiniMaxM2ForCausalLM",
        "MiniMaxM2Config",
        {
            "intermediate_size": 32,
            "num_local_experts": N_EXPERTS,
            "num_experts_per_tok": N_USED,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "rope_parameters": {"rope_type": "default", "rope_theta": 5e6, "partial_rotary_factor": 0.5},
        },
        EXPERTS
        | {
            "feed_forward_length": 32,
            "expert_feed_forward_length": 32,
            "expert_gating_func": 2,
            "rope.dimension_count": HEAD // 2,
            "rope.freq_base": 5e6,
        },
        _minimax,
    ),
    Tiny(
        "mistral3",
        "Ministral3ForCausalLM",
        "Ministral3Config",
        {"intermediate_size": 96, "max_position_embeddings": 512, "rope_parameters": YARN},
        {
            "feed_forward_length": 96,
            "rope.freq_base": 1e6,
            "rope.dimension_count": HEAD,
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": 4.0,
            "rope.scaling.original_context_length": 128,
            "rope.scaling.yarn_log_multiplier": 1.0,
            "attention.temperature_scale": 0.3,
        },
        _mistral,
        turns=True,
        seed=3,
    ),
)
NAMES = tuple(tiny.architecture for tiny in MODELS)


def record(tiny: Tiny, folder: Path) -> None:
    """Writes <architecture>.f16.gguf and <architecture>.golden.npz, in the form of the other golden models."""
    logits = oracle(tiny)
    with np.load(GOLDEN / f"models/{TOKENS_FROM}.golden.npz") as from_file:
        found: dict[str, Any] = {name: from_file[name] for name in from_file if name == "texts" or name.endswith("_tokens")}
    for prompt in ("short", "medium", "long"):
        ids = found[f"{prompt}_tokens"].tolist()
        rows = logits(ids)
        if prompt == "long":
            top = np.argsort(-rows, axis=-1, kind="stable")[:, :10]
            found["long_logits_last8"] = rows[-8:]
            found["long_top10_ids"], found["long_top10_logits"] = top.astype(np.int32), np.take_along_axis(rows, top, axis=-1)
        else:
            found[f"{prompt}_logits"] = rows
        answer: list[int] = []
        margins: list[float] = []
        for _ in range(32):
            last = np.sort(rows[-1])[::-1]
            answer.append(int(rows[-1].argmax()))
            margins.append(float(last[0] - last[1]))
            rows = logits(ids + answer)
        found[f"{prompt}_greedy"], found[f"{prompt}_greedy_margin"] = np.array(answer, np.int32), np.array(margins, np.float32)
    np.savez_compressed(folder / f"{tiny.architecture}.golden.npz", **found)
    write(tiny, folder)


def oracle(tiny: Tiny) -> Callable[[list[int]], F32]:
    """What gives the logits [n, N_VOCAB] of n token ids."""
    torch, model = importlib.import_module("torch"), _model(tiny)

    def logits(ids: list[int]) -> F32:
        with torch.no_grad():
            rows: F32 = model(torch.tensor([ids])).logits[0].numpy()
        return rows

    return logits


def _model(tiny: Tiny) -> Any:
    """The model in f32, its weights drawn from the seed."""
    torch, transformers = importlib.import_module("torch"), importlib.import_module("transformers")
    common = {
        "vocab_size": N_VOCAB,
        "hidden_size": N_EMBD,
        "num_hidden_layers": N_LAYERS,
        "num_attention_heads": N_HEADS,
        "num_key_value_heads": N_KV,
        "head_dim": HEAD,
        "rms_norm_eps": EPS,
        "max_position_embeddings": N_CTX,
        "pad_token_id": 0,
        "tie_word_embeddings": False,
    }
    config = getattr(transformers, tiny.config)(**(common | tiny.settings), attn_implementation="eager")
    model = getattr(transformers, tiny.model)(config).float().eval()
    rng = np.random.default_rng(tiny.seed)
    with torch.no_grad():
        for name, value in sorted(model.state_dict().items()):
            value.copy_(torch.from_numpy(_drawn(name, tuple(value.shape), rng)))
    return model


def _drawn(name: str, shape: tuple[int, ...], rng: np.random.Generator) -> F32:
    if "correction_bias" in name:
        return rng.normal(0, 0.1, shape).astype(np.float32)
    if len(shape) == 1:
        return rng.uniform(0.5, 1.5, shape).astype(np.float32)
    scale = 1.0 if "embed" in name else (3.0 if "head" in name else 1.5) * shape[-1] ** -0.5
    return rng.normal(0, scale, shape).astype(np.float16).astype(np.float32)


def write(tiny: Tiny, folder: Path) -> Path:
    """The model as a GGUF file in `folder`."""
    weights = {name: one.float().numpy() for name, one in _model(tiny).state_dict().items()}
    path = folder / f"{tiny.architecture}.f16.gguf"
    writer = gguf.GGUFWriter(path, tiny.architecture)
    keys = {
        "vocab_size": N_VOCAB,
        "block_count": N_LAYERS,
        "context_length": tiny.settings.get("max_position_embeddings", N_CTX),
        "embedding_length": N_EMBD,
        "attention.head_count": N_HEADS,
        "attention.head_count_kv": N_KV,
        "attention.key_length": HEAD,
        "attention.value_length": HEAD,
        "attention.layer_norm_rms_epsilon": EPS,
    }
    for key, value in (keys | tiny.keys).items():
        add = writer.add_string if isinstance(value, str) else writer.add_uint32 if isinstance(value, int) else writer.add_float32
        add(f"{tiny.architecture}.{key}", value)
    for field in gguf.GGUFReader(GOLDEN / f"models/{TOKENS_FROM}.f16.gguf").fields.values():
        if field.name.startswith("tokenizer."):
            inner = field.types[-1] if len(field.types) > 1 else None
            writer.add_key_value(field.name, field.contents(), field.types[0], inner)
    for name, value in _tensors(tiny, weights):
        matrix = value.ndim > 1 and "ffn_gate_inp" not in name
        writer.add_tensor(name, np.ascontiguousarray(value, np.float16 if matrix else np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _tensors(tiny: Tiny, weights: dict[str, F32]) -> Named:
    yield "token_embd.weight", weights["model.embed_tokens.weight"]
    yield "output_norm.weight", weights["model.norm.weight"]
    yield "output.weight", weights["lm_head.weight"]
    for index in range(N_LAYERS):
        at = f"model.layers.{index}."
        parts = {
            "attn_norm": weights[f"{at}input_layernorm.weight"],
            "ffn_norm": weights[f"{at}post_attention_layernorm.weight"],
            "attn_q": _turned(weights[f"{at}self_attn.q_proj.weight"], N_HEADS, tiny.turns),
            "attn_k": _turned(weights[f"{at}self_attn.k_proj.weight"], N_KV, tiny.turns),
            "attn_v": weights[f"{at}self_attn.v_proj.weight"],
            "attn_output": weights[f"{at}self_attn.o_proj.weight"],
        }
        for name, value in parts.items():
            yield f"blk.{index}.{name}.weight", value
        for name, value in tiny.ffn(weights, index):
            yield f"blk.{index}.{name}", value


def _turned(rows: F32, n_heads: int, turns: bool) -> F32:
    """Row j and row j + HEAD/2 of each head side by side: what turns together under interleaved rotation."""
    if not turns:
        return rows
    return rows.reshape(n_heads, 2, HEAD // 2, -1).transpose(0, 2, 1, 3).reshape(rows.shape)


if __name__ == "__main__":
    for one in MODELS:
        record(one, Path(sys.argv[1]))
