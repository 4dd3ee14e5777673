"""The shapes of published models: the keys that their files have, as their makers' configurations give them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Published:
    """A model. billions: of weights, as its maker counts them; kv: bytes of 16-bit cache a token takes in layers that see all.

    traits: what tells tensors of one family from those of another (see `published_headers`).
    """

    architecture: str
    pre: str
    n_vocab: int
    billions: float
    kv: int
    keys: dict[str, Any]
    traits: frozenset[str] = field(default_factory=frozenset)


def _keys(layers: int, embd: int, heads: int, kv_heads: int, dim: int, ff: int, ctx: int, **more: Any) -> dict[str, Any]:
    own = {
        "block_count": layers,
        "embedding_length": embd,
        "attention.head_count": heads,
        "attention.head_count_kv": kv_heads,
        "attention.key_length": dim,
        "attention.value_length": dim,
        "feed_forward_length": ff,
        "context_length": ctx,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "rope.freq_base": 1e6,
    }
    return own | {name.replace("__", "."): value for name, value in more.items()}


def _moe(n: int, used: int, ff: int, **more: Any) -> dict[str, Any]:
    return {"expert_count": n, "expert_used_count": used, "expert_feed_forward_length": ff, **more}


def _latent(heads_dim: int, v_dim: int, q_rank: int | None, **more: Any) -> dict[str, Any]:
    rank = {} if q_rank is None else {"attention__q_lora_rank": q_rank}
    return rank | {
        "attention__kv_lora_rank": 512,
        "attention__key_length_mla": heads_dim,
        "attention__value_length_mla": v_dim,
        "attention__value_length": 512,
        "rope__dimension_count": 64,
        **more,
    }


def _yarn(factor: float, original: int, **more: Any) -> dict[str, Any]:
    given = {"rope__scaling__type": "yarn", "rope__scaling__factor": factor, "rope__scaling__original_context_length": original}
    return given | {f"rope__scaling__{name}": value for name, value in more.items()}


_SIGMOID = {"expert_gating_func": 2, "expert_weights_norm": True}
_DELTA = {"full_attention_interval": 4, "ssm__conv_kernel": 4, "ssm__state_size": 128, "ssm__group_count": 16}
_GEMMA = frozenset({"qk_norm", "post_norms", "tied"})
_LLAMA3_70B = _keys(80, 8192, 64, 8, 128, 28_672, 131_072, rope__freq_base=5e5, rope__dimension_count=128)


def _delta(n_v: int, ff: int) -> dict[str, Any]:
    sizes = {"ssm__time_step_rank": n_v, "ssm__inner_size": n_v * 128, "expert_shared_feed_forward_length": ff}
    return _DELTA | sizes | {"rope__dimension_count": 64, "rope__freq_base": 1e7}


def _gemma(layers: int, embd: int, heads: int, kv_heads: int, dim: int, ff: int, window: int) -> dict[str, Any]:
    scaled = {} if window == 512 else {"rope__scaling__type": "linear", "rope__scaling__factor": 8.0}
    return _keys(layers, embd, heads, kv_heads, dim, ff, 131_072, attention__sliding_window=window, **scaled)


MODELS: dict[str, Published] = {
    "llama-3.3-70b": Published("llama", "llama-bpe", 128_256, 70.55, 80 * 8 * 2 * 128 * 2, _LLAMA3_70B),
    "mistral-small-3.2-24b": Published(
        "llama", "tekken", 131_072, 23.57, 40 * 8 * 2 * 128 * 2, _keys(40, 5120, 32, 8, 128, 32_768, 131_072, rope__freq_base=1e9)
    ),
    "ministral-3-14b": Published(
        "mistral3",
        "tekken",
        131_072,
        13.51,
        40 * 8 * 2 * 128 * 2,
        _keys(
            *(40, 5120, 32, 8, 128, 16_384, 262_144),
            **_yarn(16.0, 16_384, yarn_beta_fast=32.0, yarn_beta_slow=1.0, yarn_log_multiplier=1.0),
            attention__temperature_scale=0.1,
            rope__freq_base=1e9,
        ),
    ),
    "qwen2.5-72b": Published(
        "qwen2", "qwen2", 152_064, 72.71, 80 * 8 * 2 * 128 * 2, _keys(80, 8192, 64, 8, 128, 29_568, 32_768), frozenset({"bias"})
    ),
    "qwen2-57b-a14b": Published(
        "qwen2moe",
        "qwen2",
        151_936,
        57.41,
        28 * 4 * 2 * 128 * 2,
        _keys(28, 3584, 28, 4, 128, 18_944, 32_768, **_moe(64, 8, 2560, expert_shared_feed_forward_length=20_480)),
        frozenset({"bias", "shared_gate"}),
    ),
    "qwen3-coder-480b": Published(
        "qwen3moe",
        "qwen2",
        151_936,
        480.15,
        62 * 8 * 2 * 128 * 2,
        _keys(62, 6144, 96, 8, 128, 8192, 262_144, **_moe(160, 8, 2560), rope__freq_base=1e7),
        frozenset({"qk_norm"}),
    ),
    "qwen3-next-80b": Published(
        "qwen3next",
        "qwen2",
        151_936,
        79.67,
        12 * 2 * 2 * 256 * 2,
        _keys(48, 2048, 16, 2, 256, 5120, 262_144, **_moe(512, 10, 512), **_delta(32, 512)),
        frozenset({"delta", "paired", "gated", "qk_norm", "post_attention_norm", "shared_gate"}),
    ),
    "qwen3.5-35b-a3b": Published(
        "qwen35moe",
        "qwen35",
        248_320,
        34.66,
        10 * 2 * 2 * 256 * 2,
        _keys(40, 2048, 16, 2, 256, 0, 262_144, **_moe(256, 8, 512), **_delta(32, 512)),
        frozenset({"delta", "gated", "qk_norm", "post_attention_norm", "shared_gate"}),
    ),
    "qwen3.5-397b-a17b": Published(
        "qwen35moe",
        "qwen35",
        248_320,
        396.35,
        15 * 2 * 2 * 256 * 2,
        _keys(60, 4096, 32, 2, 256, 0, 262_144, **_moe(512, 10, 1024), **_delta(64, 1024)),
        frozenset({"delta", "gated", "qk_norm", "post_attention_norm", "shared_gate"}),
    ),
    "deepseek-v2-lite": Published(
        "deepseek2",
        "deepseek-llm",
        102_400,
        15.71,
        27 * 576 * 2,
        _keys(
            *(27, 2048, 16, 1, 576, 10_944, 163_840),
            **_moe(64, 6, 1408, expert_shared_count=2, leading_dense_block_count=1, expert_weights_scale=1.0),
            **_latent(192, 128, None, rope__freq_base=1e4),
            **_yarn(40.0, 4096, yarn_log_multiplier=0.0707),
        ),
        frozenset({"latent"}),
    ),
    "kimi-k2": Published(
        "deepseek2",
        "kimi-k2",
        163_840,
        1026.4,
        61 * 576 * 2,
        _keys(
            *(61, 7168, 64, 1, 576, 18_432, 131_072),
            **_moe(384, 8, 2048, expert_shared_count=1, leading_dense_block_count=1, expert_weights_scale=2.827, **_SIGMOID),
            **_latent(192, 128, 1536, rope__freq_base=5e4),
            **_yarn(32.0, 4096, yarn_log_multiplier=0.1),
        ),
        frozenset({"latent", "selection_bias"}),
    ),
    "glm-4.7-flash": Published(
        "deepseek2",
        "glm4",
        154_880,
        29.94,
        47 * 576 * 2,
        _keys(
            *(47, 2048, 20, 1, 576, 10_240, 202_752),
            **_moe(64, 4, 1536, expert_shared_count=1, leading_dense_block_count=1, expert_weights_scale=1.8, **_SIGMOID),
            **_latent(256, 256, 768),
        ),
        frozenset({"latent", "selection_bias"}),
    ),
    "glm-4.5-air": Published(
        "glm4moe",
        "glm4",
        151_552,
        110.47,
        46 * 8 * 2 * 128 * 2,
        _keys(
            *(47, 4096, 96, 8, 128, 10_944, 131_072),
            **_moe(128, 8, 1408, expert_shared_count=1, leading_dense_block_count=1, expert_weights_scale=1.0, **_SIGMOID),
            nextn_predict_layers=1,
            rope__dimension_count=64,
        ),
        frozenset({"bias", "post_attention_norm", "selection_bias", "nextn_words"}),
    ),
    "glm-4.6": Published(
        "glm4moe",
        "glm4",
        151_552,
        356.79,
        92 * 8 * 2 * 128 * 2,
        _keys(
            *(93, 5120, 96, 8, 128, 12_288, 202_752),
            **_moe(160, 8, 1536, expert_shared_count=1, leading_dense_block_count=3, expert_weights_scale=2.5, **_SIGMOID),
            nextn_predict_layers=1,
            rope__dimension_count=64,
        ),
        frozenset({"bias", "qk_norm", "post_attention_norm", "selection_bias"}),
    ),
    "gpt-oss-20b": Published(
        "gpt-oss",
        "gpt-4o",
        201_088,
        20.91,
        12 * 8 * 2 * 64 * 2,
        _keys(24, 2880, 64, 8, 64, 2880, 131_072, **_moe(32, 4, 2880), **_yarn(32.0, 4096), attention__sliding_window=128),
        frozenset({"bias", "sinks", "all_biases", "post_attention_norm"}),
    ),
    "gpt-oss-120b": Published(
        "gpt-oss",
        "gpt-4o",
        201_088,
        116.83,
        18 * 8 * 2 * 64 * 2,
        _keys(36, 2880, 64, 8, 64, 2880, 131_072, **_moe(128, 4, 2880), **_yarn(32.0, 4096), attention__sliding_window=128),
        frozenset({"bias", "sinks", "all_biases", "post_attention_norm"}),
    ),
    "gemma-3-1b": Published("gemma3", "", 262_144, 1.0, 4 * 1 * 2 * 256 * 2, _gemma(26, 1152, 4, 1, 256, 6912, 512), _GEMMA),
    "gemma-3-4b": Published("gemma3", "", 262_208, 3.88, 5 * 4 * 2 * 256 * 2, _gemma(34, 2560, 8, 4, 256, 10_240, 1024), _GEMMA),
    "gemma-3-12b": Published(
        "gemma3", "", 262_208, 11.77, 8 * 8 * 2 * 256 * 2, _gemma(48, 3840, 16, 8, 256, 15_360, 1024), _GEMMA
    ),
    "gemma-3-27b": Published(
        "gemma3", "", 262_208, 27.01, 10 * 16 * 2 * 128 * 2, _gemma(62, 5376, 32, 16, 128, 21_504, 1024), _GEMMA
    ),
    "minimax-m2": Published(
        "minimax-m2",
        "minimax-m2",
        200_064,
        228.7,
        62 * 8 * 2 * 128 * 2,
        _keys(62, 3072, 48, 8, 128, 1536, 196_608, **_moe(256, 8, 1536, **_SIGMOID), rope__dimension_count=64),
        frozenset({"whole_norm", "selection_bias"}),
    ),
    "ernie-4.5-21b-a3b": Published(
        "ernie4_5-moe",
        "",
        103_424,
        21.83,
        28 * 4 * 2 * 128 * 2,
        _keys(
            *(28, 2560, 20, 4, 128, 12_288, 131_072),
            **_moe(64, 6, 1536, expert_shared_count=2, expert_shared_feed_forward_length=1536, leading_dense_block_count=1),
            interleave_moe_layer_step=1,
            rope__freq_base=5e5,
        ),
        frozenset({"tied", "selection_bias"}),
    ),
    "hunyuan-a13b": Published(
        "hunyuan-moe",
        "hunyuan",
        128_167,
        80.39,
        32 * 8 * 2 * 128 * 2,
        _keys(
            *(32, 4096, 32, 8, 128, 3072, 262_144),
            **_moe(64, 8, 3072, expert_shared_count=1, expert_shared_feed_forward_length=3072),
            rope__freq_base=11_158_840.0,
            rope__scaling__type="none",
        ),
        frozenset({"tied", "qk_norm"}),
    ),
}
