"""Tensors of a GGUF file as the modules of a model that KTransformers' rules are about: their names and the kinds of their
classes.

The names are those of the models in transformers; which tensor belongs to which is in KTransformers' `translate_name_to_gguf`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Kind = Literal[
    "root", "model", "list", "layer", "attention", "delta", "moe", "mlp", "gate", "linear", "norm", "embedding", "rotary", "conv"
]

_LAYER = re.compile(r"blk\.(\d+)\.(.+)")
_ENDING = re.compile(r"\.(weight|bias)$")

_PARTS: dict[str, tuple[str, Kind]] = {
    "attn_norm": ("input_layernorm", "norm"),
    "ffn_norm": ("post_attention_layernorm", "norm"),
    "post_attention_norm": ("post_attention_layernorm", "norm"),
    "post_ffw_norm": ("post_feedforward_layernorm", "norm"),
    "attn_q": ("self_attn.q_proj", "linear"),
    "attn_k": ("self_attn.k_proj", "linear"),
    "attn_v": ("self_attn.v_proj", "linear"),
    "attn_output": ("self_attn.o_proj", "linear"),
    "attn_q_norm": ("self_attn.q_norm", "norm"),
    "attn_k_norm": ("self_attn.k_norm", "norm"),
    "attn_sinks": ("self_attn", "attention"),
    "attn_q_a": ("self_attn.q_a_proj", "linear"),
    "attn_q_a_norm": ("self_attn.q_a_layernorm", "norm"),
    "attn_q_b": ("self_attn.q_b_proj", "linear"),
    "attn_kv_a_mqa": ("self_attn.kv_a_proj_with_mqa", "linear"),
    "attn_kv_a_norm": ("self_attn.kv_a_layernorm", "norm"),
    "attn_kv_b": ("self_attn.kv_b_proj", "linear"),
    "attn_k_b": ("self_attn.kv_b_proj", "linear"),
    "attn_v_b": ("self_attn.kv_b_proj", "linear"),
    "attn_qkv": ("linear_attn.in_proj_qkvz", "linear"),
    "attn_gate": ("linear_attn.in_proj_qkvz", "linear"),
    "ssm_in": ("linear_attn.in_proj_qkvz", "linear"),
    "ssm_ba": ("linear_attn.in_proj_ba", "linear"),
    "ssm_alpha": ("linear_attn.in_proj_a", "linear"),
    "ssm_beta": ("linear_attn.in_proj_b", "linear"),
    "ssm_conv1d": ("linear_attn.conv1d", "conv"),
    "ssm_a": ("linear_attn", "delta"),
    "ssm_dt": ("linear_attn", "delta"),
    "ssm_norm": ("linear_attn.norm", "norm"),
    "ssm_out": ("linear_attn.out_proj", "linear"),
    "ffn_gate": ("mlp.gate_proj", "linear"),
    "ffn_up": ("mlp.up_proj", "linear"),
    "ffn_down": ("mlp.down_proj", "linear"),
    "ffn_gate_inp": ("mlp.gate", "linear"),
    "exp_probs_b": ("mlp.gate", "linear"),
    "ffn_gate_exps": ("mlp.experts.0.gate_proj", "linear"),
    "ffn_up_exps": ("mlp.experts.0.up_proj", "linear"),
    "ffn_gate_up_exps": ("mlp.experts.0.up_proj", "linear"),
    "ffn_down_exps": ("mlp.experts.0.down_proj", "linear"),
    "ffn_gate_shexp": ("mlp.shared.gate_proj", "linear"),
    "ffn_up_shexp": ("mlp.shared.up_proj", "linear"),
    "ffn_down_shexp": ("mlp.shared.down_proj", "linear"),
    "ffn_gate_inp_shexp": ("mlp.shared_expert_gate", "linear"),
}
_WHOLE: dict[str, tuple[str, Kind]] = {
    "token_embd": ("model.embed_tokens", "embedding"),
    "output_norm": ("model.norm", "norm"),
    "output": ("lm_head", "linear"),
    "rope_freqs": ("model.rotary_emb", "rotary"),
}
_GEMMA = {"ffn_norm": "pre_feedforward_layernorm"}
_PIECES = {"attn_qkv": "in_proj_qkv", "attn_gate": "in_proj_z"}
"""Qwen3.5 keeps apart what Qwen3-Next has in one matrix."""


@dataclass(frozen=True, slots=True)
class Names:
    """How the modules of an architecture differ in name. moe: the feed-forward part of layers with experts."""

    families: tuple[str, ...]
    moe: str = "mlp"
    shared: str = "shared_experts"
    gate: Kind = "linear"


NAMES: dict[str, Names] = {
    "deepseek2": Names(("Deepseek", "DeepseekV2", "DeepseekV3"), gate="gate"),
    "glm4moe": Names(("Glm4Moe",), gate="gate"),
    "qwen2": Names(("Qwen2",)),
    "qwen3": Names(("Qwen3",)),
    "qwen2moe": Names(("Qwen2Moe",), shared="shared_expert"),
    "qwen3moe": Names(("Qwen3Moe",)),
    "qwen3next": Names(("Qwen3Next",), shared="shared_expert"),
    "qwen35": Names(("Qwen3_5",)),
    "qwen35moe": Names(("Qwen3_5Moe",), shared="shared_expert"),
    "llama": Names(("Llama", "Mixtral", "Mistral"), moe="block_sparse_moe"),
    "minimax-m2": Names(("MiniMaxM2",), moe="block_sparse_moe"),
    "gpt-oss": Names(("GptOss",), gate="gate"),
    "gemma3": Names(("Gemma3",)),
    "mistral3": Names(("Mistral", "Mistral3", "Ministral3")),
    "hunyuan-moe": Names(("HunYuanMoE", "HunYuanMoEV1"), shared="shared_mlp"),
    "ernie4_5-moe": Names(("Ernie4_5_Moe",)),
}
_ENDS: tuple[tuple[str, Kind], ...] = (
    ("RotaryEmbedding", "rotary"),
    ("RMSNorm", "norm"),
    ("RMSNormGated", "norm"),
    ("LayerNorm", "norm"),
    ("TopkRouter", "gate"),
    ("TopKRouter", "gate"),
    ("MoEGate", "gate"),
    ("SparseMoeBlock", "moe"),
    ("MoeBlock", "moe"),
    ("DenseMlpBlock", "mlp"),
    ("MoE", "moe"),
    ("Moe", "moe"),
    ("MLP", "mlp"),
    ("GatedDeltaNet", "delta"),
    ("FlashAttention2", "attention"),
    ("Attention", "attention"),
    ("DecoderLayer", "layer"),
    ("ForCausalLM", "root"),
    ("Model", "model"),
)
_TORCH: dict[str, Kind] = {"Linear": "linear", "Embedding": "embedding", "ModuleList": "list", "Conv1d": "conv"}


def class_matches(path: str, kind: Kind, architecture: str) -> bool:
    """Whether a module of a kind, in a model of an architecture, is of the class at the import path."""
    package, _, name = path.rpartition(".")
    if package.startswith("torch."):
        return name == "Module" or _TORCH.get(name) == kind
    ending = next((one for one in _ENDS if name.endswith(one[0])), None)
    if ending is None or ending[1] != kind:
        return False
    family = name.removesuffix(ending[0]).removesuffix("Yarn")
    return not family or family in families_of(architecture)


def families_of(architecture: str) -> tuple[str, ...]:
    """What the names of the classes of an architecture's modules begin with."""
    return NAMES[architecture].families if architecture in NAMES else ()


