"""The qwen3 family, dense and with a mixture of experts in every block: queries and keys are normed per head before they turn.

Heads of key_length values whatever the width of the model, NeoX RoPE, SwiGLU, a head that may be the embedding.
"""

from __future__ import annotations

from engine.arch.experts import moe_ffn
from engine.arch.hparams import Header
from engine.arch.parts import Frame, attention, decoder, dense_ffn, frame, norm
from engine.arch.registry import family
from engine.arch.spec import BlockSpec, DenseFfn, ModelSpec, MoeFfn


@family("qwen3")
def build_dense(header: Header) -> ModelSpec:
    """The ModelSpec of a dense qwen3 file.

    Raises:
        UnsupportedModel: a RoPE scaling that is not run. GgufError: missing or contradicting metadata and tensors.
    """
    common = frame(header)
    widths = header.per_layer("feed_forward_length", common.n_layers)
    ffns = (dense_ffn(header, common.n_embd, index, n_ff) for index, n_ff in enumerate(widths))
    return decoder(header, common, tuple(_block(header, common, index, ffn) for index, ffn in enumerate(ffns)))


@family("qwen3moe")
def build_moe(header: Header) -> ModelSpec:
    """The ModelSpec of a qwen3moe file; the weights of the chosen experts always add up to one. Raises like `build_dense`."""
    common = frame(header)
    widths = header.per_layer("expert_feed_forward_length", common.n_layers)
    ffns = (moe_ffn(header, common.n_embd, index, n_ff) for index, n_ff in enumerate(widths))
    return decoder(header, common, tuple(_block(header, common, index, ffn) for index, ffn in enumerate(ffns)))


def _block(header: Header, common: Frame, index: int, ffn: DenseFfn | MoeFfn) -> BlockSpec:
    at = f"blk.{index}"
    return BlockSpec(
        index=index,
        norm=norm(header, f"{at}.attn_norm", common.n_embd, common.eps),
        mixer=attention(header, common, index, "neox", qk_norm=True),
        ffn_norm=norm(header, f"{at}.ffn_norm", common.n_embd, common.eps),
        ffn=ffn,
    )
