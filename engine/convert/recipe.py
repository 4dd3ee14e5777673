"""Which format each tensor is stored in. Small tensors stay f32; where a row is no whole number of blocks, the next finer
format serves. Attention and DeltaNet, whose errors stay in the context, are kept finer than the rest by q4_k_m."""

from __future__ import annotations

import re
from typing import Literal, get_args

from engine.gguf.types import TENSOR_TYPES, TYPE_IDS

OutType = Literal["f16", "bf16", "q8_0", "q4_k_m"]
OUT_TYPES: tuple[OutType, ...] = get_args(OutType)

FILE_TYPES: dict[OutType, int] = {"f16": 1, "bf16": 32, "q8_0": 7, "q4_k_m": 15}
"""`general.file_type`, the number by which tools name the mixture."""

_PLAIN: dict[OutType, str] = {"f16": "F16", "bf16": "BF16", "q8_0": "Q8_0", "q4_k_m": "Q4_K"}
_STAY_F32 = re.compile(r"(norm|ffn_gate_inp|ffn_gate_inp_shexp|ssm_conv1d|rope_freqs|attn_sinks)\.weight$")
_MIXER = re.compile(r"blk\.\d+\.(attn_|ssm_out)")
_FINE = re.compile(r"blk\.\d+\.ssm_(ba|alpha|beta)\.weight|blk\.\d+\.attn_(k_b|v_b)\.weight")
_DOWN = re.compile(r"blk\.(\d+)\.ffn_down")


def type_of(name: str, shape: tuple[int, ...], out_type: OutType, n_layers: int, *, tied: bool) -> str:
    """The format of a tensor. shape: contiguous axis last; tied: the embedding serves as the output, too."""
    if len(shape) < 2 or not name.endswith(".weight") or _STAY_F32.search(name):
        return "F32"
    wanted = _PLAIN[out_type]
    if out_type == "q4_k_m":
        wanted = _mixed(name, n_layers, tied)
    for candidate in (wanted, "Q8_0"):
        if shape[-1] % TENSOR_TYPES[TYPE_IDS[candidate]].block == 0:
            return candidate
    return "F16"


def _mixed(name: str, n_layers: int, tied: bool) -> str:
    if _FINE.fullmatch(name):
        return "Q8_0"
    if _MIXER.match(name) or name == "output.weight" or (tied and name == "token_embd.weight"):
        return "Q6_K"
    down = _DOWN.match(name)
    return "Q6_K" if down is not None and _is_sensitive(int(down[1]), n_layers) else "Q4_K"


def _is_sensitive(layer: int, n_layers: int) -> bool:
    """The first and the last eighth of the layers, and every third between them."""
    eighth = n_layers // 8
    return layer < eighth or layer >= n_layers - eighth or (layer - eighth) % 3 == 2
