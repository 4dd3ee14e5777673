"""The gemma3 family: five layers with a window, then one that sees the whole context, each with a rotation of its own.

Norms before and after each part, queries and keys normed per head, NeoX RoPE, a GELU network, an embedding that is scaled and
is the head as well.
"""

from __future__ import annotations

import math
from dataclasses import replace

from engine.arch.hparams import Header
from engine.arch.parts import Frame, attention, decoder, dense_ffn, frame, norm, rope
from engine.arch.registry import family
from engine.arch.spec import Attention, BlockSpec, ModelSpec, Rope
from engine.arch.windows import layer_windows

PERIOD = 6
LAYERS_OF_27B = 62
"""The one size whose scores are scaled by the width of a head's share of the model, which no key says."""


@family("gemma3")
def build(header: Header) -> ModelSpec:
    """The ModelSpec of a gemma3 file.

    Raises:
        UnsupportedModel: a RoPE scaling that is not run. GgufError: missing or contradicting metadata and tensors.
    """
    common = frame(header)
    widths = header.per_layer("feed_forward_length", common.n_layers)
    windows = layer_windows(header, common.n_layers, PERIOD)
    blocks = tuple(_block(header, common, index, *one) for index, one in enumerate(zip(widths, windows, strict=True)))
    return replace(
        decoder(header, common, blocks),
        embed_scale=math.sqrt(common.n_embd),
        softcap=header.number("final_logit_softcapping", 0.0, low=0.0, high=1e6),
    )


def _block(header: Header, common: Frame, index: int, n_ff: int, window: int | None) -> BlockSpec:
    at = f"blk.{index}"
    return BlockSpec(
        index=index,
        norm=norm(header, f"{at}.attn_norm", common.n_embd, common.eps),
        mixer=_mixer(header, common, index, window),
        ffn_norm=norm(header, f"{at}.ffn_norm", common.n_embd, common.eps),
        ffn=replace(dense_ffn(header, common.n_embd, index, n_ff), act="gelu_tanh"),
        post_norm=norm(header, f"{at}.post_attention_norm", common.n_embd, common.eps),
        ffn_post_norm=norm(header, f"{at}.post_ffw_norm", common.n_embd, common.eps),
    )


def _mixer(header: Header, common: Frame, index: int, window: int | None) -> Attention:
    whole = attention(header, common, index, "neox", qk_norm=True)
    share = common.n_embd / common.n_heads[index] if common.n_layers == LAYERS_OF_27B else whole.head_dim
    return replace(
        whole,
        scale=header.number("attention.scale", 0.0, low=0.0, high=1e4) or share**-0.5,
        rope=rope(header, "neox", whole.head_dim) if window is None else _near_rope(header, whole.head_dim),
        window=window,
        softcap=header.number("attn_logit_softcapping", 0.0, low=0.0, high=1e6),
    )


def _near_rope(header: Header, head_dim: int) -> Rope:
    """Layers with a window turn by a base of their own, and are never stretched."""
    return Rope("neox", head_dim, header.number("rope.freq_base_swa", 10000.0, low=1e-3, high=1e12))