class ModuleMap:
    """The modules of one model. architecture: of the file; names: of its tensors."""

    def __init__(self, architecture: str, names: Iterable[str]) -> None:
        self.architecture = architecture
        self._names = NAMES.get(architecture, Names(()))
        self._moe_layers = {
            int(match[1])
            for name in names
            if (match := _LAYER.match(name)) and match[2].startswith("ffn_") and "_exps" in match[2]
        }

    def module_of(self, tensor: str) -> str:
        """The module that a tensor belongs to; of merged experts, that of the first expert."""
        match = _LAYER.match(tensor)
        if match is None:
            found = _WHOLE.get(_ENDING.sub("", tensor))
            return "model" if found is None else found[0]
        layer, stem = int(match[1]), _ENDING.sub("", match[2])
        part = _PARTS[stem][0] if stem in _PARTS else ""
        if self.architecture == "gemma3" and stem in _GEMMA:
            part = _GEMMA[stem]
        if self.architecture in ("qwen35", "qwen35moe") and stem in _PIECES:
            part = f"linear_attn.{_PIECES[stem]}"
        if self.architecture == "gpt-oss" and part == "mlp.gate":
            part = "mlp.router"
        part = part.replace("mlp.shared.", f"mlp.{self._names.shared}.")
        if layer in self._moe_layers and part.startswith("mlp."):
            part = f"{self._names.moe}{part.removeprefix('mlp')}"
        return f"model.layers.{layer}.{part}" if part else f"model.layers.{layer}"

    def kind_of(self, module: str) -> Kind:
        """The kind of a module's class."""
        match = re.fullmatch(r"model\.layers\.(\d+)\.(.+)", module)
        if match is None:
            return self._kind_outside(module)
        layer, part = int(match[1]), match[2]
        if part in (self._names.moe, "mlp"):
            return "moe" if layer in self._moe_layers else "mlp"
        last = part.rpartition(".")[2]
        if last in ("gate", "router"):
            return self._names.gate
        if last.endswith("norm"):
            return "norm"
        fixed: dict[str, Kind] = {
            "self_attn": "attention",
            "linear_attn": "delta",
            "experts": "list",
            "conv1d": "conv",
            self._names.shared: "mlp",
        }
        return "mlp" if last.isdigit() else fixed.get(last, "linear")

    @staticmethod
    def _kind_outside(module: str) -> Kind:
        above: dict[str, Kind] = {"": "root", "model": "model", "model.layers": "list"}
        return above.get(module, next((kind for name, kind in _WHOLE.values() if name == module), "layer"))
